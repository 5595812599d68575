"""The usage that the audit trail records: of one fix, or of all fixes since a moment.

Each call counts with the usage that the server reported; a call without an end (in flight, or its process
died) with its pre-charge; a failed one with nothing, unless the server may have worked for it.
"""

from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from typing import NamedTuple, Self

from fallback_audit.events import BudgetRaised, Charge, ModelAnswered, ModelCalled, ModelFailed
from fallback_audit.ports import AuditReader, Scope, StoredEvent
from fallback_audit.vocabulary import CallType
from fallback_tier.budget.prices import Prices
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.outcome import CallUsage
from fallback_tier.ports import Usage


class CallCeiling:
    """The limit of author calls of one attempt, shared by repair, regeneration and repeat (ADR-0014)."""

    def __init__(self, limit: int = MAX_AUTHOR_CALLS) -> None:
        self.limit = limit
        self.taken = 0

    @property
    def left(self) -> int:
        """The number of calls that may still be made."""
        return self.limit - self.taken

    def take(self) -> int | None:
        """Return the number of the next call (from 1), or None if the ceiling is reached."""
        if not self.left:
            return None
        self.taken += 1
        return self.taken


class UsageLedger:
    """Adds up tokens and estimated dollars per call type."""

    def __init__(self) -> None:
        self._calls: dict[CallType, list[tuple[Usage, Decimal | None]]] = {}

    def record(self, call_type: CallType, usage: Usage, cost: Decimal | None) -> None:
        """Book one answered call: the tokens that the server reported, and their cost."""
        self._calls.setdefault(call_type, []).append((usage, cost))

    def totals(self) -> tuple[CallUsage, ...]:
        """Return one entry per call type used, in the vocabulary's order. The cost is None if any call's
        price is unknown."""
        return tuple(
            _total(call_type, self._calls[call_type])
            for call_type in CallType
            if call_type in self._calls
        )


def _total(call_type: CallType, calls: list[tuple[Usage, Decimal | None]]) -> CallUsage:
    costs = [cost for _, cost in calls if cost is not None]
    return CallUsage(
        call_type=call_type,
        calls=len(calls),
        input_tokens=sum(usage.input_tokens for usage, _ in calls),
        output_tokens=sum(usage.output_tokens for usage, _ in calls),
        cache_read_tokens=sum(usage.cache_read_tokens for usage, _ in calls),
        cache_write_tokens=sum(usage.cache_write_tokens for usage, _ in calls),
        cost_usd_estimate=f"{sum(costs, Decimal(0)):f}" if len(costs) == len(calls) else None,
    )


#: The events that a tally reads. AnswerReused is not among them: a reused answer costs nothing.
KINDS = frozenset({"ModelCalled", "ModelAnswered", "ModelFailed", "BudgetRaised"})

_MILLION = 1_000_000


class Amount(NamedTuple):
    """Tokens, and estimated dollars in millionths; None: the price is unknown."""

    tokens: int
    microdollars: int | None

    @classmethod
    def of_charge(cls, charge: Charge | None) -> Self:
        """Return the amount of a pre-charge. Calls from before schema version 4 have none, and count
        nothing until they end."""
        if charge is None:
            return cls(0, 0)
        cost = charge.cost_usd_estimate
        return cls(charge.tokens, None if cost is None else microdollars(cost))


class _Key(NamedTuple):
    """The call that an end belongs to: the last one with this key, if an attempt was resumed."""

    scope: Scope
    attempt: int
    call_type: CallType
    call: int


@dataclass
class Booked:
    """One call with its current amount. ``day``: when it was announced (UTC); ``reported`` False: its
    pre-charge counts."""

    seq: int
    scope: Scope
    day: str
    model: str
    amount: Amount
    reported: bool = False


