"""Caps: what counts against them, when, and for whom."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from fallback_audit.events import Charge
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import (
    BudgetLimit,
    ModelFailureKind,
)
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.meter import OverBudget
from fallback_tier.budget.prices import OVERHEAD_TOKENS, Prices, read_price
from fallback_tier.ports import ModelRequest
from tests.fakes.audit import MemoryAudit
from tests.fakes.talking import request
from tests.unit.budget.books import TODAY, YESTERDAY, Books, fits, left, scope


@pytest.fixture
def books() -> Books:
    return Books()


def test_without_a_cap_everything_fits(books: Books) -> None:
    books.called(tokens=10**12)
    assert fits(books.meter(), 10**12)


def test_a_call_counts_its_pre_charge_until_its_use_is_reported(books: Books) -> None:
    meter = books.meter(tokens_per_fix=1_000)
    assert left(meter) == 1_000
    books.called(tokens=100)
    assert left(meter) == 900
    books.answered()  # 10 + 5 + 3 + 2
    assert left(meter) == 980
    books.reused()
    assert left(meter) == 980


@pytest.mark.parametrize("failure", ModelFailureKind)
def test_a_failed_call_counts_where_the_server_may_have_worked(
    books: Books, failure: ModelFailureKind
) -> None:
    books.called(tokens=100)
    books.failed(failure)
    kinds = ModelFailureKind
    booked = failure in {kinds.TIMEOUT, kinds.BROKEN_STREAM, kinds.NOT_AN_ANSWER}
    assert left(books.meter(tokens_per_fix=1_000)) == (900 if booked else 1_000)


def test_a_call_that_was_in_flight_when_its_process_died_stays_booked(books: Books) -> None:
    books.called(call=1, tokens=100)  # and the process is gone
    books.called(call=1, tokens=200)  # the attempt was resumed
    books.answered(call=1)
    assert left(books.meter(tokens_per_fix=1_000)) == 880


def test_the_cap_itself_may_be_used_up(books: Books) -> None:
    meter = books.meter(tokens_per_fix=100, usd_per_fix="0.10")
    assert fits(meter, 100, "0.100000")
    assert not fits(meter, 101, "0.100000")
    assert not fits(meter, 100, "0.100001")


def test_a_fix_is_not_charged_for_another(books: Books) -> None:
    books.called(fix="fix-2", tokens=900)
    assert left(books.meter(tokens_per_fix=1_000)) == 1_000
    assert left(books.meter(tokens_per_day=1_000)) == 100


def test_a_day_begins_anew_and_a_fix_does_not(books: Books) -> None:
    per_day, per_fix = books.meter(tokens_per_day=1_000), books.meter(tokens_per_fix=1_000)
    books.clock.now = YESTERDAY
    books.called(tokens=600)
    assert (left(per_day), left(per_fix)) == (400, 400)
    books.clock.now = TODAY
    books.called(call=2, tokens=100)
    assert (left(per_day), left(per_fix)) == (900, 300)
    assert (left(books.meter(tokens_per_day=1_000)), left(books.meter(tokens_per_fix=1_000))) == (
        900,
        300,
    )


def test_a_call_over_midnight_belongs_to_the_day_on_which_it_was_announced(books: Books) -> None:
    books.clock.now = YESTERDAY
    books.called(tokens=600)
    books.clock.now = TODAY
    books.answered()
    assert left(books.meter(tokens_per_day=1_000)) == 1_000


def test_dollars_count_as_estimated_when_the_call_ended(books: Books) -> None:
    meter = books.meter(usd_per_fix="1")
    books.called(cost_usd_estimate="0.75")
    assert not fits(meter, 1, "0.250001")
    books.answered(cost="0.100000")
    assert fits(meter, 1, "0.900000")
    assert not fits(meter, 1, "0.900001")


def test_a_price_that_was_named_later_counts_for_earlier_calls(books: Books) -> None:
    books.called(cost_usd_estimate=None)
    books.answered(cost=None)
    priced = books.meter(Prices(read_price("100000:0")), usd_per_fix="2")
    # 10 + 3 x 0.1 + 2 x 1.25 tokens at 0.10 dollars
    assert not fits(priced, 1, "0.720001")
    assert fits(priced, 1, "0.720000")


def test_an_unknown_price_never_fits_below_a_cap_in_dollars(books: Books) -> None:
    with pytest.raises(OverBudget, match="no known price") as caught:
        books.meter(usd_per_day="100").check(scope(), Charge(tokens=1))
    assert caught.value.wanted == ""


@pytest.mark.parametrize("limit", BudgetLimit)
def test_what_was_reached_is_said_with_its_numbers(books: Books, limit: BudgetLimit) -> None:
    books.called(tokens=60, cost_usd_estimate="60")
    with pytest.raises(OverBudget) as caught:
        books.limited(limit, 100).check(scope(), Charge(tokens=41, cost_usd_estimate="41"))
    over = caught.value
    assert over.limit is limit
    assert [Decimal(value) for value in (over.cap, over.used, over.wanted)] == [100, 60, 41]
    assert "41" in over.problem
    assert ("today" in over.problem) is limit.value.endswith("day")


class TestRaised:
    def test_a_raised_cap_holds_for_its_fix(self, books: Books) -> None:
        meter = books.meter(tokens_per_fix=100)
        books.called(tokens=100)
        books.called(fix="fix-2", tokens=100)
        assert not fits(meter, 1)
        books.raised(tokens_per_fix=150)
        assert left(meter) == 50
        assert not fits(meter, 1, fix="fix-2")

    def test_it_is_a_cap_also_where_none_is_configured(self, books: Books) -> None:
        books.raised(tokens_per_fix=150)
        assert left(books.meter()) == 150

    def test_it_never_lowers_one(self, books: Books) -> None:
        books.raised(usd_per_fix="9")
        books.raised(usd_per_fix="10")
        assert fits(books.meter(usd_per_fix="2"), 1, "10")
        assert not fits(books.meter(usd_per_fix="2"), 1, "10.000001")
        assert fits(books.meter(usd_per_fix="11"), 1, "11")

    def test_it_leaves_the_other_caps_alone(self, books: Books) -> None:
        books.raised(usd_per_fix="10")
        meter = books.meter(tokens_per_fix=7, tokens_per_day=5)
        assert fits(meter, 5, "1")
        assert not fits(meter, 6, "1")


class TestConfirm:
    """After the charge is on record, what stands before it in the chain decides."""

    def test_of_two_that_passed_at_once_the_second_gives_way(self, books: Books) -> None:
        first, second = books.meter(tokens_per_day=100), books.meter(tokens_per_day=100)
        assert fits(first, 60, fix="fix-1")
        assert fits(second, 60, fix="fix-2")
        books.called(fix="fix-1", tokens=60)
        books.called(fix="fix-2", tokens=60)
        first.confirm(scope("fix-1"))
        with pytest.raises(OverBudget) as caught:
            second.confirm(scope("fix-2"))
        assert (caught.value.used, caught.value.wanted) == ("60", "60")

    def test_a_withheld_call_makes_nobody_else_give_way(self, books: Books) -> None:
        books.called(fix="fix-1", tokens=60)
        books.called(fix="fix-2", tokens=60)
        books.called(fix="fix-3", tokens=40)
        books.failed(ModelFailureKind.WITHHELD, fix="fix-2")
        books.meter(tokens_per_day=100).confirm(scope("fix-3"))

    def test_one_gate_transition_sees_the_other_of_its_fix(self, books: Books) -> None:
        books.called(tokens=60)
        other = Scope(fix_id="fix-1", gate_transition_id="gate-2")
        books.audit.append(other, books.audit.payloads[0])
        with pytest.raises(OverBudget):
            books.meter(tokens_per_fix=100).confirm(other)

    def test_a_charge_that_is_not_on_record_is_a_mistake_of_ours(self, books: Books) -> None:
        with pytest.raises(LookupError):
            books.meter(tokens_per_fix=1).confirm(scope())


class TestCharge:
    def test_it_bounds_what_a_byte_level_tokenizer_can_make_of_the_request(self) -> None:
        asked = request("é𝄞" * 100, output=7)
        charge = AuditMeter(MemoryAudit()).charge("claude-opus-5", asked)
        size = len(asked.text.encode())
        assert charge.tokens == size + OVERHEAD_TOKENS + 7
        # All of it at the rate of a cache write, 1.25 of an input token.
        dearest = (size + OVERHEAD_TOKENS) * 5 * Decimal("1.25") + 7 * 25
        assert charge.cost_usd_estimate is not None
        assert 0 <= Decimal(charge.cost_usd_estimate) - dearest / 10**6 <= Decimal("0.000001")

    def test_a_schema_is_read_too(self) -> None:
        plain, meter = request(), AuditMeter(MemoryAudit())
        enforced = ModelRequest(**{**plain.model_dump(), "answer_schema": {"title": "x" * 100}})
        more = meter.charge("m", enforced).tokens - meter.charge("m", plain).tokens
        assert more >= 100

    def test_no_price_is_not_a_price_of_nothing(self) -> None:
        assert AuditMeter(MemoryAudit()).charge("qwen3", request()).cost_usd_estimate is None
        free = AuditMeter(MemoryAudit(), prices=Prices(read_price("0:0")))
        assert free.charge("qwen3", request()).cost_usd_estimate == "0.000000"


def test_a_trail_is_read_once_and_then_only_what_is_new(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 101):
        books.called(call=call, tokens=1)
        books.answered(call=call)
    meter = books.meter(tokens_per_day=10_000, tokens_per_fix=10_000)
    read: list[int] = []
    real: Callable[..., object] = books.audit.events

    def counting(*arguments: object, **named: object) -> object:
        found = list(real(*arguments, **named))  # type: ignore[call-overload]
        read.append(len(found))
        return iter(found)

    monkeypatch.setattr(books.audit, "events", counting)
    assert fits(meter, 1)
    assert read == [200, 200]
    read.clear()
    books.called(call=101)
    assert fits(meter, 1)
    assert read == [1, 1]
