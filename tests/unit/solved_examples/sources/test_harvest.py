"""What is harvested, and what never is: each reason by a trail that has it."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fallback_audit.events import AuditEvent, FixStarted, FixVerified, PatchProposed
from fallback_audit.frozen import Frozen
from fallback_audit.ports import StoredEvent
from fallback_plugins.solved_examples.sources.harvest import (
    Harvest,
    HarvestSource,
    HarvestTools,
    NotHarvestedReason,
    harvest,
)
from fallback_plugins.solved_examples.store.influence import influences
from fallback_tier.advisory import parse_advisory
from fallback_tier.errors import RepositoryError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.apply import apply_patch
from fallback_tier.patch.diff import unified_diff
from fallback_tier.patch.policy import recipe_only_reason
from fallback_tier.retrieval import ExampleOrigin, RetrievalAccount
from tests.fakes.audit import MemoryAudit, MemoryEvidence
from tests.fixtures.fallback_tier_callable import ADVISORY, FILES
from tests.unit.audit import again_trails as again
from tests.unit.audit import trails as t

BEFORE = FILES["app.py"]
AFTER = BEFORE.replace("name).read()", "safe(name)).read()")
ABOUT = parse_advisory(ADVISORY, "test")
SOURCE = HarvestSource(advisories={ABOUT.id: ABOUT}, repository="shop", licence="Apache-2.0")
Events = list[AuditEvent]


def base_text(commit: str, path: str) -> str:
    if path not in FILES:
        raise RepositoryError(f"{path!r} is not there.", next_step="Look elsewhere.")
    return FILES[path]


TOOLS = HarvestTools(
    base_text=base_text,
    changes=apply_patch,
    barred=recipe_only_reason,
    finds_secrets=lambda text: "hunter2" in text,
)


class Case:
    """A trail over a real patch, its evidence kept."""

    def __init__(self, events: Events, *changes: FileChange) -> None:
        self.evidence = MemoryEvidence()
        self.evidence.put(b"summary 1")
        changes = changes or (FileChange(path="app.py", before=BEFORE, after=AFTER),)
        self.patch = self.evidence.put(unified_diff(changes).encode())
        self.audit = MemoryAudit()
        last = max(i for i, event in enumerate(events) if isinstance(event, PatchProposed))
        for place, event in enumerate(events):
            self.audit.append(t.SCOPE, self._about(event, is_last=place >= last))

    def _about(self, event: AuditEvent, *, is_last: bool) -> AuditEvent:
        match event:
            case FixStarted():
                update: dict[str, Any] = {"advisory_id": ABOUT.id, "ecosystem": "PyPI"}
            case PatchProposed() if not is_last:
                update = {"patch_sha256": self.evidence.put(b"the first patch")}
            case PatchProposed() | FixVerified():
                update = {"patch_sha256": self.patch}
            case _:
                return event
        return event.model_copy(update=update)

    def harvest(self, source: HarvestSource = SOURCE, tools: HarvestTools = TOOLS) -> Harvest:
        return harvest(self.audit.stored, self.evidence, source, tools)

    def left(self, **given: Any) -> NotHarvestedReason:
        found = self.harvest(**given)
        assert found.examples == ()
        (one,) = found.left
        assert one.fix_id == t.SCOPE.fix_id
        assert one.sentence
        return one.reason


def verified_by_model() -> Events:
    return [t.fix_started(), *t.first_by_model(), *t.passing_gates(1), t.verified(1)]


def test_a_proved_fix_of_a_model_is_an_example() -> None:
    case = Case(verified_by_model())
    (example,) = case.harvest().examples
    assert [(edit.path, edit.new) for edit in example.edits] == [
        ("app.py", "def read_file(name):\n    return open('data/' + safe(name)).read()\n")
    ]
    assert example.file_sha256 == {"app.py": hashlib.sha256(BEFORE.encode()).hexdigest()}
    assert (example.package, example.language) == ("vulnerable", "python")
    assert example.provenance.origin is ExampleOrigin.HARVESTED
    assert example.provenance.source == "fix fix-1"
    assert example.provenance.revision.startswith("c0ffee")
    assert example.example_id == f"harvested-{case.patch[:16]}"


def test_a_fix_verified_on_a_retry_is_one_too() -> None:
    events = [e for e in t.verified_on_retry() if e.kind != "SandboxDisabled"]
    assert len(Case(events).harvest().examples) == 1


class LowConfidenceFlagged(Frozen):
    """An event of a later version: this one does not know what it says."""

    kind: str = "LowConfidenceFlagged"


def flagged(case: Case) -> None:
    place = next(i for i, e in enumerate(case.audit.stored) if e.kind == "PatchProposed")
    link = case.audit.stored[place]
    facts = {**dict(link), "kind": "LowConfidenceFlagged", "payload": LowConfidenceFlagged()}
    case.audit.stored.insert(place, StoredEvent.model_construct(**facts))


def test_a_flagged_fix_is_not() -> None:
    case = Case(verified_by_model())
    flagged(case)
    assert case.left() is NotHarvestedReason.NOT_CLEAN


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (t.cap_reached, NotHarvestedReason.NOT_VERIFIED),
        (lambda: verified_by_model()[:-1], NotHarvestedReason.NOT_VERIFIED),
        (t.foreign_orchestrator, NotHarvestedReason.NOT_VERIFIED),
        (t.verified_on_retry, NotHarvestedReason.NOT_CLEAN),  # its sandbox was waived
        (t.recipe_verified, NotHarvestedReason.NOT_A_MODELS_WORK),
        (t.replayed, NotHarvestedReason.NOT_A_MODELS_WORK),
        (
            lambda: [e for e in verified_by_model() if e.kind != "ModelAnswered"],
            NotHarvestedReason.BROKEN_TRAIL,
        ),
        (
            lambda: [e for e in verified_by_model() if e.kind != "GateJudged"],
            NotHarvestedReason.BROKEN_TRAIL,
        ),
    ],
)
def test_what_is_not_proved_is_not(
    events: Callable[[], Events], reason: NotHarvestedReason
) -> None:
    assert Case(events()).left() is reason


def test_a_refused_fix_is_not() -> None:
    audit = MemoryAudit()
    for event in t.not_affected():
        audit.append(t.SCOPE, event)
    (one,) = harvest(audit.stored, MemoryEvidence(), SOURCE, TOOLS).left
    assert one.reason is NotHarvestedReason.NOT_VERIFIED
    assert "FixRefused" in one.sentence


@pytest.mark.parametrize("altered", [b"another patch", None])
def test_tampered_evidence_is_not(altered: bytes | None) -> None:
    case = Case(verified_by_model())
    del case.evidence.contents[case.patch]
    if altered is not None:
        case.evidence.contents[case.patch] = altered
    assert case.left() is NotHarvestedReason.BROKEN_EVIDENCE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            FileChange(path="requirements.txt", before="a==1\n", after="a==2\n"),
            NotHarvestedReason.NOT_SOURCE,
        ),
        (FileChange(path="new.py", before=None, after="x\n"), NotHarvestedReason.NOT_SOURCE),
        (FileChange(path="app.py", before=BEFORE, after=None), NotHarvestedReason.NOT_SOURCE),
        (
            FileChange(path="app.py", before=BEFORE + "\n# more\n", after=AFTER),
            NotHarvestedReason.OTHER_BASE,
        ),
        (FileChange(path="gone.py", before="x\n", after="y\n"), NotHarvestedReason.OTHER_BASE),
        (
            FileChange(path="app.py", before=BEFORE, after=AFTER + "password = 'hunter2'\n"),
            NotHarvestedReason.SECRETS,
        ),
    ],
)
def test_a_patch_that_is_no_precedent(change: FileChange, reason: NotHarvestedReason) -> None:
    def text(commit: str, path: str) -> str:
        return "a==1\n" if path == "requirements.txt" else base_text(commit, path)

    tools = replace(TOOLS, base_text=text)
    assert Case(verified_by_model(), change).left(tools=tools) is reason


@pytest.mark.parametrize("ecosystem", ["npm", None])
def test_without_its_advisory_a_fix_is_not(ecosystem: str | None) -> None:
    case = Case(verified_by_model())
    if ecosystem is None:
        source = replace(SOURCE, advisories={})
    else:
        source = SOURCE
        start = case.audit.stored[0]
        changed = start.payload.model_copy(update={"ecosystem": ecosystem})
        case.audit.stored[0] = start.model_copy(update={"payload": changed})
    assert case.left(source=source) is NotHarvestedReason.NO_ADVISORY


# --- The way back ---------------------------------------------------------------------------------


def test_every_attempt_that_an_example_had_a_part_in() -> None:
    audit, evidence = MemoryAudit(), MemoryEvidence()
    account = RetrievalAccount(
        mode="lexical", returned=("e1", "e2"), content_sha256={"e1": t.digest("one")}
    )
    digest = evidence.put(account.model_dump_json().encode())
    for number, events in enumerate([t.model_with_examples(), t.replayed(), t.cap_reached()]):
        scope = t.SCOPE.model_copy(update={"fix_id": f"fix-{number}"})
        for event in events:
            if number == 0 and event.kind == "RetrievalQueried":
                event = event.model_copy(update={"account_sha256": digest})
            audit.append(scope, event)
    first, second = influences("e1", audit.stored, evidence)
    assert (first.fix_id, first.retrieved, first.prompted, first.replayed) == (
        "fix-0",
        True,
        True,
        False,
    )
    assert first.content_sha256 == t.digest("one")
    assert (first.fix_outcome, first.delivered) == ("verified", True)
    assert first.patch_sha256 == t.digest("patch 1")
    assert (second.fix_id, second.prompted, second.replayed) == ("fix-1", False, True)
    assert (second.content_sha256, second.problem) == (None, None)
    assert [one.fix_id for one in influences("e2", audit.stored, evidence)] == ["fix-0"]
    assert influences("e9", audit.stored, evidence) == ()


def test_what_only_passed_when_its_gates_were_run_again_is_no_precedent() -> None:
    assert Case(again.gates_passed_again()).left() is NotHarvestedReason.NOT_CLEAN


def test_an_example_behind_a_patch_that_passed_later_is_in_use() -> None:
    audit = MemoryAudit()
    first = [t.fix_started(), *t.first_by_model("e1"), t.judged(1, "applies")]
    first.append(t.escalated(1, t.EscalationReason.GATE_INFRASTRUCTURE))
    second = [*again.up_to_its_patch(1, "transition-1"), *t.passing_gates(1), t.verified(1)]
    for events, name in ((first, "transition-1"), (second, "transition-2")):
        for event in events:
            audit.append(t.SCOPE.model_copy(update={"gate_transition_id": name}), event)
    (one,) = influences("e1", audit.stored, MemoryEvidence())
    assert (one.fix_outcome, one.delivered) == ("escalated: gate_infrastructure", True)


def test_a_failed_attempt_is_listed_with_what_became_of_it() -> None:
    audit = MemoryAudit()
    events = [t.fix_started(), *t.first_by_model("e1"), *t.failing_gates(1)]
    missing = [
        e.model_copy(update={"account_sha256": t.digest("gone")})
        if e.kind == "RetrievalQueried"
        else e
        for e in [*events, *t.retry(2), *t.passing_gates(2), t.verified(2)]
    ]
    for event in missing:
        audit.append(t.SCOPE, event)
    (one,) = influences("e1", audit.stored, MemoryEvidence())
    assert (one.attempt, one.attempt_outcome) == (1, f"failed: {t.FailureKind.TESTS_FAILED}")
    assert (one.fix_outcome, one.delivered) == ("verified", False)
    assert one.problem is not None
