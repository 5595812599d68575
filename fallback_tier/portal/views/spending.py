"""Use of model calls by type, and dollars as pages show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from fallback_audit.events import ModelAnswered

_CENT, _HUNDREDTH = Decimal("0.01"), Decimal("0.0001")


def usd(amount: Decimal | str | None) -> str:
    """Format an estimate to the cent; below a dollar with two more places if the cents hide something.
    None: the price is not known.
    """
    if amount is None:
        return "price unknown"
    value = Decimal(amount)
    if 0 < value < _HUNDREDTH:
        return f"under ${_HUNDREDTH}"
    if value < 1 and value.quantize(_HUNDREDTH) % _CENT:
        return f"${value:.4f}"
    return f"${value:,.2f}"


class Spent(NamedTuple):
    """Use by calls of one type. ``usd`` None: a price is not known."""

    call_type: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: Decimal | None


@dataclass
class Use:
    """The same, counted answer by answer. ``unpriced``: answers whose price is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)
    unpriced: int = 0

    def add(self, answer: ModelAnswered) -> None:
        """Count an answer."""
        self.calls += 1
        self.input_tokens += answer.input_tokens
        self.output_tokens += answer.output_tokens
        self.unpriced += answer.cost_usd_estimate is None
        self.usd += Decimal(answer.cost_usd_estimate or 0)

    def spent(self, call_type: str) -> Spent:
        """Return the use for a page."""
        price = None if self.unpriced else self.usd
        return Spent(call_type, self.calls, self.input_tokens, self.output_tokens, price)


def by_cost(uses: Mapping[str, Use]) -> tuple[Spent, ...]:
    """Return the use by call type, the most expensive first."""
    spent = [use.spent(kind) for kind, use in uses.items()]
    return tuple(sorted(spent, key=lambda entry: entry.usd or Decimal(0), reverse=True))


def total(spent: Sequence[Spent]) -> Decimal | None:
    """Return the sum in US dollars, or None if any price is unknown."""
    prices = [entry.usd for entry in spent]
    known_prices = [price for price in prices if price is not None]
    return sum(known_prices, Decimal(0)) if len(known_prices) == len(prices) else None
