"""Dollars as pages show them."""

from decimal import Decimal

_CENT, _HUNDREDTH = Decimal("0.01"), Decimal("0.0001")


def usd(amount: Decimal | str | None) -> str:
    """An estimate, to the cent; below a dollar with two more places where the cents hide something.
    None: the price is not known."""
    if amount is None:
        return "price unknown"
    value = Decimal(amount)
    if 0 < value < _HUNDREDTH:
        return f"under ${_HUNDREDTH}"
    if value < 1 and value.quantize(_HUNDREDTH) % _CENT:
        return f"${value:.4f}"
    return f"${value:,.2f}"
