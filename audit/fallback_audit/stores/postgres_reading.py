"""Reading an audit store in PostgreSQL: a page at a time, or the whole of it at one moment."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, count
from typing import TYPE_CHECKING

from psycopg.rows import TupleRow

from fallback_audit.chain import StoredRow, read_row
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import Digest
from fallback_audit.ports import HeaderRow, StoredEvent
from fallback_audit.stores.appending import tip_of
from fallback_audit.stores.postgres_connection import Connection, Session, connect
from fallback_audit.stores.postgres_errors import explained
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_audit.stores.postgres_problems import schema_problems
from fallback_audit.stores.postgres_schema import applied_migrations, check_version
from fallback_audit.stores.since import PROBE_ROWS, last_before

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

#: Rows that ``events`` holds in memory at once.
PAGE_ROWS = 500

#: Rows that a snapshot's cursor fetches at once. More is no faster, and payloads may be large.
FETCH_ROWS = 200

# The headers first, by an index, then their payloads: a join that the planner orders by itself may
# begin with the payloads of all events. OFFSET 0 keeps it from looking for a fix event by event.
_PAGE = (
    "SELECT seq, header, leaf, payload FROM (SELECT seq, header, leaf FROM {headers}"
    " WHERE seq > %s{kinds} ORDER BY seq LIMIT {limit}) AS page"
    " LEFT JOIN audit_payload USING (seq) ORDER BY seq"
)
_ALL = "audit_header"
_OF_FIX = "(SELECT * FROM audit_header WHERE fix_id = %s OFFSET 0) AS mine"
_OF_KINDS = " AND kind = ANY(%s)"

#: One fix, all of it: what a guard reads.
TRAIL = _PAGE.format(headers=_OF_FIX, kinds="", limit="ALL")

TIP = "SELECT seq, leaf FROM audit_header ORDER BY seq DESC LIMIT 1"
SEGMENTS = "SELECT statement FROM audit_segment ORDER BY number"
_STRAY_TOMBSTONES = (
    "SELECT count(*) FROM audit_tombstone LEFT JOIN audit_payload USING (seq) WHERE tombstone IS"
    " DISTINCT FROM payload AND seq > (SELECT coalesce(max(last_seq), 0) FROM audit_segment)"
)


class PostgresSnapshot:
    """A consistent view of the stored bytes for ``verify``, streamed by cursors of the server."""

    def __init__(self, connection: Connection, location: PostgresLocation) -> None:
        self._connection = connection
        self._location = location
        self._names = map("audit_{}".format, count())

    def schema_problems(self) -> list[str]:
        """Tables, index and append-only safeguards that are not as they were made; and tombstones that
        stand where nothing was redacted."""
        problems = schema_problems(self._connection, self._location.schema)
        if not problems:  # else a table may be missing
            ((stray,),) = self._rows(_STRAY_TOMBSTONES)
            problems += [f"{stray} tombstones that no payload was replaced by"] if stray else []
        return problems

    def index_problems(self) -> list[str]:
        """None that we look for: that is ``amcheck``, an extension for the server's superuser."""
        return []

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order."""
        return [statement for (statement,) in self._rows(SEGMENTS)]

    def tombstones(self) -> frozenset[int]:
        """Numbers of the redacted events whose tombstone is kept apart; none where the table is missing."""
        ((found,),) = self._connection.execute("SELECT to_regclass('audit_tombstone')")
        rows = self._rows("SELECT seq FROM audit_tombstone") if found else ()
        return frozenset(seq for (seq,) in rows)

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Every row behind ``after`` by number (None where its payload is gone), then payloads
        without a header."""
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
        """Complete rows only, gate transition by gate transition, each in chain order; of all fixes,
        or of these."""
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
            cursor.itersize = FETCH_ROWS
            yield from cursor.execute(sql.encode(), parameters)


class PostgresAuditReader:
    """Reads one chain. Threads may share it. A lost connection is made again.

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
        """Events in chain order, a page at a time; see ``AuditStore.events``.

        Each event's own bytes are checked. Raises AuditIntegrityError, AuditStoreError.
        """
        if since is not None:
            after = max(after, last_before(_Dates(self._read), since))
        sql = _PAGE.format(
            headers=_ALL if fix_id is None else _OF_FIX,
            kinds="" if kinds is None else _OF_KINDS,
            limit=PAGE_ROWS,
        )
        scope = () if fix_id is None else (fix_id,)
        asked = () if kinds is None else (sorted(kinds),)
        while page := self._read(sql, *scope, after, *asked):
            yield from (read_row(StoredRow._make(row), self._verifiers) for row in page)
            after = page[-1][0]

    def tip(self) -> tuple[int, Digest]:
        """Number and leaf of the last event. Raises AuditIntegrityError: only sealed segments are left."""
        return tip_of(self._read(TIP), self.segments)

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Headers in chain order, a page at a time. Those of sealed segments are not here any more."""
        last = self.tip()[0] if upto is None else upto
        sql = (
            "SELECT seq, header, leaf FROM audit_header"
            " WHERE seq > %s AND seq <= %s ORDER BY seq LIMIT %s"
        )
        while found := self._read(sql, after, last, PAGE_ROWS):
            yield from map(HeaderRow._make, found)
            after = found[-1][0]

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order. Events start behind the last one."""
        return [statement for (statement,) in self._read(SEGMENTS)]

    @contextmanager
    def snapshot(self) -> Iterator[PostgresSnapshot]:
        """A read-only transaction on a connection of its own: writers go on meanwhile.

        Raises AuditStoreError, AuditIntegrityError where the server finds its own data damaged.
        """
        with (
            explained(self._location),
            closing(connect(self._location, read_only=True, endless=True)) as connection,
        ):
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield PostgresSnapshot(connection, self._location)

    def close(self) -> None:
        """Release the store. Idempotent."""
        with self._lock:
            self._session.close()

    def _read(self, sql: str, *parameters: object) -> list[TupleRow]:
        # A page at a time: no cursor outlives the lock, since the iterator may move to another thread
        # between two events (a server-sent stream in a thread pool does).
        with self._lock:
            return self._session.read(sql, parameters)


class _Dates:
    """``since.Dates`` by queries."""

    def __init__(self, read: Callable[..., list[TupleRow]]) -> None:
        self._read = read

    def newest(self) -> int:
        return int(self._read("SELECT coalesce(max(seq), 0) FROM audit_header")[0][0])

    def reached(self, seq: int, moment: str) -> bool:
        sql = (
            "SELECT coalesce(bool_or(coalesce(recorded_at >= %s, TRUE)), FALSE) FROM (SELECT"
            " recorded_at FROM audit_header WHERE seq >= %s ORDER BY seq LIMIT %s) AS probed"
        )
        return bool(self._read(sql, moment, seq, PROBE_ROWS)[0][0])

    def first(self, after: int, moment: str) -> int | None:
        sql = (
            "SELECT seq FROM audit_header WHERE seq > %s AND coalesce(recorded_at >= %s, TRUE)"
            " ORDER BY seq LIMIT 1"
        )
        found = self._read(sql, after, moment)
        return found[0][0] if found else None


def open_readonly(
    url: str, *, schema: str | None = None, verifiers: "Sequence[Verifier]" = ()
) -> PostgresAuditReader:
    """Open a chain, or a standby's copy of one, for reading. Raises AuditStoreError.

    ``verifiers``: trusted keys. Without one that signed it, a redacted event can't be read.
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
