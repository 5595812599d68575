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
from fallback_audit.stores.sqlite_errors import explained
from fallback_audit.stores.sqlite_opening import (
    BUSY_TIMEOUT_S,
    immediate,
    open_for_writing,
    uri_of,
)
from fallback_audit.stores.sqlite_reading import (
    PAGE_ROWS,
    SqliteAuditReader,
    open_readonly,
    tip,
    trail,
)

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

__all__ = ("PAGE_ROWS", "SqliteAuditReader", "SqliteAuditStore", "open_readonly")


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
        db = open_for_writing(path, busy_timeout_s)
        super().__init__(path, db, snapshot_uri=uri_of(path, "mode=ro"), verifiers=verifiers)
        self._guard = guard
        self._clock = clock

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable: one transaction, one sync. Raises AuditStoreError.

        After an input/output error of the sync itself, the operating system may still have kept the
        event: it was not acknowledged, and ``verify`` shows it if it is there.
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
        with self._lock, explained(self._path):
            (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise AuditStoreError(
                f"Audit store {self._path}: its log still holds what was removed: a reader has it open.",
                next_step="It is gone once the readers have ended and the command is run again.",
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
            with explained(self._path), immediate(self._db):
                transaction = _SqliteTransaction(self._db, self._verifiers)
                appended = append_in(transaction, records, guard=self._guard, clock=self._clock)
                if step is not None:
                    step(self._db)
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
