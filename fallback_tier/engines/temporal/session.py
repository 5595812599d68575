"""The process of a fix, as its worker holds it: started, asked for one step at a time, ended."""

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

#: Largest reply: a key, an outcome and a digest, or two sentences (bytes).
_REPLY_BYTES = 1 << 20


class SessionOverError(Exception):
    """The fix's process has ended; ``problem``: what it reported, None if it was killed."""

    def __init__(self, problem: SessionProblem | None = None) -> None:
        super().__init__("the fix's process is over" if problem is None else problem.problem)
        self.problem = problem


@dataclass
class FixProcess:
    """The process of a fix, from ``start_process``. It takes one request at a time; after an error, end
    it.
    """

    process: asyncio.subprocess.Process
    #: Time of the last request or reply, by the clock of the event loop.
    used: float = 0.0
    _asked: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_busy(self) -> bool:
        """Return whether a request has no reply yet."""
        return self._asked.locked()

    async def ask(self, request: Request) -> Standing:
        """Send a request and return the reply. Raises SessionOverError if the process gives up or has
        ended.
        """
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
        """Return its next reply. Raises SessionOverError."""
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
        """End it in good order, or kill it after a while, with everything that it started. Idempotent."""
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
    """Start a process with its order, one line that may contain keys: no argument, file or variable does.

    ``heard`` returns the fix's state once it is open. Raises OSError.
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
