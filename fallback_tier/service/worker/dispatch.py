"""Who starts workers, and ends them: one thread of the service, which looks at the queue.

The queue is the truth; what stands here in memory is lost with the process without harm. A worker holds
its lock from before its first instruction to its last, whoever its parent is by then: a fix that is marked
as running whose lock is free has no worker, so the service that finds it so may give it another.
"""

import contextlib
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from fallback_tier.errors import FallbackError
from fallback_tier.files.folders import remove_tree
from fallback_tier.observing.health.running import Finding, failed, ok
from fallback_tier.service.configuring import Secrets
from fallback_tier.service.database import service_dir
from fallback_tier.service.queue.orders import OrderLine
from fallback_tier.service.queue.queue import OrderQueue
from fallback_tier.service.refusals import ConflictError
from fallback_tier.service.settings import ServiceSettings
from fallback_tier.service.worker.order import RESUME, WorkOrder, locks
from fallback_tier.workers.checkouts import checkout
from fallback_tier.workers.problem import MAX_TAKES, Problem, not_started, took_too_long
from fallback_tier.workers.processes import WorkerProcesses

#: Between two looks at queue and workers. A submission wakes the thread at once.
_TICK_S = 0.25

#: What is started, under a guard.
_WORKER = "fallback_tier.service.worker.main"


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
        self._workers = WorkerProcesses(_WORKER, locks(state_dir))
        self._secrets = secrets
        self._free_bytes = free_bytes
        self._on_change = on_change
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
        for fix_id in self._workers.own:
            self._tell_if_gone(fix_id)
        self._take_up()
        space = self._settings.limits.concurrent_fixes - len(self._queue.running())
        while space > 0 and not self._stopping.is_set() and self.has_room_on_disk():
            taken = self._queue.take_next()
            if taken is None:
                break
            self._start_worker(taken.fix_id)
            space -= 1

    def _start_worker(self, fix_id: str) -> None:
        def order(lock: int) -> bytes:
            one = WorkOrder(
                fix_id=fix_id, state_dir=self._state_dir, settings=self._settings, lock=lock
            )
            return one.to_pipe(self._secrets)

        try:
            if not self._workers.start(fix_id, self._settings.limits.fix_s, order):
                self._queue.not_taken(fix_id)
                return
        except OSError as error:
            self._queue.fail(fix_id, not_started(error, RESUME))
        self._on_change()

    # --- Ending -----------------------------------------------------------------------------------

    def _tell_if_gone(self, fix_id: str) -> None:
        """What the queue says of one whose worker has gone: its own word counts, if it has said one."""
        gone = self._workers.gone(fix_id)
        if gone is None:
            return
        log = self._workers.locks.log(fix_id)
        if self._queue.cancelled_if_wanted(fix_id):
            pass
        elif gone.lived_s >= self._settings.limits.fix_s:  # it can't have said so itself
            self._queue.fail(fix_id, took_too_long(self._settings.limits.fix_s, RESUME))
        elif self._stopping.is_set():
            self._queue.give_back(fix_id)
        elif gone.code != 0:
            self._queue.fail(fix_id, _without_a_word(gone.code, log))
        with contextlib.suppress(OSError):  # what the next worker of this fix removes, too
            remove_tree(checkout(service_dir(self._state_dir), fix_id))  # there where it was killed
        self._workers.locks.tidy(fix_id)
        self._on_change()

    def _end_all(self) -> None:
        self._workers.end_all()
        for fix_id in self._workers.own:
            with contextlib.suppress(FallbackError):  # the disk is full: its lock tells of it
                self._tell_if_gone(fix_id)

    def _take_up(self) -> None:
        """What runs, and is to be cancelled; what runs by the queue and has no worker. One of an earlier
        service ends by itself, or is ended by its lock."""
        for line in self._queue.running():
            if self._workers.is_alive(line.fix_id):
                if line.cancelling:
                    self._workers.end(line.fix_id)
            elif line.fix_id not in self._workers.own:
                self._go_on(line)

    def _go_on(self, line: OrderLine) -> None:
        if self._queue.cancelled_if_wanted(line.fix_id):
            pass
        elif line.takes >= MAX_TAKES:
            self._queue.fail(line.fix_id, _taken_too_often(line.takes))
        else:
            with contextlib.suppress(ConflictError):  # it came to its end just now
                self._queue.queue_again(line.fix_id, by=None)
        self._on_change()


def _without_a_word(code: int, log: Path) -> Problem:
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Problem(
        code="worker",
        problem=f"The worker ended without a word ({how}).",
        next_step=f"Resume the fix; what it wrote is in {log}.",
    )


def _taken_too_often(takes: int) -> Problem:
    return Problem(
        code="worker",
        problem=f"The service has died {takes} times while this fix ran, which may be the reason.",
        next_step="Look at the system's memory, then resume it.",
    )
