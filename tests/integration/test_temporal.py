"""Fixes as Temporal workflows: a real server, real workers, a process a fix (ADR-0086)."""

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from fallback_audit.errors import AuditStoreError
from fallback_audit.vocabulary import PromptShape, RefusalReason
from fallback_tier.engines.opened import OpenedFix
from fallback_tier.engines.temporal.connecting import Cluster, connect
from fallback_tier.engines.temporal.messages import (
    CLOSE,
    OPEN,
    WORKFLOW,
    FixRun,
    Session,
    SessionStep,
    Standing,
    StepOrder,
    Ticket,
)
from fallback_tier.engines.temporal.workflow import FixWorkflow
from fallback_tier.fix.steps import StepKey
from fallback_tier.fix_result import OneFix
from fallback_tier.outcome import Refused
from tests.engines.fleet import QUICK, Fleet, fleet_on
from tests.engines.forked_fix import PROCESS
from tests.engines.in_process import OneAttempt, TemporalHere
from tests.engines.scenario import EngineScenario
from tests.waiting import PATIENCE_S, becomes


@pytest.fixture
def fleet(temporal_server: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with fleet_on(temporal_server, tmp_path / "fleet", request.node.name, forks=True) as made:
        yield made


@pytest.fixture
def loop(tmp_path: Path) -> EngineScenario:
    """The same stories by the plain loop."""
    return EngineScenario(tmp_path / "loop")


def test_it_leaves_the_plain_loops_trails(fleet: Fleet, loop: EngineScenario) -> None:
    names = [fleet.scenario.add(name) for name in ("short", "long")]
    fleet.worker()
    fleet.start(*names)
    fleet.reach("ended", names)
    for name in names:
        loop.by_the_loop(loop.add("like", name))
        assert fleet.scenario.kinds(name) == loop.kinds(name)
    fleet.scenario.check()


def test_a_killed_worker_is_taken_over_by_another(fleet: Fleet, loop: EngineScenario) -> None:
    """At an event in the midst of it; what is on record is not done again."""
    name = fleet.scenario.add("short")
    loop.by_the_loop(loop.add("like", name))
    fleet.scenario.kill_at(name, 1, 8, before=False, worker=True)
    fleet.worker("one")
    fleet.start(name)
    becomes(lambda: fleet.workers["one"].poll() is not None, "the first worker is dead")
    fleet.workers.pop("one").stdout.close()  # type: ignore[union-attr]
    fleet.worker("two")
    fleet.reach("ended", [name])
    assert fleet.scenario.counted(name)["FixResumed"] == 1
    assert fleet.scenario.kept(name) == loop.kept(name)
    fleet.scenario.check()


def test_who_cannot_reach_the_record_leaves_fixes_to_others(fleet: Fleet) -> None:
    name, root = fleet.scenario.add("short"), fleet.scenario.root
    (root / "cut-off-one").touch()
    fleet.worker("one")
    becomes((root / "looked-one").exists, "it has looked at the record")
    fleet.start(name)
    fleet.worker("two")
    fleet.reach("ended", [name])
    assert not (root / "launched-by-one").exists()
    other = fleet.scenario.add("short")
    fleet.end("two")
    (root / "cut-off-one").unlink()
    fleet.start(other)
    fleet.reach("ended", [other])
    assert (root / "launched-by-one").exists()


def test_a_person_is_waited_for_and_wakes_it(fleet: Fleet) -> None:
    """Whoever decides knows nothing of Temporal: the worker follows the record."""
    name = fleet.scenario.add("asks")
    fleet.worker()
    fleet.start(name)
    fleet.reach("waiting", [name])
    becomes(lambda: not _fix_processes(fleet), "no process waits")
    fleet.scenario.decide(name)
    fleet.reach("ended", [name])
    assert fleet.scenario.kinds(name)[-2:] == ["FixVerified", "PatchDelivered"]
    fleet.scenario.check()


def test_a_decision_alone_starts_nothing_in_a_campaign_that_is_paused(fleet: Fleet) -> None:
    """Whatever hints come: each is looked at, and it goes on waiting."""
    name, root = fleet.scenario.add("asks"), fleet.scenario.root
    asked, paused = root / "asked", root / "paused"
    paused.touch()
    fleet.worker()
    fleet.start(name)
    fleet.reach("waiting", [name])
    fleet.scenario.decide(name)
    becomes(asked.exists, "the worker has seen the decision")
    for looks in (2, 3):  # one that went on would not look a second time
        fleet.client.wake(name)
        becomes(partial(_has_lines, asked, looks), "the hint was looked at")
    assert fleet.phase(name) == "waiting"
    paused.unlink()
    fleet.client.wake(name)
    fleet.reach("ended", [name])
    fleet.scenario.check()


def test_a_decision_made_while_nobody_works_is_not_lost(fleet: Fleet) -> None:
    name = fleet.scenario.add("asks")
    worker = fleet.worker()
    fleet.start(name)
    fleet.reach("waiting", [name])
    worker.kill()
    worker.wait(PATIENCE_S)
    fleet.scenario.decide(name)
    assert fleet.phase(name) == "waiting"
    fleet.reach("ended", [name])
    assert "FixVerified" in fleet.scenario.kinds(name)


def test_a_cancelled_fix_is_over_and_can_be_gone_on_with(
    fleet: Fleet, loop: EngineScenario
) -> None:
    name = fleet.scenario.add("short")
    loop.by_the_loop(loop.add("like", name))
    fleet.scenario.hold_model(name)
    fleet.worker()
    fleet.start(name)
    becomes(lambda: "ModelCalled" in fleet.scenario.kinds_so_far(name), "the model is asked")
    fleet.client.cancel(name)
    fleet.reach("cancelled", [name])
    becomes(lambda: not _fix_processes(fleet), "its process has ended")
    fleet.scenario.let_model_answer(name)
    fleet.start(name)
    fleet.reach("ended", [name])
    assert fleet.scenario.counted(name)["FixResumed"] == 1
    assert fleet.scenario.counted(name)["FixVerified"] == 1
    fleet.scenario.check()


@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed for want of a record"])
def test_a_cancellation_beside_the_end_of_a_step_is_heard(
    temporal_here: TemporalHere, fails: bool
) -> None:
    """Who waits for the step is given the step's end, and not the cancellation."""
    asked: list[str] = []

    class Fix(OneAttempt):
        def step(self, key: StepKey) -> None:
            asked.append(key.name)
            temporal_here.cancel(self.fix_id)
            if fails:
                raise AuditStoreError("It is full.", next_step="Free some space.")
            super().step(key)

        def deliver(self) -> OneFix:
            asked.append("deliver")
            return super().deliver()

    @contextmanager
    def opening(fix_id: str) -> Iterator[OpenedFix]:
        fix = Fix(_no_patch)
        fix.fix_id = fix_id
        yield fix

    with pytest.raises(AuditStoreError) if fails else nullcontext():
        assert temporal_here.run(opening).phase == "cancelled"
    assert asked == ["attempt"]


def test_a_fix_that_is_cancelled_while_it_is_opened_takes_no_step(
    temporal_here: TemporalHere,
) -> None:
    asked: list[str] = []

    class Fix(OneAttempt):
        def step(self, key: StepKey) -> None:
            asked.append(key.name)
            super().step(key)

    @contextmanager
    def opening(fix_id: str) -> Iterator[OpenedFix]:
        temporal_here.cancel(fix_id)
        yield Fix(_no_patch)

    assert temporal_here.run(opening).phase == "cancelled"
    assert asked == []


@pytest.mark.parametrize("cancelled_first", [False, True], ids=["opened first", "cancelled first"])
def test_a_fix_opened_beside_its_cancellation_is_closed(
    temporal_server: str, *, cancelled_first: bool
) -> None:
    """The workflow hears of both at once: the session that was opened must not stay open."""
    asyncio.run(_opened_beside_its_cancellation(temporal_server, cancelled_first=cancelled_first))


async def _opened_beside_its_cancellation(address: str, *, cancelled_first: bool) -> None:
    queue, closed = f"beside-{uuid.uuid4().hex}", list[str]()
    client = await connect(Cluster(address=address, queue=queue))
    may_end = asyncio.get_running_loop().create_future()

    @activity.defn(name=OPEN)
    async def opens(_ticket: Ticket) -> Session:
        await asyncio.wait_for(may_end, PATIENCE_S)
        return Session("the session", queue, Standing(next=SessionStep(1, "attempt")))

    @activity.defn(name=CLOSE)
    async def closes(order: StepOrder) -> Standing:
        closed.append(order.session)
        return Standing()

    def workflows() -> Worker:
        return Worker(client, task_queue=queue, workflows=[FixWorkflow], max_cached_workflows=0)

    async with Worker(client, task_queue=queue, activities=[opens, closes]):
        async with workflows():
            run = await client.start_workflow(
                WORKFLOW, FixRun(Ticket(queue, "0" * 64)), id=queue, task_queue=queue
            )
            await _has_event(run, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED)
        if cancelled_first:
            await run.cancel()
        may_end.set_result(None)
        await _has_event(run, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
        if not cancelled_first:
            await run.cancel()
        async with workflows():
            with pytest.raises(WorkflowFailureError) as failed:
                await asyncio.wait_for(run.result(), PATIENCE_S)
    assert isinstance(failed.value.cause, CancelledError)
    assert closed == ["the session"]


async def _has_event(run: WorkflowHandle[Any, Any], kind: EventType.ValueType) -> None:
    """Wait for an event of the history. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE_S):
        while kind not in {event.event_type for event in (await run.fetch_history()).events}:
            await asyncio.sleep(0.05)


def test_a_fix_ends_when_its_time_is_over_and_can_be_given_more(fleet: Fleet) -> None:
    """In the midst of a step that hangs: its process ends, and nobody opens it again by himself. On a busy
    machine its opening may take all of the time; then it is given more."""
    name = fleet.scenario.add("short")
    fleet.scenario.hold_model(name)
    fleet.worker()
    given = list[int]()
    for fix_s in (5, 20, 60):
        given.append(fix_s)
        fleet.client.limits = replace(QUICK, fix_s=float(fix_s))
        fleet.start(name)
        fleet.reach("failed", [name])
        found = fleet.client.state(name)
        said = f"The fix took longer than {fix_s} seconds (limits.fix_s)."
        assert found.problem is not None
        assert (found.problem.code, found.problem.problem) == ("time_limit", said)
        if "ModelCalled" in fleet.scenario.kinds_so_far(name):
            break
    opened = fleet.scenario.counted(name)
    assert opened["ModelCalled"], "the step that hangs was not reached"
    assert opened["FixStarted"] + opened["FixResumed"] <= len(given)
    becomes(lambda: not _fix_processes(fleet), "its process has ended")
    fleet.scenario.let_model_answer(name)
    fleet.client.limits = QUICK
    fleet.start(name)
    fleet.reach("ended", [name])
    counted = fleet.scenario.counted(name)
    assert (counted["FixStarted"], counted["FixVerified"]) == (1, 1)
    assert counted["FixResumed"] == opened["FixResumed"] + 1
    fleet.scenario.check()


def test_another_order_holds_from_the_next_step_on(fleet: Fleet) -> None:
    """Its step ends under the one that it began with, then the fix is opened by the other, in a process of
    its own."""
    name = fleet.scenario.add("short")
    fleet.scenario.hold_model(name)
    fleet.worker()
    fleet.start(name)
    becomes(lambda: "ModelCalled" in fleet.scenario.kinds_so_far(name), "the model is asked")
    fleet.client.send_terms(Ticket(name, "1" * 64))
    fleet.client.start(Ticket(name, "2" * 64))
    fleet.scenario.let_model_answer(name)
    fleet.reach("ended", [name])
    assert fleet.scenario.orders(name).read_text().split() == ["0" * 64, "2" * 64]
    assert fleet.scenario.counted(name)["FixResumed"] == 1
    fleet.scenario.check()


def test_bad_input_fails_with_its_reason(fleet: Fleet) -> None:
    """No other worker would find anything else."""
    name = fleet.scenario.add("short")
    (fleet.scenario.repo(name) / "app.py").write_text("changed\n")
    fleet.worker()
    fleet.start(name)
    fleet.reach("failed", [name])
    found = fleet.client.state(name)
    assert found.problem is not None
    assert found.problem.code == "repository"
    assert "changes" in found.problem.problem


def test_a_fix_that_kills_every_worker_is_given_up(fleet: Fleet) -> None:
    name = fleet.scenario.add("short")
    for number in range(1, 9):
        fleet.scenario.kill_at(name, number, 1, before=True, worker=False)
    fleet.client.limits = replace(QUICK, max_openings=3)
    fleet.worker()
    fleet.start(name)
    fleet.reach("failed", [name])
    problem = fleet.client.state(name).problem
    assert problem is not None
    assert problem.code == "gave-up"
    assert not fleet.scenario.kinds_so_far(name)


def test_what_was_terminated_has_failed_and_can_be_begun_again(fleet: Fleet) -> None:
    """As the server ends a workflow whose history is too long."""
    name = fleet.scenario.add("short")
    fleet.start(name)

    async def terminate() -> None:
        client = await connect(fleet.cluster)
        await client.get_workflow_handle(name).terminate(reason="too many events")

    asyncio.run(terminate())
    found = fleet.client.state(name)
    assert (found.phase, found.problem and found.problem.code) == ("failed", "terminated")
    assert found.problem is not None
    assert "too many events" in found.problem.problem
    fleet.worker()
    fleet.start(name)
    fleet.reach("ended", [name])
    fleet.scenario.check()


def test_an_unknown_fix_is_unknown_and_nobody_minds_a_hint(fleet: Fleet) -> None:
    assert fleet.phase("nobody") == "unknown"
    fleet.client.wake("nobody")
    fleet.client.cancel("nobody")


def _no_patch() -> Refused:
    return Refused(
        reason=RefusalReason.OWN_CODE,
        sentence="It is the package itself.",
        attempt=1,
        prompt_shape=PromptShape.NONE,
    )


def _has_lines(path: Path, count: int) -> bool:
    return len(path.read_text().splitlines()) >= count


def _fix_processes(fleet: Fleet) -> list[int]:
    """Of this scenario, that live; there was one at least."""
    started = [*(fleet.scenario.root / "logs").glob(f"{PROCESS}*")]
    assert started
    return [pid for place in started if _lives(pid := int(place.name.removeprefix(PROCESS)))]


def _lives(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}
