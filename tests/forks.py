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
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO

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
        self._process = _forks().Process(target=_become, args=given, daemon=False)
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


@cache
def _forks() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def _become(
    main: str,
    arguments: list[str],
    cwd: str,
    env: dict[str, str],
    out: Connection,
    log: Path | None,
) -> None:
    """The fork: as a program would be with these arguments, in this folder."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    with Path(os.devnull).open() as nothing, (log or Path(os.devnull)).open("a") as errors:
        os.dup2(nothing.fileno(), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(1 if log is None else errors.fileno(), 2)
    out.close()
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (a descriptor)
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    module, _, name = main.partition(":")
    sys.argv = [module, *arguments]
    sys.exit(getattr(import_module(module), name)(arguments))
