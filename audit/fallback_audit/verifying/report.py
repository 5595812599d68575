"""What a verification found: counts of everything, and the first findings of each sort."""

from typing import Generic, TypeVar

from pydantic import Field, computed_field

from fallback_audit.contract.table import Violation
from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.verifying.state import OpenFix, VerifiedState

#: Findings of a sort that a report lists. More help nobody, and memory stays flat.
MAX_LISTED = 100

KEEP = (
    "Stop what writes to the store, keep a copy of it as it is, and verify it again. Only if that says the "
    "same, find out who wrote to it, and restore one that verifies."
)
COVER = "Find out where the checkpoints are; only if the record is right, `fallback-tier audit checkpoint`."
NOT_ASKED = (
    "Checkpoints were not looked at: events removed from the end, and a chain rewritten as a whole, are "
    "not detectable without them."
)


END_UNKNOWN = (
    "Nothing outside this record shows how far it went: these keys know of no checkpoint of it (it was "
    "moved, copied, or is verified by the public key alone). One that was cut short together with its "
    "checkpoints looks the same. Give one that was kept elsewhere: `fallback-tier audit verify "
    "--checkpoint FILE`."
)


class Problem(Frozen):
    """Something stored is not what was written. ``seq`` None: the store, or a checkpoint, as a whole."""

    seq: int | None
    fix_id: str | None
    reason: str
    next_step: str = KEEP


class Flag(Frozen):
    """An event that broke a rule, and was let through by a store that was told to flag, not refuse."""

    seq: int
    fix_id: str
    rule: str


class UncoveredFix(Frozen):
    """A fix with events that no checkpoint covers. ``ended``: its end is among them."""

    fix_id: str
    events: int
    ended: bool


class VerificationReport(Frozen):
    """What ``verify`` found. ``tip`` is the last leaf, ``root`` the Merkle root over all events.

    ``covered_to``: the largest checkpoint whose root is that of the events; None where nobody asked for
    checkpoints. ``end_known``: does something outside the record say how far it went, so that one cut short
    with its checkpoints is noticed (``CheckpointSource.end_known``)? None where nobody asked.
    ``since``: an incremental run, which took the events to there as verified.
    """

    events: int
    gate_transitions: int
    tip: str
    root: Digest | None
    since: int
    sealed_events: int
    redacted_events: int
    first_bad: Problem | None
    integrity_problems: tuple[Problem, ...]
    integrity_problem_count: int
    checkpoint_problems: tuple[Problem, ...]
    checkpoint_problem_count: int
    checkpoints_checked: int
    covered_to: int | None
    end_known: bool | None = None
    uncovered_events: int
    uncovered_fixes: tuple[UncoveredFix, ...]
    contract_judged: bool
    contract_violations: tuple[Violation, ...]
    contract_violation_count: int
    evidence_problems: tuple[Problem, ...]
    evidence_problem_count: int
    evidence_checked: int | None
    evidence_removed: int
    flags: tuple[Flag, ...]
    flag_count: int
    open_fixes: tuple[OpenFix, ...]
    open_fix_count: int
    notes: tuple[str, ...]
    #: What a next run may take as verified; only where nothing bad was found.
    state: VerifiedState | None = Field(default=None, exclude=True)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ok(self) -> bool:
        """Nothing bad was found. An open fix is not bad, nor is an event that no checkpoint covers yet."""
        return not (
            self.integrity_problem_count
            or self.checkpoint_problem_count
            or self.contract_violation_count
            or self.evidence_problem_count
        )


ItemT = TypeVar("ItemT")


class Listed(Generic[ItemT]):
    """Counts everything, keeps the first MAX_LISTED."""

    def __init__(self) -> None:
        self.items: list[ItemT] = []
        self.count = 0

    def add(self, item: ItemT) -> None:
        """One more finding."""
        self.count += 1
        if self.count <= MAX_LISTED:
            self.items.append(item)


def first_bad(
    integrity: Listed[Problem],
    checkpoints: Listed[Problem],
    evidence: Listed[Problem],
    contract: Listed[Violation],
) -> Problem | None:
    """The earliest bad event: of what all else rests on, first. What names no event comes after."""
    broken_rules = [
        Problem(
            seq=v.seq,
            fix_id=v.fix_id,
            reason=f"{v.rule}: {v.detail}",
            next_step=f"Read `fallback-tier audit show {v.fix_id}`: evidence without action, or a defect.",
        )
        for v in contract.items
    ]
    for found in (integrity.items, checkpoints.items, [*evidence.items, *broken_rules]):
        named = [problem for problem in found if problem.seq is not None]
        if found:
            return min(named or found[:1], key=lambda problem: problem.seq or 0)
    return None