@dataclass(eq=False)
class Tally:
    """Calls in chain order; each refresh reads only new events. Not safe to share between threads."""

    audit: AuditReader
    prices: Prices
    _: KW_ONLY
    fix_id: str | None = None
    since: str | None = None
    _read: int = field(default=0, init=False)
    _open: dict[_Key, Booked] = field(default_factory=dict, init=False)
    calls: list[Booked] = field(default_factory=list, init=False)
    raised: tuple[BudgetRaised, ...] = field(default=(), init=False)

    def refresh(self) -> None:
        """Read the events recorded since the last refresh."""
        since = None if self._read else self.since
        events = self.audit.events(self.fix_id, kinds=KINDS, since=since, after=self._read)
        for event in events:
            self._fold(event)
            self._read = event.seq

    def used(self, *, before: int | None = None) -> Amount:
        """Return the total of the calls before number ``before``; unknown prices count no dollars."""
        counted = [booked.amount for booked in self.calls if before is None or booked.seq < before]
        return Amount(
            sum(amount.tokens for amount in counted),
            sum(amount.microdollars or 0 for amount in counted),
        )

    def last(self, scope: Scope) -> Booked:
        """Return the latest call of a scope. Raises LookupError if there is none."""
        for booked in reversed(self.calls):
            if booked.scope == scope:
                return booked
        raise LookupError(f"no call of {scope} is on record")

    def _fold(self, event: StoredEvent) -> None:
        match event.payload:
            case ModelCalled() as called:
                booked = Booked(
                    event.seq,
                    event.scope,
                    event.recorded_at[:10],
                    called.model,
                    Amount.of_charge(called.reserved),
                )
                self.calls.append(booked)
                self._open[_key(event.scope, called)] = booked
            case ModelAnswered() as answered:
                # There is no such call if it was announced before the moment that this tally begins with.
                ended = self._open.pop(_key(event.scope, answered), None)
                if ended is not None:
                    ended.amount = self._reported(answered, ended.model)
                    ended.reported = True
            case ModelFailed() as failed:
                ended = self._open.pop(_key(event.scope, failed), None)
                billed = failed.failure is None or failed.failure.may_be_billed
                if ended is not None and not billed:
                    ended.amount = Amount(0, 0)
                    ended.reported = True
            case BudgetRaised() as raised:
                self.raised = (*self.raised, raised)

    def _reported(self, answered: ModelAnswered, model: str) -> Amount:
        usage, cost = usage_of(answered), answered.cost_usd_estimate
        dollars = self.prices.cost(model, usage) if cost is None else Decimal(cost)
        tokens = (
            usage.input_tokens
            + usage.output_tokens
            + usage.cache_read_tokens
            + usage.cache_write_tokens
        )
        return Amount(tokens, None if dollars is None else microdollars(dollars))


def usage_of(answered: ModelAnswered) -> Usage:
    """Return the tokens that the server reported."""
    return Usage.model_construct(  # as recorded, by any version of this program
        input_tokens=answered.input_tokens,
        output_tokens=answered.output_tokens,
        cache_read_tokens=answered.cache_read_tokens,
        cache_write_tokens=answered.cache_write_tokens,
    )


def microdollars(dollars: str | Decimal) -> int:
    """Return millionths of a dollar, the smallest amount of a price."""
    return int(Decimal(dollars) * _MILLION)


def in_dollars(micro: int) -> str:
    """Return the amount as a decimal string, without an exponent."""
    return f"{Decimal(micro) / _MILLION:f}"


def _key(scope: Scope, event: ModelCalled | ModelAnswered | ModelFailed) -> _Key:
    return _Key(scope, event.attempt, event.call_type, event.call)


def spent(audit: AuditReader, scope: Scope) -> tuple[tuple[CallUsage, ...], Charge | None]:
    """Return the usage of a gate transition's calls, and the pre-charges of calls without a report. A
    reused answer counts once, at the attempt that paid for it."""
    ledger = UsageLedger()
    for stored_event in audit.events(scope.fix_id, kinds=frozenset({"ModelAnswered"})):
        event = stored_event.payload
        if stored_event.scope == scope and isinstance(event, ModelAnswered):
            cost = event.cost_usd_estimate
            ledger.record(event.call_type, usage_of(event), None if cost is None else Decimal(cost))
    return ledger.totals(), _unreported(audit, scope)


def _unreported(audit: AuditReader, scope: Scope) -> Charge | None:
    tally = Tally(audit, Prices(), fix_id=scope.fix_id)
    tally.refresh()
    open_calls = [
        booked.amount for booked in tally.calls if booked.scope == scope and not booked.reported
    ]
    if not open_calls:
        return None
    costs = [amount.microdollars for amount in open_calls if amount.microdollars is not None]
    return Charge(
        tokens=sum(amount.tokens for amount in open_calls),
        cost_usd_estimate=in_dollars(sum(costs)) if len(costs) == len(open_calls) else None,
    )
