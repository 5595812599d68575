"""The SQLite file of an audit store: migrations, append-only safeguards, and how it is opened.

Opening a file refuses one that is not an audit store, then sets durability, then migrates.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fallback_audit.errors import AuditStoreError
from fallback_audit.files import create_private, make_private_directory
from fallback_audit.stores.sqlite_connection import explained

if TYPE_CHECKING:
    from sqlite_utils import Database


_MIGRATION_SET = "fallback_audit"

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"

#: Table in which sqlite-utils keeps the names of the applied migrations.
_RECORD = "_sqlite_migrations"
_APPLIED = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"

#: All migrations that this version knows; a store with another one is newer than the program.
MIGRATION_NAMES = ("0001_header_and_payload", "0002_segment_and_tombstone")

# The columns by which queries filter and sort are computed from the header's bytes, so that none can
# contradict what was hashed. With json_valid an altered header does not make the table unreadable.
_MEMBER = (
    "TEXT GENERATED ALWAYS AS (CASE WHEN json_valid(CAST(header AS TEXT))"
    " THEN json_extract(CAST(header AS TEXT), '$.{0}') END) VIRTUAL"
)

_HEADER_TABLE = f"""CREATE TABLE audit_header (
  seq INTEGER PRIMARY KEY,
  header BLOB NOT NULL,
  leaf TEXT NOT NULL,
  fix_id {_MEMBER.format("fix_id")},
  gate_transition_id {_MEMBER.format("gate_transition_id")},
  kind {_MEMBER.format("kind")},
  recorded_at {_MEMBER.format("recorded_at")}
) STRICT"""

_PAYLOAD_TABLE = """CREATE TABLE audit_payload (
  seq INTEGER PRIMARY KEY,
  payload BLOB NOT NULL
) STRICT"""

_TRAIL_INDEX = "CREATE INDEX audit_trail ON audit_header (fix_id, gate_transition_id)"

_LAST_SEALED = "SELECT last_seq FROM audit_segment ORDER BY number DESC LIMIT 1"

#: The number of the last sealed event: the stored events start after it.
_BASE = f"coalesce(({_LAST_SEALED}), 0)"

#: How long a writer waits for another. An append holds the lock for about one fdatasync, so only a stuck
#: process or a very slow disk takes that long.
BUSY_TIMEOUT_S = 30.0


def _trigger(name: str, when: str) -> str:
    return f"CREATE TRIGGER {name} {when} BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"


def _unless_next(table: str, following: str) -> str:
    """Return a trigger that also stops INSERT OR REPLACE, which fires none on UPDATE or DELETE."""
    return _trigger(
        f"{table}_in_order", f"BEFORE INSERT ON {table} WHEN NEW.seq IS NOT ({following})"
    )


def _never(table: str) -> dict[str, str]:
    """Return triggers that stop all changes and deletions."""
    return {
        f"{table}_no_{verb.lower()}": _trigger(
            f"{table}_no_{verb.lower()}", f"BEFORE {verb} ON {table}"
        )
        for verb in ("UPDATE", "DELETE")
    }


def _first_safeguards(table: str) -> dict[str, str]:
    """Return the append-only triggers of migration 1."""
    following = f"SELECT coalesce(max(seq), 0) + 1 FROM {table}"  # noqa: S608 (our names)
    return _never(table) | {f"{table}_in_order": _unless_next(table, following)}


def _kept_safeguards(table: str) -> dict[str, str]:
    """Return append-only triggers that let sealed events be deleted."""
    following = f"SELECT coalesce((SELECT max(seq) FROM {table}), ({_LAST_SEALED}), 0) + 1"  # noqa: S608
    return {
        f"{table}_no_delete": _trigger(
            f"{table}_no_delete", f"BEFORE DELETE ON {table} WHEN OLD.seq > {_BASE}"
        ),
        f"{table}_in_order": _unless_next(table, following),
    }


_FIRST: Mapping[str, str] = {
    "audit_header": _HEADER_TABLE,
    "audit_payload": _PAYLOAD_TABLE,
    "audit_trail": _TRAIL_INDEX,
    **_first_safeguards("audit_header"),
    **_first_safeguards("audit_payload"),
}

# A segment never takes the last event: the tip is always a row, from which the chain continues.
_SECOND: Mapping[str, str] = {
    "audit_segment": """CREATE TABLE audit_segment (
  number INTEGER PRIMARY KEY,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  statement BLOB NOT NULL
) STRICT""",
    "audit_tombstone": """CREATE TABLE audit_tombstone (
  seq INTEGER PRIMARY KEY,
  tombstone BLOB NOT NULL
) STRICT""",
    **_never("audit_segment"),
    **_never("audit_tombstone"),
    "audit_segment_in_order": _trigger(
        "audit_segment_in_order",
        "BEFORE INSERT ON audit_segment"  # noqa: S608 (our names)
        " WHEN NEW.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM audit_segment)"
        f" OR NEW.first_seq IS NOT {_BASE} + 1 OR NEW.last_seq < NEW.first_seq"
        " OR NEW.last_seq >= (SELECT coalesce(max(seq), 0) FROM audit_header)",
    ),
    "audit_tombstone_once": _trigger(
        "audit_tombstone_once",
        "BEFORE INSERT ON audit_tombstone WHEN NEW.seq IN (SELECT seq FROM audit_tombstone)"
        " OR NEW.seq NOT IN (SELECT seq FROM audit_payload)",
    ),
    "audit_payload_no_update": _trigger(
        "audit_payload_no_update",
        "BEFORE UPDATE ON audit_payload WHEN NEW.seq IS NOT OLD.seq OR NEW.payload IS NOT"
        " (SELECT tombstone FROM audit_tombstone WHERE seq = OLD.seq)",
    ),
    **_kept_safeguards("audit_header"),
    **_kept_safeguards("audit_payload"),
}

#: Migration → name → SQL of what it makes or replaces.
_MADE: Mapping[str, Mapping[str, str]] = dict(zip(MIGRATION_NAMES, (_FIRST, _SECOND), strict=True))


def table_names(connection: sqlite3.Connection) -> set[str]:
    """Return the names of all tables; none if the file is new."""
    return {name for (name,) in connection.execute(_TABLES)}


def applied_migrations(connection: sqlite3.Connection) -> set[str]:
    """Return the names of the applied migrations, as sqlite-utils recorded them.

    Read without sqlite-utils: its import takes a third of a fix by recipe, and a store is migrated once.
    """
    if _RECORD not in table_names(connection):
        return set()
    rows = connection.execute(_APPLIED, [_MIGRATION_SET])
    return {name for (name,) in rows}


def _apply_migrations(connection: sqlite3.Connection) -> None:
    """Run the pending migrations in order, under the caller's write lock. Never edit a released one."""
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    numbered = Migrations(_MIGRATION_SET)
    for migration, statements in _MADE.items():

        def make(db: "Database", statements: Mapping[str, str] = statements) -> None:
            for name, statement in statements.items():
                if statement.startswith("CREATE TRIGGER"):
                    db.execute(f"DROP TRIGGER IF EXISTS {name}")
                db.execute(statement)

        numbered(name=migration)(make)

    # No sqlite-utils plugins: other packages must not hook into the audit connection.
    numbered.apply(Database(connection, execute_plugins=False))


