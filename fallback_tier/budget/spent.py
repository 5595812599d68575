"""What the calls of a gate transition used, all attempts together, as the audit trail has it."""

from decimal import Decimal
from typing import NamedTuple

from fallback_audit.events import Charge, ModelAnswered
from fallback_audit.ports import AuditReader, Scope
from fallback_tier.budget.calls import UsageLedger
from fallback_tier.budget.prices import Prices
from fallback_tier.budget.tally import Tally, in_dollars, usage_of
from fallback_tier.outcome import CallUsage


class Spent(NamedTuple):
    """``usage``: as reported. ``unreported``: pre-charges of calls whose use nobody learned."""

    usage: tuple[CallUsage, ...]
    unreported: Charge | None


def spent(audit: AuditReader, scope: Scope) -> Spent:
    """Answers that were found again after an interruption count once, where they were paid."""
    ledger = UsageLedger()
    for stored in audit.events(scope.fix_id, kinds=frozenset({"ModelAnswered"})):
        event = stored.payload
        if stored.scope == scope and isinstance(event, ModelAnswered):
            cost = event.cost_usd_estimate
            ledger.record(event.call_type, usage_of(event), None if cost is None else Decimal(cost))
    return Spent(ledger.totals(), _unreported(audit, scope))


def _unreported(audit: AuditReader, scope: Scope) -> Charge | None:
    tally = Tally(audit, Prices(), fix_id=scope.fix_id)
    tally.refresh()
    open_calls = [b.amount for b in tally.calls if b.scope == scope and not b.reported]
    if not open_calls:
        return None
    costs = [amount.microdollars for amount in open_calls if amount.microdollars is not None]
    return Charge(
        tokens=sum(amount.tokens for amount in open_calls),
        cost_usd_estimate=in_dollars(sum(costs)) if len(costs) == len(open_calls) else None,
    )
