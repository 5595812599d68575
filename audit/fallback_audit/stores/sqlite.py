"""The default audit store: one SQLite file, append-only, hash-chained, durable on return.

It is read page by page, or, for a verification, as one snapshot.
"""

import errno
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fallback_audit.chain import Link, StoredRow, read_row
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import AuditEvent, Digest
from fallback_audit.files import create_private
from fallback_audit.ports import AppendGuard, HeaderRow, Record, Scope, Segment, StoredEvent
from fallback_audit.stores.appending import (
    Clock,
    append_in,
    last_before,
    tip_of,
    utc_now,
)
from fallback_audit.stores.sqlite_connection import (
    LOOK_FROM_OUTSIDE,
    FilesReplacedError,
    SqliteConnection,
    explained,
    is_unread,
    opened,
    store_error,
)
from fallback_audit.stores.sqlite_schema import (
    BUSY_TIMEOUT_S,
    connect,
    connect_for_reading,
    immediate,
    open_for_reading,
    open_for_writing,
    schema_problems,
    table_names,
    uri_of,
)

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier


# A damaged or altered file may hold values of any type: read as bytes, they match no digest.
_LINK = "seq, CAST(header AS BLOB), CAST(leaf AS TEXT), CAST(payload AS BLOB)"
ROWS = f"SELECT {_LINK} FROM audit_header LEFT JOIN audit_payload USING (seq)"  # noqa: S608 (ours)

_NUMBERS = (
    "SELECT (SELECT count(*) FROM {0} NOT INDEXED {1}), (SELECT min(seq) FROM {0} {1}),"
    " (SELECT max(seq) FROM {0} {1})"
)
_STRAY_TOMBSTONES = (
    "SELECT count(*) FROM audit_tombstone LEFT JOIN audit_payload USING (seq) WHERE"
    " tombstone IS NOT payload AND seq > (SELECT coalesce(max(last_seq), 0) FROM audit_segment)"
)
_BEHIND = "WHERE seq > :after"
_ORPHANS = (
    "SELECT seq, NULL, NULL, CAST(payload AS BLOB) FROM audit_payload WHERE (seq > :after OR :after = 0)"
    " AND NOT EXISTS (SELECT 1 FROM audit_header WHERE audit_header.seq = audit_payload.seq)"
    " ORDER BY seq"
)

# ``StoredRow._make`` without its Python frame: this is called for each event of a verification.
_as_row: Callable[[tuple[object, ...]], StoredRow] = partial(tuple.__new__, StoredRow)

T = TypeVar("T")

#: Rows that ``events`` holds in memory at once.
PAGE_ROWS = 500

# The rows of one fix by the index: without INDEXED BY, SQLite reads the table from ``after`` on. Sorting
# takes memory for the numbers of one fix's events.
_ROWS_OF_FIX = (
    f"SELECT {_LINK} FROM (SELECT seq FROM audit_header INDEXED BY audit_trail"  # noqa: S608
    " WHERE fix_id = :fix_id AND seq > :after{kinds} ORDER BY seq LIMIT {limit})"
    " JOIN audit_header USING (seq) LEFT JOIN audit_payload USING (seq) ORDER BY seq"
)
_OF_KINDS = " AND kind IN (SELECT value FROM json_each(:kinds))"


