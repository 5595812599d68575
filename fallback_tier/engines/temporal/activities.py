"""The activities of a worker: the fixes that it has open, each in its own process, by session."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from fallback_tier.engines.temporal.messages import (
    CLOSE,
    DELIVER,
    LOOK,
    OPEN,
    SESSION_OVER,
    STEP,
    DecisionResult,
    Request,
    Session,
    SessionProblem,
    Standing,
    StepOrder,
    Ticket,
)
from fallback_tier.engines.temporal.session import SessionOverError

Got = TypeVar("Got")


class FixSession(Protocol):
    """A fix that a process has open for this worker, such as a ``FixProcess``. ``used``: time of the
    last request or reply, by the clock of the event loop.
    """

    used: float

    @property
    def is_busy(self) -> bool:
        """Return whether a request has no reply yet."""
        ...

    async def heard(self) -> Standing:
        """Return its state once it is open. Raises SessionOverError."""
        ...

    async def ask(self, request: Request) -> Standing:
        """Send a request and return the reply. Raises SessionOverError if the process gives up or has
        ended.
        """
        ...

    async def end(self) -> None:
        """End it in good order, or kill it after a while. Idempotent."""
        ...


#: Opens a fix in its own process. Raises OSError.
Launch = Callable[[Ticket], Awaitable[FixSession]]

#: Codes of errors of the fix, its order or its repository: another worker would get the same.
_FOR_A_PERSON: Final = frozenset(
    {"input", "configuration", "advisory", "repository", "proof", "defect"}
)

#: Time for an abandoned process to release its fix (seconds), and the pause between two tries.
_HELD_S = 30.0
_AGAIN_S = 0.5

#: Heartbeats within the time after which a worker counts as lost.
_BEATS = 4


@dataclass
class _Opened:
    fix_id: str
    process: FixSession


class FixActivities:
    """The activities of one worker; ``queue`` is its own task queue. ``look`` reads the answer to a
    question from the audit trail.
    """

    def __init__(self, launch: Launch, queue: str, look: Callable[[str], DecisionResult]) -> None:
        self._launch = launch
        self._queue = queue
        self._look = look
        self._sessions: dict[str, _Opened] = {}

    @property
    def opened(self) -> int:
        """Return the number of open fixes."""
        return len(self._sessions)

    @activity.defn(name=OPEN)
    async def open(self, ticket: Ticket) -> Session:
        """Begin the fix, or continue it from the audit trail, in its own process."""
        for name, session in tuple(self._sessions.items()):
            if session.fix_id == ticket.fix_id:
                await self._end(name)  # abandoned by the server, not by this worker
        name, clock = uuid.uuid4().hex, asyncio.get_running_loop().time
        began = clock()
        async with _signs_of_life():
            standing = await self._opened(name, ticket)
        return Session(name, self._queue, standing, clock() - began)

    @activity.defn(name=STEP)
    async def step(self, order: StepOrder) -> Standing:
        """Take one step. What is on record of it already is not done again."""
        return await self._ask(order.session, Request("step", order.step))

    @activity.defn(name=DELIVER)
    async def deliver(self, order: StepOrder) -> Standing:
        """Deliver the patch."""
        return await self._ask(order.session, Request("deliver"))

    @activity.defn(name=CLOSE)
    async def close(self, order: StepOrder) -> Standing:
        """End the fix's process, in good order. What is on record stays."""
        await self._end(order.session)
        return Standing()

    @activity.defn(name=LOOK)
    async def look(self, ticket: Ticket) -> DecisionResult:
        """Return the answer on record to the question that this fix asked."""
        return await asyncio.to_thread(self._look, ticket.fix_id)

    async def end_unused(self, idle_s: float) -> None:
        """End sessions without a request for so long: their workflow is gone, or uses another worker."""
        now = asyncio.get_running_loop().time()
        for name, session in tuple(self._sessions.items()):
            if not session.process.is_busy and now - session.process.used > idle_s:
                await self._end(name)

    async def end_all(self) -> None:
        """End every fix in good order: each can be continued."""
        await asyncio.gather(*map(self._end, tuple(self._sessions)))

    async def _opened(self, name: str, ticket: Ticket) -> Standing:
        until = asyncio.get_running_loop().time() + _HELD_S
        while True:
            try:
                process = await self._launch(ticket)
            except OSError as error:
                raise _failed(
                    SessionProblem(
                        "worker",
                        f"No process could be started: {error}.",
                        "See the system's limits.",
                    )
                ) from error
            self._sessions[name] = _Opened(ticket.fix_id, process)
            try:
                async with self._ended_on_error(name):
                    return await process.heard()
            except SessionOverError as over:
                is_held = over.problem is not None and over.problem.is_held
                if not is_held or asyncio.get_running_loop().time() > until:
                    raise _failed(over.problem) from over
                await asyncio.sleep(_AGAIN_S)

    async def _ask(self, name: str, request: Request) -> Standing:
        session = self._sessions.get(name)
        if session is None:
            raise _failed(None)
        try:
            async with _signs_of_life(), self._ended_on_error(name):
                return await session.process.ask(request)
        except SessionOverError as over:
            raise _failed(over.problem) from over

    @contextlib.asynccontextmanager
    async def _ended_on_error(self, name: str) -> AsyncIterator[None]:
        """End the session after any error, including cancellation: it takes no further step."""
        try:
            yield
        except BaseException:
            await self._end(name)
            raise

    async def _end(self, name: str) -> None:
        if (session := self._sessions.get(name)) is None:
            return
        await session.process.end()
        self._sessions.pop(name, None)


@contextlib.asynccontextmanager
async def _signs_of_life() -> AsyncIterator[None]:
    """Send heartbeats meanwhile. The shutdown of a worker does not count as cancellation of its fix."""
    timeout = activity.info().heartbeat_timeout
    interval_s = timeout.total_seconds() / _BEATS if timeout else None
    beating = asyncio.create_task(_beat(interval_s)) if interval_s else None
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            raise
        raise _failed(None) from None
    finally:
        if beating is not None:
            beating.cancel()


async def _beat(interval_s: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(interval_s)


def _failed(problem: SessionProblem | None) -> ApplicationError:
    if problem is None:
        return ApplicationError("The fix's process is no more.", type=SESSION_OVER)
    shortened = problem.shortened()
    return ApplicationError(
        f"{shortened.problem} {shortened.next_step}".strip(),
        type=problem.code,
        non_retryable=problem.code in _FOR_A_PERSON and not problem.is_held,
    )
