"""The process of one fix of a scenario as a fork, for a worker that is one: it starts in a tenth."""

import asyncio
import multiprocessing
import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fallback_tier.engines.temporal.fix_process import serve_standard_input
from fallback_tier.engines.temporal.session import FixProcess
from tests.engines.fix_process import opened
from tests.forks import become, forks
from tests.waiting import PATIENCE_S

#: Its worker, whom a fix may have to kill: the parent of a fork is the server of forks.
WORKER = "FIX_WORKER"

#: Beside its log each has a file that says so.
PROCESS = "process-"

_REPLY_BYTES = 1 << 20


class ForkedProcess:
    """What ``asyncio.subprocess.Process`` would be."""

    def __init__(self, process: Any, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader):
        self._process = process
        self.stdin, self.stdout = stdin, stdout

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def terminate(self) -> None:
        self._process.terminate()

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        while (code := self.returncode) is None:
            over = loop.create_future()
            loop.add_reader(self._process.sentinel, _set, over)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await over
            finally:
                loop.remove_reader(self._process.sentinel)
        return code


def _set(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


async def start_fork(order: bytes, log: Path) -> FixProcess:
    """As ``start_process``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    its_in, to_it = multiprocessing.Pipe(duplex=False)
    from_it, its_out = multiprocessing.Pipe(duplex=False)
    given = (its_in, its_out, log, os.environ | {WORKER: str(os.getpid())})
    process = forks().Process(target=_become, args=given, daemon=True)
    process.start()
    its_in.close()
    its_out.close()
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader(_REPLY_BYTES)
    reading = os.fdopen(os.dup(from_it.fileno()), "rb", 0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), reading)
    writing = os.fdopen(os.dup(to_it.fileno()), "wb", 0)
    flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, writing)
    from_it.close()
    to_it.close()
    stdin = asyncio.StreamWriter(*flow, None, loop)
    stdin.write(order + b"\n")
    return FixProcess(ForkedProcess(process, stdin, stdout), loop.time())  # type: ignore[arg-type]


def _become(order: Connection, replies: Connection, log: Path, env: Mapping[str, str]) -> None:
    os.setsid()
    log.with_name(f"{PROCESS}{os.getpid()}").touch()
    with log.open("a") as reported:
        become(str(Path.cwd()), env, (order.fileno(), replies.fileno(), reported.fileno()))
    order.close()
    replies.close()
    serve_standard_input(opened)
