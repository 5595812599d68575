"""How a fix ended, as JSON: what ``fallback-tier fix --json`` prints and the service answers."""

from fallback_audit.vocabulary import GateStatus
from fallback_tier.budget.listed_prices import listed_prices_as_of
from fallback_tier.budget.prices import PRICES_AS_OF
from fallback_tier.fix_result import (
    FixResult,
    Patched,
    RefusedFix,
    Verified,
    WithPatch,
    notes_of,
    projects_of,
    tests_level_of,
    tests_of,
)
from fallback_tier.gates.builtin.proof_given import PROOF
from fallback_tier.handover.headline import headline
from fallback_tier.outcome import UnreadItem


def document(result: FixResult) -> dict[str, object]:
    """For machines. Logs are evidence, found by digest; a result stays small."""
    reported = result.model_dump(mode="json", exclude={"verdicts": {"__all__": {"log"}}})
    reported |= {**usage_document(result), "proof": proof_status(result)}
    if result.verdicts or isinstance(result, WithPatch):
        reported["tests_level"] = tests_level_of(result.verdicts)
        reported["tests"] = [one.model_dump(mode="json") for one in tests_of(result.verdicts)]
    reported["unread"] = [item.model_dump(mode="json") for item in unread_of(result)]
    if not isinstance(result, WithPatch):
        return reported
    projects = [one.model_dump(mode="json") for one in projects_of(result.verdicts)]
    reported |= {"projects": projects, "gate_notes": notes_of(result.verdicts)}
    return {**reported, "proof_level": result.proof_level, "headline": headline(result)}


def unread_of(result: FixResult) -> tuple[UnreadItem, ...]:
    """Return what may hold an affected version and was not read."""
    match result:
        case RefusedFix(unread=unread):
            return unread
        case Verified() | Patched() if result.application.remediation is not None:
            return result.application.remediation.unread
        case _:
            return ()


def usage_document(result: FixResult) -> dict[str, object]:
    """Which prices ``usage`` and ``unreported`` are estimated from, where there are any."""
    if not (result.usage or result.unreported):
        return {}
    return {"prices_as_of": PRICES_AS_OF, "listed_prices_as_of": listed_prices_as_of()}


def proof_status(result: FixResult) -> GateStatus | None:
    """How the proof that was given ended; None where there was none, or it was not run."""
    found = (verdict.status for verdict in result.verdicts if verdict.gate == PROOF)
    return next(found, None)
