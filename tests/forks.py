"""Services and workers in forks of a process that has imported them: a start takes a tenth of a second of a
processor, not one or more. A fork is a process as any other: it listens, is killed, has its exit code.

Its parent is Python's own fork server, one a test process. What a *start* is like is tested on the console
script: ``served(…, as_command=True)``.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO, Any

from tests import database_files

#: Far above what a killed process takes to be gone.
_HANG_S = 60.0

#: What the console script calls.
MAIN = "fallback_tier.cli.main:main"


class Forked:
    """What ``subprocess.Popen`` would be; ``stdout``: what it prints, as text, with its errors where no log
    has them.

    ``main``: a function of a module, ``module:name``, which is given the arguments and gives the exit code.
    """

    def __init__(
        self,
        main: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: Path | None = None,
    ) -> None:
        ours, its = multiprocessing.Pipe(duplex=False)
        given = (main, list(arguments), str(cwd), dict(env), its, log)
        self._process = forks().Process(target=_become, args=given, daemon=False)
        self._process.start()
        its.close()
        self.stdout: IO[str] | None = os.fdopen(os.dup(ours.fileno()))
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
            raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@contextmanager
def forked(
    arguments: Sequence[str], place: Path, more: Mapping[str, str] | None = None
) -> Iterator[Forked]:
    """A command in a fork, killed at the end if it still lives; its few lines are read by nobody.

    ``more``: of its environment.
    """
    fork = Forked(MAIN, arguments, cwd=place, env={**os.environ, "COLUMNS": "200", **(more or {})})
    assert fork.stdout is not None
    with fork.stdout:
        try:
            yield fork
        finally:
            fork.kill()
            fork.wait(_HANG_S)


@cache
def forks() -> ForkServerContext:
    """A fork's own forks come from where it comes from itself."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    if is_fork():  # it knows the server's address, and would start another (Python 3.11)
        server: Any = forkserver._forkserver
        server.ensure_running = lambda: None
    return context


def is_fork() -> bool:
    """Is this process one of the server's?"""
    server: Any = forkserver._forkserver
    return server._forkserver_address is not None and server._forkserver_pid is None


def become(cwd: str, env: Mapping[str, str], streams: tuple[int, int, int]) -> None:
    """Of a fork: as a program would be that is started there, with these descriptors as its streams."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, buffering, closefd=False)  # noqa: SIM115 (a descriptor)
        for number, (mode, buffering) in enumerate((("r", -1), ("w", -1), ("w", 1)))
    )


def _become(
    main: str,
    arguments: list[str],
    cwd: str,
    env: dict[str, str],
    out: Connection,
    log: Path | None,
) -> None:
    """The fork: as a program would be with these arguments, in this folder."""
    with Path(os.devnull).open() as nothing, (log or Path(os.devnull)).open("a") as errors:
        said = out.fileno()
        become(cwd, env, (nothing.fileno(), said, said if log is None else errors.fileno()))
    out.close()
    if main == MAIN:
        import_module("tests.forked_workers").take_over()
        database_files.watch()
    module, _, name = main.partition(":")
    sys.argv = [module, *arguments]
    sys.exit(getattr(import_module(module), name)(arguments))
