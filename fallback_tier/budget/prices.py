"""The cost of a model call: an *estimate* from a dated table of list prices.

Dollars per million tokens, standard tier, five-minute cache writes, no batch or volume discount, no tax.
Only the server's bill is exact: check this table against the provider's pricing page (Claude platform
documentation, "Pricing") before you rely on a figure.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from typing import NamedTuple

from fallback_tier.ports import ModelRequest, Usage

#: The day on which this table was last compared with published list prices.
PRICES_AS_OF = "2026-10-10"

_MILLION = Decimal(1_000_000)

#: Estimates are rounded up to this unit, so that a sum never understates, and print without an exponent.
_MICRODOLLAR = Decimal("0.000001")

#: The price of a cache write, relative to an input token (five-minute lifetime).
_CACHE_WRITE = Decimal("1.25")

#: Above this many prompt tokens (including cache reads and writes) a banded price applies.
_LONG_PROMPT_TOKENS = 100_000


class Price(NamedTuple):
    """Dollars per million tokens. ``cache_read`` is a share of ``input``, ``long_prompt`` a factor on
    everything for prompts above 100,000 tokens."""

    input: Decimal
    output: Decimal
    cache_read: Decimal = Decimal("0.1")
    long_prompt: Decimal = Decimal(1)


def _price(input_: str, output: str, *, cache_read: str = "0.1", long_prompt: str = "1") -> Price:
    return Price(Decimal(input_), Decimal(output), Decimal(cache_read), Decimal(long_prompt))


#: Prices by family; ``_is_of`` decides whether a model belongs to one.
PRICES: dict[str, Price] = {
    "claude-fable-5-1": _price("10", "50", cache_read="0.025"),
    "claude-mythos-5-1": _price("10", "50", cache_read="0.025"),
    "claude-fable-5": _price("10", "50"),
    "claude-mythos-5": _price("10", "50"),
    "claude-opus-5-5": _price("4", "20", cache_read="0.05"),
    "claude-opus-5": _price("5", "25"),
    "claude-opus-4-8": _price("5", "25"),
    "claude-opus-4-7": _price("5", "25"),
    "claude-opus-4-6": _price("5", "25"),
    "claude-opus-4-5": _price("5", "25"),
    "claude-opus-4-1": _price("15", "75"),
    "claude-opus-4-0": _price("15", "75"),
    "claude-opus-4": _price("15", "75"),
    "claude-sonnet-5-5": _price("2", "10", cache_read="0.05"),
    "claude-sonnet-5": _price("2", "10"),
    "claude-sonnet-4-6": _price("3", "15"),
    "claude-sonnet-4-5": _price("3", "15"),
    "claude-sonnet-4-0": _price("3", "15"),
    "claude-sonnet-4": _price("3", "15"),
    "claude-3-7-sonnet": _price("3", "15"),
    "claude-haiku-5-5": _price("0.10", "0.50", long_prompt="5"),
    "claude-haiku-4-5": _price("1", "5"),
    "claude-3-5-haiku": _price("0.80", "4"),
}

#: The rest of a model's name after the family's: nothing or a snapshot, its date or ``latest``. Not another
#: version number: an unpublished claude-opus-5-9 must not be billed as claude-opus-5.
_SNAPSHOT = re.compile(r"(?:[-@][0-9]{8}|-latest)?")

_PRICE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?):([0-9]{1,6}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True)
class Prices:
    """The dated table; the user's price for a model that is not in it (``other``); ``listed`` for a model
    without either (``listed_prices.listed_cost``)."""

    other: Price | None = None
    listed: Callable[[str, Usage], Decimal | None] | None = None

    def of(self, model: str) -> Price | None:
        """Return the price of a model in the table or from its user, or None if neither has one."""
        return next((PRICES[family] for family in PRICES if _is_of(model, family)), self.other)

    def knows(self, model: str) -> bool:
        """Return whether the calls of a model can be priced."""
        return self.cost(model, Usage()) is not None

    def cost(self, model: str, usage: Usage) -> Decimal | None:
        """Return the estimated dollars of one call, rounded up to a microdollar; None: unknown price."""
        price = self.of(model)
        if price is None:
            dollars = None if self.listed is None else self.listed(model, usage)
            return None if dollars is None else _rounded(dollars)
        prompt_tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        weighted = (
            usage.input_tokens * price.input
            + usage.cache_read_tokens * price.input * price.cache_read
            + usage.cache_write_tokens * price.input * _CACHE_WRITE
            + usage.output_tokens * price.output
        )
        factor = price.long_prompt if prompt_tokens > _LONG_PROMPT_TOKENS else Decimal(1)
        return _rounded(weighted * factor / _MILLION)


def read_price(text: str) -> Price:
    """Return the price in ``IN:OUT``, dollars per million tokens. Raises ValueError."""
    match = _PRICE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not IN:OUT, dollars per million tokens (0.5:2.50)")
    return _price(match[1], match[2])


def _rounded(dollars: Decimal) -> Decimal:
    return dollars.quantize(_MICRODOLLAR, rounding=ROUND_UP)


def _is_of(model: str, family: str) -> bool:
    return model.startswith(family) and bool(_SNAPSHOT.fullmatch(model[len(family) :]))


#: The minimum of UTF-8 bytes per token. The tokenizers in use are byte-level: none makes two tokens of one
#: byte. Prose and code have 3 to 4 bytes per token, but the content of a prompt is not ours: a text of rare
#: characters comes near to 1, and a cap that such a text could pass would not be a cap. The excess is
#: released when the server has reported its usage.
BYTES_PER_TOKEN = 1

#: Tokens that a server adds itself: turns, and its text if it enforces a schema (the provider documents up
#: to about 700 for tools).
OVERHEAD_TOKENS = 1_024


def input_tokens_at_most(request: ModelRequest) -> int:
    """Return an upper bound on the tokens that the server reads."""
    size = len(request.text.encode("utf-8", "surrogatepass"))
    if request.answer_schema is not None:
        size += len(json.dumps(request.answer_schema).encode())
    return -(-size // BYTES_PER_TOKEN) + OVERHEAD_TOKENS


def tokens_at_most(request: ModelRequest) -> int:
    """Return an upper bound on the tokens that the server reads and writes."""
    return input_tokens_at_most(request) + request.max_output_tokens
