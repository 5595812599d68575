"""From a form to a decision of the service, and what follows of it."""

from fallback_tier.errors import FallbackError, InputError
from fallback_tier.service.http.sessions import SignedIn
from fallback_tier.service.opening import Service
from fallback_tier.service.operations.reviews import Decided, Decision, Verdict
from fallback_tier.service.roles import Role


def read_decision(
    verdict: Verdict, because: str, *, usd_per_fix: str = "", tokens_per_fix: str = ""
) -> Decision:
    """Raises InputError."""
    try:
        return Decision.model_validate(
            {
                "verdict": verdict,
                "because": because.strip(),
                "usd_per_fix": usd_per_fix.strip() or None,
                "tokens_per_fix": tokens_per_fix.strip() or None,
            }
        )
    except ValueError as error:
        raise InputError(
            "A decision needs a reason (2,000 characters at most), and a cap is a number.",
            next_step="Nothing was recorded: correct it, and decide again.",
        ) from error


def gone_on(service: Service, who: SignedIn, decided: Decided) -> str:
    """A decision that lets a fix go on: the service's queue resumes it (``queued``), where it is one of
    its fixes and the key may submit; else it ``waits`` for its command. ``over``: nothing goes on."""
    if not decided.goes_on:
        return "over"
    if not who.caller.may(Role.SUBMIT):
        return "waits"
    try:
        service.fixes.resume(who.caller, decided.fix_id)
    except FallbackError:
        return "waits"
    return "queued"
