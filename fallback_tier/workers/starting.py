"""How a worker is started: a process of its own, under a guard, that inherits its lock."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

from fallback_tier.sandbox.clients import passed_to_clients

#: Python without the user's own modules, and the guard of every worker.
_COMMAND = (sys.executable, "-I", "-m", "fallback_tier.workers.guarded")

#: What a worker needs of our environment in addition to what its clients may know: where libraries are, and
#: how PostgreSQL is reached (libpq's variables, but for the password itself).
_ENVIRONMENT = (
    "LD_LIBRARY_PATH",
    "PGPASSFILE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLMODE",
    "PGSSLROOTCERT",
)


def guarded(module: str, limit_s: float) -> tuple[str, ...]:
    """Return the command that runs a worker's module under a guard."""
    return (*_COMMAND, str(limit_s), module)


def start_worker(
    module: str, limit_s: float, order: bytes, lock: BinaryIO, log: Path
) -> "subprocess.Popen[bytes]":
    """Run a worker's ``module`` under a guard, with its order on standard input: keys come through this
    pipe alone. ``log`` takes its output; ``lock`` is its own from now on. Raises OSError.
    """
    with log.open("wb") as log_file:
        process = subprocess.Popen(
            guarded(module, limit_s),
            stdout=log_file,
            pass_fds=(lock.fileno(),),
            **surroundings(log_file, log.parent),
        )
    assert process.stdin is not None  # noqa: S101 (stdin=PIPE)
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(order)
    return process


def surroundings(log_file: IO[bytes], cwd: Path) -> dict[str, Any]:
    """Arguments of ``subprocess.Popen``, or asyncio's, for every process of a fix: its input is a pipe, its
    errors go to its log, and a signal to our terminal is not one to it."""
    return {
        "stdin": subprocess.PIPE,
        "stderr": log_file,
        "cwd": cwd,
        "env": worker_environment(os.environ),
        "start_new_session": True,
    }


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker is started with: keys come through its pipe, and what else is secret is not its own."""
    own = {name: environ[name] for name in _ENVIRONMENT if name in environ}
    return passed_to_clients(environ) | own
