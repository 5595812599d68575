"""Lines that would like to be run, in every field that a page shows; and what a browser makes of them."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fallback_audit.event_types import MAX_EXCERPT_CHARS
from fallback_audit.events import (
    AuditEvent,
    GroundingJudged,
    LowConfidenceFlagged,
    PlanRejected,
    ReviewDecided,
)
from fallback_audit.evidence.store import FileEvidenceStore, put_document
from fallback_audit.ports import Record, Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import EscalationReason, GateStatus, RefusalReason, ReviewVerdict
from fallback_tier.advisory import Advisory
from fallback_tier.fix.journal.inputs import FixInputs
from fallback_tier.fleet.campaign_list import CampaignState, FleetFix, Said
from fallback_tier.fleet.store.store import open_store
from fallback_tier.wiring import audit_db, evidence_dir
from tests.browser.driver import Browser
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.fleet.made import fix, planned

#: A small part of the lists, one of each sort: tags, attributes, addresses, templates, entities, breaking
#: out of quotes, comments, styles and scripts.
LINES = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "'\"><svg onload=alert(1)>",
    '" autofocus onfocus=alert(1) x="',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "[a](javascript:alert(1))",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "{% raw %}{{ 7 * 7 }}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;img src=x onerror=alert(1)&#62;",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<form action=https://evil.example/><button>a",
    "<a href=javascript:alert(1) hx-get=/v1/fixes hx-trigger=load>a</a>",
    "<div hx-on:htmx:load=alert(1) hx-get=/portal/ hx-trigger=load>",
    "<template shadowrootmode=open><script>alert(1)</script></template>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "\u202e<script>alert(1)</script>\u2066",
    "\x00<scr\x00ipt>alert(1)</script>",
    "https://evil.example/ www.evil.example",
    "/portal/../../evil",
)

#: Put into every page before any script of its own.
SPY = Path(__file__).parent / "spy.js"

#: Fixes that a campaign's page lists.
PER_CAMPAIGN = 100

#: Lines in one fix: its pages stay as long as a browser lays out quickly.
PER_FIX = 25


def spy(browser: Browser) -> None:
    """From now on every page tells what ran in it, and what its policy forbade."""
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=SPY.read_text())


def found(browser: Browser) -> dict[str, Any]:
    """What the page that is open has in it."""
    return dict(browser.check("found.js"))


def write_hostile(state: Path, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Fixes that carry these lines in every field; each with one piece of evidence of it."""
    state.mkdir(parents=True, exist_ok=True)
    made = []
    evidence = FileEvidenceStore(evidence_dir(state))
    with closing(SqliteAuditStore(audit_db(state))) as store:
        for number, some in enumerate(batched_lines(lines)):
            scope = Scope(
                fix_id=f"fix-hostile-{number}", gate_transition_id=_cut(" ".join(some), 500)
            )
            digest = evidence.put("\n".join(some).encode("utf-8", "replace"))
            events = _events(some, evidence, digest, answered=bool(number % 2))
            store.append_all([Record(scope, event) for event in events])
            made.append((scope.fix_id, digest))
    return made


def batched_lines(lines: Sequence[str]) -> list[tuple[str, ...]]:
    clean = [line.encode("utf-8", "replace").decode() for line in lines]
    return [tuple(clean[at : at + PER_FIX]) for at in range(0, len(clean), PER_FIX)]


def _cut(text: str, size: int = MAX_EXCERPT_CHARS) -> str:
    return text[:size]


def _events(
    lines: tuple[str, ...], evidence: FileEvidenceStore, digest: str, *, answered: bool
) -> list[AuditEvent]:
    whole = " ".join(lines)
    short = _cut(whole, 400)
    inputs = FixInputs(repository=Path("/"), advisory=hostile_advisory(lines))
    events: list[AuditEvent] = [
        t.fix_started().model_copy(
            update={
                "advisory_id": short,
                "advisory_ids": lines,
                "repository": short,
                "ecosystem": short,
                "base_commit": short,
                "tool_version": short,
                "gates": lines,
                "inputs_sha256": put_document(evidence, inputs),
            }
        )
    ]
    for number, line in enumerate(lines, start=1):
        events += _attempt(number, line, evidence, digest)
    events.append(
        t.escalated(len(lines), EscalationReason.RETRY_CAP_REACHED).model_copy(
            update={"question": whole}
        )
    )
    if answered:
        events.append(m.raised(short, short))
        events.append(
            t.not_affected()[-1].model_copy(
                update={"reason": RefusalReason.OWN_CODE, "sentence": whole}
            )
        )
        events.append(_decided(short))
    return events


