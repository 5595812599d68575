"""The workers of one owner (a service, a runner of a campaign): started, found again, ended.

What is kept in memory is lost without harm. A worker holds its lock from before its first instruction to
its last, whoever its parent is by then: whoever comes next finds it by that (ADR-0129).
"""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from fallback_tier.sandbox.process import kill_tree
from fallback_tier.workers.locks import WorkerLocks
from fallback_tier.workers.starting import start_worker

#: From the request to end to the signal that ends a worker in any case (seconds). A worker that ends in
#: good order takes as long as its client that is slowest to end.
GRACE_S = 10.0


class EndedWorker(NamedTuple):
    """A worker that is gone. ``code``: as ``subprocess`` has it; ``lived_s``: how long it was there."""

    code: int
    lived_s: float


@dataclass
class WorkerProcesses:
    """One worker a fix. ``module``: what a worker runs (``workers.guarded``).

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
        """Fixes whose worker this process started; their end is not told yet."""
        return frozenset(self._children)

    @property
    def alive(self) -> int:
        """Own workers, and those of earlier owners that were met."""
        return len(self._children) + len(self._adopted)

    def start(self, fix_id: str, limit_s: float, order: Callable[[int], bytes]) -> bool:
        """Return False if a worker is alive, or a process that is about to end still has its lock.

        ``order`` is asked for the worker's input while the lock is held, with the lock's descriptor. Raises
        OSError if the worker can't be started, and what ``order`` raises.
        """
        lock = self.locks.take(fix_id)
        if lock is None:
            self._adopt(fix_id)
            return False
        with lock:  # the worker has it, too
            given, log = order(lock.fileno()), self.locks.log(fix_id)
            self._children[fix_id] = start_worker(self.module, limit_s, given, lock, log)
        self._started[fix_id] = self.clock()
        self._adopted.discard(fix_id)
        self._asked_to_end.pop(fix_id, None)
        return True

    def is_alive(self, fix_id: str) -> bool:
        """Has this fix a worker, whoever started it?"""
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
        """How an own worker ended, told once; None: it lives, was told of, or was not ours."""
        child = self._children.get(fix_id)
        if child is None or (code := child.poll()) is None:
            return None
        del self._children[fix_id]
        return EndedWorker(code, self.clock() - self._started.pop(fix_id))

    def end(self, fix_id: str) -> None:
        """Ask a worker to end; if it is still there after ``GRACE_S``, the next call kills it."""
        asked = self._asked_to_end.setdefault(fix_id, self.clock())
        is_late = self.clock() - asked > GRACE_S
        child = self._children.get(fix_id)
        if child is None or child.poll() is not None:  # its number may be another's; its lock tells
            self.locks.end_holder(fix_id, at_once=is_late)
        elif is_late:
            kill_tree(child.pid, None)
        else:
            child.terminate()

    def end_all(self) -> None:
        """End own workers in good order, or else at once. One that is stuck in the kernel stays: its lock
        tells the next owner."""
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
