"""Processes of this machine, one a fix. What stands here in memory is lost without harm: a worker's lock
tells whether it lives, and its word how it ended, to whoever comes next."""

import contextlib
import subprocess
import time
from pathlib import Path

from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.fleet.local.job import (
    RESUME,
    FleetSecrets,
    Job,
    Place,
    keep_room,
    leave_word,
    read_word,
    word_path,
)
from fallback_tier.fleet.order import FixOrder
from fallback_tier.sandbox.process import kill_tree
from fallback_tier.workers.checkouts import remove_unused
from fallback_tier.workers.problem import not_started
from fallback_tier.workers.starting import start_worker

_WORKER = "fallback_tier.fleet.local.main"

#: From the signal to end to the one that ends (seconds).
_GRACE_S = 10.0


class LocalEngine:
    """Implements FleetEngine, for one runner at a time (``alone``). ``at_once``: workers that may live at
    the same time, those of an earlier runner counted in."""

    def __init__(self, place: Place, secrets: FleetSecrets, *, at_once: int) -> None:
        self._place = place
        self._secrets = secrets
        self._at_once = at_once
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._adopted: set[str] = set()

    @property
    def room(self) -> int:
        """Workers that may still be started."""
        return self._at_once - len(self._children) - len(self._adopted)

    def submit(self, order: FixOrder) -> None:
        """Start a worker, unless one is alive. Raises StateFolderError."""
        fix_id, locks = order.fix_id, self._place.locks
        lock = locks.take(fix_id)
        if lock is None:
            self._adopt(fix_id)
            return
        with lock:  # the worker has it, too
            keep_room(self._place, fix_id)
            self._cancelled(fix_id).unlink(missing_ok=True)
            job = Job(order=order, place=self._place, lock=lock.fileno(), secrets=self._secrets)
            try:
                self._children[fix_id] = start_worker(
                    _WORKER, self._place.fix_s, job.to_pipe(), lock, locks.log(fix_id)
                )
            except OSError as error:
                why = not_started(error, RESUME)
                leave_word(self._place, fix_id, EngineState(phase=Phase.FAILED, problem=why))

    def state(self, fix_id: str) -> EngineState:
        """By its lock and its word. A worker that was killed leaves none: then nobody has the fix."""
        locks = self._place.locks
        child = self._children.get(fix_id)
        if child is not None and child.poll() is None:
            return EngineState(phase=Phase.ACTIVE)
        lock = locks.take(fix_id)
        if lock is None:
            self._adopt(fix_id)
            return EngineState(phase=Phase.ACTIVE)
        lock.close()
        self._children.pop(fix_id, None)
        self._adopted.discard(fix_id)
        locks.tidy(fix_id)
        word = read_word(self._place, fix_id)
        if word is None and self._cancelled(fix_id).exists():
            return EngineState(phase=Phase.CANCELLED)
        return word or EngineState(phase=Phase.UNKNOWN)

    def cancel(self, fix_id: str) -> None:
        """Ask its worker to end, where there is one."""
        if self.state(fix_id).phase is Phase.ACTIVE:
            self._cancelled(fix_id).touch()
            self._end(fix_id)

    def renew(self, order: FixOrder) -> None:
        """A worker keeps the order that it was started with, to the end of its fix."""

    def wake(self, fix_id: str) -> None:
        """Nobody waits here: a fix that may go on is submitted again."""

    def forget(self, fix_id: str) -> None:
        """Remove its word: a campaign may have a million fixes."""
        for path in (word_path(self._place, fix_id), self._cancelled(fix_id)):
            with contextlib.suppress(OSError):  # it costs a block of the disk, and no more
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """End this process's workers in good order. Their fixes are unknown then, and can be submitted."""
        for fix_id in self._children:
            self._end(fix_id)
        until = time.monotonic() + _GRACE_S
        for fix_id, child in self._children.items():
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                kill_tree(child.pid, None)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_GRACE_S)  # stuck in the kernel; the lock tells who comes next
            self._place.locks.tidy(fix_id)
        self._children.clear()
        remove_unused(self._place.home)

    def _end(self, fix_id: str) -> None:
        child = self._children.get(fix_id)
        if child is not None:
            child.terminate()
        else:
            self._place.locks.ask_to_end(fix_id)

    def _adopt(self, fix_id: str) -> None:
        if fix_id not in self._children:
            self._adopted.add(fix_id)

    def _cancelled(self, fix_id: str) -> Path:
        return word_path(self._place, fix_id).with_suffix(".cancelled")
