"""What a fix's workflow makes of failures: what passes, what is counted, and how long it waits."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from fallback_tier.engines.sessions.messages import Standing, Step, Ticket
from fallback_tier.engines.temporal.messages import OPEN, FixRun, Limits, Session
from fallback_tier.engines.temporal.workflow import FixWorkflow
from fallback_tier.errors import HeldError

TICKET = Ticket("fix-1", "0" * 64)
OPENED = Session("s", "q@one", Standing(next=Step(1, "attempt")))
ENDED = Standing(outcome="fixed", delivered=True)

#: Events of a history that one failed opening costs.
EVENTS = 11


class ContinuedError(BaseException):
    """As ``continue_as_new`` leaves a workflow."""

    def __init__(self, run: FixRun) -> None:
        super().__init__()
        self.run = run


def failed(code: str, *, for_a_person: bool = False) -> ActivityError:
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=1,
        started_event_id=2,
        identity="one",
        activity_type=OPEN,
        activity_id="1",
        retry_state=None,
    )
    error.__cause__ = ApplicationError("It is away.", type=code, non_retryable=for_a_person)
    return error


@dataclass
class Server:
    """Stands for ``temporalio.workflow``: answers, pauses, a history that grows."""

    answers: Iterator[ActivityError | Session | Standing]
    pauses: list[float] = field(default_factory=list)
    events: int = 0

    async def execute_activity(self, *_: object, **__: object) -> object:
        answer = next(self.answers)
        if isinstance(answer, ActivityError):
            self.events += EVENTS
            raise answer
        return answer

    async def sleep(self, pause: timedelta) -> None:
        self.pauses.append(pause.total_seconds())

    def info(self) -> "Server":
        return self

    def get_current_history_length(self) -> int:
        return self.events

    def is_continue_as_new_suggested(self) -> bool:
        return False

    def continue_as_new(self, run: FixRun) -> None:
        raise ContinuedError(run)


def run(monkeypatch: pytest.MonkeyPatch, server: Server, fix: FixRun) -> Standing:
    for name in ("execute_activity", "sleep", "info", "continue_as_new"):
        monkeypatch.setattr(workflow, name, getattr(server, name))
    return asyncio.run(FixWorkflow(fix).run(fix))


@pytest.mark.parametrize("code", ["audit_store", "disk", "fleet_store", HeldError.code])
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
