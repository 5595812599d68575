"""Temporal without processes: the real server and the product's own workflow, worker and activities, this
process's own parts. What the worker opens is in a thread here, where a test's fakes can be.
"""

import asyncio
import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from temporalio.client import Client, WorkflowFailureError

from fallback_tier.advisory import Advisory
from fallback_tier.engines.opened import OpenedFix
from fallback_tier.engines.temporal.activities import FixSession, Launch
from fallback_tier.engines.temporal.client import FixWorkflows
from fallback_tier.engines.temporal.connecting import Cluster, connect
from fallback_tier.engines.temporal.fix_process import carry_out_all
from fallback_tier.engines.temporal.messages import (
    Limits,
    Request,
    SessionProblem,
    Standing,
    Ticket,
)
from fallback_tier.engines.temporal.session import SessionOverError
from fallback_tier.engines.temporal.worker import WorkerSettings, run_worker
from fallback_tier.fix.steps import FixProgress, StepKey
from fallback_tier.fix_result import OneFix
from fallback_tier.fleet.engine_interface import EngineState, Phase
from fallback_tier.outcome import AttemptSummary, RecipeApplication, RecipeSelection
from fallback_tier.repo import RepoContext
from fallback_tier.tier import FallbackTier
from tests.fakes.audit import MemoryAudit
from tests.waiting import PATIENCE_S, becomes, came, joined

#: One failed opening is the end, and an outage is not waited for: fakes stay as they are. Nothing that
#: lives is taken for lost, however busy the machine is.
LIMITS = Limits(heartbeat_s=200.0, pickup_s=200.0, max_openings=1, backoff_s=3_600.0)

#: Fixes that the worker has open at once: more than tests run, so that none waits for room.
_ROOM = 16

#: Opens the fix of this identifier.
Opening = Callable[[str], AbstractContextManager[OpenedFix]]


@dataclass
class Run:
    """One fix on its way. ``error``: what it raised first; ``left``: nobody has it open any more."""

    opening: Opening
    error: Exception | None = None
    left: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def opened(self, order: bytes) -> Iterator[OpenedFix]:
        try:
            with self.opening(order.decode()) as fix:
                yield fix
        except Exception as error:
            self.error = self.error or error
            raise


class ThreadedFix:
    """Implements FixSession by a thread of this process."""

    def __init__(self, run: Run, fix_id: str) -> None:
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._replies: asyncio.Queue[Standing | SessionProblem | None] = asyncio.Queue()
        self._thread = threading.Thread(
            target=self._serve, args=(fix_id.encode(),), name=f"fix-{fix_id}", daemon=True
        )
        self.used = self._loop.time()
        self.is_busy = False
        self._thread.start()

    def _serve(self, order: bytes) -> None:
        carry_out_all(self._run.opened, order, self._asked.get, self._tell)
        self._tell(None)

    def _tell(self, reply: Standing | SessionProblem | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._replies.put_nowait, reply)

    async def heard(self) -> Standing:
        reply = await asyncio.wait_for(self._replies.get(), PATIENCE_S)
        if isinstance(reply, Standing):
            return reply
        raise SessionOverError(reply)

    async def ask(self, request: Request) -> Standing:
        self.is_busy = True
        try:
            self._asked.put(request)
            return await self.heard()
        finally:
            self.is_busy, self.used = False, self._loop.time()

    async def end(self) -> None:
        self._asked.put(None)
        try:
            await asyncio.to_thread(self._thread.join, PATIENCE_S)
        finally:  # also where whoever ends it is cancelled beside it: it has been asked to end
            self._run.left.set()


