"""The record, opened for reading, where there is one."""

from contextlib import closing
from pathlib import Path

from fallback_tier.wiring import RecordSettings, audit_db
from fallback_tier.wiring.trail import ReadOnlyTrail, read_trail


def has_record(state_dir: Path, record: RecordSettings) -> bool:
    """Was anything recorded yet? PostgreSQL's store is there, or it is missing."""
    return record.database is not None or audit_db(state_dir).exists()


def open_record(state_dir: Path, record: RecordSettings) -> ReadOnlyTrail | None:
    """None: nothing is recorded yet. Raises AuditStoreError, KeyringError. Close it at the end."""
    return read_trail(state_dir, record) if has_record(state_dir, record) else None


def read_record(state_dir: Path, record: RecordSettings) -> closing[ReadOnlyTrail]:
    """While it is needed. Raises AuditStoreError, KeyringError."""
    return closing(read_trail(state_dir, record))
