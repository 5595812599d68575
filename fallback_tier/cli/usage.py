"""What a fix's model calls used, and what that costs by estimate."""

from rich.console import Console

from fallback_tier.budget.listed_prices import listed_prices_as_of
from fallback_tier.budget.prices import PRICES_AS_OF
from fallback_tier.cli.remediation import line
from fallback_tier.gates.result import FixResult


def report_usage(result: FixResult, console: Console) -> None:
    """One line a call type, for a person; nothing where no model was asked."""
    for used in result.usage:
        tokens = f"{used.input_tokens:,} tokens in"
        if used.cache_read_tokens or used.cache_write_tokens:
            tokens += (
                f" (cache: {used.cache_read_tokens:,} read, {used.cache_write_tokens:,} written)"
            )
        line(
            console,
            f"  used by {used.call_type}: {used.calls} call(s), {tokens}, {used.output_tokens:,} out, "
            f"{_estimate(used.cost_usd_estimate)}",
        )
    if result.unreported is not None:
        line(
            console,
            f"  booked for calls of which no use was reported: {result.unreported.tokens:,} tokens, "
            f"{_estimate(result.unreported.cost_usd_estimate)}",
        )
    if result.usage or result.unreported:
        line(
            console,
            f"  [dim]dollars are estimates from the price table of {PRICES_AS_OF}, else from --price, else "
            f"from {listed_prices_as_of()}[/]",
        )


def _estimate(dollars: str | None) -> str:
    return "price not known" if dollars is None else f"about ${dollars}"
