"""The audit store in PostgreSQL: one schema, append-only, hash-chained, durable on return."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import AuditEvent
from fallback_audit.ports import AppendGuard, Record, Scope, Segment, StoredEvent
from fallback_audit.stores.appending import Clock, append_in, utc_now
from fallback_audit.stores.postgres_connection import (
    LOCK_TIMEOUT_S,
    MAINTAIN_SINCE,
    Connection,
    Session,
    connect,
)
from fallback_audit.stores.postgres_errors import explained
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_audit.stores.postgres_reading import PAGE_ROWS, PostgresAuditReader, open_readonly
from fallback_audit.stores.postgres_schema import prepare
from fallback_audit.stores.postgres_writing import PostgresTransaction

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

__all__ = ("PAGE_ROWS", "PostgresAuditReader", "PostgresAuditStore", "open_readonly")

Step = Callable[[Connection], object]


class PostgresAuditStore(PostgresAuditReader):
    """``KeepableStore`` on one schema of a PostgreSQL database that many processes may share.

    ``url``: libpq's ``postgresql://…``, with ``schema=NAME`` where the chain is not in
    ``fallback_audit``. Makes the schema and its tables where they are missing and the user may;
    ``init_postgres`` makes them with roles. ``guard`` is asked inside the write transaction, and told
    of each event when it is durable. ``verifiers``: see ``open_readonly``. Raises AuditStoreError
    naming the server (never a password), the reason and the next step.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str | None = None,
        guard: AppendGuard | None = None,
        verifiers: "Sequence[Verifier]" = (),
        clock: Clock = utc_now,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        location = PostgresLocation.of(url, schema=schema)
        session = Session(location, read_only=False, lock_timeout_s=lock_timeout_s)
        try:
            with explained(location):
                prepare(session.connection(), location)
        except BaseException:
            session.close()
            raise
        super().__init__(location, session, verifiers)
        self._guard = guard
        self._clock = clock

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable: one transaction. Raises AuditStoreError; see ``append_all``."""
        return self.append_all((Record(scope, event),))[0]

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make them durable at once: one transaction. Raises AuditStoreError: none was kept.

        Where the connection is lost while the server commits, the server is asked again: the events
        are returned if it has them. Where it can't be asked, the error says that this is not known.
        """
        return self._write(records) if records else ()

    def replace_payload(self, seq: int, tombstone: bytes, record: Record) -> StoredEvent:
        """Redact event ``seq``; see ``KeepableStore``. Raises AuditStoreError: none such, or redacted."""

        def replace(connection: Connection) -> None:
            connection.execute("INSERT INTO audit_tombstone VALUES (%s, %s)", (seq, tombstone))
            connection.execute(
                "UPDATE audit_payload SET payload = %s WHERE seq = %s", (tombstone, seq)
            )

        return self._keep(record, f"event {seq} can't be redacted", replace)

    def add_segment(self, segment: Segment, record: Record) -> StoredEvent:
        """Drop what was sealed; see ``KeepableStore``. Raises AuditStoreError: not the next segment."""

        def drop(connection: Connection) -> None:
            # Years of events may go at once. Writers wait for the lock meanwhile, and say so.
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("INSERT INTO audit_segment VALUES (%s, %s, %s, %s)", segment)
            last = (segment.last_seq,)
            connection.execute("DELETE FROM audit_payload WHERE seq <= %s", last)
            connection.execute("DELETE FROM audit_header WHERE seq <= %s", last)

        return self._keep(record, f"segment {segment.number} can't be sealed", drop)

    def scrub(self) -> None:
        """Write the tables anew, without what was taken out. The server's log and backups go with time.

        Raises AuditStoreError where this user may not: before PostgreSQL 17 only the owner may.
        """
        with (
            explained(self._location),
            closing(connect(self._location, read_only=False, endless=True)) as connection,
        ):
            if _may_rewrite(connection):
                connection.execute("VACUUM (FULL) audit_payload")
                connection.execute("VACUUM (FULL) audit_header")
                return
        raise AuditStoreError(
            f"Audit store {self._location}: the change is made and on record, but PostgreSQL's files "
            "still hold what was removed: this user may not rewrite the tables.",
            next_step="As their owner run VACUUM FULL on audit_payload and audit_header; "
            "see docs/postgresql.md for logs and backups.",
            kind="not_rewritten",
        )

    def _keep(self, record: Record, refused: str, step: Step) -> StoredEvent:
        def guarded(connection: Connection) -> None:
            try:
                step(connection)
            except psycopg.IntegrityError as error:
                raise AuditStoreError(
                    f"Audit store {self._location}: {refused}: the store's safeguards do not allow it.",
                    next_step="Look at `fallback-tier audit log`: it may have been done before.",
                    kind="safeguard",
                ) from error

        (stored,) = self._write((record,), guarded)
        self.scrub()
        return stored

    def _write(
        self, records: Sequence[Record], step: Step | None = None
    ) -> tuple[StoredEvent, ...]:
        with self._lock:
            with explained(self._location):
                transaction = PostgresTransaction(self._session, self._verifiers)
                try:
                    appended = append_in(transaction, records, guard=self._guard, clock=self._clock)
                    if step is not None:
                        step(transaction.connection)
                except BaseException:
                    transaction.roll_back()
                    raise
                transaction.commit(appended.all[-1])
            if self._guard is not None:  # under the lock still: it hears of events in their order
                for event in appended.all:
                    self._guard.appended(event)
        return appended.asked


def _may_rewrite(connection: Connection) -> bool:
    maintain = "has_table_privilege(oid, 'MAINTAIN')"
    sql = "SELECT pg_has_role(relowner, 'USAGE') OR {} FROM pg_class WHERE oid = %s::regclass"
    known = connection.info.server_version >= MAINTAIN_SINCE
    sql = sql.format(maintain if known else "FALSE")
    return connection.execute(sql.encode(), ("audit_payload",)).fetchone() == (True,)