class SqliteSnapshot:
    """A consistent view of the stored bytes for ``verify``, streamed, so that memory stays constant."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def schema_problems(self) -> list[str]:
        """Return what is wrong with the tables, the index and the append-only safeguards, and how many
        tombstones replaced no payload."""
        problems = schema_problems(self._connection)
        if {"audit_tombstone", "audit_payload"} <= table_names(self._connection):
            ((stray,),) = self._connection.execute(_STRAY_TOMBSTONES)
            problems += [f"{stray} tombstones that no payload was replaced by"] if stray else []
        return problems

    def index_problems(self) -> list[str]:
        """Return where the index of fixes differs from the table, so that queries for a fix miss events.

        Reads the table and the index completely. Raises OSError if the system failed to read them: SQLite
        reports that as a finding, and what it then misses is not damage.
        """
        rows = self._connection.execute("PRAGMA integrity_check(audit_header)")
        findings = [finding for (finding,) in rows if finding != "ok"]
        if any(map(is_unread, findings)):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return [f"audit_header: {finding}" for finding in findings]

    def segments(self) -> list[bytes]:
        """Return the statements of all segments, in order."""
        return segments(self._connection)

    def tombstones(self) -> frozenset[int]:
        """Return the numbers of the events in the table of tombstones; none if it is missing."""
        if "audit_tombstone" not in table_names(self._connection):
            return frozenset()
        rows = self._connection.execute("SELECT seq FROM audit_tombstone")
        return frozenset(seq for (seq,) in rows)

    def rows(self, after: int = 0) -> Iterator[StoredRow]:
        """Yield rows after number ``after`` (None: no payload), then payloads without a header."""
        linked = self._connection.execute(f"{ROWS} WHERE seq > ? ORDER BY seq", (after,))
        return chain(map(_as_row, linked), self._orphans(after))

    def _orphans(self, after: int) -> Iterator[StoredRow]:
        """Yield payloads without a header.

        If both tables have the same count, first and last number, without a gap, there are none: checking
        that first costs a third of looking up each number.
        """
        headers, payloads = (
            self._connection.execute(
                _NUMBERS.format(table, "" if after == 0 else _BEHIND), {"after": after}
            ).fetchone()
            for table in ("audit_header", "audit_payload")
        )
        count, first, last = headers
        if headers == payloads and (count == 0 or last - first + 1 == count):
            return
        orphans = self._connection.execute(_ORPHANS, {"after": after})
        yield from map(_as_row, orphans)

    def rows_by_trail(self, fix_ids: frozenset[str] | None = None) -> Iterator[StoredRow]:
        """Yield complete rows by gate transition, in chain order; of all fixes, or of these."""
        sql = f"SELECT {_LINK} FROM audit_header JOIN audit_payload USING (seq)"  # noqa: S608
        if fix_ids is None:
            rows: Iterator[tuple[object, ...]] = self._connection.execute(
                f"{sql} ORDER BY fix_id, gate_transition_id, seq"
            )
        else:
            one_fix = f"{sql} WHERE fix_id = ? ORDER BY gate_transition_id, seq"
            rows = chain.from_iterable(
                self._connection.execute(one_fix, (fix_id,)) for fix_id in sorted(fix_ids)
            )
        return map(_as_row, rows)


def segments(connection: sqlite3.Connection) -> list[bytes]:
    """Return the statements of all segments, in order."""
    if "audit_segment" not in table_names(connection):  # migration 2 was not applied yet
        return []
    rows = connection.execute("SELECT statement FROM audit_segment ORDER BY number")
    # A damaged page may hold anything: opening what is not a statement raises an error.
    return [statement if isinstance(statement, bytes) else b"" for (statement,) in rows]


class SqliteAuditReader:
    """Reader of one audit store. Threads may share it. ``verifiers`` (trusted keys): see ``open_readonly``.

    If the store's files were replaced, each method opens them again (``SqliteConnection``).
    """

    def __init__(self, path: Path, verifiers: "Sequence[Verifier]" = ()) -> None:
        self._path = path
        self._verifiers = tuple(verifiers)
        self._lock = threading.Lock()
        with explained(path):
            self._connection = self._connected()

    def _connected(self) -> SqliteConnection:
        return SqliteConnection(self._path, partial(open_for_reading, self._path))

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, explained(self._path):
            return self._connection.read(work)

    def copy_to(self, path: Path) -> None:
        """Copy the store, with all that is durable now, to a new file, without blocking writers.

        SQLite's own backup does it: nothing else opens the file. Raises AuditStoreError.
        """
        create_private(path)
        with closing(connect(uri_of(path, "mode=rw"))) as copy:
            self._read(lambda db: db.backup(copy))

    def events(
        self,
        fix_id: str | None = None,
        *,
        kinds: frozenset[str] | None = None,
        since: str | None = None,
        after: int = 0,
    ) -> Iterator[StoredEvent]:
        """Yield events in chain order, page by page; see ``AuditStore.events``.

        Each event's own bytes are checked. ``since`` is found by bisection (``last_before``); payloads of
        other kinds are not read. Raises AuditIntegrityError, AuditStoreError.
        """
        of_kinds = "" if kinds is None else _OF_KINDS
        if fix_id is None:
            sql = f"{ROWS} WHERE seq > :after{of_kinds} ORDER BY seq LIMIT {PAGE_ROWS}"
        else:
            sql = _ROWS_OF_FIX.format(kinds=of_kinds, limit=PAGE_ROWS)
        parameters = {"fix_id": fix_id, "kinds": json.dumps(sorted(kinds or ()))}
        after = after if since is None else max(after, self._last_before(since))
        while page := self._page(sql, {"after": after, **parameters}):
            for row in page:
                yield read_row(row, self._verifiers)
            after = page[-1].seq

    def tip(self) -> tuple[int, Digest]:
        """Return number and leaf of the last event. Raises AuditIntegrityError if all left are sealed."""
        return self._read(tip)

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Yield headers in chain order, page by page, without those of sealed segments."""
        last = self.tip()[0] if upto is None else upto
        sql = (
            "SELECT seq, CAST(header AS BLOB), CAST(leaf AS TEXT) FROM audit_header"
            " WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        )
        while after != last and (
            page := self._read(partial(_fetched, sql=sql, values=(after, last, PAGE_ROWS)))
        ):
            yield from map(HeaderRow._make, page)
            after = page[-1][0]

    def segments(self) -> list[bytes]:
        """Return the statements of all segments, in order. Events start after the last one."""
        return self._read(segments)

    def _page(self, sql: str, parameters: dict[str, object]) -> list[StoredRow]:
        # Page by page, so that no cursor outlives the lock: the iterator may move to another thread
        # between two events (a server-sent stream in a thread pool does).
        rows = self._read(partial(_fetched, sql=sql, values=parameters))
        return list(map(StoredRow._make, rows))

    def _last_before(self, since: str) -> int:
        return self._read(lambda db: last_before(partial(_number, db), since))

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """Open a read transaction on a separate connection: it does not block writers.

        Raises AuditIntegrityError if SQLite can't read its own structures; AuditStoreError if files were
        replaced meanwhile, whatever was read.
        """
        path = self._path
        with explained(path), opened(path, partial(open_for_reading, path)) as connection:
            connection.execute("BEGIN")
            try:
                yield SqliteSnapshot(connection)
            except sqlite3.DatabaseError as error:
                # No code: text that is not valid UTF-8, which the sqlite3 module itself could not read.
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
                if code == sqlite3.SQLITE_ERROR:
                    raise AuditIntegrityError(
                        f"Audit store {self._path}: its structure is damaged ({error}).",
                        next_step=LOOK_FROM_OUTSIDE,
                    ) from error
                raise

    def close(self) -> None:
        """Release the store. Idempotent."""
        with self._lock:
            self._connection.close()


def _fetched(connection: sqlite3.Connection, sql: str, values: Any) -> list[tuple[Any, ...]]:
    return connection.execute(sql, values).fetchall()


def _number(connection: sqlite3.Connection, sql: str, *values: object) -> int | None:
    row: tuple[int | None] = connection.execute(sql, values).fetchone()
    return row[0]


def tip(connection: sqlite3.Connection) -> tuple[int, Digest]:
    """Return number and leaf of the last event; (0, GENESIS) if there never was one."""
    sql = "SELECT seq, leaf FROM audit_header ORDER BY seq DESC LIMIT 1"
    return tip_of(connection.execute(sql).fetchall(), partial(segments, connection))


def _has_link(connection: sqlite3.Connection, seq: int, leaf: Digest) -> bool:
    """Return whether this event is in the store, or was sealed."""
    row = connection.execute("SELECT leaf FROM audit_header WHERE seq = ?", (seq,)).fetchone()
    if row is not None:
        return bool(row[0] == leaf)
    sql = "SELECT 1 FROM audit_segment WHERE last_seq >= ?"
    return connection.execute(sql, (seq,)).fetchone() is not None


def trail(
    connection: sqlite3.Connection,
    fix_id: str,
    *,
    after: int,
    verifiers: "Sequence[Verifier]",
) -> Iterator[StoredEvent]:
    """Return the events of one fix after number ``after``, within the caller's transaction.

    Rows are fetched at once: a reader that stops half-way leaves no statement open after the transaction.
    """
    sql = _ROWS_OF_FIX.format(kinds="", limit=-1)
    rows = connection.execute(sql, {"fix_id": fix_id, "after": after}).fetchall()
    return (read_row(StoredRow._make(row), verifiers) for row in rows)


def is_database(path: Path) -> bool:
    """Return whether the file is a database, even if locked or damaged. Only SQLite opens it.

    Raises AuditStoreError if the system failed to read it: then that is not known.
    """
    if not path.is_file():
        return False
    try:
        with opened(path, partial(connect_for_reading, path)) as db:
            table_names(db)
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}:
            raise store_error(path, error) from error
        return bool(code != sqlite3.SQLITE_NOTADB)
    except FilesReplacedError:
        return True
    return True


