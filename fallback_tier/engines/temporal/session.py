"""A fix's process, as its worker has it: started, asked for one step at a time, ended."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fallback_tier.engines.temporal.messages import (
    Request,
    SessionProblem,
    Standing,
    reply_from,
    to_line,
)
from fallback_tier.sandbox.process import kill_tree
from fallback_tier.workers.processes import GRACE_S, surroundings

#: A reply is a key, an outcome and a digest, or two sentences (bytes).
_REPLY_BYTES = 1 << 20


class SessionOverError(Exception):
    """The fix's process is no more; ``problem``: what it said, None where it was killed."""

    def __init__(self, problem: SessionProblem | None = None) -> None:
        super().__init__("the fix's process is over" if problem is None else problem.problem)
        self.problem = problem


@dataclass
class FixProcess:
    """Made by ``start_process``. For one request at a time; once anything is raised, it is to be ended."""

    process: asyncio.subprocess.Process
    #: When it was last asked for anything, by the clock of the event loop.
    used: float = 0.0
    _asked: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_busy(self) -> bool:
        """It was asked for something, and has not replied."""
        return self._asked.locked()

    async def ask(self, request: Request) -> Standing:
        """Raises SessionOverError where the process gives up, or is no more."""
        async with self._asked:
            self.used = asyncio.get_running_loop().time()
            assert self.process.stdin is not None  # noqa: S101 (stdin=PIPE)
            try:
                self.process.stdin.write(to_line(request))
                await self.process.stdin.drain()
            except (BrokenPipeError, ConnectionResetError) as error:
                raise SessionOverError from error
            return await self.heard()

    async def heard(self) -> Standing:
        """Its next reply. Raises SessionOverError."""
        assert self.process.stdout is not None  # noqa: S101 (stdout=PIPE)
        line = await self.process.stdout.readline()
        self.used = asyncio.get_running_loop().time()
        if not line.endswith(b"\n"):
            raise SessionOverError
        reply = reply_from(line)
        if isinstance(reply, SessionProblem):
            raise SessionOverError(reply)
        return reply

    async def end(self) -> None:
        """End it in good order, or else at once, with everything that it started. Idempotent."""
        if self.process.returncode is not None:
            return
        try:
            with suppress(ProcessLookupError):
                self.process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    await self.process.wait()
        finally:
            if self.process.returncode is None:
                kill_tree(self.process.pid, None)
                await self.process.wait()


async def start_process(command: Sequence[str], order: bytes, log: Path, cwd: Path) -> FixProcess:
    """Start it with its order, one line that may have keys in it: no argument, file or variable has any.

    ``heard`` gives where the fix stands once it is open. Raises OSError.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as log_file:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            limit=_REPLY_BYTES,
            **surroundings(log_file, cwd),
        )
    assert process.stdin is not None  # noqa: S101 (stdin=PIPE)
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(order.rstrip(b"\n") + b"\n")
        await process.stdin.drain()
    return FixProcess(process, asyncio.get_running_loop().time())