def schema_problems(connection: sqlite3.Connection) -> list[str]:
    """Return the tables, index and safeguards that are missing or not as the store's migrations made them.

    A store that is not migrated yet, since it was only read, is checked against the migrations it had.
    """
    objects = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    ).fetchall()
    # Triggers are listed separately: one may have the name of a table or an index.
    triggers = {name for kind, name, _ in objects if kind == "trigger"}
    sql_by_name = {name: sql for _, name, sql in objects}
    expected = _expected(applied_migrations(connection))
    problems = [f"{name} is missing" for name in expected if name not in sql_by_name]
    problems += [
        f"{name} is not as the store made it"
        for name, sql in expected.items()
        if name in sql_by_name and sql_by_name[name] != sql
    ]
    expected_triggers = {name for name, sql in expected.items() if sql.startswith("CREATE TRIGGER")}
    foreign = sorted(triggers - expected_triggers)
    return problems + [f"{name} is a trigger that the store did not make" for name in foreign]


def _expected(applied: set[str]) -> dict[str, str]:
    expected = dict(_FIRST)
    for migration, statements in _MADE.items():
        if migration in applied:
            expected.update(statements)
    return expected


def uri_of(path: Path, mode: str) -> str:
    """Return the file's URI with SQLite's options in ``mode``."""
    return f"{path.absolute().as_uri()}?{mode}"


def connect(uri: str, busy_timeout_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """Connect, for explicit transactions only. The store's lock replaces SQLite's check of the thread."""
    return sqlite3.connect(
        uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )


def open_for_writing(path: Path, busy_timeout_s: float, *, create: bool) -> sqlite3.Connection:
    """Open and migrate a store. ``create``: make missing files (mode 0600) and directories (0700).

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
    """Run a transaction that takes the write lock at once: one that reads first can't wait for it."""
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

    If the directory is not writable and has no write-ahead log, no process can be writing the file: SQLite
    then reads it as immutable, and leaves no files.
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
    """Refuse a file that is not an audit store, then set durability, then migrate (in this order)."""
    tables = table_names(db)
    if tables and "audit_header" not in tables:
        raise AuditStoreError(
            f"Audit store {path}: it is another program's SQLite database.",
            next_step="Name a new file for the audit trail.",
            kind="another_program",
        )
    db.execute("PRAGMA synchronous = FULL")
    # Replaced and deleted bytes (redaction, sealing) are overwritten with zeros; appends get no slower.
    db.execute("PRAGMA secure_delete = ON")
    if not enable_wal(db, busy_timeout_s):
        raise AuditStoreError(
            f"Audit store {path}: this file system has no shared memory for a write-ahead log.",
            next_step="Put the store on a local disk.",
        )
    applied = applied_migrations(db)
    newer = applied.difference(MIGRATION_NAMES)
    if newer:
        raise AuditStoreError(
            f"Audit store {path}: a newer version of fallback-tier made it ({', '.join(newer)}).",
            next_step="Upgrade fallback-tier, or name another store.",
            kind="newer_version",
        )
    if applied != set(MIGRATION_NAMES):
        # Several processes may start at once: one of them migrates under the lock, the others check.
        with immediate(db):
            _apply_migrations(db)


def enable_wal(db: sqlite3.Connection, busy_timeout_s: float) -> bool:
    """Switch a database to a write-ahead log, and return whether the file system supports that.

    SQLite does not call its busy handler for this change, so first starts would race. Raises
    sqlite3.OperationalError: another process holds the database for longer than ``busy_timeout_s``.
    """
    deadline = time.monotonic() + busy_timeout_s
    while True:
        try:
            return bool(db.execute("PRAGMA journal_mode = wal").fetchone()[0] == "wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
