"""Processes of this machine, one a fix. What is kept in memory is lost without harm: a worker's lock tells
whether it lives, and its word how it ended, to whoever comes next."""

import contextlib
from pathlib import Path

from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.fleet.local.job import (
    RESUME,
    Job,
    keep_room,
    leave_word,
    read_word,
    word_path,
)
from fallback_tier.fleet.order import FixOrder
from fallback_tier.fleet.place import FleetSecrets, Place
from fallback_tier.workers.checkouts import remove_unused
from fallback_tier.workers.problem import not_started, took_too_long
from fallback_tier.workers.processes import WorkerProcesses

_WORKER = "fallback_tier.fleet.local.main"


class LocalEngine:
    """Implements FleetEngine, for one runner at a time (``alone``). ``at_once``: workers that may live at
    the same time, those of an earlier runner counted in."""

    def __init__(self, place: Place, secrets: FleetSecrets, *, at_once: int) -> None:
        self._place = place
        self._secrets = secrets
        self._at_once = at_once
        self._workers = WorkerProcesses(_WORKER, place.locks)

    @property
    def room(self) -> int:
        """Workers that may still be started."""
        return self._at_once - self._workers.alive

    def submit(self, order: FixOrder) -> None:
        """Start a worker, unless one is alive. Raises StateFolderError."""
        place, fix_id = self._place, order.fix_id

        def job(lock: int) -> bytes:
            keep_room(place, fix_id)
            self._cancelled(fix_id).unlink(missing_ok=True)
            return Job(order=order, place=place, lock=lock, secrets=self._secrets).to_pipe()

        try:
            self._workers.start(fix_id, place.fix_s, job)
        except OSError as error:
            why = not_started(error, RESUME)
            leave_word(place, fix_id, EngineState(phase=Phase.FAILED, problem=why))

    def state(self, fix_id: str) -> EngineState:
        """By its lock and its word. A worker that was killed leaves none: then nobody has the fix."""
        if self._workers.is_alive(fix_id):
            return EngineState(phase=Phase.ACTIVE)
        gone, limit_s = self._workers.gone(fix_id), self._place.fix_s
        self._place.locks.tidy(fix_id)
        word = read_word(self._place, fix_id)
        if word is None and self._cancelled(fix_id).exists():
            return EngineState(phase=Phase.CANCELLED)
        if word is None and gone is not None and gone.lived_s >= limit_s:  # too stuck to say so
            why = took_too_long(limit_s, RESUME)
            word = EngineState(phase=Phase.FAILED, problem=why)
            leave_word(self._place, fix_id, word)
        return word or EngineState(phase=Phase.UNKNOWN)

    def cancel(self, fix_id: str) -> None:
        """Ask its worker to end, if there is one, or end it if it was asked some time ago."""
        if self.state(fix_id).phase is Phase.ACTIVE:
            self._cancelled(fix_id).touch()
            self._workers.end(fix_id)

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
        self._workers.end_all()
        for fix_id in self._workers.own:
            self._workers.gone(fix_id)
            self._place.locks.tidy(fix_id)
        remove_unused(self._place.home)

    def _cancelled(self, fix_id: str) -> Path:
        return word_path(self._place, fix_id).with_suffix(".cancelled")
