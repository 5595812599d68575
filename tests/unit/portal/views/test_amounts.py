"""Dollars as they are read."""

from decimal import Decimal

import pytest

from fallback_tier.portal.views.spending import usd


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "price unknown"),
        ("0", "$0.00"),
        ("0.00001", "under $0.0001"),
        ("0.0134", "$0.0134"),
        ("0.14000", "$0.14"),
        ("0.10", "$0.10"),
        ("3.6", "$3.60"),
        ("1.2345", "$1.23"),
        ("12345.6", "$12,345.60"),
    ],
)
def test_dollars(amount: str | None, shown: str) -> None:
    assert usd(amount) == shown
    if amount is not None:
        assert usd(Decimal(amount)) == shown
