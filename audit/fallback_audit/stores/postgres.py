"""The audit store in PostgreSQL: one schema, append-only, hash-chained, durable on return.

It is read page by page, or, for a verification, as one snapshot. An append takes the chain's lock, inserts
the links, and commits; if the connection is lost meanwhile, it finds out whether the server committed.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, count
from typing import TYPE_CHECKING

import psycopg
from psycopg.rows import TupleRow

from fallback_audit.chain import Link, StoredRow, read_row
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import AuditEvent, Digest
from fallback_audit.ports import AppendGuard, HeaderRow, Record, Scope, Segment, StoredEvent
from fallback_audit.stores.appending import (
    Clock,
    append_in,
    last_before,
    tip_of,
    utc_now,
)
from fallback_audit.stores.postgres_connection import (
    LOCK_TIMEOUT_S,
    MAINTAIN_SINCE,
    Connection,
    Session,
    connect,
    explained,
)
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_audit.stores.postgres_schema import (
    applied_migrations,
    check_version,
    lock_key,
    prepare,
    schema_problems,
)

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier


#: Rows that ``events`` holds in memory at once.
PAGE_ROWS = 500

#: Rows that a snapshot's cursor fetches at once. More is no faster, and payloads may be large.
_FETCH_ROWS = 200

# The headers first, by an index, then their payloads: the planner could start a plain join with the
# payloads of all events. OFFSET 0 keeps it from testing event by event whether it is of the fix.
_PAGE = (
    "SELECT seq, header, leaf, payload FROM (SELECT seq, header, leaf FROM {headers}"
    " WHERE seq > %s{kinds} ORDER BY seq LIMIT {limit}) AS page"
    " LEFT JOIN audit_payload USING (seq) ORDER BY seq"
)
_ALL = "audit_header"
_OF_FIX = "(SELECT * FROM audit_header WHERE fix_id = %s OFFSET 0) AS mine"
_OF_KINDS = " AND kind = ANY(%s)"

#: All events of one fix: what a guard reads.
_TRAIL = _PAGE.format(headers=_OF_FIX, kinds="", limit="ALL")

_TIP = "SELECT seq, leaf FROM audit_header ORDER BY seq DESC LIMIT 1"
_SEGMENTS = "SELECT statement FROM audit_segment ORDER BY number"
_STRAY_TOMBSTONES = (
    "SELECT count(*) FROM audit_tombstone LEFT JOIN audit_payload USING (seq) WHERE tombstone IS"
    " DISTINCT FROM payload AND seq > (SELECT coalesce(max(last_seq), 0) FROM audit_segment)"
)

# One message to the server. Each statement in it sees what was committed before it began, so the tip
# is the last writer's. A session with the stricter setting remote_apply keeps it.
_BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT pg_advisory_xact_lock({key});
SELECT set_config('synchronous_commit', 'on', true)
  WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
SELECT current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on', seq, leaf
  FROM (SELECT 1) AS always LEFT JOIN ({tip}) AS tip ON true
"""

_INSERT = (
    "WITH payloads AS (INSERT INTO audit_payload (seq, payload) {payloads})"
    " INSERT INTO audit_header (seq, header, leaf) {headers}"
)
_INSERT_ONE = _INSERT.format(
    payloads="VALUES (%(seq)s, %(payload)s)", headers="VALUES (%(seq)s, %(header)s, %(leaf)s)"
).encode()
_INSERT_SEVERAL = _INSERT.format(
    payloads="SELECT * FROM unnest(%(seq)s::bigint[], %(payload)s::bytea[])",
    headers="SELECT * FROM unnest(%(seq)s::bigint[], %(header)s::bytea[], %(leaf)s::text[])",
).encode()

_Step = Callable[[Connection], object]


