"""The default audit store: one SQLite file, append-only, hash-chained, durable on return."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from fallback_audit.canonical import GENESIS
from fallback_audit.chain import StoredRow, make_link, read_row
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import AuditEvent
from fallback_audit.files import create_private, make_private_directory
from fallback_audit.ports import Scope, StoredEvent
from fallback_audit.stores.sqlite_errors import explained
from fallback_audit.stores.sqlite_schema import (
    MIGRATION_NAMES,
    applied_migrations,
    apply_migrations,
    schema_problems,
    table_names,
)
from fallback_audit.stores.sqlite_since import last_before, timestamp

Clock = Callable[[], datetime]

#: How long a writer waits for another one. An append holds the lock for about one fdatasync, so
#: only a stuck process or a very slow disk uses this up.
BUSY_TIMEOUT_S = 30.0

#: Rows that ``events`` holds in memory at once.
PAGE_ROWS = 500

_ROWS = "SELECT seq, header, leaf, payload FROM audit_header LEFT JOIN audit_payload USING (seq)"


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


class SqliteSnapshot:
    """A consistent view of the stored bytes for ``verify``, streamed: memory stays flat."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def schema_problems(self) -> list[str]:
        """What is missing of the tables, the index and the append-only safeguards."""
        return schema_problems(self._connection)

    def rows(self) -> Iterator[StoredRow]:
        """Every row by number (None where its payload is gone), then payloads without a header."""
        linked = self._connection.execute(f"{_ROWS} ORDER BY seq")
        orphans = self._connection.execute(
            "SELECT seq, NULL, NULL, payload FROM audit_payload"
            " WHERE seq NOT IN (SELECT seq FROM audit_header) ORDER BY seq"
        )
        return map(StoredRow._make, chain(linked, orphans))

    def rows_by_trail(self) -> Iterator[StoredRow]:
        """Complete rows only, gate transition by gate transition, each in chain order."""
        rows = self._connection.execute(
            "SELECT seq, header, leaf, payload FROM audit_header JOIN audit_payload USING (seq)"
            " ORDER BY fix_id, gate_transition_id, seq"
        )
        return map(StoredRow._make, rows)


