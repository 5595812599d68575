"""The result of a fix as JSON: what ``fallback-tier fix --json`` prints and the service returns."""

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
    """Return the result for machines. Logs are evidence, found by digest, so a result stays small."""
    fields = result.model_dump(mode="json", exclude={"verdicts": {"__all__": {"log"}}})
    fields |= {**usage_document(result), "proof": proof_status(result)}
    if result.verdicts or isinstance(result, WithPatch):
        fields["tests_level"] = tests_level_of(result.verdicts)
        fields["tests"] = [record.model_dump(mode="json") for record in tests_of(result.verdicts)]
    fields["unread"] = [item.model_dump(mode="json") for item in unread_of(result)]
    if not isinstance(result, WithPatch):
        return fields
    projects = [record.model_dump(mode="json") for record in projects_of(result.verdicts)]
    fields |= {"projects": projects, "gate_notes": notes_of(result.verdicts)}
    return {**fields, "proof_level": result.proof_level, "headline": headline(result)}


def unread_of(result: FixResult) -> tuple[UnreadItem, ...]:
    """Return what may contain an affected version and was not read."""
    match result:
        case RefusedFix(unread=unread):
            return unread
        case Verified() | Patched() if result.application.remediation is not None:
            return result.application.remediation.unread
        case _:
            return ()


def usage_document(result: FixResult) -> dict[str, object]:
    """Return the dates of the prices that the usage is estimated from; empty without usage."""
    if not (result.usage or result.unreported):
        return {}
    return {"prices_as_of": PRICES_AS_OF, "listed_prices_as_of": listed_prices_as_of()}


def proof_status(result: FixResult) -> GateStatus | None:
    """Return the status of the given proof, or None if there was none, or it was not run."""
    statuses = (verdict.status for verdict in result.verdicts if verdict.gate == PROOF)
    return next(statuses, None)
