"""How many calls an attempt may make, and what they used."""

from decimal import Decimal

from fallback_audit.vocabulary import CallType
from fallback_tier.budget.prices import estimate_cost
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.outcome import CallUsage
from fallback_tier.ports import Usage


class CallCeiling:
    """Author calls of one attempt: repair, strict regeneration and repeat share it (ADR-0014)."""

    def __init__(self, limit: int = MAX_AUTHOR_CALLS) -> None:
        self.limit = limit
        self._taken = 0

    def take(self) -> int | None:
        """The number of the next call (from 1), or None when the ceiling is reached."""
        if self._taken >= self.limit:
            return None
        self._taken += 1
        return self._taken


class UsageLedger:
    """Adds up tokens and estimated dollars per call type."""

    def __init__(self) -> None:
        self._calls: dict[CallType, list[tuple[Usage, Decimal | None]]] = {}

    def record(self, call_type: CallType, usage: Usage, model: str) -> None:
        """Book one answered call, with the tokens that the server reported."""
        entry = (usage, estimate_cost(model, usage))
        self._calls.setdefault(call_type, []).append(entry)

    def totals(self) -> tuple[CallUsage, ...]:
        """One line per call type that was used, in the vocabulary's order.

        The cost is None as soon as one call's model is unknown to the price table: a partial sum
        would read as a whole one.
        """
        return tuple(
            _total(call_type, self._calls[call_type])
            for call_type in CallType
            if call_type in self._calls
        )


def _total(call_type: CallType, calls: list[tuple[Usage, Decimal | None]]) -> CallUsage:
    costs = [cost for _, cost in calls if cost is not None]
    return CallUsage(
        call_type=call_type,
        calls=len(calls),
        input_tokens=sum(usage.input_tokens for usage, _ in calls),
        output_tokens=sum(usage.output_tokens for usage, _ in calls),
        cache_read_tokens=sum(usage.cache_read_tokens for usage, _ in calls),
        cache_write_tokens=sum(usage.cache_write_tokens for usage, _ in calls),
        cost_usd_estimate=f"{sum(costs, Decimal(0)):f}" if len(costs) == len(calls) else None,
    )
