"""What a workflow's state is called, by the server's word."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

pytest.importorskip("temporalio", reason="the extra `temporal` is not installed")

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, TerminatedError, TimeoutType
from temporalio.exceptions import TimeoutError as TimedOutError

from fallback_tier.engines.temporal.client import FixWorkflows
from fallback_tier.engines.temporal.connecting import Cluster, EngineUnreachableError
from fallback_tier.engines.temporal.messages import Limits, Terms, Ticket
from fallback_tier.fleet.engine_interface import EngineState, Phase


class Handle:
    """Stands for a client, the handle of its one workflow, and what is told of it."""

    status = WorkflowExecutionStatus.RUNNING
    cause: BaseException = RuntimeError("nothing")
    signalled: tuple[Any, ...] | list[Any] = ()

    def get_workflow_handle(self, _: str) -> "Handle":
        return self

    async def describe(self) -> "Handle":
        return self

    async def signal(self, name: str, terms: Terms) -> None:
        self.signalled = [*self.signalled, (name, terms)]

    async def memo(self) -> dict[str, Any]:
        return {}

    async def result(self) -> None:
        raise WorkflowFailureError(cause=self.cause)


@pytest.fixture
def handle() -> Handle:
    return Handle()


@pytest.fixture
def workflows(handle: Handle) -> Iterator[FixWorkflows]:
    made = FixWorkflows(Cluster())
    made._client = cast("Any", handle)
    yield made
    made.close()


def test_one_that_was_closed_is_unreachable(workflows: FixWorkflows) -> None:
    workflows.close()
    with pytest.raises(EngineUnreachableError, match="closed"):
        workflows.state("fix-1")


def test_what_the_server_terminated_has_failed_and_was_not_cancelled(
    workflows: FixWorkflows, handle: Handle
) -> None:
    handle.status = WorkflowExecutionStatus.TERMINATED
    handle.cause = TerminatedError("Workflow history count exceeds limit.")
    found = workflows.state("fix-1")
    assert (found.phase, found.problem and found.problem.code) == ("failed", "terminated")
    assert found.problem is not None
    assert "history count" in found.problem.problem


def test_what_came_to_a_time_limit_says_so(workflows: FixWorkflows, handle: Handle) -> None:
    handle.status = WorkflowExecutionStatus.TIMED_OUT
    handle.cause = TimedOutError(
        "Workflow timed out", type=TimeoutType.START_TO_CLOSE, last_heartbeat_details=[]
    )
    found = workflows.state("fix-1")
    assert (found.phase, found.problem and found.problem.code) == ("failed", "timed_out")


def test_only_what_was_cancelled_is_cancelled(workflows: FixWorkflows, handle: Handle) -> None:
    assert workflows.state("fix-1") == EngineState(phase=Phase.ACTIVE)
    handle.status = WorkflowExecutionStatus.CANCELED
    assert workflows.state("fix-1") == EngineState(phase=Phase.CANCELLED)
    handle.status = WorkflowExecutionStatus.FAILED
    handle.cause = ApplicationError("It has changes.", type="repository")
    problem = workflows.state("fix-1").problem
    assert problem is not None
    assert (problem.code, problem.problem) == ("repository", "It has changes.")


def test_new_terms_have_the_order_and_the_time(workflows: FixWorkflows, handle: Handle) -> None:
    workflows.limits = Limits(fix_s=77.0)
    workflows.send_terms(Ticket("fix-1", "1" * 64))
    assert handle.signalled == [("renewed", Terms("1" * 64, 77.0))]
