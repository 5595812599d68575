"""A real store, a folder of checkpoints and a folder of keys, for the tests beside it."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fallback_audit.checkpoints.checkpoint import Written
from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import CheckpointedStore, Checkpointer
from fallback_audit.events import AuditEvent, FixRefused, SandboxDisabled
from fallback_audit.ports import Record, Scope, StoredEvent, TrailReader
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_audit.vocabulary import RefusalReason

SCOPE = Scope(fix_id="fix-1", gate_transition_id="gate-1")
EVENT = SandboxDisabled(reason="a person said so")
END = FixRefused(attempt=1, reason=RefusalReason.NOT_AFFECTED, sentence="nothing to do")


@dataclass
class Clock:
    """Timers that run when the test says so."""

    waiting: "list[StoppedTimer]" = field(default_factory=list)

    def timer(self, seconds: float, call: Callable[[], None]) -> "StoppedTimer":
        return StoppedTimer(self, seconds, call)

    def run_out(self) -> None:
        (timer,) = self.waiting
        self.waiting.clear()
        timer.call()


@dataclass
class StoppedTimer:
    """As ``threading.Timer``, without a thread."""

    clock: Clock
    seconds: float
    call: Callable[[], None]
    daemon: bool = False

    def start(self) -> None:
        assert self.daemon
        self.clock.waiting.append(self)

    def cancel(self) -> None:
        if self in self.clock.waiting:
            self.clock.waiting.remove(self)

    def join(self, timeout: float | None = None) -> None:
        assert self not in self.clock.waiting


class Anything:
    """A guard that lets every event in, and notes which became durable."""

    def __init__(self) -> None:
        self.written = Written()

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        return ()

    def appended(self, event: StoredEvent) -> None:
        self.written.add(event.seq)


@dataclass
class TrailFolder:
    """Everything in one folder."""

    place: Path
    said: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    @property
    def db(self) -> Path:
        return self.place / "audit.db"

    @property
    def keys(self) -> Path:
        return self.place / "keys"

    @property
    def keyring(self) -> Keyring:
        return Keyring.load(self.keys)

    @property
    def log(self) -> CheckpointLog:
        return CheckpointLog(self.place / "checkpoints")

    def raw(self) -> SqliteAuditStore:
        return SqliteAuditStore(self.db)

    def checkpointer(self, store: SqliteAuditStore) -> Checkpointer:
        return Checkpointer(store, self.log, self.keys, notify=self.said.append)

    def store(self, events: int = 256, seconds: float = 60) -> CheckpointedStore:
        guard = Anything()
        raw = SqliteAuditStore(self.db, guard=guard)
        return CheckpointedStore(
            raw,
            self.checkpointer(raw),
            guard.written,
            events=events,
            seconds=seconds,
            timer=self.clock.timer,
            notify=self.said.append,
        )

    def add(self, count: int, event: AuditEvent = EVENT) -> None:
        """Append behind the checkpoints' back: as if the process died before the next one."""
        store = self.raw()
        store.append_all([Record(SCOPE, event)] * count)
        store.close()

    def sign(self) -> int:
        """Make a checkpoint now; its size."""
        store = self.raw()
        try:
            signed = self.checkpointer(store).checkpoint()
        finally:
            store.close()
        assert signed is not None
        return signed.checkpoint.size

    def forget(self) -> None:
        """The keys' folder knows nothing of this log."""
        shutil.rmtree(self.keys / "known")

    def roll_back(self, copy: Path) -> None:
        """Put an old copy of the database back."""
        for name in ("audit.db-wal", "audit.db-shm"):
            (self.place / name).unlink(missing_ok=True)
        shutil.copy(copy, self.db)

    def copy(self) -> Path:
        return Path(shutil.copy(self.db, self.place / "old.db"))


def sizes(trail: TrailFolder) -> list[int]:
    return list(trail.log.sizes())


def intact(trail: TrailFolder) -> None:
    """Every checkpoint is good, and all entries of the store have the root that the last one signs."""
    store = trail.raw()
    try:
        fresh = Checkpointer(store, trail.log, trail.keys)
        assert fresh.check() == trail.log.latest_size()
    finally:
        store.close()
    assert [one.fault for one in trail.log.checked(trail.keyring) if one.fault] == []
