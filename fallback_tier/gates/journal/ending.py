"""From a terminal event to the result that it stands for: for the run that records it, and for later."""

from fallback_audit.events import FixEscalated, FixPatched, FixRefused, FixVerified
from fallback_audit.ports import AuditReader, Scope
from fallback_tier.budget.spent import spent
from fallback_tier.gates.result import (
    Escalated,
    FailedCandidate,
    FixResult,
    Patched,
    RefusedFix,
    Verified,
)
from fallback_tier.gates.steps import FixProgress

End = FixVerified | FixPatched | FixRefused | FixEscalated


def result_of(
    end: End, state: FixProgress, audit: AuditReader, scope: Scope, advisory_id: str
) -> FixResult:
    """What callers get. ``state``: the one that ``end`` was decided in; what it cost is on record."""
    used = spent(audit, scope)
    common = {
        "fix_id": scope.fix_id,
        "gate_transition_id": scope.gate_transition_id,
        "advisory_id": advisory_id,
        "attempts": end.attempt,
        "prior_attempts": state.prior_attempts,
        "failed_candidates": FailedCandidate.of(state.failed_candidates),
        "verdicts": state.verdicts,
        "usage": used.usage,
        "unreported": used.unreported,
    }
    match end:
        case FixVerified():
            return Verified.model_validate({**common, "application": state.application})
        case FixPatched():
            return Patched.model_validate({**common, "application": state.application})
        case FixRefused():
            refusal = end.model_dump(include={"reason", "sentence", "unread", "declined"})
            return RefusedFix.model_validate({**common, **refusal})
        case FixEscalated():
            question = {"reason": end.reason, "question": end.question}
            return Escalated.model_validate({**common, **question, "evidence": end.evidence_sha256})
