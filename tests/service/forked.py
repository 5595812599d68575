"""``fallback-tier serve`` in a fork of a process that has imported it: a start takes a tenth of a second of
a processor, not more than one. A fork is a process as any other: it listens, is killed, has its exit code.

Its parent is Python's own fork server, one a test process. What a *start* is like is tested on the console
script: ``served(…, as_command=True)``.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO


class Forked:
    """What ``subprocess.Popen`` would be; ``stdout``: all that it prints, as text."""

    def __init__(self, arguments: Sequence[str], *, cwd: Path, env: dict[str, str]) -> None:
        ours, its = multiprocessing.Pipe(duplex=False)
        self._process = _forks().Process(
            target=_become, args=(list(arguments), str(cwd), env, its), daemon=False
        )
        self._process.start()
        its.close()
        self.stdout: IO[str] = os.fdopen(os.dup(ours.fileno()))
        ours.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired("serve", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.service.preloaded"])
    return context


def _become(arguments: list[str], cwd: str, env: dict[str, str], out: Connection) -> None:
    """The fork: as the console script would be with these arguments, in this folder."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    for number in (1, 2):
        os.dup2(out.fileno(), number)
    out.close()
    sys.stdout, sys.stderr = (
        open(number, "w", closefd=False)  # noqa: SIM115 (a descriptor)
        for number in (1, 2)
    )
    sys.argv = ["fallback-tier", *arguments]
    sys.exit(import_module("fallback_tier.cli.main").main(arguments))
