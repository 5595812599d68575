"""List prices of models that our own table does not name, from the package genai-prices (MIT).

Its data is part of the package: there is no network access, and the data is as old as the installed
release. It is loaded (200 ms) only for a model that has a price neither in our table nor from the user.
"""

from decimal import Decimal

from fallback_tier.ports import Usage

_PACKAGE = "genai-prices"

#: The release in requirements.lock, and the day of its publication: the package contains no date.
LOCKED_RELEASE = ("0.2.3", "2026-11-10")


def listed_prices_as_of() -> str:
    """Return the release of the prices, with its day if it is the locked one."""
    from importlib.metadata import version

    installed = version(_PACKAGE)
    locked, day = LOCKED_RELEASE
    return f"{_PACKAGE} {installed}" + (f" of {day}" if installed == locked else "")


def listed_cost(model: str, usage: Usage) -> Decimal | None:
    """Return the dollars of one call at its provider's list price today, or None if there is no list price
    for both directions.

    Cache writes cost the higher of their own and the input price, so that the charge before a call is never
    too low.
    """
    from genai_prices import Usage as Counted
    from genai_prices import calc_price

    prompt_tokens = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    dollars = []
    for cache_write_tokens in (0, usage.cache_write_tokens):
        counted = Counted(
            input_tokens=prompt_tokens,  # includes cached ones there
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        try:
            calculation = calc_price(counted, model)
        except LookupError:
            return None
        if (
            calculation.model_price.input_mtok is None
            or calculation.model_price.output_mtok is None
        ):
            return None  # no price does not mean free
        dollars.append(calculation.total_price)
    return max(dollars)
