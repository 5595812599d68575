"""Caps on the usage of model calls. ``fallback_tier.budget.audited`` enforces them.

A configuration has caps; a fix by recipe does not import the code that counts usage.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

from pydantic import Field

from fallback_audit.event_types import Dollars
from fallback_audit.events import BudgetReached
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import BudgetLimit
from fallback_tier.errors import FallbackError

_DOLLARS = frozenset({BudgetLimit.USD_PER_FIX, BudgetLimit.USD_PER_DAY})
_OF_A_DAY = frozenset({BudgetLimit.USD_PER_DAY, BudgetLimit.TOKENS_PER_DAY})

#: The option that raises each cap of a fix, the same in ``review raise-budget`` and ``fix``.
CAP_OPTIONS = {
    BudgetLimit.USD_PER_FIX: "--max-usd",
    BudgetLimit.TOKENS_PER_FIX: "--max-tokens",
    BudgetLimit.USD_PER_DAY: "--max-usd-per-day",
    BudgetLimit.TOKENS_PER_DAY: "--max-tokens-per-day",
}

_Tokens = Annotated[int, Field(ge=0)]


class BudgetLimits(Frozen):
    """Hard caps; None: no cap. Dollars are estimates from the dated price table. Days are UTC."""

    usd_per_fix: Dollars | None = Field(
        default=None, description="estimated dollars that a fix may use"
    )
    usd_per_day: Dollars | None = Field(default=None, description="for all fixes of a UTC day")
    tokens_per_fix: _Tokens | None = Field(default=None, description="tokens that a fix may use")
    tokens_per_day: _Tokens | None = Field(default=None, description="for all fixes of a UTC day")

    def caps(self) -> Iterator[tuple[BudgetLimit, str]]:
        """Yield the caps that are set, as text."""
        for limit in BudgetLimit:
            cap = getattr(self, limit.value)
            if cap is not None:
                yield limit, str(cap)

    @property
    def in_dollars(self) -> bool:
        """Whether a cap is in dollars: then the price of every model must be known."""
        return any(is_dollars(limit) for limit, _ in self.caps())


def is_dollars(limit: BudgetLimit) -> bool:
    """Return whether the cap is in estimated dollars, not in tokens."""
    return limit in _DOLLARS


def is_of_a_day(limit: BudgetLimit) -> bool:
    """Return whether the cap is on all fixes of a UTC day, not on one fix."""
    return limit in _OF_A_DAY


def amount(limit: BudgetLimit, value: str) -> str:
    """Return an amount for a sentence."""
    return f"${value}" if is_dollars(limit) else f"{int(value):,} tokens"


def in_words(limit: BudgetLimit, *, cap: str, used: str, wanted: str) -> str:
    """Return the reached cap as a sentence."""
    span = "today (UTC)" if is_of_a_day(limit) else "of this fix"
    needs = f"may use {amount(limit, wanted)}" if wanted else "has no known price"
    return (
        f"The next model call {needs}; {amount(limit, used)} {span} are used, "
        f"of at most {amount(limit, cap)}."
    )


def reached_in_words(reached: BudgetReached) -> str:
    """Return the same for an event."""
    return in_words(reached.limit, cap=reached.cap, used=reached.used, wanted=reached.wanted)


def how_to_go_on(reached: BudgetReached, fix_id: str) -> str:
    """Return the question to a person: the commands that raise the cap and continue."""
    option, lowest_cap = CAP_OPTIONS[reached.limit], least_cap(reached)
    raising, resuming = raising_command(reached, fix_id), f"fallback-tier resume {fix_id}"
    if is_of_a_day(reached.limit):
        return f"Go on tomorrow, or with {option} {lowest_cap} or more? `{raising}`, then `{resuming}`."
    return f"Go on? `{raising}` (or more), then `{resuming}`."


def raising_command(reached: BudgetReached, fix_id: str) -> str:
    """Return the command that lets the fix continue, with the lowest cap under which the next call fits."""
    raising = f"fallback-tier review raise-budget {fix_id} --by NAME --because TEXT"
    if is_of_a_day(reached.limit):
        return raising
    return f"{raising} {CAP_OPTIONS[reached.limit]} {least_cap(reached)}"


def least_cap(reached: BudgetReached) -> str:
    """Return the lowest cap under which the next call fits, or N if its price is unknown."""
    if not reached.wanted:
        return "N"
    return f"{Decimal(reached.used) + Decimal(reached.wanted):f}"


class OverBudget(FallbackError):  # noqa: N818 (control flow, not an error)
    """Raised if the next call would exceed a cap. ``wanted`` is empty if its price is unknown."""

    code = "over_budget"

    def __init__(self, limit: BudgetLimit, *, cap: str, used: str, wanted: str) -> None:
        super().__init__(
            in_words(limit, cap=cap, used=used, wanted=wanted),
            next_step="Raise the cap, then resume.",
        )
        self.limit, self.cap, self.used, self.wanted = limit, cap, used, wanted
