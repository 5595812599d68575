"""The parts of the audit trail, connected: a store, its guard, its checkpoints, the evidence next to it.

Writers use ``open_trail``; readers use ``read_trail``.
"""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pydantic import Field, SecretStr

from fallback_audit.checkpoints.keyring import Keyring
from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.checkpoints.writer import CheckpointedStore, Checkpointer
from fallback_audit.contract.guard import ContractGuard
from fallback_audit.errors import RequestError
from fallback_audit.event_types import StartedOn
from fallback_audit.evidence.checking import this_machine
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AppendGuard, AuditReader, HeaderReader, KeepableStore
from fallback_audit.stores.postgres_location import PostgresLocation, require_driver
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from fallback_audit.verifying.sources import (
    GivenCheckpoints,
    KeptNote,
    LogCheckpoints,
    VerifiableStore,
)
from fallback_tier.files.folders import users_folder

#: Most events, and seconds, that a crash or an attacker may remove unnoticed while no fix ends.
CHECKPOINT_EVENTS = 256
CHECKPOINT_SECONDS = 60.0


class OnViolation(StrEnum):
    """What a store does with an event that breaks the trace contract."""

    REFUSE = "refuse"
    FLAG = "flag"


class RecordSettings(Frozen):
    """Where the record is, who signs it, and how strict it is.

    ``database``: ``postgresql://…``; None is SQLite, in the state folder. ``checkpoints``: where signed
    checkpoints go (default: the state folder; another disk is better). ``keys``: the signing and trusted
    keys (default: the user's configuration folder: never beside what they sign). ``keep_prompts``: raw
    prompts are kept too, as private evidence.
    """

    database: SecretStr | None = None
    checkpoints: Path | None = None
    keys: Path | None = None
    on_violation: OnViolation = OnViolation.REFUSE
    checkpoint_events: int = Field(default=CHECKPOINT_EVENTS, ge=1)
    checkpoint_seconds: float = Field(default=CHECKPOINT_SECONDS, gt=0)
    keep_prompts: bool = False


def audit_db(state_dir: Path) -> Path:
    """Return the path of the audit trail, unless it is in PostgreSQL."""
    return state_dir / "audit.db"


def evidence_dir(state_dir: Path) -> Path:
    """Return the folder of the evidence store."""
    return state_dir / "evidence"


def segment_dir(state_dir: Path) -> Path:
    """Return the folder of sealed segments."""
    return state_dir / "segments"


def checkpoint_dir(state_dir: Path, record: RecordSettings) -> Path:
    """Return the folder of the signed checkpoints."""
    return record.checkpoints or state_dir / "checkpoints"


def keys_dir(record: RecordSettings) -> Path:
    """Return the folder of the keys: apart from what they sign."""
    if record.keys is not None:
        return record.keys
    return users_folder("config") / "keys"


class ReadOnlyTrail(AuditReader, HeaderReader, VerifiableStore, Protocol):
    """An audit trail for reading only: its events, its headers, its bytes."""

    def segments(self) -> list[bytes]:
        """Return the statements about sealed segments, in order."""
        ...

    def close(self) -> None:
        """Release the store. Idempotent."""
        ...


def guard_of(record: RecordSettings) -> ContractGuard:
    """Return a guard: one session per fix may write (ADR-0086), and events must keep the contract."""
    return ContractGuard(record.on_violation.value)


def open_trail(
    state_dir: Path, record: RecordSettings, guard: ContractGuard | None = None
) -> CheckpointedStore:
    """Return the store to write to: it refuses (or flags) what breaks the trace contract, refuses events of
    a session that was overtaken, and is checkpointed. ``guard``: the guard of a caller that takes fixes in
    hand; by default, a new one.

    Raises AuditStoreError, KeyringError.
    """
    guard = guard or guard_of(record)
    shared = record.database is not None  # by machines: each keeps the evidence of its own part
    store = open_bare(state_dir, record, guard=guard)
    checkpointer = Checkpointer(
        store,
        CheckpointLog(checkpoint_dir(state_dir, record)),
        keys_dir(record),
        segments=store.segments,
        called=called(state_dir, record),
    )
    return CheckpointedStore(
        store,
        checkpointer,
        guard.written,
        events=record.checkpoint_events,
        seconds=record.checkpoint_seconds,
        from_first=True,
        started_on=_this_machine(state_dir) if shared else None,
    )


