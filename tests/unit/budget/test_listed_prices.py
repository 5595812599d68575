"""List prices of genai-prices: beside the own table, never in its place, and never guessed."""

import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices import Usage as Counted
from genai_prices import calc_price

from fallback_tier.budget.listed_prices import LOCKED_RELEASE, listed_cost, listed_prices_as_of
from fallback_tier.budget.prices import PRICES, Prices, read_price
from fallback_tier.ports import Usage

ROOT = Path(__file__).parents[3]
MILLION = Usage(input_tokens=1_000_000)
LISTED = Prices(listed=listed_cost)


def test_a_model_that_nobody_else_prices_has_its_makers_list_price() -> None:
    assert Prices().cost("kimi-k2", MILLION) is None
    assert LISTED.cost("kimi-k2", MILLION) == Decimal("0.57")
    assert LISTED.cost("kimi-k2", Usage(output_tokens=1_000_000)) == Decimal("2.3")
    assert LISTED.knows("kimi-k2")


@pytest.mark.parametrize("model", ["", "scripted", "local", "qwen3", "claude-opus-5-9", "my-gpt-5"])
def test_a_model_that_is_not_listed_is_unknown_not_guessed(model: str) -> None:
    assert LISTED.cost(model, MILLION) is None
    assert not LISTED.knows(model)


def test_what_has_no_price_for_tokens_both_ways_is_not_free() -> None:
    embedder = "@cf/baai/bge-m3"
    assert calc_price(Counted(input_tokens=1_000_000), embedder).total_price > 0
    assert listed_cost(embedder, MILLION) is None


def test_the_table_and_the_user_come_first() -> None:
    def never(model: str, usage: Usage) -> Decimal:
        raise AssertionError(model)

    reported = Prices(read_price("1:2"), never)
    assert reported.cost("kimi-k2", MILLION) == 1
    assert reported.cost("claude-opus-5", MILLION) == 5
    assert Prices(listed=never).cost("claude-opus-5", MILLION) == 5


def test_the_list_agrees_with_our_table_where_it_has_the_model() -> None:
    """Two sources, compared independently, below every band; a family that the list lacks is skipped."""
    kinds = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    usages = [Usage(**{kind: 10_000}) for kind in kinds]
    listed = {(family, use): listed_cost(family, use) for family in PRICES for use in usages}
    compared = {pair: cost for pair, cost in listed.items() if cost is not None}
    assert len(compared) >= 80
    assert compared == {pair: Prices().cost(*pair) for pair in compared}


def test_what_is_booked_before_a_call_covers_any_answer() -> None:
    """It is booked as cache writes (``AuditMeter.charge``); the last model's cost less than plain input."""
    for model in (
        "kimi-k2",
        "gpt-5",
        "claude-fable-5-2",
        "gemini-2.5-pro",
        "MiniMax-M2.5-highspeed",
    ):
        booked = LISTED.cost(model, Usage(cache_write_tokens=300_000, output_tokens=100))
        assert booked is not None
        for usage in (
            Usage(input_tokens=300_000, output_tokens=100),
            Usage(input_tokens=100_000, cache_read_tokens=200_000, output_tokens=100),
            Usage(input_tokens=100_000, cache_write_tokens=200_000, output_tokens=100),
        ):
            assert (LISTED.cost(model, usage) or 0) <= booked, model


def test_cached_tokens_are_counted_once() -> None:
    read = Usage(input_tokens=1_000_000, cache_read_tokens=1_000_000)
    assert listed_cost("gpt-5", read) == Decimal("1.25") + Decimal("0.125")


def test_the_day_of_the_prices_is_that_of_the_locked_release() -> None:
    version, day = LOCKED_RELEASE
    lock = (ROOT / "requirements.lock").read_text()
    locked = re.search(r"^genai-prices==(\S+)", lock, re.MULTILINE)
    assert locked is not None
    assert locked[1] == version, "renewed: write the day on which that release was published"
    assert listed_prices_as_of() == f"genai-prices {version} of {day}"


def test_the_list_is_loaded_for_a_model_that_is_priced_nowhere_else_only() -> None:
    program = """
import sys
from fallback_tier.budget.listed_prices import listed_cost, listed_prices_as_of
from fallback_tier.budget.prices import Prices, read_price
from fallback_tier.ports import Usage
listed_prices_as_of()
Prices(None, listed_cost).cost("claude-opus-5", Usage())
Prices(read_price("1:2"), listed_cost).cost("local", Usage())
assert "genai_prices" not in sys.modules
Prices(None, listed_cost).cost("local", Usage())
assert "genai_prices" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
