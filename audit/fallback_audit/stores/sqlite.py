"""The default audit store: one SQLite file, append-only, hash-chained, durable on return."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.chain import Link
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import AuditEvent, Digest
from fallback_audit.ports import AppendGuard, Record, Scope, Segment, StoredEvent
from fallback_audit.stores.appending import Clock, append_in, utc_now
from fallback_audit.stores.sqlite_connection import SqliteConnection
from fallback_audit.stores.sqlite_errors import explained
from fallback_audit.stores.sqlite_opening import BUSY_TIMEOUT_S, immediate, open_for_writing
from fallback_audit.stores.sqlite_reading import (
    PAGE_ROWS,
    SqliteAuditReader,
    has_link,
    is_database,
    open_readonly,
    tip,
    trail,
)

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

__all__ = ("PAGE_ROWS", "SqliteAuditReader", "SqliteAuditStore", "is_database", "open_readonly")


class SqliteAuditStore(SqliteAuditReader):
    """``KeepableStore`` on one SQLite file (WAL, ``synchronous=FULL``) that many processes may share.

    Creates the file with mode 0600, and missing directories with 0700. ``guard`` is asked inside the
    write transaction, and told of each event when it is durable. ``verifiers``: see ``open_readonly``.
    Raises AuditStoreError naming the path, the reason and the next step.
    """

    def __init__(
        self,
        path: Path,
        *,
        guard: AppendGuard | None = None,
        verifiers: "Sequence[Verifier]" = (),
        clock: Clock = utc_now,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self._guard = guard
        self._clock = clock
        self._busy_timeout_s = busy_timeout_s
        self._is_made = False
        self._last: StoredEvent | None = None
        super().__init__(path, verifiers)

    def _connected(self) -> SqliteConnection:
        return SqliteConnection(self._path, self._open, writes=True)

    def _open(self) -> sqlite3.Connection:
        """Open the file; only the first time a missing one is made.

        A file that replaced it must have the last event that was appended here: nothing is appended to an
        older copy, or to another trail.
        """
        db = open_for_writing(self._path, self._busy_timeout_s, create=not self._is_made)
        self._is_made = True
        if self._last is not None and not has_link(db, self._last.seq, self._last.leaf):
            db.close()
            raise AuditStoreError(
                f"Audit store {self._path}: it was replaced by a file without event {self._last.seq}, "
                "which this process recorded.",
                next_step="Stop this process and look for the file that has it; `fallback-tier audit "
                "verify` says how far a copy goes.",
                kind="replaced",
            )
        return db

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable: one transaction, one sync. Raises AuditStoreError.

        After an input/output error of the sync itself, or if the file's log was deleted meanwhile, the
        event may still be there: it was not acknowledged, and ``verify`` shows it.
        """
        return self.append_all((Record(scope, event),))[0]

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make them durable at once: one transaction, one sync. Raises AuditStoreError: none was kept."""
        return self._write(records) if records else ()

    def replace_payload(self, seq: int, tombstone: bytes, record: Record) -> StoredEvent:
        """Redact event ``seq``; see ``KeepableStore``. Raises AuditStoreError: none such, or redacted."""

        def replace(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO audit_tombstone VALUES (?, ?)", (seq, tombstone))
            db.execute("UPDATE audit_payload SET payload = ? WHERE seq = ?", (tombstone, seq))

        return self._keep(record, f"Event {seq} can't be redacted", replace)

    def add_segment(self, segment: Segment, record: Record) -> StoredEvent:
        """Drop what was sealed; see ``KeepableStore``. Raises AuditStoreError: not the next segment."""

        def drop(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO audit_segment VALUES (?, ?, ?, ?)", segment)
            db.execute("DELETE FROM audit_payload WHERE seq <= ?", (segment.last_seq,))
            db.execute("DELETE FROM audit_header WHERE seq <= ?", (segment.last_seq,))

        return self._keep(record, f"Segment {segment.number} can't be sealed", drop)

    def scrub(self) -> None:
        """Empty the write-ahead log: the file's own pages hold zeros where something was taken out.

        Raises AuditStoreError where a reader still needs the log after the busy timeout.
        """
        sql = "PRAGMA wal_checkpoint(TRUNCATE)"
        (busy, _, _) = self._read(lambda db: db.execute(sql).fetchone())
        if busy:
            raise AuditStoreError(
                f"Audit store {self._path}: its log still holds what was removed: a reader has it open.",
                next_step="It is gone once the readers have ended and the command is run again.",
                kind="log_not_scrubbed",
            )

    def _keep(
        self, record: Record, refused: str, step: Callable[[sqlite3.Connection], None]
    ) -> StoredEvent:
        try:
            (stored,) = self._write((record,), step)
        except AuditStoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise AuditStoreError(
                    f"Audit store {self._path}: {refused}: the store's safeguards do not allow it.",
                    next_step="Look at `fallback-tier audit log`: it may have been done before.",
                    kind="safeguard",
                ) from error
            raise
        self.scrub()
        return stored

    def _write(
        self,
        records: Sequence[Record],
        step: Callable[[sqlite3.Connection], None] | None = None,
    ) -> tuple[StoredEvent, ...]:
        with self._lock:
            with explained(self._path), self._connection.using() as db, immediate(db):
                transaction = _SqliteTransaction(db, self._verifiers)
                appended = append_in(transaction, records, guard=self._guard, clock=self._clock)
                if step is not None:
                    step(db)
            self._last = appended.all[-1]
            if self._guard is not None:  # under the lock still: it hears of events in their order
                for event in appended.all:
                    self._guard.appended(event)
        return appended.asked


class _SqliteTransaction:
    """What ``append_in`` does to the open write transaction of this connection."""

    def __init__(self, connection: sqlite3.Connection, verifiers: "Sequence[Verifier]") -> None:
        self._connection = connection
        self._verifiers = verifiers

    def tip(self) -> tuple[int, Digest]:
        return tip(self._connection)

    def insert(self, links: Sequence[Link]) -> None:
        payloads = [(link.event.seq, link.payload) for link in links]
        headers = [(link.event.seq, link.header, link.event.leaf) for link in links]
        self._connection.executemany("INSERT INTO audit_payload VALUES (?, ?)", payloads)
        self._connection.executemany("INSERT INTO audit_header VALUES (?, ?, ?)", headers)

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        return trail(self._connection, fix_id, after=after, verifiers=self._verifiers)
