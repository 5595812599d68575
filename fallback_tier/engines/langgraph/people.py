"""What a fix waits for, read from its trail: the decision is an event there, and nothing else is one."""

from fallback_audit.events import FixEscalated, ReviewDecided
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader
from fallback_audit.vocabulary import EscalationReason
from fallback_tier.fix.journal.history import read_history


class Question(Frozen):
    """Which gate transition asks, and why. Its words and the patch are in the trail and its evidence."""

    fix_id: str
    gate_transition_id: str
    attempt: int
    reason: EscalationReason


def question_of(trail: AuditReader, fix_id: str) -> Question | None:
    """What nobody has answered yet; None: nothing is asked, or it was answered. Raises InputError: no such
    fix."""
    current = read_history(trail, fix_id).current
    end = current.end
    if not isinstance(end, FixEscalated) or current.reopened or current.of(ReviewDecided):
        return None
    return Question(
        fix_id=fix_id,
        gate_transition_id=current.scope.gate_transition_id,
        attempt=end.attempt,
        reason=end.reason,
    )


def answer_to(trail: AuditReader, fix_id: str) -> str:
    """What was decided: ``approved``, ``rejected`` or ``abandoned``, the last words; or ``goes_on``:
    reopened, its budget raised, or somebody has gone on with it already."""
    current = read_history(trail, fix_id).current
    if current.abandoned is not None:
        return "abandoned"
    decided = current.last_of(ReviewDecided)
    return "goes_on" if decided is None else decided.verdict.value
