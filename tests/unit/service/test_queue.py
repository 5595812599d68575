"""The queue: durable, bounded; each change names the state it comes from; tokens know a repetition."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_tier.service.database import Database
from fallback_tier.service.queue import (
    TOKEN_SECONDS,
    NewOrder,
    OrderQueue,
    OrderState,
    Submission,
    Token,
)
from fallback_tier.service.refusals import BusyError, ConflictError, NotFoundError
from fallback_tier.workers.problem import Problem
from tests.kinds import OfKind
from tests.waiting import at_once

SUBMISSION = Submission(repository="app", advisory={"id": "TEST-2026-1"})
PROBLEM = Problem(code="tool", problem="It broke.", next_step="Mend it.")


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "service.db") as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(database: Database, clock: Clock) -> OrderQueue:
    return OrderQueue(database, max_queued=3, clock=clock)


def asked(name: str, by: str = "key:ci") -> NewOrder:
    return NewOrder(fix_id=name, submission=SUBMISSION, advisory_id="TEST-2026-1", by=by)


def test_a_submission_is_there_for_another_process(queue: OrderQueue, database: Database) -> None:
    taken = queue.submit(asked("fix-1"))
    assert not taken.cached
    with Database(database.path) as other:
        order = OrderQueue(other).get("fix-1")
    assert order == taken.order
    assert (order.state, order.submitted_by) == (OrderState.QUEUED, "key:ci")


def test_it_is_bounded_by_what_waits(queue: OrderQueue) -> None:
    for number in range(3):
        queue.submit(asked(f"fix-{number}"))
    with pytest.raises(BusyError, check=OfKind("queue_full"), match=r"\b3\b"):
        queue.submit(asked("fix-3"))
    queue.take_next()
    queue.submit(asked("fix-3"))


def test_the_oldest_goes_first_and_to_one_alone(queue: OrderQueue, database: Database) -> None:
    queue.submit(asked("fix-1"))
    queue.submit(asked("fix-2"))
    taken: list[str] = []

    def take() -> None:
        with Database(database.path) as own:
            if (order := OrderQueue(own).take_next()) is not None:
                taken.append(order.fix_id)

    at_once([take] * 6)
    assert sorted(taken) == ["fix-1", "fix-2"]
    assert queue.take_next() is None


def test_the_same_request_again_is_the_same_fix(queue: OrderQueue) -> None:
    token = Token("t-1", "body")
    first = queue.submit(asked("fix-1"), token)
    again = queue.submit(asked("fix-2"), token)
    assert (first.cached, again.cached) == (False, True)
    assert again.order.fix_id == "fix-1"
    assert queue.counts()[OrderState.QUEUED] == 1


def test_a_full_queue_still_knows_a_repetition(queue: OrderQueue) -> None:
    for number in range(3):
        queue.submit(asked(f"fix-{number}"), Token(f"t-{number}", "body"))
    assert queue.submit(asked("fix-9"), Token("t-1", "body")).order.fix_id == "fix-1"


def test_a_token_with_another_body_is_a_conflict(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1"), Token("t-1", "body"))
    with pytest.raises(ConflictError, check=OfKind("another_body"), match=r"\bfix-1\b"):
        queue.submit(asked("fix-2"), Token("t-1", "another"))


def test_a_token_belongs_to_who_sent_it(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1", by="key:ci"), Token("t-1", "body"))
    assert not queue.submit(asked("fix-2", by="key:other"), Token("t-1", "body")).cached


def test_a_token_is_forgotten_after_two_days(queue: OrderQueue, clock: Clock) -> None:
    queue.submit(asked("fix-1"), Token("t-1", "body"))
    clock.now += TOKEN_SECONDS - 1
    assert queue.submit(asked("fix-2"), Token("t-1", "body")).cached
    clock.now += 2
    assert not queue.submit(asked("fix-3"), Token("t-1", "body")).cached


def test_an_end_is_kept_whole(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1"))
    assert not queue.end("fix-1", "verified", "{}")  # it does not run yet
    queue.take_next()
    assert queue.end("fix-1", "verified", json.dumps({"outcome": "verified", "patch": "x"}))
    order = queue.get("fix-1")
    assert (order.state, order.outcome) == (OrderState.ENDED, "verified")
    assert order.ended == {"outcome": "verified", "patch": "x"}
    assert not queue.fail("fix-1", PROBLEM)
    assert not queue.cancelled_if_wanted("fix-1")
    assert queue.get("fix-1") == order


@pytest.mark.parametrize(
    "over",
    [
        lambda queue: queue.end("fix-1", "verified", "{}"),
        lambda queue: queue.fail("fix-1", PROBLEM),
        lambda queue: queue.cancelled_if_wanted("fix-1"),
    ],
    ids=["ended", "failed", "cancelled"],
)
def test_it_ended_when_that_was_written_not_when_its_turn_was_awaited(
    queue: OrderQueue, database: Database, clock: Clock, over: Callable[[OrderQueue], bool]
) -> None:
    queue.submit(asked("fix-1"))
    queue.take_next()
    queue.cancel("fix-1", "key:ci")

    def late() -> float:
        with (
            closing(sqlite3.connect(database.path, timeout=0)) as other,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            other.execute("BEGIN IMMEDIATE")
        return clock()

    assert over(replace(queue, clock=late))
    assert queue.get("fix-1").ended_at is not None


def test_one_that_waits_is_cancelled_at_once(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1"))
    assert queue.cancel("fix-1", "key:ci").state is OrderState.CANCELLED
    assert queue.take_next() is None
    with pytest.raises(ConflictError, check=OfKind("is_over")):
        queue.cancel("fix-1", "key:ci")


def test_one_that_runs_is_to_be_cancelled(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1"))
    queue.take_next()
    assert not queue.cancelled_if_wanted("fix-1")
    order = queue.cancel("fix-1", "key:ci")
    assert (order.state, order.cancelling) == (OrderState.RUNNING, True)
    assert queue.cancelled_if_wanted("fix-1")
    assert queue.get("fix-1").state is OrderState.CANCELLED


@pytest.mark.parametrize("outcome", ["verified", "patched", "refused"])
def test_what_has_ended_does_not_go_on(queue: OrderQueue, outcome: str) -> None:
    queue.submit(asked("fix-1"))
    queue.take_next()
    queue.end("fix-1", outcome, "{}")
    with pytest.raises(ConflictError, check=OfKind("wrong_state"), match=outcome):
        queue.resume("fix-1", "key:ops")


def test_what_waits_or_runs_does_not_go_on(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1"))
    with pytest.raises(ConflictError, check=OfKind("wrong_state"), match=r"\bqueued\b"):
        queue.resume("fix-1", "key:ops")
    queue.take_next()
    with pytest.raises(ConflictError, check=OfKind("wrong_state"), match=r"\brunning\b"):
        queue.resume("fix-1", "key:ops")
    assert queue.queue_again("fix-1", takes=1)
    assert (queue.get("fix-1").state, queue.get("fix-1").takes) == (OrderState.QUEUED, 1)


def test_what_failed_or_asks_a_person_goes_on(queue: OrderQueue) -> None:
    queue.submit(asked("fix-1"))
    queue.take_next()
    queue.begin_at("fix-1", "c" * 40)
    queue.fail("fix-1", PROBLEM)
    assert queue.get("fix-1").problem == PROBLEM
    again = queue.resume("fix-1", "key:ops")
    assert (again.state, again.problem, again.base_commit) == (OrderState.QUEUED, None, "c" * 40)
    queue.take_next()
    queue.begin_at("fix-1", "d" * 40)  # decided once
    queue.end("fix-1", "escalated", '{"outcome": "escalated"}')
    assert not queue.queue_again("fix-1", takes=1)
    assert queue.resume("fix-1", "key:ops").base_commit == "c" * 40


def test_pages_go_back_in_time(queue: OrderQueue) -> None:
    for number in range(1, 4):
        queue.submit(asked(f"fix-{number}"))
    queue.cancel("fix-2", "key:ci")
    assert [line.fix_id for line in queue.page(limit=2)] == ["fix-3", "fix-2"]
    assert [line.fix_id for line in queue.page(limit=2, before=2)] == ["fix-1"]
    cancelled = queue.page(limit=9, state=OrderState.CANCELLED)
    assert [line.fix_id for line in cancelled] == ["fix-2"]
    assert queue.page(limit=9, repository="other") == ()


def test_an_unknown_fix_is_not_found(queue: OrderQueue) -> None:
    for call in (
        lambda: queue.get("fix-9"),
        lambda: queue.cancel("fix-9", "key:ci"),
        lambda: queue.resume("fix-9", "key:ci"),
    ):
        with pytest.raises(NotFoundError, check=OfKind("no_such_fix"), match="'fix-9'"):
            call()


def test_who_cancelled_and_who_resumed_stays(queue: OrderQueue, clock: Clock) -> None:
    queue.submit(asked("fix-1"))
    clock.now += 1
    assert queue.cancel("fix-1", "person:Ada").cancelled_by == "person:Ada"
    clock.now += 1
    order = queue.resume("fix-1", "key:ops")
    assert (order.cancelled_by, order.resumed_by) == ("person:Ada", "key:ops")
    assert order.submitted_at < (order.cancelled_at or "") < (order.resumed_at or "")
    queue.take_next()
    assert queue.queue_again("fix-1", takes=1)
    assert queue.get("fix-1").resumed_by == "key:ops"
    assert queue.page(limit=1)[0].cancelled_by == "person:Ada"
