"""A fix event by event: texts of events, folded routine ones, and what a verdict led to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fallback_audit.events import (
    AnswerReused,
    AttemptStarted,
    AuditEvent,
    GroundingJudged,
    LowConfidenceFlagged,
    ModelCalled,
    PatchProposed,
)
from fallback_audit.evidence.checking import kept_digests
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.describe import excerpt_of, sentence

#: Events on one page: as many as a browser can lay out at once.
PAGE = 200

#: So many routine events in a row are folded into one line.
_FOLD = 3

#: Name of the evidence in each field.
_PIECES = {
    "account_sha256": "account",
    "answer_evidence": "answer",
    "application_sha256": "plan and edits",
    "batch_sha256": "batch",
    "evidence_sha256": "log",
    "inputs_sha256": "inputs",
    "judgement_sha256": "judgement",
    "list_sha256": "list",
    "patch_sha256": "patch",
    "prompt_evidence": "prompt",
    "remediation_sha256": "versions",
    "summary_sha256": "summary",
}


@dataclass(frozen=True)
class Line:
    """One event. ``evidence``: name and digest of each piece. ``led_to``: what its verdict caused, with
    the number of that event.
    """

    seq: int
    at: str
    kind: str
    attempt: int | None
    transition: str
    says: str
    excerpt: str | None
    tone: str
    heading: bool
    evidence: tuple[tuple[str, str], ...]
    led_to: tuple[str, int] | None
    redacted: bool


@dataclass
class Group:
    """Consecutive events; ``folded``: routine, shown on request."""

    folded: bool
    lines: list[Line] = field(default_factory=list)


def timeline(events: Sequence[StoredEvent]) -> list[Group]:
    """Return events in chain order, in groups. What a verdict led to is sought among these events."""
    groups: list[Group] = []
    for at, stored in enumerate(events):
        line = _line(stored, events[at + 1 :])
        is_routine = stored.payload.badge.routine
        if not groups or groups[-1].folded != is_routine:
            groups.append(Group(is_routine))
        groups[-1].lines.append(line)
    for group in groups:
        group.folded = group.folded and len(group.lines) >= _FOLD
    return groups


def _line(stored: StoredEvent, later: Sequence[StoredEvent]) -> Line:
    event = stored.payload
    return Line(
        seq=stored.seq,
        at=stored.recorded_at,
        kind=stored.kind,
        attempt=getattr(event, "attempt", None),
        transition=stored.scope.gate_transition_id,
        says=sentence(event),
        excerpt=excerpt_of(event),
        tone=event.badge.tone,
        heading=isinstance(event, AttemptStarted),
        evidence=_evidence(event),
        led_to=_led_to(event, later),
        redacted=stored.redacted,
    )


def _evidence(event: AuditEvent) -> tuple[tuple[str, str], ...]:
    names = {
        digest: _PIECES.get(field, "evidence")
        for field in type(event).model_fields
        for digest in _each(getattr(event, field))
    }
    return tuple(
        (names.get(digest, "evidence"), digest) for digest in dict.fromkeys(kept_digests(event))
    )


def _each(value: object) -> tuple[object, ...]:
    if isinstance(value, tuple):
        return tuple(item for item in value if isinstance(item, str))
    return (value,) if isinstance(value, str) else ()


def _led_to(event: AuditEvent, later: Sequence[StoredEvent]) -> tuple[str, int] | None:
    """Return the act that followed a judge's verdict (ADR-0022), with its event's number, or None."""
    if not isinstance(event, GroundingJudged):
        return None
    for stored in later:
        match stored.payload:
            case ModelCalled(strict=True) | AnswerReused(strict=True):
                return "asked again with the strict instruction", stored.seq
            case LowConfidenceFlagged():
                return "handed on with the flag low confidence", stored.seq
            case PatchProposed():
                return "handed on", stored.seq
            case _:
                continue
    return None
