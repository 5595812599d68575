"""How a worker is started: a process of its own, under a guard, that inherits its lock."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

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
    with log.open("wb") as reported:
        process = subprocess.Popen(
            guarded(module, limit_s),
            env=worker_environment(os.environ),
            stdin=subprocess.PIPE,
            stdout=reported,
            stderr=reported,
            cwd=log.parent,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )
    assert process.stdin is not None  # noqa: S101 (stdin=PIPE)
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(order)
    return process


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a worker is started with: keys come through its pipe, and what else is secret is not its own."""
    own = {name: environ[name] for name in _ENVIRONMENT if name in environ}
    return passed_to_clients(environ) | own