class _PostgresSnapshot:
    """A consistent view of the stored bytes for ``verify``, streamed by cursors of the server."""

    def __init__(self, connection: Connection, location: PostgresLocation) -> None:
        self._connection = connection
        self._location = location
        self._names = map("audit_{}".format, count())

    def schema_problems(self) -> list[str]:
        """Return the tables, index and append-only safeguards that are not as the store made them, and how
        many tombstones replaced no payload."""
        problems = schema_problems(self._connection, self._location.schema)
        if not problems:  # otherwise a table may be missing
            ((stray,),) = self._rows(_STRAY_TOMBSTONES)
            problems += [f"{stray} tombstones that no payload was replaced by"] if stray else []
        return problems

    def index_problems(self) -> list[str]:
        """Return none: checking indexes takes ``amcheck``, an extension for the server's superuser."""
        return []

    def segments(self) -> list[bytes]:
        """Return the statements of all segments, in order."""
        return [statement for (statement,) in self._rows(_SEGMENTS)]

    def tombstones(self) -> frozenset[int]:
        """Return the numbers of the events in the table of tombstones; none if it is missing."""
        ((table,),) = self._connection.execute("SELECT to_regclass('audit_tombstone')")
        rows = self._rows("SELECT seq FROM audit_tombstone") if table else ()
        return frozenset(seq for (seq,) in rows)

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Yield rows after number ``after`` (None: no payload), then payloads without a header."""
        linked = self._rows(
            "SELECT seq, header, leaf, payload FROM audit_header LEFT JOIN (SELECT seq, payload"
            " FROM audit_payload WHERE seq > %s) AS payloads USING (seq) WHERE seq > %s ORDER BY seq",
            after,
            after,
        )
        orphans = self._rows(
            "SELECT seq, NULL::bytea, NULL::text, payload FROM audit_payload p WHERE (seq > %s OR %s = 0)"
            " AND NOT EXISTS (SELECT FROM audit_header h WHERE h.seq = p.seq) ORDER BY seq",
            after,
            after,
        )
        return map(StoredRow._make, chain(linked, orphans))

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Yield complete rows by gate transition, in chain order; of all fixes, or of these."""
        sql = "SELECT seq, header, leaf, payload FROM audit_header JOIN audit_payload USING (seq)"
        order = "ORDER BY fix_id, gate_transition_id, seq"
        if fix_ids is None:
            rows = self._rows(f"{sql} {order}")
        else:
            rows = self._rows(f"{sql} WHERE fix_id = ANY(%s) {order}", sorted(fix_ids))
        return map(StoredRow._make, rows)

    def _rows(self, sql: str, *parameters: object) -> Iterator[TupleRow]:
        with (
            explained(self._location),
            self._connection.cursor(name=next(self._names), binary=True) as cursor,
        ):
            cursor.itersize = _FETCH_ROWS
            yield from cursor.execute(sql.encode(), parameters)