def _this_machine(state_dir: Path) -> StartedOn:
    store = open_evidence(state_dir).identify()
    return StartedOn(machine=this_machine(), evidence_store=store)


def called(state_dir: Path, record: RecordSettings) -> str:
    """Return the options that name this audit trail on a command line, each with a space before it."""
    options = location_options(state_dir, record)
    return "".join(f" {option} {value}" for option, value in options.items())


def location_options(state_dir: Path, record: RecordSettings) -> dict[str, str]:
    """Return the options that name this audit trail, each with its value as a shell reads it."""
    paths = {"--state-dir": state_dir, "--checkpoints": record.checkpoints, "--keys": record.keys}
    options = {option: shlex.quote(str(path)) for option, path in paths.items() if path is not None}
    if record.database is not None:
        options["--audit-store"] = shown_url(record.database.get_secret_value())
    return options


def shown_url(url: str) -> str:
    """Return a database's address as a shell reads it; the word URL if it holds a password."""
    try:
        location = PostgresLocation.of(url)
    except RequestError:
        return "URL"
    return "URL" if location.secrets else shlex.quote(url)


def open_bare(
    state_dir: Path, record: RecordSettings, *, guard: AppendGuard | None = None
) -> KeepableStore:
    """Return the store itself, for maintenance. Raises AuditStoreError, KeyringError."""
    verifiers = Keyring.load(keys_dir(record)).verifiers()
    if record.database is None:
        return SqliteAuditStore(audit_db(state_dir), guard=guard, verifiers=verifiers)
    require_driver()
    from fallback_audit.stores.postgres import PostgresAuditStore

    url = record.database.get_secret_value()
    return PostgresAuditStore(url, guard=guard, verifiers=verifiers)


def read_trail(state_dir: Path, record: RecordSettings) -> ReadOnlyTrail:
    """Return the store for reading, which must exist already. Raises AuditStoreError, KeyringError."""
    verifiers = Keyring.load(keys_dir(record)).verifiers()
    if record.database is None:
        return open_readonly(audit_db(state_dir), verifiers=verifiers)
    require_driver()
    from fallback_audit.stores.postgres import open_readonly as open_postgres

    return open_postgres(record.database.get_secret_value(), verifiers=verifiers)


def read_checkpoints(
    state_dir: Path,
    record: RecordSettings,
    *,
    keyring: Keyring | None = None,
    extra: tuple[KeptNote, ...] = (),
) -> LogCheckpoints:
    """Return the log's checkpoints, for a verification. ``keyring``: trusted keys other than the audit
    trail's own.

    Writers in several processes each count only the events that they know of, so twice the policy may be
    uncovered.
    """
    return LogCheckpoints(
        CheckpointLog(checkpoint_dir(state_dir, record)),
        Keyring.load(keys_dir(record)) if keyring is None else keyring,
        extra=extra,
        max_uncovered=2 * record.checkpoint_events,
    )


def exported_checkpoints(
    record: RecordSettings, keyring: Keyring, *notes: KeptNote, extra: tuple[KeptNote, ...] = ()
) -> GivenCheckpoints:
    """Return the checkpoints that came with an export, for a verification, and ``extra``, which were kept
    elsewhere. After the last one, a stranger can append anything: as few events as in the audit trail
    itself may follow it."""
    return GivenCheckpoints(notes, keyring, 2 * record.checkpoint_events, extra)


def open_evidence(state_dir: Path) -> FileEvidenceStore:
    """Return the evidence store."""
    return FileEvidenceStore(evidence_dir(state_dir))
