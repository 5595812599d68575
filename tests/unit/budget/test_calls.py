"""The call ceiling, and what the ledger adds up."""

from decimal import Decimal

from fallback_audit.vocabulary import CallType
from fallback_tier.budget.tally import CallCeiling, UsageLedger
from fallback_tier.limits import MAX_AUTHOR_CALLS
from fallback_tier.ports import Usage


def test_the_ceiling_counts_from_one_and_stays_shut() -> None:
    ceiling = CallCeiling()
    taken = [ceiling.take() for _ in range(MAX_AUTHOR_CALLS + 2)]
    assert taken == [*range(1, MAX_AUTHOR_CALLS + 1), None, None]
    assert CallCeiling(limit=0).take() is None
    assert CallCeiling().limit == MAX_AUTHOR_CALLS


def test_totals_per_call_type() -> None:
    ledger = UsageLedger()
    assert ledger.totals() == ()
    ledger.record(CallType.JUDGE, Usage(input_tokens=5), None)
    ledger.record(CallType.AUTHOR, Usage(input_tokens=1, output_tokens=2), Decimal(0))
    ledger.record(CallType.AUTHOR, Usage(cache_read_tokens=3, cache_write_tokens=4), Decimal(0))
    author, judge = ledger.totals()
    assert (author.call_type, author.calls) == (CallType.AUTHOR, 2)
    assert (author.input_tokens, author.output_tokens) == (1, 2)
    assert (author.cache_read_tokens, author.cache_write_tokens) == (3, 4)
    assert (judge.call_type, judge.calls, judge.input_tokens) == (CallType.JUDGE, 1, 5)


def test_the_cost_is_the_sum_of_the_estimates() -> None:
    ledger = UsageLedger()
    ledger.record(CallType.AUTHOR, Usage(), Decimal("0.007500"))
    ledger.record(CallType.AUTHOR, Usage(), Decimal("0.000001"))
    (total,) = ledger.totals()
    assert total.cost_usd_estimate == "0.007501"


def test_one_unknown_price_makes_the_total_unknown() -> None:
    ledger = UsageLedger()
    ledger.record(CallType.AUTHOR, Usage(input_tokens=1), Decimal(1))
    ledger.record(CallType.AUTHOR, Usage(input_tokens=1), None)
    (total,) = ledger.totals()
    assert total.cost_usd_estimate is None
    assert total.input_tokens == 2
