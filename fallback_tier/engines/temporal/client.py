"""Fixes as workflows, for whoever starts, watches, cancels and wakes them, without an event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, TerminatedError
from temporalio.exceptions import TimeoutError as TimedOutError
from temporalio.service import RPCError, RPCStatusCode

from fallback_tier.engines.sessions.messages import Ticket
from fallback_tier.engines.temporal.connecting import (
    Cluster,
    connect,
    unless_unknown,
    unreachable,
)
from fallback_tier.engines.temporal.messages import (
    HINT,
    RENEWED,
    WORKFLOW,
    FixRun,
    Limits,
    Terms,
)

Got = TypeVar("Got")
Handle: TypeAlias = WorkflowHandle[Any, Any]
Told: TypeAlias = Coroutine[Any, Any, None]

#: One call to the cluster.
_CALL_S = 10.0

#: What a workflow failed of that the server ended, and not the fix.
TERMINATED, TIMED_OUT = "terminated", "timed_out"


@dataclass(frozen=True)
class WorkflowState:
    """``phase``: unknown, active, waiting, ended, failed or cancelled. ``code`` and ``sentence``: why it
    failed."""

    phase: str
    code: str = ""
    sentence: str = ""


class FixWorkflows:
    """Raises EngineUnreachableError from every call, also after ``close``. Threads may share it."""

    def __init__(self, cluster: Cluster, limits: Limits | None = None) -> None:
        self._cluster = cluster
        self.limits = limits or Limits()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="temporal", daemon=True)
        self._thread.start()
        self._client: Client | None = None

    def start(self, ticket: Ticket) -> None:
        """One that runs already goes on, by this ticket from its next step on; one that is over begins
        again, by the record."""
        self._call(self._start(ticket))

    def renew(self, ticket: Ticket) -> None:
        """What it was started with may have changed: this holds from its next step on, and ``limits.fix_s``
        with it. Unknown or over: nothing."""
        terms = self._terms(ticket)
        self._call(self._tell(ticket.fix_id, lambda it: it.signal(RENEWED, terms)))

    def state(self, fix_id: str) -> WorkflowState:
        """Where the workflow is. How a fix ended is read from the record."""
        return self._call(self._state(fix_id))

    def cancel(self, fix_id: str) -> None:
        """End it in good order; what is on record stays. Unknown or over: nothing."""
        self._call(self._tell(fix_id, lambda it: it.cancel()))

    def hint(self, fix_id: str) -> None:
        """Somebody has decided: the workflow is to look at the record. Unknown or over: nothing."""
        self._call(self._tell(fix_id, lambda it: it.signal(HINT)))

    def close(self) -> None:
        """Idempotent."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Got]) -> Got:
        if self._loop.is_closed():
            work.close()
            raise unreachable(self._cluster, RuntimeError("this client was closed"))
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, _CALL_S), self._loop)
        try:
            return future.result()
        except TimeoutError as error:
            raise unreachable(
                self._cluster, TimeoutError(f"no reply in {_CALL_S:.0f} s")
            ) from error
        except RPCError as error:
            raise unreachable(self._cluster, error) from error

    async def _connected(self) -> Client:
        if self._client is None:
            self._client = await connect(self._cluster)
        return self._client

    async def _start(self, ticket: Ticket) -> None:
        client = await self._connected()
        await client.start_workflow(
            WORKFLOW,
            FixRun(ticket, self.limits),
            id=ticket.fix_id,
            task_queue=self._cluster.queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=RENEWED,
            start_signal_args=[self._terms(ticket)],
            rpc_timeout=timedelta(seconds=_CALL_S),
        )

    async def _tell(self, fix_id: str, message: Callable[[Handle], Told]) -> None:
        client = await self._connected()
        await unless_unknown(message(client.get_workflow_handle(fix_id)))

    def _terms(self, ticket: Ticket) -> Terms:
        return Terms(ticket.order_sha256, self.limits.fix_s)

    async def _state(self, fix_id: str) -> WorkflowState:
        handle = (await self._connected()).get_workflow_handle(fix_id)
        try:
            found = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return WorkflowState("unknown")
            raise
        match found.status:
            case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW:
                return WorkflowState(str((await found.memo()).get("phase", "active")))
            case WorkflowExecutionStatus.COMPLETED:
                return WorkflowState("ended")
            case WorkflowExecutionStatus.CANCELED:
                return WorkflowState("cancelled")
        try:
            await handle.result()
        except WorkflowFailureError as error:
            return _failed(error.cause)
        return WorkflowState("ended")


def _failed(cause: BaseException) -> WorkflowState:
    """Nobody goes on with it by itself. Only who asked for it may read that it was cancelled."""
    match cause:
        case ApplicationError():
            return WorkflowState("failed", cause.type or "", cause.message)
        case TerminatedError():
            said = f"The workflow was terminated, by the server or by an operator: {cause.message}."
            return WorkflowState("failed", TERMINATED, said)
        case TimedOutError():
            said = f"The workflow came to a time limit of the server: {cause.message}."
            return WorkflowState("failed", TIMED_OUT, said)
    return WorkflowState("failed", "workflow", str(cause))
