"""Reading an audit store in SQLite, a page at a time."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fallback_audit.chain import StoredRow, read_row
from fallback_audit.errors import AuditIntegrityError
from fallback_audit.events import Digest
from fallback_audit.files import create_private
from fallback_audit.ports import HeaderRow, StoredEvent
from fallback_audit.stores.appending import tip_of
from fallback_audit.stores.since import last_before
from fallback_audit.stores.sqlite_connection import FilesReplacedError, SqliteConnection, opened
from fallback_audit.stores.sqlite_errors import LOOK_FROM_OUTSIDE, explained, store_error
from fallback_audit.stores.sqlite_opening import (
    connect,
    connect_for_reading,
    open_for_reading,
    uri_of,
)
from fallback_audit.stores.sqlite_schema import table_names
from fallback_audit.stores.sqlite_since import SqliteDates
from fallback_audit.stores.sqlite_snapshot import LINK, ROWS, SqliteSnapshot, segments

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

T = TypeVar("T")

#: Rows that ``events`` holds in memory at once.
PAGE_ROWS = 500

# The rows of one fix by the index: left to itself, SQLite reads the table from ``after`` on. Sorting
# them takes the memory of one fix's numbers.
_ROWS_OF_FIX = (
    f"SELECT {LINK} FROM (SELECT seq FROM audit_header INDEXED BY audit_trail"  # noqa: S608
    " WHERE fix_id = :fix_id AND seq > :after{kinds} ORDER BY seq LIMIT {limit})"
    " JOIN audit_header USING (seq) LEFT JOIN audit_payload USING (seq) ORDER BY seq"
)
_OF_KINDS = " AND kind IN (SELECT value FROM json_each(:kinds))"


class SqliteAuditReader:
    """Reads one audit store. Threads may share it. ``verifiers`` (trusted keys): see ``open_readonly``.

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
        """Copy the store, with all that is durable now, to a new file; writers go on meanwhile.

        By SQLite's own backup, without opening the file. Raises AuditStoreError.
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
        """Events in chain order, a page at a time; see ``AuditStore.events``.

        Each event's own bytes are checked. Raises AuditIntegrityError, AuditStoreError.
        ``since`` is found by bisection (``since.last_before``); payloads of kinds that were not
        asked for are not read.
        """
        of_kinds = "" if kinds is None else _OF_KINDS
        if fix_id is None:
            sql = f"{ROWS} WHERE seq > :after{of_kinds} ORDER BY seq LIMIT {PAGE_ROWS}"
        else:
            sql = _ROWS_OF_FIX.format(kinds=of_kinds, limit=PAGE_ROWS)
        asked = {"fix_id": fix_id, "kinds": json.dumps(sorted(kinds or ()))}
        after = after if since is None else max(after, self._last_before(since))
        while page := self._page(sql, {"after": after, **asked}):
            for row in page:
                yield read_row(row, self._verifiers)
            after = page[-1].seq

    def tip(self) -> tuple[int, Digest]:
        """Number and leaf of the last event. Raises AuditIntegrityError: only sealed segments are left."""
        return self._read(tip)

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Headers in chain order, a page at a time. Those of sealed segments are not here any more."""
        last = self.tip()[0] if upto is None else upto
        sql = (
            "SELECT seq, CAST(header AS BLOB), CAST(leaf AS TEXT) FROM audit_header"
            " WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        )
        while after != last and (
            found := self._read(partial(_fetched, sql=sql, values=(after, last, PAGE_ROWS)))
        ):
            yield from map(HeaderRow._make, found)
            after = found[-1][0]

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order. Events start behind the last one."""
        return self._read(segments)

    def _page(self, sql: str, parameters: dict[str, object]) -> list[StoredRow]:
        # A page at a time, so that no cursor outlives the lock: the iterator may move to another
        # thread between two events (a server-sent stream in a thread pool does).
        found = self._read(partial(_fetched, sql=sql, values=parameters))
        return list(map(StoredRow._make, found))

    def _last_before(self, since: str) -> int:
        return self._read(lambda db: last_before(SqliteDates(db), since))

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """A read transaction on a connection of its own: writers go on meanwhile.

        Raises AuditIntegrityError if SQLite can't read its own structures; AuditStoreError if files were
        replaced meanwhile, whatever was read.
        """
        path = self._path
        with explained(path), opened(path, partial(open_for_reading, path)) as connection:
            connection.execute("BEGIN")
            try:
                yield SqliteSnapshot(connection)
            except sqlite3.DatabaseError as error:
                # No code: text that is no UTF-8, which the sqlite3 module itself could not read.
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


def tip(connection: sqlite3.Connection) -> tuple[int, Digest]:
    """Number and leaf of the last event; (0, GENESIS) where there never was one."""
    sql = "SELECT seq, leaf FROM audit_header ORDER BY seq DESC LIMIT 1"
    return tip_of(connection.execute(sql).fetchall(), partial(segments, connection))


def has_link(connection: sqlite3.Connection, seq: int, leaf: Digest) -> bool:
    """Is this event in the store, or in what was sealed of it?"""
    found = connection.execute("SELECT leaf FROM audit_header WHERE seq = ?", (seq,)).fetchone()
    if found is not None:
        return bool(found[0] == leaf)
    sql = "SELECT 1 FROM audit_segment WHERE last_seq >= ?"
    return connection.execute(sql, (seq,)).fetchone() is not None


def trail(
    connection: sqlite3.Connection,
    fix_id: str,
    *,
    after: int,
    verifiers: "Sequence[Verifier]",
) -> Iterator[StoredEvent]:
    """The events of one fix behind number ``after``, within the caller's transaction.

    Fetched at once: a reader that stops half-way leaves no statement open behind the transaction.
    """
    sql = _ROWS_OF_FIX.format(kinds="", limit=-1)
    rows = connection.execute(sql, {"fix_id": fix_id, "after": after}).fetchall()
    return (read_row(StoredRow._make(row), verifiers) for row in rows)


def is_database(path: Path) -> bool:
    """Return whether the file is a database, also one that is locked or damaged. SQLite alone opens it.

    Raises AuditStoreError if the system failed to read it: it may be either.
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

    ``verifiers``: trusted keys. Without one that signed it, a redacted event can't be read.
    """
    return SqliteAuditReader(path, verifiers)
