"""The activities of a worker: fixes that it has open, each in a process of its own, by session."""

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
    """A fix that somebody has open for this worker, as ``FixProcess`` is one. ``used``: when it was last
    asked for anything, by the clock of the event loop."""

    used: float

    @property
    def is_busy(self) -> bool:
        """It was asked for something, and has not replied."""
        ...

    async def heard(self) -> Standing:
        """Where it stands once it is open. Raises SessionOverError."""
        ...

    async def ask(self, request: Request) -> Standing:
        """Raises SessionOverError where it gives up, or is no more."""
        ...

    async def end(self) -> None:
        """In good order, or else at once. Idempotent."""
        ...


#: Has a fix opened, in a process of its own. Raises OSError.
Launch = Callable[[Ticket], Awaitable[FixSession]]

#: What is wrong with the fix, its order or its repository: another worker would find the same.
_FOR_A_PERSON: Final = frozenset(
    {"input", "configuration", "advisory", "repository", "proof", "defect"}
)

#: A process that was given up needs so long to let go of its fix (seconds).
_HELD_S = 30.0
_AGAIN_S = 0.5

#: Of the time after which a worker counts as lost, between two signs of life.
_BEATS = 4


@dataclass
class _Opened:
    fix_id: str
    process: FixSession


class FixActivities:
    """Those of one worker; ``queue`` is its own task queue. ``look`` asks the record about a question."""

    def __init__(self, launch: Launch, queue: str, look: Callable[[str], DecisionResult]) -> None:
        self._launch = launch
        self._queue = queue
        self._look = look
        self._sessions: dict[str, _Opened] = {}

    @property
    def opened(self) -> int:
        """How many fixes are open."""
        return len(self._sessions)

    @activity.defn(name=OPEN)
    async def open(self, ticket: Ticket) -> Session:
        """Begin the fix, or go on with it from the record, in a process of its own."""
        for name, session in tuple(self._sessions.items()):
            if session.fix_id == ticket.fix_id:
                await self._end(name)  # given up by the server, and not by us
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
        """Put the patch where it was asked for."""
        return await self._ask(order.session, Request("deliver"))

    @activity.defn(name=CLOSE)
    async def close(self, order: StepOrder) -> Standing:
        """End the fix's process, in good order. What is on record stays."""
        await self._end(order.session)
        return Standing()

    @activity.defn(name=LOOK)
    async def look(self, ticket: Ticket) -> DecisionResult:
        """What the record says of the question that this fix asked."""
        return await asyncio.to_thread(self._look, ticket.fix_id)

    async def end_unused(self, idle_s: float) -> None:
        """End what nobody has asked anything of for so long: its workflow is gone, or elsewhere."""
        now = asyncio.get_running_loop().time()
        for name, session in tuple(self._sessions.items()):
            if not session.process.is_busy and now - session.process.used > idle_s:
                await self._end(name)

    async def end_all(self) -> None:
        """End every fix in good order: each can be gone on with."""
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
                held = over.problem is not None and over.problem.is_held
                if not held or asyncio.get_running_loop().time() > until:
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
        """Whatever is raised, a cancelled activity among it: the session takes no step any more."""
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
    """Heartbeats, for as long as it lasts; a worker that is shut down is no fix that was cancelled."""
    timeout = activity.info().heartbeat_timeout
    every = timeout.total_seconds() / _BEATS if timeout else None
    beating = asyncio.create_task(_beat(every)) if every else None
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


async def _beat(every: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(every)


def _failed(problem: SessionProblem | None) -> ApplicationError:
    if problem is None:
        return ApplicationError("The fix's process is no more.", type=SESSION_OVER)
    said = problem.shortened()
    return ApplicationError(
        f"{said.problem} {said.next_step}".strip(),
        type=problem.code,
        non_retryable=problem.code in _FOR_A_PERSON and not problem.is_held,
    )
