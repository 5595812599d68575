"""Who starts workers, and ends them: one thread of the service, which looks at the queue.

The queue is the truth; what stands here in memory is lost with the process without harm. A worker holds
its lock from before its first instruction to its last, whoever its parent is by then: a fix that is marked
as running whose lock is free has no worker, so the service that finds it so may give it another.
"""

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from fallback_tier.errors import FallbackError
from fallback_tier.files.folders import remove_tree
from fallback_tier.observing.health.report import Finding, failed, ok
from fallback_tier.sandbox.process import kill_tree
from fallback_tier.service.configuring import Secrets
from fallback_tier.service.database import service_dir
from fallback_tier.service.queue.orders import OrderLine
from fallback_tier.service.queue.queue import OrderQueue
from fallback_tier.service.refusals import ConflictError
from fallback_tier.service.settings import ServiceSettings
from fallback_tier.service.worker.order import RESUME, WorkOrder, locks
from fallback_tier.workers.checkouts import checkout
from fallback_tier.workers.problem import MAX_TAKES, Problem, not_started, took_too_long
from fallback_tier.workers.starting import start_worker

#: Between two looks at queue and workers. A submission wakes the thread at once.
_TICK_S = 0.25

#: From the signal to end to the one that ends.
_GRACE_S = 5.0

#: What is started, under a guard.
_WORKER = "fallback_tier.service.worker.main"


@dataclass
class _Running:
    process: "subprocess.Popen[bytes]"
    until: float
    ending_since: float | None = None
    why: Problem | None = None
    log: Path = field(default_factory=Path)


