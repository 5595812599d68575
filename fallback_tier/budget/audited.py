"""Caps checked against the audit trail as the journal: processes share it, and it survives a crash.

A call is announced in two steps, because an append can't be conditional. ``check`` refuses a call that does
not fit; a call that fits is recorded, and ``confirm`` then checks all calls recorded *before* it in the
chain. If two processes pass ``check`` at the same time, the second one in the chain sees the first and
gives way; the first does not see the second. So no cap is exceeded, and both never give way.

That holds as long as a server reports no more than the pre-charge, which is an upper bound (``charge``).
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime

from fallback_audit.events import BudgetRaised, Charge
from fallback_audit.ports import AuditStore, Scope
from fallback_audit.vocabulary import BudgetLimit
from fallback_tier.budget.meter import BudgetLimits, OverBudget, is_dollars, is_of_a_day
from fallback_tier.budget.prices import Prices, input_tokens_at_most, tokens_at_most
from fallback_tier.budget.tally import Amount, Tally, in_dollars, microdollars
from fallback_tier.ports import ModelRequest, Usage

#: How many fixes' tallies are kept in memory; a dropped one is read again.
MAX_FIXES_HELD = 64

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the current time in UTC: the clock of production."""
    return datetime.now(UTC)


class AuditMeter:
    """Checks the caps against the audit trail; thread-safe. Per fix: all events of its identifier, with its
    raised caps. Per day: all calls announced on this UTC day."""

    def __init__(
        self,
        audit: AuditStore,
        limits: BudgetLimits | None = None,
        prices: Prices | None = None,
        *,
        clock: Clock = utc_now,
    ) -> None:
        self._audit = audit
        self._limits = limits or BudgetLimits()
        self._prices = prices or Prices()
        self._clock = clock
        self._lock = threading.Lock()
        self._fixes: OrderedDict[str, Tally] = OrderedDict()
        self._day: tuple[str, Tally] | None = None

    @property
    def prices(self) -> Prices:
        """The prices of calls."""
        return self._prices

    def charge(self, model: str, request: ModelRequest) -> Charge:
        """Return the most that the request may use, its input at the highest rate (a cache write's)."""
        tokens = input_tokens_at_most(request)
        most = Usage(cache_write_tokens=tokens, output_tokens=request.max_output_tokens)
        cost = self._prices.cost(model, most)
        return Charge(
            tokens=tokens_at_most(request),
            cost_usd_estimate=None if cost is None else f"{cost:f}",
        )

    def check(self, scope: Scope, charge: Charge) -> None:
        """Raise OverBudget if the charge does not fit below every cap; AuditStoreError."""
        with self._lock:
            today = self._clock().astimezone(UTC).date().isoformat()
            self._fit(self._fix(scope.fix_id), today, Amount.of_charge(charge))

    def confirm(self, scope: Scope) -> None:
        """Raise OverBudget if the charge, now recorded, does not fit after those recorded before it."""
        with self._lock:
            fix = self._fix(scope.fix_id)
            booked = fix.last(scope)
            self._fit(fix, booked.day, booked.amount, before=booked.seq)

    def _fit(self, fix: Tally, day: str, wanted: Amount, *, before: int | None = None) -> None:
        for limit, cap in effective(self._limits, fix.raised).caps():
            tally = self._of_day(day) if is_of_a_day(limit) else fix
            used = tally.used(before=before)
            if not is_dollars(limit):
                if used.tokens + wanted.tokens > int(cap):
                    raise OverBudget(
                        limit, cap=cap, used=str(used.tokens), wanted=str(wanted.tokens)
                    )
            elif wanted.microdollars is None or (
                used.microdollars or 0
            ) + wanted.microdollars > microdollars(cap):
                price = "" if wanted.microdollars is None else in_dollars(wanted.microdollars)
                raise OverBudget(
                    limit, cap=cap, used=in_dollars(used.microdollars or 0), wanted=price
                )

    def _fix(self, fix_id: str) -> Tally:
        tally = self._fixes.pop(fix_id, None) or Tally(self._audit, self._prices, fix_id=fix_id)
        self._fixes[fix_id] = tally
        if len(self._fixes) > MAX_FIXES_HELD:
            self._fixes.popitem(last=False)
        tally.refresh()
        return tally

    def _of_day(self, day: str) -> Tally:
        if self._day is None or self._day[0] != day:
            self._day = day, Tally(self._audit, self._prices, since=f"{day}T00:00:00Z")
        tally = self._day[1]
        tally.refresh()
        return tally


def effective(limits: BudgetLimits, raised: tuple[BudgetRaised, ...]) -> BudgetLimits:
    """Return the configured caps with those raised for this fix: the higher one of the two, or the one that
    is set."""
    usd = [
        cap
        for cap in (limits.usd_per_fix, *(raising.usd_per_fix for raising in raised))
        if cap is not None
    ]
    tokens = [
        cap
        for cap in (limits.tokens_per_fix, *(raising.tokens_per_fix for raising in raised))
        if cap is not None
    ]
    return limits.model_copy(
        update={
            BudgetLimit.USD_PER_FIX.value: max(usd, key=microdollars, default=None),
            BudgetLimit.TOKENS_PER_FIX.value: max(tokens, default=None),
        }
    )
