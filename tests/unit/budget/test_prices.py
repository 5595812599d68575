"""The dated price table: which model is which family, and what a call is estimated at."""

import datetime as dt
from decimal import Decimal

import pytest

from fallback_tier.budget.prices import PRICES, PRICES_AS_OF, Price, Prices, read_price
from fallback_tier.ports import Usage

TABLE = Prices()

EACH = Usage(
    input_tokens=10_000, output_tokens=10_000, cache_read_tokens=10_000, cache_write_tokens=10_000
)


@pytest.mark.parametrize(
    ("model", "usage", "dollars"),
    [
        ("claude-opus-4-5", Usage(input_tokens=1_000_000), "5"),
        ("claude-opus-4-5-20251101", Usage(output_tokens=1_000_000), "25"),
        ("claude-haiku-4-5@20251001", Usage(cache_read_tokens=1_000_000), "0.1"),
        ("claude-sonnet-4-5", Usage(cache_write_tokens=1_000_000), "3.75"),
        ("claude-3-5-haiku-latest", Usage(input_tokens=1_000_000), "0.80"),
        ("claude-opus-4-20250514", Usage(input_tokens=1_000_000), "15"),
        ("claude-opus-5-5", Usage(cache_read_tokens=1_000_000), "0.2"),
        ("claude-sonnet-4-5", EACH, "0.2205"),
        ("claude-haiku-5-5", Usage(input_tokens=100_000), "0.01"),
        ("claude-haiku-5-5", Usage(input_tokens=50_000, cache_read_tokens=50_001), "0.027501"),
        ("claude-opus-5", Usage(), "0"),
        ("claude-haiku-5-5", Usage(input_tokens=1), "0.000001"),
    ],
)
def test_estimates(model: str, usage: Usage, dollars: str) -> None:
    assert TABLE.cost(model, usage) == Decimal(dollars)


@pytest.mark.parametrize(
    "model",
    [
        *["", "gpt-5", "claude", "claude-opus-5-9", "claude-opus-4-5-fast", "my-claude-opus-4-5"],
        *["claude-opus-4-5-2025110", "anthropic.claude-opus-4-5", "qwen3"],
    ],
)
def test_what_is_not_in_the_table_is_unknown_not_guessed(model: str) -> None:
    assert TABLE.cost(model, Usage(input_tokens=1)) is None


def test_estimates_print_without_an_exponent() -> None:
    assert str(TABLE.cost("claude-haiku-5-5", Usage(input_tokens=1))) == "0.000001"
    assert str(TABLE.cost("claude-opus-5", Usage())) == "0.000000"


def test_the_table_is_dated_and_each_family_matches_itself_only() -> None:
    assert dt.date.fromisoformat(PRICES_AS_OF)
    for family, price in PRICES.items():
        million = Usage(output_tokens=1_000_000)
        assert TABLE.cost(family, million) == price.output
        assert price.input < price.output


def test_a_model_that_the_table_lacks_costs_what_its_user_says() -> None:
    reported = Prices(read_price("0.5:2.50"))
    million = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert reported.cost("qwen3", million) == Decimal(3)
    assert reported.of("qwen3") == Price(Decimal("0.5"), Decimal("2.50"))
    assert reported.cost("claude-opus-5", million) == TABLE.cost("claude-opus-5", million)
    assert Prices(read_price("0:0")).cost("qwen3", million) == 0


@pytest.mark.parametrize(
    "text", ["", "1", "1:", ":1", "1:2:3", "-1:2", "1e3:2", "nan:1", "1 : 2", "1.:2", "\u0661:2"]
)
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ValueError, match="IN:OUT"):
        read_price(text)
