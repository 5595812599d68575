"""What a fix's workflow makes of failures: what passes, what is counted, and how long it waits."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOutError

from fallback_tier.engines.temporal.messages import (
    CLOSE,
    DELIVER,
    OPEN,
    STEP,
    DecisionResult,
    FixRun,
    Limits,
    Session,
    SessionStep,
    Standing,
    Terms,
    Ticket,
)
from fallback_tier.engines.temporal.workflow import FixWorkflow
from fallback_tier.workers.problem import PASSING

TICKET = Ticket("fix-1", "0" * 64)
OPENED = Session("s", "q@one", Standing(next=SessionStep(1, "attempt")))
ENDED = Standing(outcome="fixed", delivered=True)

#: Events of a history that one failed opening costs.
EVENTS = 11


class ContinuedError(BaseException):
    """As ``continue_as_new`` leaves a workflow."""

    def __init__(self, run: FixRun) -> None:
        super().__init__()
        self.run = run


def failed(code: str, *, for_a_person: bool = False) -> ActivityError:
    error = activity_error()
    error.__cause__ = ApplicationError("It is away.", type=code, non_retryable=for_a_person)
    return error


def timed_out(kind: TimeoutType) -> ActivityError:
    error = activity_error()
    error.__cause__ = TimedOutError("late", type=kind, last_heartbeat_details=())
    return error


def activity_error() -> ActivityError:
    return ActivityError(
        "Activity task failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="one",
        activity_type=OPEN,
        activity_id="1",
        retry_state=None,
    )


@dataclass
class Server:
    """Stands for ``temporalio.workflow``: answers, pauses, a history that grows."""

    answers: Iterator[ActivityError | Session | Standing | DecisionResult | Terms]
    pauses: list[float] = field(default_factory=list)
    events: int = 0
    #: What each activity takes, and which were asked for with which limit.
    takes_s: float = 0.0
    now: float = 0.0
    asked: list[tuple[str, float]] = field(default_factory=list)
    #: Of each opening and closing: by which order.
    orders: list[tuple[str, str]] = field(default_factory=list)
    fix: FixWorkflow = field(init=False)

    async def wait_condition(self, condition: Callable[[], bool]) -> None:
        assert condition(), "nobody would wake it"

    def cancellation_reason(self) -> None:
        """Nobody cancels it here."""

    def upsert_memo(self, _: object) -> None:
        """Nobody reads it here."""

    async def execute_activity(self, what: str, *given_of: Any, **given: Any) -> object:
        self.asked.append((what, given["start_to_close_timeout"].total_seconds()))
        self.now += self.takes_s
        if what in {OPEN, CLOSE}:
            order = given_of[0] if what == OPEN else given_of[0].ticket
            self.orders.append((what, order.order_sha256))
        answer = next(self.answers)
        if isinstance(answer, Terms):  # while this activity ran
            self.fix.renewed(answer)
            answer = next(self.answers)
        if isinstance(answer, ActivityError):
            self.events += EVENTS
            raise answer
        return answer

    def start_activity(self, what: str, *given_of: Any, **given: Any) -> asyncio.Task[object]:
        return asyncio.create_task(self.execute_activity(what, *given_of, **given))

    def time(self) -> float:
        return self.now

    async def sleep(self, pause: timedelta) -> None:
        self.pauses.append(pause.total_seconds())

    task_queue = "q"

    def info(self) -> "Server":
        return self

    def get_current_history_length(self) -> int:
        return self.events

    def is_continue_as_new_suggested(self) -> bool:
        return False

    def continue_as_new(self, run: FixRun) -> None:
        raise ContinuedError(run)


def run(monkeypatch: pytest.MonkeyPatch, server: Server, fix: FixRun) -> Standing:
    for name in (
        *("execute_activity", "start_activity", "sleep", "info", "continue_as_new", "time"),
        *("wait_condition", "upsert_memo", "cancellation_reason"),
    ):
        monkeypatch.setattr(workflow, name, getattr(server, name))
    server.fix = FixWorkflow(fix)
    return asyncio.run(server.fix.run(fix))


@pytest.mark.parametrize("code", sorted(PASSING))
def test_an_outage_is_waited_for_with_pauses_that_grow(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    server = Server(iter([*(failed(code) for _ in range(40)), OPENED, ENDED, Standing()]))
    assert run(monkeypatch, server, FixRun(TICKET)) == ENDED
    assert server.pauses[:4] == [2.0, 4.0, 8.0, 16.0]
    assert server.pauses[9:] == [300.0] * 31


def test_a_long_outage_begins_the_history_anew_and_keeps_its_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def outage() -> Server:
        return Server(failed("audit_store") for _ in range(10_000))

    server, fix = outage(), FixRun(TICKET, Limits(history=500))
    with pytest.raises(ContinuedError) as continued:
        run(monkeypatch, server, fix)
    assert len(server.pauses) == 500 // EVENTS + 1
    assert continued.value.run.passing == len(server.pauses)
    server = outage()
    with pytest.raises(ContinuedError):
        run(monkeypatch, server, continued.value.run)
    assert set(server.pauses) == {300.0}


def test_an_outage_of_any_length_is_no_number_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(iter([failed("disk"), OPENED, ENDED, Standing()]))
    assert run(monkeypatch, server, FixRun(TICKET, passing=5_000)) == ENDED
    assert server.pauses == [300.0]


def test_what_may_kill_workers_is_given_up_with_an_outage_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = ["session-over", "audit_store", "session-over", "session-over"]
    server = Server(failed(code) for code in codes)
    with pytest.raises(ApplicationError, match="opened 3 times in a row") as given_up:
        run(monkeypatch, server, FixRun(TICKET, Limits(max_openings=3)))
    assert given_up.value.type == "gave-up"
    assert server.pauses == [2.0, 2.0, 4.0]


def test_counted_failures_are_counted_over_a_history_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fix = FixRun(TICKET, Limits(history=2 * EVENTS))
    with pytest.raises(ContinuedError) as continued:
        run(monkeypatch, Server(failed("session-over") for _ in range(2)), fix)
    assert continued.value.run.openings == 2


def test_a_step_forgets_the_failures_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[Any] = [failed("session-over"), failed("disk"), OPENED, OPENED.standing]
    server = Server(iter([*again, *again, ENDED, Standing()]))
    assert run(monkeypatch, server, FixRun(TICKET, Limits(max_openings=2))) == ENDED
    assert server.pauses == [2.0, 2.0, 2.0, 2.0]


def test_what_is_for_a_person_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(iter([failed("repository", for_a_person=True)]))
    with pytest.raises(ApplicationError) as refused:
        run(monkeypatch, server, FixRun(TICKET))
    assert refused.value.type == "repository"
    assert not server.pauses


def test_a_fix_that_takes_longer_than_it_may_is_closed_and_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its opening counts; a step may take what is left, and no other is begun."""
    opened = replace(OPENED, opening_s=40.0)
    server = Server(iter([opened, opened.standing, opened.standing, Standing()]), takes_s=35.0)
    with pytest.raises(ApplicationError, match=r"longer than 100 seconds \(limits.fix_s\)") as late:
        run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=100.0)))
    assert late.value.type == "time_limit"
    assert late.value.non_retryable
    assert server.asked == [(OPEN, 100.0), (STEP, 60.0), (STEP, 25.0), (CLOSE, 60.0)]


