"""What tools answer: the documents of ``--json``, typed and bounded. Texts of others in them are data."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import JsonValue

from fallback_audit.event_types import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.showing.describe import FixSummary
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel, TestsLevel
from fallback_tier.advisory import AdvisorySource
from fallback_tier.batch.outcome import AdvisoryEnd
from fallback_tier.errors import InputError
from fallback_tier.gates.journal.questions import Question, Review
from fallback_tier.planning import Remaining, RemediationPlan
from fallback_tier.scan.document import ScanResult

#: Of one answer as JSON (bytes). It is sent twice, as an object and as text for older clients, and an agent
#: has to read it: this is about 16,000 tokens.
MAX_ANSWER_BYTES = 65_536

#: Items of a list and characters of a text that stay, tried in this order until the answer fits.
_BOUNDS = ((1_000, 40_000), (200, 16_000), (50, 4_000), (20, 1_000), (5, 300), (1, 200))

#: Places that were cut and are named.
_MAX_CUTS = 20


class Cut(Frozen):
    """A list or a text that is not whole in this answer: where it is, and how many items or characters it
    has. Of a patch nothing is shown: a part of one could be taken for the whole."""

    field: str
    shown: int
    total: int


class Answer(Frozen):
    """``exit_code``: as the command's own (``fallback-tier --help`` lists them). ``cut``: what was left out
    to keep the answer small, patches first; ``cuts_not_named``: how many more there are."""

    exit_code: int
    cut: tuple[Cut, ...] = ()
    cuts_not_named: int = 0


class ScanAnswer(ScanResult, Answer):
    """What is vulnerable."""


class PlanAnswer(RemediationPlan, Answer):
    """What a fix would do by recipe."""

    schema_version: int = 1
    advisory_sources: tuple[AdvisorySource, ...] = ()


class GateAnswer(Frozen):
    """A gate's verdict on the last patch."""

    gate: str
    status: GateStatus
    detail: str
    failure_kind: FailureKind | None = None


class FixAnswer(Frozen):
    """One fix on record. ``advisory_ids``: what it is about. ``reason`` and ``sentence``: why there is no
    patch, or what a person is asked. ``patch`` is a diff against the base commit. ``held_back``: why a
    proved patch is not delivered; such a fix is not called fixed."""

    fix_id: str
    advisory_ids: tuple[str, ...]
    outcome: Literal["verified", "patched", "refused", "escalated"]
    headline: str = ""
    held_back: str | None = None
    delivered: bool = False
    proof_level: ProofLevel | None = None
    tests_level: TestsLevel | None = None
    attempts: int
    reason: str = ""
    sentence: str = ""
    files: tuple[str, ...] = ()
    patch: str = ""
    patch_sha256: Digest | None = None
    gates: tuple[GateAnswer, ...] = ()
    notes: tuple[str, ...] = ()


class FixesAnswer(Answer):
    """How a call of ``fix`` ended, in the same form for one advisory and for several.

    ``delivered``: the patches are on the working tree, not committed. ``advisories``: the end of each one,
    if several were planned together; ``left``: what of them no recipe fixes, with the reason.
    """

    delivered: bool
    fixes: tuple[FixAnswer, ...] = ()
    advisories: tuple[AdvisoryEnd, ...] = ()
    not_affected: tuple[str, ...] = ()
    left: tuple[Remaining, ...] = ()
    next_steps: tuple[str, ...] = ()
    advisory_sources: tuple[AdvisorySource, ...] = ()


class QuestionsAnswer(Answer):
    """Escalated fixes, newest first."""

    questions: tuple[Question, ...]


class ReviewAnswer(Review, Answer):
    """One question, with what a person needs to decide."""


class LogAnswer(Answer):
    """The gate transitions on record, newest first. One whose ``outcome`` is ``open`` was interrupted, or
    another process is at it."""

    fixes: tuple[FixSummary, ...]


