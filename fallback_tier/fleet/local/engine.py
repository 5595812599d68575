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

#: Upper bound; a worker's status is a few hundred bytes.
_MAX_STATUS_BYTES = 65_536

#: Space that is reserved for a status (bytes): a block of most file systems.
_ROOM_BYTES = 4_096


class Job(PipedJob):
    """The job of one worker. ``lock``: the number of the inherited file that holds its lock."""

    order: FixOrder
    lock: int
    secrets: FleetSecrets


class WorkerStatus(EngineState):
    """A worker's progress: ``active`` until it reports how it ended. ``base_commit``: what it works on,
    once that is decided; ``outcome``: verified, patched, refused, unknown or escalated.
    """

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
    """Reserve disk space for a worker's status before it starts, so that the worker can report a full
    disk, and does not count as dead. Until then the file holds no status. Raises StateFolderError.
    """
    with writing_below(place.state_dir):
        status_path(place, fix_id).write_bytes(b" " * _ROOM_BYTES)


def write_status(place: Place, fix_id: str, state: EngineState) -> None:
    """Write a status into its reserved space. One that is half written is read as none. It is synced,
    because the commit that it names is decided once. Raises OSError.
    """
    encoded = state.model_dump_json().encode()
    descriptor = os.open(status_path(place, fix_id), os.O_WRONLY | os.O_CREAT, 0o666)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encoded.ljust(_ROOM_BYTES))
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
    """Implements FleetEngine, for one runner or service at a time (``alone``). ``at_once``: workers
    that may live at the same time, including those of an earlier owner.
    """

    def __init__(self, place: Place, secrets: FleetSecrets, *, at_once: int) -> None:
        self._place = place
        self._secrets = secrets
        self._at_once = at_once
        self._workers = WorkerProcesses(_WORKER, place.locks)

    @property
    def own(self) -> frozenset[str]:
        """Return the fixes whose worker this process started, and whose end was not queried yet."""
        return self._workers.own

    @property
    def room(self) -> int:
        """Return how many workers may still be started."""
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
            problem = not_started(error, place.resume)
            write_status(place, fix_id, EngineState(phase=Phase.FAILED, problem=problem))

    def state(self, fix_id: str) -> EngineState:
        """Return the state by lock and status. A killed worker leaves no status: then the fix is
        unknown.
        """
        if self._workers.is_alive(fix_id):
            return EngineState(phase=Phase.ACTIVE)
        place, gone = self._place, self._workers.gone(fix_id)
        place.locks.tidy(fix_id)
        if gone is not None:
            with contextlib.suppress(OSError):  # its next worker removes it, too
                remove_tree(checkout(place.home, fix_id))  # left behind if it was killed
        status = read_status(place, fix_id)
        if status.phase is not Phase.ACTIVE:
            return EngineState(phase=status.phase, problem=status.problem)
        if gone is not None and gone.lived_s >= place.fix_s:  # too stuck to report it
            problem = took_too_long(place.fix_s, place.resume)
            write_status(
                place, fix_id, status.model_copy(update={"phase": Phase.FAILED, "problem": problem})
            )
            return EngineState(phase=Phase.FAILED, problem=problem)
        if gone is None or gone.code == 0:
            return EngineState(phase=Phase.UNKNOWN)
        problem = without_a_word(gone.code, place.locks.log(fix_id), place.resume)
        update = {"phase": Phase.UNKNOWN, "problem": problem}
        with contextlib.suppress(OSError):  # then the next call has no reason
            write_status(place, fix_id, status.model_copy(update=update))
        return EngineState(phase=Phase.UNKNOWN, problem=problem)

    def status(self, fix_id: str) -> WorkerStatus:
        """Return what its worker wrote, whether it is alive or not."""
        return read_status(self._place, fix_id)

    def document(self, fix_id: str) -> str | None:
        """Return the JSON document of a fix that has ended; None if it is missing or incomplete."""
        try:
            text = document_path(self._place, fix_id).read_text()
            json.loads(text)
        except (OSError, ValueError):
            return None
        return text

    def cancel(self, fix_id: str) -> None:
        """Ask its worker to end, if there is one, or kill it if it was asked some time ago."""
        if self.state(fix_id).phase is Phase.ACTIVE:
            self._workers.end(fix_id)

    def renew(self, order: FixOrder) -> None:
        """Do nothing: a worker keeps the order that it was started with, to the end of its fix."""

    def wake(self, fix_id: str) -> None:
        """Do nothing: a fix that may continue is submitted again."""

    def forget(self, fix_id: str) -> None:
        """Remove its status and document: a campaign may have a million fixes."""
        for path in (document_path(self._place, fix_id), status_path(self._place, fix_id)):
            with contextlib.suppress(OSError):  # a left-over file only costs some disk blocks
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
