"""Workers of a forked service, or of a forked runner of a campaign, as forks under their own guards: each
starts in a tenth of a second of a processor, not in eight.

With the console script (``served(…, as_command=True)``) each is a program of its own.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO

from fallback_tier.workers.processes import worker_environment
from tests import database_files
from tests.forks import become, forks

#: Who starts workers, by this name.
_STARTING = (
    "fallback_tier.workers.processes",
    "fallback_tier.workers.processes",
)


class ForkedWorker:
    """What ``subprocess.Popen`` would be."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self.pid = int(process.pid)

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout)
        return code

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def take_over() -> None:
    """Of a process that starts workers: from now on they are forks."""
    for name in _STARTING:
        vars(import_module(name))["start_worker"] = start_forked_worker


def start_forked_worker(
    module: str, limit_s: float, order: bytes, lock: BinaryIO, log: Path
) -> ForkedWorker:
    """As ``start_worker``."""
    held = Connection(os.dup(lock.fileno()), writable=False)  # what is one can be handed over
    given = (module, limit_s, order, held, log, worker_environment(os.environ))
    process = forks().Process(target=_become, args=given, daemon=True)
    process.start()
    held.close()
    return ForkedWorker(process)


def _become(
    module: str, limit_s: float, order: bytes, lock: Connection, log: Path, env: Mapping[str, str]
) -> None:
    os.setsid()
    given = json.loads(order)
    assert "lock" in given
    text = json.dumps(given | {"lock": lock.fileno()}).encode()
    with os.fdopen(os.memfd_create("order"), "w+b") as stdin, log.open("w") as reported:
        stdin.write(text)
        stdin.flush()
        stdin.seek(0)
        become(str(log.parent), env, (stdin.fileno(), reported.fileno(), reported.fileno()))
    database_files.watch()
    sys.argv = [module, str(limit_s)]
    import_module(module).main()