class TrailAnswer(Answer):
    """One fix: its gate transitions, and every event as it is stored."""

    transitions: tuple[FixSummary, ...]
    events: tuple[dict[str, JsonValue], ...]
    retrievals: tuple[dict[str, JsonValue], ...] = ()


class VerifyAnswer(VerificationReport, Answer):
    """What a verification of the audit trail found."""


def fixes_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``fix --json`` printed, for one advisory or several, as FixesAnswer's fields."""
    parts = document.get("fixes", [document])
    fields = ("advisories", "not_affected", "left", "next_steps", "advisory_sources")
    more = {name: document[name] for name in fields if name in document}
    answer = FixesAnswer(
        exit_code=document["exit_code"],
        delivered=document["delivered"],
        fixes=tuple(_fix(part) for part in parts),
        **more,
    )
    return answer.model_dump(mode="json")


def _fix(part: Mapping[str, Any]) -> FixAnswer:
    made = part.get("application") or {}
    gates = [{name: it[name] for name in GateAnswer.model_fields} for it in part["verdicts"]]
    facts = {
        "fix_id": part["fix_id"],
        "advisory_ids": part.get("advisory_ids", [part["advisory_id"]]),
        "outcome": part["outcome"],
        "attempts": part["attempts"],
        "headline": part.get("headline", ""),
        "proof_level": part.get("proof_level"),
        "tests_level": part.get("tests_level"),
        "reason": part.get("reason", ""),
        "sentence": part.get("sentence") or part.get("question") or "",
        "held_back": part.get("held_back"),
        "delivered": part.get("delivered", False) and not part.get("held_back"),
        "files": made.get("files", ()),
        "patch": made.get("diff", ""),
        "patch_sha256": made.get("patch_sha256"),
        "gates": gates,
        "notes": part.get("gate_notes", ()),
    }
    return FixAnswer.model_validate(facts)


def newest_first(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``audit log --json`` printed, so that what is cut is the oldest."""
    return {**document, "fixes": document["fixes"][::-1]}


def bounded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an encodable document if it fits; otherwise with lists and texts cut, each named in ``cut``.
    Raises InputError if even that does not fit."""
    if _size(document) <= MAX_ANSWER_BYTES:
        return {**document, "cut": [], "cuts_not_named": 0}
    for items, chars in _BOUNDS:
        cuts: list[Cut] = []
        shorter = {
            name: _shorter(value, name, items, chars, cuts) for name, value in document.items()
        }
        cuts.sort(key=lambda cut: not _is_patch(cut.field))
        shorter["cut"] = [cut.model_dump() for cut in cuts[:_MAX_CUTS]]
        shorter["cuts_not_named"] = len(cuts[_MAX_CUTS:])
        if _size(shorter) <= MAX_ANSWER_BYTES:
            return shorter
    raise InputError(
        f"The answer is larger than {MAX_ANSWER_BYTES} bytes.",
        next_step="Ask for less, or give the same command with --json in a shell.",
        kind="answer_too_large",
    )


def encodable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without halves of surrogate pairs, which JSON can escape and UTF-8 can't say."""
    found = json.loads(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
    assert isinstance(found, dict)  # noqa: S101 (as it was)
    return found


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, ensure_ascii=False).encode())


def _is_patch(field: str) -> bool:
    return field.rpartition(".")[2] in ("patch", "diff")


def _shorter(value: Any, field: str, items: int, chars: int, cuts: list[Cut]) -> Any:
    match value:
        case str() if len(value) > chars:
            shown = 0 if _is_patch(field) else chars
            cuts.append(Cut(field=field, shown=shown, total=len(value)))
            return value[:shown]
        case list():
            if len(value) > items:
                cuts.append(Cut(field=field, shown=items, total=len(value)))
            return [
                _shorter(item, f"{field}.{number}", items, chars, cuts)
                for number, item in enumerate(value[:items])
            ]
        case dict():
            return {
                name: _shorter(item, f"{field}.{name}", items, chars, cuts)
                for name, item in value.items()
            }
        case _:
            return value