class TemporalHere:
    """A worker of the product's in a thread of this process, and a client; made once, for many fixes."""

    def __init__(self, address: str, launch: Launch | None = None, limits: Limits = LIMITS) -> None:
        """``launch``: what opens a fix that ``run_launched`` starts; None: only ``run`` is called."""
        self._launch = launch or self._threaded
        cluster = Cluster(address=address, queue=f"here-{uuid.uuid4().hex}")
        self._client = FixWorkflows(cluster, limits)
        self._settings = WorkerSettings(cluster=cluster, host="here", fixes=_ROOM)
        self._runs: dict[str, Run] = {}
        self._ready, self._broken = threading.Event(), threading.Event()
        self._stop: Callable[[], object] = self._ready.set
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told: Client | None = None
        self._thread = threading.Thread(target=self._work, name="temporal-worker", daemon=True)
        self._thread.start()
        came(self._ready)
        assert not self._broken.is_set(), "the worker has not started"

    def run(self, opening: Opening) -> EngineState:
        """A fix to where its workflow ends, or waits for a person; then that is cancelled. Raises what a
        step raises."""
        fix_id = uuid.uuid4().hex
        run = self._runs[fix_id] = Run(opening)
        try:
            self._client.start(Ticket(fix_id, "0" * 64))
            came(run.left)
            if run.error is None:
                found = self._over(fix_id)
                if found.phase != "waiting":
                    return found
            self._client.cancel(fix_id)
            return self._raised(run, self._over(fix_id, "waiting"))
        finally:
            del self._runs[fix_id]

    def run_launched(self, fix_id: str) -> EngineState:
        """One that ``launch`` opens, to its workflow's end, which is not asked for but told."""
        self._client.start(Ticket(fix_id, "0" * 64))
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._ended(fix_id), self._loop).result(PATIENCE_S)
        return self._client.state(fix_id)

    def cancel(self, fix_id: str) -> None:
        """Ask for the end of one that is on its way."""
        self._client.cancel(fix_id)

    def attempt(
        self,
        tier: FallbackTier,
        advisory: Advisory,
        repo: RepoContext,
        selection: RecipeSelection,
        prior: Sequence[AttemptSummary],
    ) -> RecipeApplication:
        """Implements the suite's ``Runtime``: a fix of one step."""
        made = OneAttempt(lambda: tier.run(advisory, repo, selection, prior_attempts=prior))

        @contextmanager
        def opening(_fix_id: str) -> Iterator[OpenedFix]:
            yield made

        found = self.run(opening)
        assert found.phase == "ended", found
        assert made.state.application is not None
        return made.state.application

    def close(self) -> None:
        """Idempotent."""
        self._stop()
        joined(self._thread)
        self._client.close()

    def _over(self, fix_id: str, *also: str) -> EngineState:
        going = {"active", *also}
        found: list[EngineState] = []

        def is_over() -> bool:
            found[:] = [self._client.state(fix_id)]
            return found[0].phase not in going

        becomes(is_over, f"the workflow {fix_id} is over")
        return found[0]

    def _raised(self, run: Run, found: EngineState) -> EngineState:
        if run.error is not None:
            assert found.phase in {"failed", "cancelled"}, found
            raise run.error
        return EngineState(phase=Phase.WAITING)

    def _work(self) -> None:
        try:
            asyncio.run(self._worker())
        except BaseException:
            self._broken.set()
            raise
        finally:
            self._ready.set()

    async def _worker(self) -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop() -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        @contextmanager
        def record() -> Iterator[Any]:
            yield MemoryAudit()  # no person decides here

        self._stop, self._loop = stop, loop
        await run_worker(self._settings, self._launch, record, ended, ready=self._ready.set)

    async def _ended(self, fix_id: str) -> None:
        client = await connect(self._settings.cluster) if self._told is None else self._told
        self._told = client
        with suppress(WorkflowFailureError):
            await client.get_workflow_handle(fix_id).result()

    async def _threaded(self, ticket: Ticket) -> FixSession:
        return ThreadedFix(self._runs[ticket.fix_id], ticket.fix_id)


class OneAttempt:
    """A fix that is one attempt, in hand."""

    def __init__(self, attempt: Callable[[], RecipeApplication]) -> None:
        self._attempt = attempt
        self.fix_id = ""
        self.state = FixProgress()

    @property
    def result(self) -> Any:
        return None if self.state.application is None else SimpleNamespace(outcome="attempted")

    def next(self) -> StepKey | None:
        return StepKey(1, "attempt") if self.state.application is None else None

    def step(self, key: StepKey) -> None:
        self.state = replace(self.state, application=self._attempt())

    def deliver(self) -> OneFix:
        return OneFix(self.result, Advisory(id="A", affected=()))