class Dispatcher:
    """Takes from the queue what the limits allow. ``start`` it, and ``stop`` it at the end."""

    def __init__(
        self,
        queue: OrderQueue,
        settings: ServiceSettings,
        state_dir: Path,
        secrets: Secrets,
        *,
        free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue = queue
        self._settings = settings
        self._state_dir = state_dir
        self._locks = locks(state_dir)
        self._secrets = secrets
        self._free_bytes = free_bytes
        self._on_change = on_change
        self._children: dict[str, _Running] = {}
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dispatcher", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        """Take up what the last service left, then begin."""
        self._take_up()
        self._thread.start()

    def wake(self) -> None:
        """Something was submitted, or is to be cancelled."""
        self._wake.set()

    def found(self) -> Finding:
        """For readiness: does it do its work?"""
        if self.failure is not None:
            why = self.failure.problem if isinstance(self.failure, FallbackError) else "a defect"
            return failed(
                f"Fixes wait: the queue can't be worked on ({type(self.failure).__name__}: {why}).",
                "It is tried again by itself; repair what is named, or start the service again.",
            )
        if self._thread.ident is not None and not self._thread.is_alive():
            return failed("Fixes wait: nothing looks at the queue.", "Start the service again.")
        return ok("The queue is looked at.")

    def has_room_on_disk(self) -> bool:
        """As much is free as a fix needs."""
        return self._free_bytes(self._state_dir) >= self._settings.limits.min_free_bytes

    def stop(self) -> None:
        """End all workers in good order; what they had waits for the next start. Idempotent."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._look()
                self.failure = None
            except Exception as error:  # noqa: BLE001 (a full disk passes; readiness tells of it)
                self.failure = error
            self._wake.wait(_TICK_S)
            self._wake.clear()
        self._end_all()

    def _look(self) -> None:
        self._reap()
        self._end_those_due()
        self._adopt()
        space = self._settings.limits.concurrent_fixes - len(self._queue.running())
        while space > 0 and not self._stopping.is_set() and self.has_room_on_disk():
            taken = self._queue.take_next()
            if taken is None:
                break
            self._start_worker(taken.fix_id)
            space -= 1

    # --- Starting ---------------------------------------------------------------------------------

    def _start_worker(self, fix_id: str) -> None:
        lock = self._locks.take(fix_id)
        if lock is None:
            # The worker of an earlier service has it after all, or a process that is about to end still has
            # its lock; `_adopt` looks after it.
            self._queue.not_taken(fix_id)
            return
        try:
            self._children[fix_id] = self._process(fix_id, lock)
        except OSError as error:
            self._queue.fail(fix_id, not_started(error, RESUME))
        finally:
            lock.close()  # the worker has it now
        self._on_change()

    def _process(self, fix_id: str, lock: BinaryIO) -> _Running:
        order = WorkOrder(
            fix_id=fix_id, state_dir=self._state_dir, settings=self._settings, lock=lock.fileno()
        )
        log = self._locks.log(fix_id)
        limit_s = self._settings.limits.fix_s
        process = start_worker(_WORKER, limit_s, order.to_pipe(self._secrets), lock, log)
        until = time.monotonic() + limit_s
        return _Running(process, until, log=log)

    # --- Ending -----------------------------------------------------------------------------------

    def _reap(self) -> None:
        for fix_id, child in list(self._children.items()):
            code = child.process.poll()
            if code is None:
                continue
            del self._children[fix_id]
            self._gone(fix_id, child, code)
            self._on_change()

    def _gone(self, fix_id: str, child: _Running, code: int) -> None:
        """What the queue says of one whose worker has gone: its own word counts, if it has said one."""
        if child.why is not None:
            self._queue.fail(fix_id, child.why)
        elif not self._queue.cancelled_if_wanted(fix_id) and code != 0:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            self._queue.fail(
                fix_id,
                Problem(
                    code="worker",
                    problem=f"The worker ended without a word ({how}).",
                    next_step=f"Resume the fix; what it wrote is in {child.log}.",
                ),
            )
        with contextlib.suppress(OSError):  # what the next worker of this fix removes, too
            remove_tree(checkout(service_dir(self._state_dir), fix_id))  # there where it was killed
        self._locks.tidy(fix_id)

    def _end_those_due(self) -> None:
        cancelling = {line.fix_id for line in self._queue.running() if line.cancelling}
        now = time.monotonic()
        for fix_id, child in self._children.items():
            if now >= child.until and child.why is None:
                child.why = took_too_long(self._settings.limits.fix_s, RESUME)
            if fix_id in cancelling or child.why is not None:
                self._end(child, now)

    def _end(self, child: _Running, now: float) -> None:
        """First asked, then made to."""
        if child.ending_since is None:
            child.ending_since = now
            child.process.terminate()
        elif now - child.ending_since > _GRACE_S:
            kill_tree(child.process.pid, None)

    def _end_all(self) -> None:
        began = time.monotonic()
        while self._children:
            for child in self._children.values():
                self._end(child, time.monotonic())
            for fix_id, child in list(self._children.items()):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(_TICK_S)
                    del self._children[fix_id]
                    with contextlib.suppress(
                        FallbackError
                    ):  # it ended in time, or the disk is full
                        if child.why is not None:
                            self._queue.fail(fix_id, child.why)
                        elif not self._queue.cancelled_if_wanted(fix_id):
                            self._queue.give_back(fix_id)
            if time.monotonic() - began > 4 * _GRACE_S:
                return  # stuck in the kernel; the lock tells the next service

    # --- What an earlier service left -------------------------------------------------------------

    def _take_up(self) -> None:
        for line in self._queue.running():
            self._look_after(line)

    def _adopt(self) -> None:
        """Workers of an earlier service: they end by themselves, or are cancelled through their lock."""
        for line in self._queue.running():
            if line.fix_id not in self._children:
                self._look_after(line)

    def _look_after(self, line: OrderLine) -> None:
        lock = self._locks.take(line.fix_id)
        if lock is None:
            if line.cancelling:
                self._locks.ask_to_end(line.fix_id)
            return
        with lock:
            if self._queue.cancelled_if_wanted(line.fix_id):
                pass
            elif line.takes >= MAX_TAKES:
                self._queue.fail(line.fix_id, _taken_too_often(line.takes))
            else:
                with contextlib.suppress(ConflictError):  # it came to its end just now
                    self._queue.queue_again(line.fix_id, by=None)
        self._on_change()


def _taken_too_often(takes: int) -> Problem:
    return Problem(
        code="worker",
        problem=f"The service has died {takes} times while this fix ran, which may be the reason.",
        next_step="Look at the system's memory, then resume it.",
    )
