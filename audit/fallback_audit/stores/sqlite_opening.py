"""Opening an audit store's SQLite file: refuse what is not ours, then durability, then migrations."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_audit.errors import AuditStoreError
from fallback_audit.files import create_private, make_private_directory
from fallback_audit.stores.sqlite_errors import explained
from fallback_audit.stores.sqlite_schema import (
    MIGRATION_NAMES,
    applied_migrations,
    apply_migrations,
    table_names,
)

#: How long a writer waits for another one. An append holds the lock for about one fdatasync, so
#: only a stuck process or a very slow disk uses this up.
BUSY_TIMEOUT_S = 30.0


def uri_of(path: Path, mode: str) -> str:
    """The address of the file, with SQLite's options."""
    return f"{path.absolute().as_uri()}?{mode}"


def connect(uri: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Explicit transactions only; the store's own lock stands in for SQLite's check of the thread."""
    return sqlite3.connect(
        uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


def open_for_writing(path: Path, busy_timeout_s: float, *, create: bool) -> sqlite3.Connection:
    """Open and migrate; ``create`` makes what is missing (file mode 0600, directories 0700).

    Raises AuditStoreError.
    """
    with explained(path):
        if create:
            make_private_directory(path.parent)
            create_private(path)
        db = connect(uri_of(path, "mode=rw"), busy_timeout_s)
        try:
            _prepare(path, db, busy_timeout_s)
        except BaseException:
            db.close()
            raise
    return db


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Take the write lock at once: a deferred transaction that reads first can't wait for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Connect to a file, or to a read-only copy of one.

    If the directory can't be written and no write-ahead log is in it, no process can be writing the file:
    SQLite then reads it as immutable, and leaves no file behind.
    """
    log = path.with_name(path.name + "-wal")
    has_log = log.exists() and log.stat().st_size > 0
    immutable = not has_log and not os.access(path.parent, os.W_OK)
    return connect(uri_of(path, "immutable=1" if immutable else "mode=ro"))


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a store for reading. Raises AuditStoreError."""
    if not path.is_file():
        raise AuditStoreError(
            f"Audit store {path}: there is no such file.",
            next_step="Check the path; a store exists after the first `fallback-tier fix`.",
            kind="no_such_file",
        )
    with explained(path):
        db = connect_for_reading(path)
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
            kind="no_trail",
        )
    return db


def _prepare(path: Path, db: sqlite3.Connection, busy_timeout_s: float) -> None:
    """Refuse what is not ours, then set durability, then migrate (in this order)."""
    tables = table_names(db)
    if tables and "audit_header" not in tables:
        raise AuditStoreError(
            f"Audit store {path}: it is another program's SQLite database.",
            next_step="Name a new file for the audit trail.",
            kind="another_program",
        )
    db.execute("PRAGMA synchronous = FULL")
    # What is replaced or deleted (redaction, sealing) is overwritten with zeros; appends pay nothing.
    db.execute("PRAGMA secure_delete = ON")
    _enable_wal(path, db, busy_timeout_s)
    applied = applied_migrations(db)
    newer = applied.difference(MIGRATION_NAMES)
    if newer:
        raise AuditStoreError(
            f"Audit store {path}: a newer version of fallback-tier made it ({', '.join(newer)}).",
            next_step="Upgrade fallback-tier, or name another store.",
            kind="newer_version",
        )
    if applied != set(MIGRATION_NAMES):
        # Several processes may start at once: the lock makes one of them migrate, the others look.
        with immediate(db):
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