def hostile_advisory(lines: Sequence[str]) -> Advisory:
    """An OSV record with these lines in every field."""
    addresses = (*lines, *(f"https://evil.example/{quote(line)}" for line in lines))
    events = [{"introduced": "0"}, *({"fixed": line} for line in lines)]
    packages = [
        {
            "package": {"ecosystem": "PyPI", "name": line},
            "ranges": [{"type": "ECOSYSTEM", "events": events}],
        }
        for line in lines
    ]
    return Advisory.model_validate(
        {
            "id": _cut(" ".join(lines), 200),
            "aliases": lines,
            "summary": " ".join(lines),
            "details": "\n".join(lines),
            "affected": packages,
            "severity": [{"type": line, "score": line} for line in lines],
            "references": [{"type": line, "url": url} for line in lines[:2] for url in addresses],
            "database_specific": {"cwe_ids": lines},
        }
    )


def _attempt(number: int, line: str, evidence: FileEvidenceStore, digest: str) -> list[AuditEvent]:
    text = _cut(line)
    patch = evidence.put(_diff(line).encode("utf-8", "replace"))
    judged = t.judged(number, text).model_copy(
        update={
            "status": GateStatus.FAILED,
            "detail": text,
            "broken": (line,),
            "flaky": (line,),
            "evidence_sha256": digest,
        }
    )
    skipped = t.judged(number, f"{text} 2").model_copy(
        update={"status": GateStatus.SKIPPED, "detail": text}
    )
    failed = t.failing_gates(number)[-1].model_copy(
        update={"failing_gates": (line,), "summary_sha256": digest, "summary_excerpt": text}
    )
    return [
        t.started(number, number - 1).model_copy(update={"advisory_id": line}),
        t.skipped(number, number - 1, 1).model_copy(
            update={"summary_excerpt": text, "summary_sha256": digest}
        ),
        t.recipe(selected=False).model_copy(update={"attempt": number, "reason": line}),
        t.retrieved(line).model_copy(update={"attempt": number, "reason": line}),
        t.called(number, examples=(line,)).model_copy(update={"model": line}),
        t.answered(number).model_copy(update={"stop_reason": line}),
        PlanRejected(attempt=number, call=1, problems=(text,)),
        GroundingJudged(
            attempt=number,
            call=1,
            supported=False,
            faithfulness_score=0.5,
            claims=2,
            unsupported=(text,),
            judge_model=line,
            judgement_sha256=digest,
        ),
        LowConfidenceFlagged(attempt=number, reason=text, attempts=1),
        t.proposed(number).model_copy(update={"files": (line,), "patch_sha256": patch}),
        judged,
        skipped,
        failed,
    ]


def _diff(line: str) -> str:
    name = " ".join(line.split())
    head = f"diff --git a/{name} b/{name}\n{line}\n--- a/{name}\n+++ b/{name}\n"
    return f"{head}@@ -1 +1 @@ {name}\n-{name}\n+{name}\n"


def _decided(text: str) -> AuditEvent:
    return ReviewDecided(verdict=ReviewVerdict.REJECTED, by=text, reason=text)


def write_hostile_campaigns(state: Path, lines: Sequence[str]) -> list[str]:
    """Campaigns whose fixes carry a line each, and that somebody of such a name paused; their names."""
    clean = [line.encode("utf-8", "replace").decode() for line in lines]
    names = []
    with open_store(state, None) as store:
        for first in range(0, len(clean), PER_CAMPAIGN):
            some = clean[first : first + PER_CAMPAIGN]
            names.append(name := f"hostile-{first}")
            fixes = [_fix_of(name, first, at, line) for at, line in enumerate(some)]
            store.create(planned(fixes).model_copy(update={"campaign": name, "digest": name}))
            said = Said(by=_cut(some[0], 200), because=_cut(" ".join(some), 2_000))
            store.set_state(
                name, CampaignState.PAUSED, came_from=[CampaignState.RUNNING], said=said
            )
    return names


def _fix_of(name: str, first: int, at: int, line: str) -> FleetFix:
    state = ("failed", "escalated", "queued")[at % 3]
    return fix(
        at, campaign=name, fix_id=f"{name}-{first + at}", state=state, advisory_id=line,
        ecosystem=line, why=line, sentence=line,
    )  # fmt: skip


def pages_of(fix_id: str, digest: str, line: str) -> list[str]:
    """Where its fields are shown."""
    name = quote(line, safe="")
    return [
        f"/portal/fixes/{fix_id}",
        f"/portal/fixes/{fix_id}/triage",
        f"/portal/fixes/{fix_id}/alike",
        f"/portal/fixes/{fix_id}/evidence/{digest}",
        f"/portal/advisory?id={name}",
        f"/portal/example?id={name}",
        f"/portal/fixes?text={name}",
    ]
