"""The attempts in which an example had a part, by the audit trail, so also of a withdrawn example."""

from collections.abc import Iterable, Iterator

from fallback_audit.errors import EvidenceError
from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AuditEvent,
    Digest,
    ExampleReplayed,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    ModelCalled,
    PatchProposed,
    RetrievalQueried,
)
from fallback_audit.evidence.account import read_account
from fallback_audit.frozen import Frozen
from fallback_audit.ports import EvidenceStore, Scope, StoredEvent


class Influence(Frozen):
    """One attempt that an example had a part in, and what became of attempt and fix.

    ``content_sha256``: which version of the example; None: the trail does not tell (no account of the
    retrieval is on record, or its evidence is gone: ``problem``).
    """

    fix_id: str
    gate_transition_id: str
    #: Empty if another orchestrator than ours ran the fix.
    advisory_id: str = ""
    repository: str = ""
    attempt: int
    retrieved: bool = False
    prompted: bool = False
    replayed: bool = False
    content_sha256: Digest | None = None
    problem: str | None = None
    #: ``patch proposed``, ``refused: …``, ``failed: …``; ``open`` if nothing is recorded.
    attempt_outcome: str = "open"
    patch_sha256: Digest | None = None
    #: ``verified``, ``refused: …``, ``escalated: …``; ``open`` while the fix has not ended.
    fix_outcome: str = "open"
    #: Whether the fix was verified with the patch of this attempt: then that patch is in use.
    delivered: bool = False


def influences(
    example_id: str, events: Iterable[StoredEvent], evidence: EvidenceStore
) -> tuple[Influence, ...]:
    """Return every attempt whose retrieval returned the example, whose prompt had it, or which replayed
    it."""
    trails: dict[Scope, list[AuditEvent]] = {}
    for link in events:
        trails.setdefault(link.scope, []).append(link.payload)
    # Used in the attempt's own gate transition, or in one in which its gates were run again.
    used = {
        (scope.fix_id, event.patch_sha256)
        for scope, trail in trails.items()
        for event in trail
        if isinstance(event, FixVerified | FixPatched)
    }
    return tuple(
        influence.model_copy(
            update={"delivered": (influence.fix_id, influence.patch_sha256) in used}
        )
        for scope, trail in trails.items()
        for influence in _attempts(example_id, scope, trail, evidence)
        if influence.retrieved or influence.prompted or influence.replayed
    )


def _attempts(
    example_id: str, scope: Scope, trail: Iterable[AuditEvent], evidence: EvidenceStore
) -> Iterator[Influence]:
    """Yield each attempt of a trail, whether the example had a part in it or not."""
    fix: dict[str, object] = scope.model_dump()
    attempts: dict[int, dict[str, object]] = {}
    for event in trail:
        fix |= _of_fix(event)
        if isinstance(number := getattr(event, "attempt", None), int):
            facts = attempts.setdefault(number, {"attempt": number})
            facts |= _of_attempt(event) | _part(example_id, event, evidence)
    for facts in attempts.values():
        yield Influence.model_validate(fix | facts)


def _part(example_id: str, event: AuditEvent, evidence: EvidenceStore) -> dict[str, object]:
    """Return an event's facts on the example's part in its attempt; empty if there are none."""
    match event:
        case RetrievalQueried() if example_id in event.example_ids:
            return {"retrieved": True, **_content(example_id, event, evidence)}
        case ModelCalled() if example_id in event.example_ids:
            return {"prompted": True}
        case ExampleReplayed() if example_id == event.example_id:
            return {"replayed": True}
        case _:
            return {}


def _content(
    example_id: str, query: RetrievalQueried, evidence: EvidenceStore
) -> dict[str, object]:
    try:
        account = read_account(query, evidence)
    except EvidenceError as error:
        return {"problem": error.problem}
    return {"content_sha256": account.content_sha256.get(example_id) if account else None}


def _of_attempt(event: AuditEvent) -> dict[str, object]:
    match event:
        case PatchProposed():
            return {"attempt_outcome": "patch proposed", "patch_sha256": event.patch_sha256}
        case AttemptRefused():
            return {"attempt_outcome": f"refused: {event.reason}"}
        case AttemptFailed():
            return {"attempt_outcome": f"failed: {event.failure_kind}"}
        case _:
            return {}


def _of_fix(event: AuditEvent) -> dict[str, object]:
    match event:
        case FixStarted():
            return {"advisory_id": event.advisory_id, "repository": event.repository}
        case FixVerified():
            return {"fix_outcome": "verified"}
        case FixPatched():
            return {"fix_outcome": "patched"}
        case FixRefused():
            return {"fix_outcome": f"refused: {event.reason}"}
        case FixEscalated():
            return {"fix_outcome": f"escalated: {event.reason}"}
        case _:
            return {}
