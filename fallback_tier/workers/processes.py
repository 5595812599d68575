"""The workers of one owner (a service, a campaign's runner): started, found again, ended, with their locks.

What is in memory may be lost. A worker holds its lock from before its first instruction to its last,
whatever its parent is by then: the next owner finds it by that (ADR-0129). A fix that is marked as running
and whose lock is free has no worker.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold
from fallback_tier.sandbox.clients import passed_to_clients
from fallback_tier.sandbox.process import kill_tree


@dataclass(frozen=True)
class WorkerLocks:
    """The locks of one owner's workers, below ``home``, a folder in the state folder. A ``fix_id`` is
    one of ours.
    """

    state_dir: Path
    home: Path

    def path(self, fix_id: str) -> Path:
        """Return the lock file of a fix's worker."""
        return self.home / "workers" / f"{fix_id}.lock"

    def log(self, fix_id: str) -> Path:
        """Return the log with a worker's standard error, which is empty unless the worker broke."""
        return self.home / "workers" / f"{fix_id}.log"

    def take(self, fix_id: str) -> BinaryIO | None:
        """Return the worker's lock, or None if a worker is alive. It is released when the last process that
        has the file open ends. The previous holder's process id is erased: it may belong to another process
        by now.

        Raises StateFolderError.
        """
        path = self.path(fix_id)
        with writing_below(self.state_dir):
            path.parent.mkdir(parents=True, exist_ok=True)
            if (lock := try_hold(path)) is not None:
                lock.truncate(0)
            return lock

    def end_holder(self, fix_id: str, *, at_once: bool = False) -> None:
        """Ask the worker that holds the lock, and no other process, to end, or kill it (``at_once``);
        its guard removes what it leaves. No effect if the worker has not written its process id.
        """
        with suppress(OSError, ValueError):  # it has not written its id, or has just ended
            pidfd = os.pidfd_open(int(self.path(fix_id).read_bytes()))
            try:
                if (lock := self.take(fix_id)) is not None:
                    lock.close()  # it has ended, and its id may be another process's
                else:
                    number = signal.SIGKILL if at_once else signal.SIGTERM
                    signal.pidfd_send_signal(pidfd, number)
            finally:
                os.close(pidfd)

    def tidy(self, fix_id: str) -> None:
        """Remove the lock of a worker that is gone, and its log if that is empty."""
        log = self.log(fix_id)
        if log.exists() and not log.stat().st_size:
            log.unlink()
        if (lock := self.take(fix_id)) is not None:
            with lock:
                self.path(fix_id).unlink(missing_ok=True)  # while it is held


def write_holder(lock: int) -> None:
    """Write this process's id into the lock, so that another process can end this worker. No client
    inherits the lock: none may hold it after the worker.
    """
    os.set_inheritable(lock, False)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())


#: Command of every worker: Python without the user's own modules, and the guard.
_COMMAND = (sys.executable, "-I", "-m", "fallback_tier.workers.guard")

#: Variables of our environment that a worker gets in addition to its clients' ones: for the location of
#: libraries, and for connecting to PostgreSQL (libpq's variables, except the password itself).
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
    """Run a worker's ``module`` under a guard, with its order on standard input: keys go only through
    this pipe. ``log`` receives its output; ``lock`` belongs to it from now on. Raises OSError.
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
    """Return arguments of ``subprocess.Popen``, or asyncio's, for every process of a fix: its input is
    a pipe, its errors go to its log, and it does not receive signals of our terminal.
    """
    return {
        "stdin": subprocess.PIPE,
        "stderr": log_file,
        "cwd": cwd,
        "env": worker_environment(os.environ),
        "start_new_session": True,
    }


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a worker's environment: keys come through its pipe, and it gets no other secrets."""
    additional = {name: environ[name] for name in _ENVIRONMENT if name in environ}
    return passed_to_clients(environ) | additional


#: From the request to end to the signal that kills a worker in any case (seconds). A worker that ends in
#: good order takes as long as its slowest client.
GRACE_S = 10.0


class EndedWorker(NamedTuple):
    """A worker that has ended. ``code``: as in ``subprocess``; ``lived_s``: how long it ran."""

    code: int
    lived_s: float


@dataclass
class WorkerProcesses:
    """One worker per fix. ``module``: the module that a worker runs, below ``workers.guard``.

    ``is_alive`` and ``start`` raise StateFolderError if the lock's file can't be used.
    """

    module: str
    locks: WorkerLocks
    clock: Callable[[], float] = time.monotonic
    _children: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _started: dict[str, float] = field(default_factory=dict)
    _adopted: set[str] = field(default_factory=set)
    _asked_to_end: dict[str, float] = field(default_factory=dict)

    @property
    def own(self) -> frozenset[str]:
        """Return the fixes whose worker this process started, and whose end was not returned yet."""
        return frozenset(self._children)

    @property
    def alive(self) -> int:
        """Return the number of own workers, and of earlier owners' workers that were found."""
        return len(self._children) + len(self._adopted)

    def start(self, fix_id: str, limit_s: float, order: Callable[[int], bytes]) -> bool:
        """Start a worker. Return False if one is alive, or a process that is about to end still has its
        lock.

        ``order`` is called for the worker's input while the lock is held, with the lock's descriptor.
        Raises OSError if the worker can't be started, and what ``order`` raises.
        """
        lock = self.locks.take(fix_id)
        if lock is None:
            self._adopt(fix_id)
            return False
        with lock:  # the worker inherits it
            order_bytes, log = order(lock.fileno()), self.locks.log(fix_id)
            self._children[fix_id] = start_worker(self.module, limit_s, order_bytes, lock, log)
        self._started[fix_id] = self.clock()
        self._adopted.discard(fix_id)
        self._asked_to_end.pop(fix_id, None)
        return True

    def is_alive(self, fix_id: str) -> bool:
        """Return whether this fix has a worker, whichever process started it."""
        child = self._children.get(fix_id)
        if child is not None and child.poll() is None:
            return True
        lock = self.locks.take(fix_id)
        if lock is None:
            self._adopt(fix_id)
            return True
        lock.close()
        self._adopted.discard(fix_id)
        return False

    def gone(self, fix_id: str) -> EndedWorker | None:
        """Return once how an own worker ended; None if it lives, was returned already, or was not ours."""
        child = self._children.get(fix_id)
        if child is None or (code := child.poll()) is None:
            return None
        del self._children[fix_id]
        return EndedWorker(code, self.clock() - self._started.pop(fix_id))

    def end(self, fix_id: str) -> None:
        """Ask a worker to end; if it is still alive after ``GRACE_S``, the next call kills it."""
        asked_at = self._asked_to_end.setdefault(fix_id, self.clock())
        is_late = self.clock() - asked_at > GRACE_S
        child = self._children.get(fix_id)
        # The id of a process that has ended may be another process's: use its lock.
        if child is None or child.poll() is not None:
            self.locks.end_holder(fix_id, at_once=is_late)
        elif is_late:
            kill_tree(child.pid, None)
        else:
            child.terminate()

    def end_all(self) -> None:
        """End own workers in good order, or kill them after a while. One that is stuck in the kernel
        remains: the next owner finds it by its lock.
        """
        for fix_id in self._children:
            self.end(fix_id)
        until = time.monotonic() + GRACE_S
        for child in self._children.values():
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                kill_tree(child.pid, None)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE_S)

    def _adopt(self, fix_id: str) -> None:
        if fix_id not in self._children:
            self._adopted.add(fix_id)
