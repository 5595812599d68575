"""The audit trail for observers: opened for reading if it exists, and how far checkpoints lag behind it."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_tier.wiring import RecordSettings, audit_db
from fallback_tier.wiring.trail import ReadOnlyTrail, read_trail


def has_record(state_dir: Path, record: RecordSettings) -> bool:
    """Return whether anything was recorded yet. For PostgreSQL this is True: a missing store fails to
    open.
    """
    return record.database is not None or audit_db(state_dir).exists()


def open_record(state_dir: Path, record: RecordSettings) -> ReadOnlyTrail | None:
    """Return a reader, or None if nothing is recorded yet; the caller closes it. Raises
    AuditStoreError, KeyringError.
    """
    return read_trail(state_dir, record) if has_record(state_dir, record) else None


def read_record(state_dir: Path, record: RecordSettings) -> closing[ReadOnlyTrail]:
    """Return a context manager with a reader. Raises AuditStoreError, KeyringError."""
    return closing(read_trail(state_dir, record))


class ChainLag(NamedTuple):
    """Events without a checkpoint: ``events`` of ``last`` events, the oldest of them ``seconds`` old."""

    last: int = 0
    events: int = 0
    seconds: float = 0.0


def chain_lag(
    reader: ReadOnlyTrail,
    log: CheckpointLog,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ChainLag:
    """Return the lag. Raises AuditStoreError, CheckpointError, AuditIntegrityError.

    The checkpoints are read first: events that are recorded meanwhile count as uncovered, never the
    reverse.
    """
    covered = log.latest_size()
    last, _ = reader.tip()
    for oldest in reader.events(after=covered):
        age = (clock() - datetime.fromisoformat(oldest.recorded_at)).total_seconds()
        return ChainLag(last, last - covered, max(0.0, age))
    return ChainLag(last)