class PostgresAuditReader:
    """Reader of one chain. Threads may share it. A lost connection is opened again.

    ``verifiers``: see ``open_readonly``.
    """

    def __init__(
        self, location: PostgresLocation, session: Session, verifiers: "Sequence[Verifier]" = ()
    ) -> None:
        self._location = location
        self._verifiers = tuple(verifiers)
        self._session = session
        self._lock = threading.Lock()

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        """Yield events in chain order, page by page; see ``AuditStore.events``.

        Each event's own bytes are checked. Raises AuditIntegrityError, AuditStoreError.
        """
        if since is not None:
            after = max(after, last_before(self._number, since))
        sql = _PAGE.format(
            headers=_ALL if fix_id is None else _OF_FIX,
            kinds="" if kinds is None else _OF_KINDS,
            limit=PAGE_ROWS,
        )
        fix_parameters = () if fix_id is None else (fix_id,)
        kind_parameters = () if kinds is None else (sorted(kinds),)
        while page := self._read(sql, *fix_parameters, after, *kind_parameters):
            yield from (read_row(StoredRow._make(row), self._verifiers) for row in page)
            after = page[-1][0]

    def tip(self) -> tuple[int, Digest]:
        """Return number and leaf of the last event. Raises AuditIntegrityError if all left are sealed."""
        return tip_of(self._read(_TIP), self.segments)

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Yield headers in chain order, page by page, without those of sealed segments."""
        last = self.tip()[0] if upto is None else upto
        sql = (
            "SELECT seq, header, leaf FROM audit_header"
            " WHERE seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
        )
        while page := self._read(sql, after, last, PAGE_ROWS):
            yield from map(HeaderRow._make, page)
            after = page[-1][0]

    def segments(self) -> list[bytes]:
        """Return the statements of all segments, in order. Events start after the last one."""
        return [statement for (statement,) in self._read(_SEGMENTS)]

    @contextmanager
    def snapshot(self) -> Iterator[_PostgresSnapshot]:
        """Open a read-only transaction on a separate connection: it does not block writers.

        Raises AuditStoreError; AuditIntegrityError if the server finds its own data damaged.
        """
        with (
            explained(self._location),
            closing(connect(self._location, read_only=True, endless=True)) as connection,
        ):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield _PostgresSnapshot(connection, self._location)

    def close(self) -> None:
        """Release the store. Idempotent."""
        with self._lock:
            self._session.close()

    def _number(self, sql: str, *values: object) -> int | None:
        number: int | None = self._read(sql.replace("?", "%s"), *values)[0][0]
        return number

    def _read(self, sql: str, *parameters: object) -> list[TupleRow]:
        # Page by page: no cursor outlives the lock, since the iterator may move to another thread
        # between two events (a server-sent stream in a thread pool does).
        with self._lock:
            return self._session.read(sql, parameters)


def open_readonly(
    url: str, *, schema: str | None = None, verifiers: "Sequence[Verifier]" = ()
) -> PostgresAuditReader:
    """Open a chain, or a standby's copy of one, for reading. Raises AuditStoreError.

    ``verifiers``: trusted keys. A redacted event can be read only if one of them signed its tombstone.
    """
    location = PostgresLocation.of(url, schema=schema)
    session = Session(location, read_only=True)
    try:
        with explained(location):
            applied = applied_migrations(session.connection(), location)
        check_version(_found(applied, location), location)
    except BaseException:
        session.close()
        raise
    return PostgresAuditReader(location, session, verifiers)


def _found(applied: set[str] | None, location: PostgresLocation) -> set[str]:
    if applied is None:
        raise AuditStoreError(
            f"Audit store {location}: it has no audit trail in it.",
            next_step="Check database and schema; a chain is made by the first `fallback-tier fix`.",
            kind="no_trail",
        )
    return applied


class _PostgresTransaction:
    """The open write transaction of a session: what ``append_in`` needs, and commit and rollback.

    Raises AuditStoreError and psycopg.Error.
    """

    def __init__(self, session: Session, verifiers: "Sequence[Verifier]" = ()) -> None:
        """Take the chain's lock. Retry once if the connection was lost before that."""
        self._session = session
        self._verifiers = verifiers
        self.connection = session.connection()
        try:
            self._last = self._take_lock()
        except psycopg.OperationalError:
            if not self.connection.closed:
                raise
            self.connection = session.connection()
            self._last = self._take_lock()

    def tip(self) -> tuple[int, Digest]:
        """Return number and leaf of the last event when the lock was taken."""
        return tip_of(self._last, lambda: [row[0] for row in self._rows(_SEGMENTS)])

    def insert(self, links: Sequence[Link]) -> None:
        """Insert these links after the tip."""
        rows = [
            {
                "seq": link.event.seq,
                "payload": link.payload,
                "header": link.header,
                "leaf": link.event.leaf,
            }
            for link in links
        ]
        if len(rows) == 1:  # nearly every append: takes two thirds of the time of arrays
            self.connection.execute(_INSERT_ONE, rows[0])
        else:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            self.connection.execute(_INSERT_SEVERAL, columns)

    def trail(self, fix_id: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """Return the events of one fix after number ``after``."""
        rows = self._rows(_TRAIL, fix_id, after)
        return (read_row(StoredRow._make(row), self._verifiers) for row in rows)

    def roll_back(self) -> None:
        """Roll back. If that fails, close the connection: the server then ends the transaction."""
        try:
            self.connection.rollback()
        except psycopg.Error:
            self._session.drop()

    def commit(self, last: StoredEvent) -> None:
        """Commit. ``last`` is the transaction's last event."""
        try:
            self.connection.commit()
        except psycopg.Error as error:
            if not self.connection.closed:
                raise
            self._settle(last, error)
        except BaseException:
            self._session.drop()
            raise

    def _settle(self, last: StoredEvent, lost: psycopg.Error) -> None:
        """Find out whether the server committed before the connection was lost.

        Raises AuditStoreError if it did not, or if that is not known. The server's end of the lost
        connection holds the chain's lock until its transaction has ended: the next holder sees its outcome.
        """
        what = (
            f"Audit store {self._session.location}: the connection was lost while event {last.seq}"
        )
        try:
            self.connection = self._session.connection()
            self._take_lock()
            leaves = self._rows("SELECT leaf FROM audit_header WHERE seq = %s", last.seq)
            self.connection.rollback()
        except (psycopg.Error, AuditStoreError):
            self._session.drop()
            raise AuditStoreError(
                f"{what} was committed, and the server can't be asked: the event may be there or not "
                f"(its leaf is {last.leaf}).",
                next_step="When the server is up, check whether `fallback-tier audit log` has it.",
                kind="commit_unknown",
            ) from None
        if leaves != [(last.leaf,)]:
            raise AuditStoreError(
                f"{what} was committed; the server did not keep it: nothing was recorded.",
                next_step="Try again.",
                kind="not_recorded",
            ) from lost

    def _take_lock(self) -> list[TupleRow]:
        sql = _BEGIN.format(key=lock_key(self._session.location.schema), tip=_TIP)
        try:
            cursor = self.connection.execute(sql.encode())
            while cursor.nextset():
                pass
            ((durable, seq, leaf),) = cursor.fetchall()
        except BaseException:
            self.roll_back()
            raise
        if durable:
            return [] if seq is None else [(seq, leaf)]
        self.roll_back()
        raise AuditStoreError(
            f"Audit store {self._session.location}: the server runs with fsync or full_page_writes off: "
            "a power cut may lose events that it acknowledged.",
            next_step="Set both on in postgresql.conf; an audit trail is durable or nothing.",
            kind="not_durable",
        )

    def _rows(self, sql: str, *parameters: object) -> list[TupleRow]:
        with self.connection.cursor(binary=True) as cursor:
            return cursor.execute(sql.encode(), parameters).fetchall()


class PostgresAuditStore(PostgresAuditReader):
    """``KeepableStore`` on one schema of a PostgreSQL database that many processes may share.

    ``url``: libpq's ``postgresql://…``, with ``schema=NAME`` if the chain is not in ``fallback_audit``.
    Makes the schema and its tables if they are missing and the user may; ``init_postgres`` makes them with
    roles. ``guard.admit`` is called inside the write transaction, ``guard.appended`` for each event once it
    is durable. ``verifiers``: see ``open_readonly``. Raises AuditStoreError naming the server (never a
    password), the reason and the next step.
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
        """Make one event durable, in one transaction. Raises AuditStoreError; see ``append_all``."""
        return self.append_all((Record(scope, event),))[0]

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make events durable in one transaction. Raises AuditStoreError: then none was recorded.

        If the connection is lost during the commit, the store asks the server, and returns the events if
        they were committed. If it can't ask, the error says that this is not known.
        """
        return self._write(records) if records else ()

    def replace_payload(self, seq: int, tombstone: bytes, record: Record) -> StoredEvent:
        """Redact event ``seq``; see ``KeepableStore``. Raises AuditStoreError: missing, or redacted."""

        def replace(connection: Connection) -> None:
            connection.execute("INSERT INTO audit_tombstone VALUES (%s, %s)", (seq, tombstone))
            connection.execute(
                "UPDATE audit_payload SET payload = %s WHERE seq = %s", (tombstone, seq)
            )

        return self._keep(record, f"event {seq} can't be redacted", replace)

    def add_segment(self, segment: Segment, record: Record) -> StoredEvent:
        """Drop sealed events; see ``KeepableStore``. Raises AuditStoreError: not the next segment."""

        def drop(connection: Connection) -> None:
            # Years of events may be deleted at once. Writers that time out on the lock meanwhile say so.
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute("INSERT INTO audit_segment VALUES (%s, %s, %s, %s)", segment)
            last = (segment.last_seq,)
            connection.execute("DELETE FROM audit_payload WHERE seq <= %s", last)
            connection.execute("DELETE FROM audit_header WHERE seq <= %s", last)

        return self._keep(record, f"segment {segment.number} can't be sealed", drop)

    def scrub(self) -> None:
        """Rewrite the tables without removed bytes. The server's log and backups keep them for a while.

        Raises AuditStoreError if this user may not: before PostgreSQL 17 only the owner may.
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

    def _keep(self, record: Record, refusal: str, step: _Step) -> StoredEvent:
        def guarded(connection: Connection) -> None:
            try:
                step(connection)
            except psycopg.IntegrityError as error:
                raise AuditStoreError(
                    f"Audit store {self._location}: {refusal}: the store's safeguards do not allow it.",
                    next_step="Look at `fallback-tier audit log`: it may have been done before.",
                    kind="safeguard",
                ) from error

        (stored,) = self._write((record,), guarded)
        self.scrub()
        return stored

    def _write(
        self, records: Sequence[Record], step: _Step | None = None
    ) -> tuple[StoredEvent, ...]:
        with self._lock:
            with explained(self._location):
                transaction = _PostgresTransaction(self._session, self._verifiers)
                try:
                    recorded, appended = append_in(
                        transaction, records, guard=self._guard, clock=self._clock
                    )
                    if step is not None:
                        step(transaction.connection)
                except BaseException:
                    transaction.roll_back()
                    raise
                transaction.commit(appended[-1])
            if self._guard is not None:  # under the lock, so that it sees events in order
                for event in appended:
                    self._guard.appended(event)
        return recorded


def _may_rewrite(connection: Connection) -> bool:
    maintain = "has_table_privilege(oid, 'MAINTAIN')"
    sql = "SELECT pg_has_role(relowner, 'USAGE') OR {} FROM pg_class WHERE oid = %s::regclass"
    has_maintain = connection.info.server_version >= MAINTAIN_SINCE
    sql = sql.format(maintain if has_maintain else "FALSE")
    return connection.execute(sql.encode(), ("audit_payload",)).fetchone() == (True,)
