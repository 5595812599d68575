"""Reading an audit store in SQLite, a page at a time."""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.chain import StoredRow, read_row
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import Digest
from fallback_audit.ports import HeaderRow, StoredEvent
from fallback_audit.stores.appending import tip_of
from fallback_audit.stores.since import last_before
from fallback_audit.stores.sqlite_errors import explained
from fallback_audit.stores.sqlite_opening import connect, uri_of
from fallback_audit.stores.sqlite_schema import table_names
from fallback_audit.stores.sqlite_since import SqliteDates
from fallback_audit.stores.sqlite_snapshot import LINK, ROWS, SqliteSnapshot, segments

if TYPE_CHECKING:
    from fallback_audit.checkpoints.note import Verifier

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
    """Reads one audit store. Threads may share it. ``verifiers`` (trusted keys): see ``open_readonly``."""

    def __init__(
        self,
        path: Path,
        db: sqlite3.Connection,
        *,
        snapshot_uri: str,
        verifiers: "Sequence[Verifier]" = (),
    ) -> None:
        self._path = path
        self._verifiers = tuple(verifiers)
        self._db = db
        self._snapshot_uri = snapshot_uri
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
        with self._lock, explained(self._path):
            return tip(self._db)

    def headers(self, *, after: int = 0, upto: int | None = None) -> Iterator[HeaderRow]:
        """Headers in chain order, a page at a time. Those of sealed segments are not here any more."""
        last = self.tip()[0] if upto is None else upto
        sql = (
            "SELECT seq, CAST(header AS BLOB), CAST(leaf AS TEXT) FROM audit_header"
            " WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        )
        while True:
            with self._lock, explained(self._path):
                found = self._db.execute(sql, (after, last, PAGE_ROWS)).fetchall()
            if not found:
                return
            yield from map(HeaderRow._make, found)
            after = found[-1][0]
            if after == last:
                return

    def segments(self) -> list[bytes]:
        """The statements of all segments, in order. Events start behind the last one."""
        with self._lock, explained(self._path):
            return segments(self._db)

    def _page(self, sql: str, parameters: dict[str, object]) -> list[StoredRow]:
        # A page at a time, so that no cursor outlives the lock: the iterator may move to another
        # thread between two events (a server-sent stream in a thread pool does).
        with self._lock, explained(self._path):
            return [StoredRow._make(row) for row in self._db.execute(sql, parameters)]

    def _last_before(self, since: str) -> int:
        with self._lock, explained(self._path):
            return last_before(SqliteDates(self._db), since)

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """A read transaction on a connection of its own: writers go on meanwhile.

        Raises AuditIntegrityError where SQLite can't read its own structures.
        """
        with explained(self._path), closing(connect(self._snapshot_uri)) as connection:
            connection.execute("BEGIN")
            try:
                yield SqliteSnapshot(connection)
            except sqlite3.DatabaseError as error:
                # No code: text that is no UTF-8, which the sqlite3 module itself could not read.
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
                if code == sqlite3.SQLITE_ERROR:
                    raise AuditIntegrityError(
                        f"Audit store {self._path}: its structure is damaged ({error}).",
                        next_step="Keep this file for analysis and restore a copy.",
                    ) from error
                raise

    def close(self) -> None:
        """Release the store. Idempotent."""
        with self._lock:
            self._db.close()


def tip(connection: sqlite3.Connection) -> tuple[int, Digest]:
    """Number and leaf of the last event; (0, GENESIS) where there never was one."""
    sql = "SELECT seq, leaf FROM audit_header ORDER BY seq DESC LIMIT 1"
    return tip_of(connection.execute(sql).fetchall(), partial(segments, connection))


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


def open_readonly(path: Path, *, verifiers: "Sequence[Verifier]" = ()) -> SqliteAuditReader:
    """Open a store, or a read-only copy of one, for reading. Raises AuditStoreError.

    ``verifiers``: trusted keys. Without one that signed it, a redacted event can't be read.

    Where the directory can't be written and no write-ahead log is beside the file, nobody can be
    writing it: SQLite then reads it as immutable, and leaves no file behind.
    """
    if not path.is_file():
        raise AuditStoreError(
            f"Audit store {path}: there is no such file.",
            next_step="Check the path; a store exists after the first `fallback-tier fix`.",
        )
    log = path.with_name(path.name + "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    immutable = not has_log and not os.access(path.parent, os.W_OK)
    uri = uri_of(path, "immutable=1" if immutable else "mode=ro")
    with explained(path):
        db = connect(uri)
        try:
            ours = "audit_header" in table_names(db)
        except BaseException:
            db.close()
            raise
    if not ours:
        db.close()
        raise AuditStoreError(
            f"Audit store {path}: it has no audit trail in it.",
            next_step="Name the store of a `fallback-tier fix`; copy its -wal file with it.",
        )
    return SqliteAuditReader(path, db, snapshot_uri=uri, verifiers=verifiers)
