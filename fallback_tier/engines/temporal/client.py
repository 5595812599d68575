"""A client for fixes as workflows, for callers without an event loop, and the fleet's engine over it."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
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

from fallback_audit.evidence.store import put_document
from fallback_audit.ports import EvidenceStore
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
    Ticket,
)
from fallback_tier.fleet.engine_interface import EngineState, Phase
from fallback_tier.fleet.fix_order import FixOrder
from fallback_tier.workers.problem import Problem

Got = TypeVar("Got")
Handle: TypeAlias = WorkflowHandle[Any, Any]
Told: TypeAlias = Coroutine[Any, Any, None]

#: Time limit of one call to the cluster.
_CALL_S = 10.0

#: Codes of a workflow that the server ended, and not the fix.
TERMINATED, TIMED_OUT = "terminated", "timed_out"


class FixWorkflows:
    """A client of the cluster's workflows. Every call raises EngineUnreachableError, also after
    ``close``. Thread-safe.
    """

    def __init__(self, cluster: Cluster, limits: Limits | None = None) -> None:
        self._cluster = cluster
        self.limits = limits or Limits()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="temporal", daemon=True)
        self._thread.start()
        self._client: Client | None = None

    def start(self, ticket: Ticket) -> None:
        """Start the fix's workflow. A running one continues, with this ticket from its next step on;
        one that is over is restarted from the audit trail.
        """
        self._call(self._start(ticket))

    def send_terms(self, ticket: Ticket) -> None:
        """Send a workflow its order and ``limits.fix_s``, which may have changed: they apply from its
        next step on. No effect if unknown or over.
        """
        terms = self._terms(ticket)
        self._call(self._tell(ticket.fix_id, lambda it: it.signal(RENEWED, terms)))

    def state(self, fix_id: str) -> EngineState:
        """Return the workflow's state. How a fix ended is read from the audit trail."""
        return self._call(self._state(fix_id))

    def cancel(self, fix_id: str) -> None:
        """End the workflow in good order; what is on record stays. No effect if unknown or over."""
        self._call(self._tell(fix_id, lambda it: it.cancel()))

    def wake(self, fix_id: str) -> None:
        """Make the workflow read the audit trail, since a person has decided. No effect if unknown or
        over.
        """
        self._call(self._tell(fix_id, lambda it: it.signal(HINT)))

    def close(self) -> None:
        """Disconnect; workers continue, for any campaign. Idempotent."""
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

    async def _tell(self, fix_id: str, send: Callable[[Handle], Told]) -> None:
        client = await self._connected()
        await unless_unknown(send(client.get_workflow_handle(fix_id)))

    def _terms(self, ticket: Ticket) -> Terms:
        return Terms(ticket.order_sha256, self.limits.fix_s)

    async def _state(self, fix_id: str) -> EngineState:
        handle = (await self._connected()).get_workflow_handle(fix_id)
        try:
            description = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return EngineState(phase=Phase.UNKNOWN)
            raise
        match description.status:
            case WorkflowExecutionStatus.RUNNING | WorkflowExecutionStatus.CONTINUED_AS_NEW:
                return EngineState(
                    phase=Phase((await description.memo()).get("phase", Phase.ACTIVE))
                )
            case WorkflowExecutionStatus.COMPLETED:
                return EngineState(phase=Phase.ENDED)
            case WorkflowExecutionStatus.CANCELED:
                return EngineState(phase=Phase.CANCELLED)
        try:
            await handle.result()
        except WorkflowFailureError as error:
            return _failed(error.cause)
        return EngineState(phase=Phase.ENDED)


def _failed(cause: BaseException) -> EngineState:
    """Return the state of a workflow that is not continued automatically."""
    match cause:
        case ApplicationError():
            code, sentence = cause.type or "", cause.message
        case TerminatedError():
            sentence = (
                f"The workflow was terminated, by the server or by an operator: {cause.message}."
            )
            code = TERMINATED
        case TimedOutError():
            sentence = f"The workflow came to a time limit of the server: {cause.message}."
            code = TIMED_OUT
        case _:
            code, sentence = "workflow", str(cause)
    problem = Problem(code=code, problem=sentence, next_step=_NEXT)
    return EngineState(phase=Phase.FAILED, problem=problem)


#: Next step for a workflow that gave up; its sentence names the fix's own next step.
_NEXT = "Repair what is named, then have the campaign go on: `fallback-tier fleet resume NAME`."


class TemporalEngine(FixWorkflows):
    """Implements ``FleetEngine``. ``evidence``: the store of orders, which the workers read."""

    def __init__(self, cluster: Cluster, limits: Limits, evidence: EvidenceStore) -> None:
        super().__init__(cluster, limits)
        self._evidence = evidence

    @property
    def room(self) -> int | None:
        """Return None, no bound: the task queue waits for workers that have room."""
        return None

    def submit(self, order: FixOrder) -> None:
        """Start the order's workflow. Raises EngineUnreachableError, EvidenceError."""
        self.start(self._ticket(order))

    def renew(self, order: FixOrder) -> None:
        """Send the order to its workflow. Raises EngineUnreachableError, EvidenceError."""
        self.send_terms(self._ticket(order))

    def forget(self, fix_id: str) -> None:
        """Do nothing: this engine stores nothing on this machine."""

    def _ticket(self, order: FixOrder) -> Ticket:
        return Ticket(order.fix_id, put_document(self._evidence, order))
