"""List prices of models that our own table does not name, from the package genai-prices (MIT).

Its data comes with the package: nothing is asked over the network, and it is as old as the release that is
installed. It is loaded (200 ms) only for a model that neither our table nor the user has a price for.
"""

from decimal import Decimal

from fallback_tier.ports import Usage

_PACKAGE = "genai-prices"

#: The release in requirements.lock, and the day on which it was published: the package holds no date.
LOCKED_RELEASE = ("0.2.3", "2026-11-10")


def listed_prices_as_of() -> str:
    """Which release the prices are of, with its day where it is the locked one."""
    from importlib.metadata import version

    installed = version(_PACKAGE)
    locked, day = LOCKED_RELEASE
    return f"{_PACKAGE} {installed}" + (f" of {day}" if installed == locked else "")


def listed_cost(model: str, usage: Usage) -> Decimal | None:
    """Return the dollars of one call at its maker's list price today; None if none is listed for both
    directions. Cache writes cost the dearer of their own and the input price: what is booked before a call
    is never too little."""
    from genai_prices import Usage as Counted
    from genai_prices import calc_price

    prompt_tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    dollars = []
    for cache_write_tokens in (0, usage.cache_write_tokens):
        counted = Counted(
            input_tokens=prompt_tokens,  # cached ones are part of it there
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        try:
            found = calc_price(counted, model)
        except LookupError:
            return None
        if found.model_price.input_mtok is None or found.model_price.output_mtok is None:
            return None  # no price is not a price of nothing
        dollars.append(found.total_price)
    return max(dollars)
