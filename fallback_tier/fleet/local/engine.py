"""The engine of this machine: one process per fix, its job, and the status that it writes.

What is in memory may be lost: a worker's lock tells the next owner whether it is alive, and its status how
it ended.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from fallback_tier.files.folders import remove_tree, writing_below
from fallback_tier.fleet.engine_interface import EngineState, Phase
from fallback_tier.fleet.fix_order import FixOrder, FleetSecrets, PipedJob, Place
from fallback_tier.workers.checkouts import checkout, remove_unused
from fallback_tier.workers.problem import not_started, took_too_long, without_a_word
from fallback_tier.workers.processes import WorkerProcesses

#: A worker's status is a few hundred bytes.
_MAX_STATUS_BYTES = 65_536

#: What is kept free for it (bytes): a block of most file systems.
_ROOM_BYTES = 4_096


class Job(PipedJob):
    """One fix. ``lock``: the number of the inherited file that holds its lock."""

    order: FixOrder
    lock: int
    secrets: FleetSecrets


class WorkerStatus(EngineState):
    """How far a worker is: ``active`` until it says how it ended. ``base_commit``: what it works on, known
    from when that is decided; ``outcome``: verified, patched, refused, unknown or escalated."""

    phase: Phase = Phase.ACTIVE
    base_commit: str | None = None
    outcome: str | None = None


def document_path(place: Place, fix_id: str) -> Path:
    """Return the file to which a worker writes what ``fallback-tier fix --json`` would print."""
    return status_path(place, fix_id).with_suffix(".json")


def status_path(place: Place, fix_id: str) -> Path:
    """Return the file to which a worker writes its status."""
    return place.home / "workers" / f"{fix_id}.end"


def reserve_status(place: Place, fix_id: str) -> None:
    """Reserve disk space for a worker's status before it starts: if the disk fills up, it can still say so,
    and does not count as dead. Until then the file holds no status. Raises StateFolderError."""
    with writing_below(place.state_dir):
        status_path(place, fix_id).write_bytes(b" " * _ROOM_BYTES)


def write_status(place: Place, fix_id: str, state: EngineState) -> None:
    """Write a status into the space that is reserved for it. One that is half written reads as none. It is
    synced, because the commit that it names is decided once. Raises OSError."""
    said = state.model_dump_json().encode()
    there = os.open(status_path(place, fix_id), os.O_WRONLY | os.O_CREAT, 0o666)
    with os.fdopen(there, "wb") as file:
        file.write(said.ljust(_ROOM_BYTES))
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def read_status(place: Place, fix_id: str) -> WorkerStatus:
    """Return the status; without one the worker is active, and nothing else is known."""
    try:
        with status_path(place, fix_id).open("rb") as file:
            return WorkerStatus.model_validate_json(file.read(_MAX_STATUS_BYTES))
    except (FileNotFoundError, ValidationError):
        return WorkerStatus()


_WORKER = "fallback_tier.fleet.local.main"


class LocalEngine:
    """Implements FleetEngine, for one runner or service at a time (``alone``). ``at_once``: workers that
    may live at the same time, those of an earlier owner counted in."""

    def __init__(self, place: Place, secrets: FleetSecrets, *, at_once: int) -> None:
        self._place = place
        self._secrets = secrets
        self._at_once = at_once
        self._workers = WorkerProcesses(_WORKER, place.locks)

    @property
    def own(self) -> frozenset[str]:
        """Fixes whose worker this process started, and whose end nobody has asked for yet."""
        return self._workers.own

    @property
    def room(self) -> int:
        """Workers that may still be started."""
        return self._at_once - self._workers.alive

    def submit(self, order: FixOrder) -> None:
        """Start a worker, unless one is alive. Raises StateFolderError."""
        place, fix_id = self._place, order.fix_id

        def job(lock: int) -> bytes:
            reserve_status(place, fix_id)
            document_path(place, fix_id).unlink(missing_ok=True)
            return Job(order=order, place=place, lock=lock, secrets=self._secrets).to_pipe()

        try:
            self._workers.start(fix_id, place.fix_s, job)
        except OSError as error:
            why = not_started(error, place.resume)
            write_status(place, fix_id, EngineState(phase=Phase.FAILED, problem=why))

    def state(self, fix_id: str) -> EngineState:
        """Return the state by lock and status. A killed worker leaves no status: no process has the fix."""
        if self._workers.is_alive(fix_id):
            return EngineState(phase=Phase.ACTIVE)
        place, gone = self._place, self._workers.gone(fix_id)
        place.locks.tidy(fix_id)
        if gone is not None:
            with contextlib.suppress(OSError):  # what its next worker removes, too
                remove_tree(checkout(place.home, fix_id))  # there if it was killed
        status = read_status(place, fix_id)
        if status.phase is not Phase.ACTIVE:
            return EngineState(phase=status.phase, problem=status.problem)
        if gone is not None and gone.lived_s >= place.fix_s:  # too stuck to say so
            why = took_too_long(place.fix_s, place.resume)
            write_status(
                place, fix_id, status.model_copy(update={"phase": Phase.FAILED, "problem": why})
            )
            return EngineState(phase=Phase.FAILED, problem=why)
        if gone is None or gone.code == 0:
            return EngineState(phase=Phase.UNKNOWN)
        why = without_a_word(gone.code, place.locks.log(fix_id), place.resume)
        update = {"phase": Phase.UNKNOWN, "problem": why}
        with contextlib.suppress(OSError):  # then the next look knows no reason
            write_status(place, fix_id, status.model_copy(update=update))
        return EngineState(phase=Phase.UNKNOWN, problem=why)

    def status(self, fix_id: str) -> WorkerStatus:
        """Return what its worker wrote, whether it is alive or not."""
        return read_status(self._place, fix_id)

    def document(self, fix_id: str) -> str | None:
        """What the worker of a fix that has ended left, as JSON; None if it is not there or not whole."""
        try:
            text = document_path(self._place, fix_id).read_text()
            json.loads(text)
        except (OSError, ValueError):
            return None
        return text

    def cancel(self, fix_id: str) -> None:
        """Ask its worker to end, if there is one, or end it if it was asked some time ago."""
        if self.state(fix_id).phase is Phase.ACTIVE:
            self._workers.end(fix_id)

    def renew(self, order: FixOrder) -> None:
        """A worker keeps the order that it was started with, to the end of its fix."""

    def wake(self, fix_id: str) -> None:
        """Nobody waits here: a fix that may go on is submitted again."""

    def forget(self, fix_id: str) -> None:
        """Remove its status and document: a campaign may have a million fixes."""
        for path in (document_path(self._place, fix_id), status_path(self._place, fix_id)):
            with contextlib.suppress(OSError):  # it costs some blocks of the disk, and no more
                path.unlink(missing_ok=True)

    def forget_unless(self, is_running: Callable[[str], bool]) -> None:
        """Remove the statuses of fixes that don't run. Their end is known, and a fix that continues must
        not end by the status of an earlier worker."""
        for path in self._place.locks.path("*").parent.glob("*.end"):
            fix_id = path.stem
            if not self._workers.is_alive(fix_id) and not is_running(fix_id):
                self.forget(fix_id)

    def close(self) -> None:
        """End this process's workers in good order. Their fixes are unknown then, and can be submitted."""
        self._workers.end_all()
        for fix_id in self._workers.own:
            self.state(fix_id)  # if a worker did not notice its time limit, the engine records it
        remove_unused(self._place.home)
