"""How many calls an attempt may make, and what they used."""

from decimal import Decimal

from fallback_audit.vocabulary import CallType
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.outcome import CallUsage
from fallback_tier.ports import Usage


class CallCeiling:
    """Author calls of one attempt: repair, strict regeneration and repeat share it (ADR-0014)."""

    def __init__(self, limit: int = MAX_AUTHOR_CALLS) -> None:
        self.limit = limit
        self.taken = 0

    @property
    def left(self) -> int:
        """Calls that may still be made."""
        return self.limit - self.taken

    def take(self) -> int | None:
        """The number of the next call (from 1), or None when the ceiling is reached."""
        if not self.left:
            return None
        self.taken += 1
        return self.taken


class UsageLedger:
    """Adds up tokens and estimated dollars per call type."""

    def __init__(self) -> None:
        self._calls: dict[CallType, list[tuple[Usage, Decimal | None]]] = {}

    def record(self, call_type: CallType, usage: Usage, cost: Decimal | None) -> None:
        """Book one answered call: the tokens that the server reported, and what they cost."""
        self._calls.setdefault(call_type, []).append((usage, cost))

    def totals(self) -> tuple[CallUsage, ...]:
        """One line per call type that was used, in the vocabulary's order.

        The cost is None as soon as the price of one call's model is not known: a partial sum
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