def test_a_step_that_comes_to_the_end_of_the_time_is_no_lost_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(iter([OPENED, failed("session-over"), Standing()]), takes_s=50.0)
    with pytest.raises(ApplicationError) as late:
        run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=50.0)))
    assert late.value.type == "time_limit"
    assert server.asked[-1][0] == CLOSE
    assert not server.pauses


def test_an_opening_that_comes_to_the_end_of_the_time_ends_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where it ran so long: a worker that is lost is another matter."""
    lost, late = (timed_out(kind) for kind in (TimeoutType.HEARTBEAT, TimeoutType.START_TO_CLOSE))
    server = Server(iter([lost, late]))
    with pytest.raises(ApplicationError) as over:
        run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=50.0)))
    assert over.value.type == "time_limit"
    assert server.asked == [(OPEN, 50.0), (OPEN, 50.0)]


def test_what_has_ended_is_delivered_however_late(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Standing(outcome="verified")
    server = Server(iter([OPENED, ended, ENDED, Standing()]), takes_s=50.0)
    assert run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=50.0))) == ENDED
    assert server.asked[2] == (DELIVER, 600.0)


def test_time_is_counted_over_openings_and_a_history_begun_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = [OPENED, failed("session-over")]
    server = Server(iter([*lost, *lost]), takes_s=30.0)
    with pytest.raises(ContinuedError) as continued:
        run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=100.0, history=2 * EVENTS)))
    assert continued.value.run.spent_s == 60.0


def test_what_a_person_lets_go_on_has_the_whole_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asks = Standing(outcome="escalated", delivered=True)
    decided = DecisionResult(goes_on=True)
    answers = [OPENED, asks, Standing(), decided, OPENED, ENDED, Standing()]
    server = Server(iter(answers), takes_s=40.0)
    assert run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=100.0), heard=1)) == ENDED
    assert [limit_s for what, limit_s in server.asked if what == STEP] == [100.0, 100.0]


NEW = Terms("1" * 64, fix_s=500.0)


def test_new_terms_hold_from_the_next_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the midst of a step: that ends as it began; then it is opened by the other order."""
    old = TICKET.order_sha256
    answers = [OPENED, NEW, OPENED.standing, Standing(), OPENED, ENDED, Standing()]
    server = Server(iter(answers))
    assert run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=100.0))) == ENDED
    assert server.orders == [(OPEN, old), (CLOSE, NEW.order_sha256)] + [
        (what, NEW.order_sha256) for what in (OPEN, CLOSE)
    ]
    assert [limit_s for what, limit_s in server.asked if what == STEP] == [100.0, 500.0]


def test_terms_that_come_while_it_is_opened_are_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(iter([NEW, OPENED, Standing(), OPENED, ENDED, Standing()]))
    assert run(monkeypatch, server, FixRun(TICKET)) == ENDED
    assert [what for what, _ in server.asked] == [OPEN, CLOSE, OPEN, STEP, CLOSE]


def test_the_same_terms_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    same = Terms(TICKET.order_sha256, fix_s=100.0)
    server = Server(iter([OPENED, same, OPENED.standing, ENDED, Standing()]))
    assert run(monkeypatch, server, FixRun(TICKET, Limits(fix_s=100.0))) == ENDED
    assert [what for what, _ in server.asked] == [OPEN, STEP, STEP, CLOSE]


def test_what_an_older_history_has_open_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(iter([ENDED, Standing()]))
    assert run(monkeypatch, server, FixRun(TICKET, session=OPENED)) == ENDED


def test_a_history_begun_anew_keeps_the_new_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(iter([OPENED, NEW, failed("disk")]))
    with pytest.raises(ContinuedError) as continued:
        run(monkeypatch, server, FixRun(TICKET, Limits(history=EVENTS)))
    assert continued.value.run.ticket.order_sha256 == NEW.order_sha256
    assert continued.value.run.limits.fix_s == NEW.fix_s