def open_readonly(path: Path, *, verifiers: "Sequence[Verifier]" = ()) -> SqliteAuditReader:
    """Open a store, or a read-only copy of one, for reading. Raises AuditStoreError.

    ``verifiers``: trusted keys. A redacted event can be read only if one of them signed its tombstone.
    """
    return SqliteAuditReader(path, verifiers)


class SqliteAuditStore(SqliteAuditReader):
    """``KeepableStore`` on one SQLite file (WAL, ``synchronous=FULL``) that many processes may share.

    Creates the file with mode 0600, and missing directories with 0700. ``guard.admit`` is called inside the
    write transaction, ``guard.appended`` for each event once it is durable. ``verifiers``: see
    ``open_readonly``. Raises AuditStoreError naming the path, the reason and the next step.
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
        """Open the file, making a missing one only the first time.

        If the file was replaced, the new one must have the last event that was appended here: nothing is
        appended to an older copy or to another trail. Raises AuditStoreError otherwise.
        """
        db = open_for_writing(self._path, self._busy_timeout_s, create=not self._is_made)
        self._is_made = True
        if self._last is not None and not _has_link(db, self._last.seq, self._last.leaf):
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
        """Make one event durable, in one transaction with one sync. Raises AuditStoreError.

        If the sync itself fails, or the file's log was deleted meanwhile, the event may be in the file
        though an error was raised: ``verify`` shows it.
        """
        return self.append_all((Record(scope, event),))[0]

    def append_all(self, records: Sequence[Record]) -> tuple[StoredEvent, ...]:
        """Make events durable in one transaction, one sync. Raises AuditStoreError: none was recorded."""
        return self._write(records) if records else ()

    def replace_payload(self, seq: int, tombstone: bytes, record: Record) -> StoredEvent:
        """Redact event ``seq``; see ``KeepableStore``. Raises AuditStoreError: missing, or redacted."""

        def replace(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO audit_tombstone VALUES (?, ?)", (seq, tombstone))
            db.execute("UPDATE audit_payload SET payload = ? WHERE seq = ?", (tombstone, seq))

        return self._keep(record, f"Event {seq} can't be redacted", replace)

    def add_segment(self, segment: Segment, record: Record) -> StoredEvent:
        """Drop sealed events; see ``KeepableStore``. Raises AuditStoreError: not the next segment."""

        def drop(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO audit_segment VALUES (?, ?, ?, ?)", segment)
            db.execute("DELETE FROM audit_payload WHERE seq <= ?", (segment.last_seq,))
            db.execute("DELETE FROM audit_header WHERE seq <= ?", (segment.last_seq,))

        return self._keep(record, f"Segment {segment.number} can't be sealed", drop)

    def scrub(self) -> None:
        """Empty the write-ahead log: in the file's own pages, removed bytes are already zeros.

        Raises AuditStoreError if a reader still needs the log after the busy timeout.
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
        self, record: Record, refusal: str, step: Callable[[sqlite3.Connection], None]
    ) -> StoredEvent:
        try:
            (stored,) = self._write((record,), step)
        except AuditStoreError as error:
            if isinstance(error.__cause__, sqlite3.IntegrityError):
                raise AuditStoreError(
                    f"Audit store {self._path}: {refusal}: the store's safeguards do not allow it.",
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
                recorded, appended = append_in(
                    transaction, records, guard=self._guard, clock=self._clock
                )
                if step is not None:
                    step(db)
            self._last = appended[-1]
            if self._guard is not None:  # under the lock, so that it sees events in order
                for event in appended:
                    self._guard.appended(event)
        return recorded


class _SqliteTransaction:
    """The open write transaction of a connection, as ``append_in`` needs it."""

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
