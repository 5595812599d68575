"""The SQLite schema of the audit store: numbered migrations and the append-only safeguards."""

import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database

MIGRATION_SET = "fallback_audit"

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"

#: Where sqlite-utils keeps the names of the migrations that were applied.
_RECORD = "_sqlite_migrations"
_APPLIED = "SELECT name FROM _sqlite_migrations WHERE migration_set = ?"

#: Every migration this version knows; a store with another one is newer than the program.
MIGRATION_NAMES = ("0001_header_and_payload",)

# The columns that queries filter and sort by are computed from the header's own bytes, so none can
# contradict what was hashed. json_valid keeps an altered header from making the table unreadable.
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


def _safeguards(table: str) -> dict[str, str]:
    """Append-only. INSERT OR REPLACE fires neither of the first two: BEFORE INSERT stops it."""
    changes = {
        f"{table}_no_{verb.lower()}": f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} "
        f"ON {table} BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
        for verb in ("UPDATE", "DELETE")
    }
    in_order = (
        f"CREATE TRIGGER {table}_in_order BEFORE INSERT ON {table} "  # noqa: S608 (our names)
        f"WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM {table}) "
        "BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END"
    )
    return changes | {f"{table}_in_order": in_order}


#: Name → SQL of everything the store relies on, as SQLite keeps it.
SCHEMA: Mapping[str, str] = {
    "audit_header": _HEADER_TABLE,
    "audit_payload": _PAYLOAD_TABLE,
    "audit_trail": _TRAIL_INDEX,
    **_safeguards("audit_header"),
    **_safeguards("audit_payload"),
}


def table_names(connection: sqlite3.Connection) -> set[str]:
    """Every table of the file; empty where it is new."""
    return {name for (name,) in connection.execute(_TABLES)}


def applied_migrations(connection: sqlite3.Connection) -> set[str]:
    """The names that sqlite-utils has on record for us.

    Read without it: its import costs a third of a fix by recipe, and a store is migrated once.
    """
    if _RECORD not in table_names(connection):
        return set()
    rows = connection.execute(_APPLIED, [MIGRATION_SET])
    return {name for (name,) in rows}


def apply_migrations(connection: sqlite3.Connection) -> None:
    """Run the numbered migrations that are pending, in order. A released one is never edited: add
    the next. The caller holds the write lock."""
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    numbered = Migrations(MIGRATION_SET)

    @numbered(name=MIGRATION_NAMES[0])
    def _create(db: "Database") -> None:
        for statement in SCHEMA.values():
            db.execute(statement)

    # No sqlite-utils plugins: nothing foreign may hook into the audit connection.
    numbered.apply(Database(connection, execute_plugins=False))


def schema_problems(connection: sqlite3.Connection) -> list[str]:
    """Tables, index and safeguards that are missing or not as the migrations made them."""
    found = dict(
        connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    )
    problems = [f"{name} is missing" for name in SCHEMA if name not in found]
    problems += [
        f"{name} is not as the store made it"
        for name, sql in SCHEMA.items()
        if name in found and found[name] != sql
    ]
    foreign = [
        name for name, sql in found.items() if name not in SCHEMA and "TRIGGER" in sql.upper()[:40]
    ]
    return problems + [f"{name} is a trigger that the store did not make" for name in foreign]