class SqliteAuditReader:
    """Reads one audit store. Threads may share it."""

    def __init__(self, path: Path, db: sqlite3.Connection, *, snapshot_uri: str) -> None:
        self._path = path
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
        ``since`` is found by bisection (``sqlite_since.last_before``); payloads of kinds that were not
        asked for are not read.
        """
        sql = _ROWS + " WHERE seq > :after"
        sql += "" if fix_id is None else " AND fix_id = :fix_id"
        sql += "" if kinds is None else " AND kind IN (SELECT value FROM json_each(:kinds))"
        sql += f" ORDER BY seq LIMIT {PAGE_ROWS}"
        asked = {"fix_id": fix_id, "kinds": json.dumps(sorted(kinds or ()))}
        after = after if since is None else max(after, self._last_before(since))
        while page := self._page(sql, {"after": after, **asked}):
            for row in page:
                yield read_row(row)
            after = page[-1].seq

    def _page(self, sql: str, parameters: dict[str, object]) -> list[StoredRow]:
        # A page at a time, so that no cursor outlives the lock: the iterator may move to another
        # thread between two events (a server-sent stream in a thread pool does).
        with self._lock, explained(self._path):
            return [StoredRow._make(row) for row in self._db.execute(sql, parameters)]

    def _last_before(self, since: str) -> int:
        with self._lock, explained(self._path):
            return last_before(self._db, since)

    @contextmanager
    def snapshot(self) -> Iterator[SqliteSnapshot]:
        """A read transaction on a connection of its own: writers go on meanwhile.

        Raises AuditIntegrityError where SQLite can't read its own structures.
        """
        with explained(self._path), closing(_connect(self._snapshot_uri)) as connection:
            connection.execute("BEGIN")
            try:
                yield SqliteSnapshot(connection)
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR}:
                    raise AuditIntegrityError(
                        f"Audit store {self._path}: its structure is damaged ({error}).",
                        next_step="Keep this file for analysis and restore a copy.",
                    ) from error
                raise

    def close(self) -> None:
        """Release the store. Idempotent."""
        with self._lock:
            self._db.close()


class SqliteAuditStore(SqliteAuditReader):
    """``AuditStore`` on one SQLite file (WAL, ``synchronous=FULL``) that many processes may share.

    Creates the file with mode 0600, and missing directories with 0700. Raises AuditStoreError
    naming the path, the reason and the next step.
    """

    def __init__(
        self, path: Path, *, clock: Clock = utc_now, busy_timeout_s: float = BUSY_TIMEOUT_S
    ) -> None:
        with explained(path):
            make_private_directory(path.parent)
            create_private(path)
            db = _connect(_uri(path, "mode=rw"), busy_timeout_s)
            try:
                _prepare(path, db, busy_timeout_s)
            except BaseException:
                db.close()
                raise
        super().__init__(path, db, snapshot_uri=_uri(path, "mode=ro"))
        self._clock = clock

    def append(self, scope: Scope, event: AuditEvent) -> StoredEvent:
        """Make one event durable: one transaction, one sync. Raises AuditStoreError.

        After an input/output error of the sync itself, the operating system may still have kept the
        event: it was not acknowledged, and ``verify`` shows it if it is there.
        """
        connection = self._db
        with self._lock, explained(self._path), _immediate(connection):
            seq, previous_leaf = connection.execute(
                "SELECT seq, leaf FROM audit_header ORDER BY seq DESC LIMIT 1"
            ).fetchone() or (0, GENESIS)
            link = make_link(
                scope,
                event,
                seq=seq + 1,
                previous_leaf=previous_leaf,
                recorded_at=timestamp(self._clock()),
            )
            connection.execute("INSERT INTO audit_payload VALUES (?, ?)", (seq + 1, link.payload))
            connection.execute(
                "INSERT INTO audit_header VALUES (?, ?, ?)",
                (seq + 1, link.header, link.event.leaf),
            )
        return link.event


def open_readonly(path: Path) -> SqliteAuditReader:
    """Open a store, or a read-only copy of one, for reading. Raises AuditStoreError.

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
    uri = _uri(path, "immutable=1" if immutable else "mode=ro")
    with explained(path):
        db = _connect(uri)
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
    return SqliteAuditReader(path, db, snapshot_uri=uri)


def _uri(path: Path, mode: str) -> str:
    return f"{path.absolute().as_uri()}?{mode}"


def _connect(uri: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Explicit transactions only; our own lock stands in for SQLite's check of the thread."""
    return sqlite3.connect(
        uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


def _prepare(path: Path, db: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Refuse what is not ours, then set durability, then migrate (in this order)."""
    tables = table_names(db)
    if tables and "audit_header" not in tables:
        raise AuditStoreError(
            f"Audit store {path}: it is another program's SQLite database.",
            next_step="Name a new file for the audit trail.",
        )
    db.execute("PRAGMA synchronous = FULL")
    _enable_wal(path, db, busy_timeout_s)
    applied = applied_migrations(db)
    newer = applied.difference(MIGRATION_NAMES)
    if newer:
        raise AuditStoreError(
            f"Audit store {path}: a newer version of fallback-tier made it ({', '.join(newer)}).",
            next_step="Upgrade fallback-tier, or name another store.",
        )
    if applied != set(MIGRATION_NAMES):
        # Several processes may start at once: the lock makes one of them migrate, the others look.
        with _immediate(db):
            apply_migrations(db)


def _enable_wal(path: Path, db: sqlite3.Connection, busy_timeout_s: float) -> None:
    # SQLite does not call its busy handler for this change, so first starts would race.
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = wal").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            break
    if mode != "wal":
        raise AuditStoreError(
            f"Audit store {path}: this file system has no shared memory for a write-ahead log.",
            next_step="Put the store on a local disk.",
        )


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Take the write lock at once: a deferred transaction that reads first can't wait for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
