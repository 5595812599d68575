"""The PostgreSQL schema of the audit store: migrations, append-only safeguards, and their check.

The tables and rules are those of SQLite (``sqlite_schema``). Inside functions names are qualified with the
chain's schema, so that a session's ``search_path`` can't replace a table by another.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from psycopg.rows import TupleRow

from fallback_audit.errors import AuditStoreError
from fallback_audit.stores.postgres_connection import Connection
from fallback_audit.stores.postgres_location import PostgresLocation

#: All migrations that this version knows; a store with another one is newer than the program.
MIGRATION_NAMES = ("0001_chain",)

TABLES = ("audit_header", "audit_payload", "audit_segment", "audit_tombstone", "audit_migration")

# Names of the columns that are computed from the header's bytes, so that none can contradict what was
# hashed. COLLATE "C" sorts them by code point, as SQLite does, whatever the database's language.
MEMBERS = ("fix_id", "gate_transition_id", "kind", "recorded_at")

# It may be IMMUTABLE: convert_from depends only on the database's encoding, which is UTF8.
_MEMBER = "BEGIN RETURN convert_from(header, 'UTF8')::json ->> member; END"

_GENERATED = ",\n  ".join(
    f"{name} text COLLATE \"C\" GENERATED ALWAYS AS ({{0}}.audit_member(header, '{name}')) STORED"
    for name in MEMBERS
)

_TABLES = f"""
CREATE TABLE audit_header (
  seq bigint PRIMARY KEY,
  header bytea NOT NULL,
  leaf text COLLATE "C" NOT NULL,
  {_GENERATED}
);
CREATE TABLE audit_payload (seq bigint PRIMARY KEY, payload bytea NOT NULL);
CREATE TABLE audit_segment (
  number bigint PRIMARY KEY,
  first_seq bigint NOT NULL,
  last_seq bigint NOT NULL,
  statement bytea NOT NULL
);
CREATE TABLE audit_tombstone (seq bigint PRIMARY KEY, tombstone bytea NOT NULL);
CREATE TABLE audit_migration (
  name text COLLATE "C" PRIMARY KEY,
  applied_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX audit_trail ON audit_header (fix_id, gate_transition_id, seq)
"""

# 23001 is restrict_violation: none of our other statements can raise it.
_REFUSE = "RAISE EXCEPTION 'the audit trail is append-only' USING ERRCODE = '23001'"

#: The number of the last sealed event: the stored events start after it.
_BASE = "coalesce((SELECT max(last_seq) FROM {0}.audit_segment), 0)"

_ROWS_OF = {
    "audit_header": ("audit_header_next", "audit_never", "audit_sealed"),
    "audit_payload": ("audit_payload_next", "audit_redacted", "audit_sealed"),
    "audit_segment": ("audit_segment_next", "audit_never", "audit_never"),
    "audit_tombstone": ("audit_tombstone_once", "audit_never", "audit_never"),
}

#: (table, trigger) → (verb, function that it calls). TRUNCATE fires no row trigger, so it has its own.
TRIGGERS: Mapping[tuple[str, str], tuple[str, str]] = {
    (table, f"audit_{verb.lower()}"): (verb, function)
    for table, functions in _ROWS_OF.items()
    for verb, function in zip(
        ("INSERT", "UPDATE", "DELETE", "TRUNCATE"), (*functions, "audit_never"), strict=True
    )
}

_KEPT = ("audit_header", "audit_payload", "audit_segment", "audit_tombstone")

#: (table, column) → (type, not null, the header's member that it is generated from).
_COLUMNS: dict[tuple[str, str], tuple[str, bool, str | None]] = {
    ("audit_header", "seq"): ("bigint", True, None),
    ("audit_header", "header"): ("bytea", True, None),
    ("audit_header", "leaf"): ("text", True, None),
    **{("audit_header", name): ("text", False, name) for name in MEMBERS},
    ("audit_payload", "seq"): ("bigint", True, None),
    ("audit_payload", "payload"): ("bytea", True, None),
    ("audit_segment", "number"): ("bigint", True, None),
    ("audit_segment", "first_seq"): ("bigint", True, None),
    ("audit_segment", "last_seq"): ("bigint", True, None),
    ("audit_segment", "statement"): ("bytea", True, None),
    ("audit_tombstone", "seq"): ("bigint", True, None),
    ("audit_tombstone", "tombstone"): ("bytea", True, None),
}

_INDEXES = {
    "audit_trail": "(fix_id, gate_transition_id, seq)",
    "audit_header_pkey": "(seq)",
    "audit_payload_pkey": "(seq)",
    "audit_segment_pkey": "(number)",
    "audit_tombstone_pkey": "(seq)",
}

# Bits of pg_trigger.tgtype: 1 = row, 2 = before, then the verb.
_VERBS = {"INSERT": 4 | 3, "DELETE": 8 | 3, "UPDATE": 16 | 3, "TRUNCATE": 32 | 2}

#: An SQL condition: relations of the chain's schema with these names.
_OURS = "c.relnamespace = to_regnamespace(%s) AND c.relname = ANY(%s)"


def _unless(allowed: str, row: str = "NEW") -> str:
    return f"BEGIN IF ({allowed}) THEN RETURN {row}; END IF; {_REFUSE}; END"


def _next(table: str) -> str:
    latest = f"coalesce((SELECT max(seq) FROM {{0}}.{table}), 0)"  # noqa: S608 (our names)
    return _unless(f"NEW.seq = greatest({latest}, {_BASE}) + 1")


#: Function → its body. All but ``audit_member`` are called by triggers.
FUNCTIONS: Mapping[str, str] = {
    "audit_member": _MEMBER,
    "audit_never": f"BEGIN {_REFUSE}; END",
    "audit_header_next": _next("audit_header"),
    "audit_payload_next": _next("audit_payload"),
    "audit_sealed": _unless(f"OLD.seq <= {_BASE}", "OLD"),
    "audit_redacted": _unless(
        "NEW.seq = OLD.seq AND NEW.payload = "
        "(SELECT tombstone FROM {0}.audit_tombstone t WHERE t.seq = OLD.seq)"
    ),
    # A segment never takes the last event: the tip is always a row, from which the chain continues.
    "audit_segment_next": _unless(
        "NEW.number = coalesce((SELECT max(number) FROM {0}.audit_segment), 0) + 1"  # noqa: S608
        f" AND NEW.first_seq = {_BASE} + 1 AND NEW.last_seq >= NEW.first_seq"
        " AND NEW.last_seq < (SELECT max(seq) FROM {0}.audit_header)"
    ),
    "audit_tombstone_once": _unless(
        "NEW.seq IN (SELECT seq FROM {0}.audit_payload)"
        " AND NEW.seq NOT IN (SELECT seq FROM {0}.audit_tombstone)"
    ),
}


def lock_key(schema: str) -> int:
    """Return the key (64 bits, signed) of the chain's advisory lock, which its only writer holds."""
    digest = hashlib.sha256(b"fallback-tier/audit/chain-lock/v1\0" + schema.encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def statements(schema: str) -> list[str]:
    """Return the statements of migration 1, in order."""
    # ALWAYS: also if a superuser sets session_replication_role to stop triggers.
    triggers = [
        f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
        f"FOR EACH {'STATEMENT' if verb == 'TRUNCATE' else 'ROW'} "
        f"EXECUTE FUNCTION {schema}.{function}();"
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}"
        for (table, name), (verb, function) in TRIGGERS.items()
    ]
    member = (
        "CREATE FUNCTION audit_member(header bytea, member text) RETURNS text LANGUAGE plpgsql"
        f" IMMUTABLE STRICT PARALLEL SAFE AS $${_MEMBER}$$"
    )
    return [
        member,
        _TABLES.format(schema),
        *(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body.format(schema)}$$"
            for name, body in FUNCTIONS.items()
            if name != "audit_member"
        ),
        *triggers,
    ]


def applied_migrations(connection: Connection, location: PostgresLocation) -> set[str] | None:
    """Return the names of the applied migrations, or None if the schema is missing or empty.

    Raises AuditStoreError if the schema holds something else.
    """
    relations = connection.execute(
        "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n"
        " ON n.oid = c.relnamespace WHERE n.nspname = %s",
        (location.schema,),
    ).fetchall()
    if not relations:
        return None
    if ("audit_migration",) not in relations:
        raise AuditStoreError(
            f"Audit store {location}: the schema {location.schema} holds something else.",
            next_step="Name another schema for the audit trail: postgresql://…?schema=NAME.",
            kind="not_a_trail",
        )
    rows = connection.execute(f"SELECT name FROM {location.schema}.audit_migration".encode())  # noqa: S608
    return {name for (name,) in rows.fetchall()}


def check_version(applied: set[str], location: PostgresLocation) -> None:
    """Raise AuditStoreError if a newer version made the store."""
    if newer := applied.difference(MIGRATION_NAMES):
        raise AuditStoreError(
            f"Audit store {location}: a newer version of fallback-tier made it "
            f"({', '.join(sorted(newer))}).",
            next_step="Upgrade fallback-tier, or name another store.",
            kind="newer_version",
        )


def prepare(connection: Connection, location: PostgresLocation) -> None:
    """Make or migrate the schema if necessary. Raises psycopg.Error, AuditStoreError."""
    if _is_current(connection, location):
        return
    # Several processes may start at once: one of them migrates under the lock, the others check again.
    with connection.transaction():
        take_lock(connection, location)
        if not _is_current(connection, location):
            migrate(connection, location)


def migrate(connection: Connection, location: PostgresLocation) -> None:
    """Run the pending migrations. Never edit a released one: add the next.

    The caller has a transaction and the lock.
    """
    schema = location.schema
    schema_exists = connection.execute(
        "SELECT to_regnamespace(%s) IS NOT NULL", (schema,)
    ).fetchone()
    if schema_exists != (True,):
        connection.execute(f"CREATE SCHEMA {schema}".encode())
    for statement in statements(schema):
        connection.execute(statement.encode())
    connection.execute("INSERT INTO audit_migration (name) VALUES (%s)", (MIGRATION_NAMES[0],))


def take_lock(connection: Connection, location: PostgresLocation) -> None:
    """Block other writers of this chain until the transaction ends."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(location.schema),))


def _is_current(connection: Connection, location: PostgresLocation) -> bool:
    applied = applied_migrations(connection, location)
    if applied is None:
        return False
    check_version(applied, location)
    return applied == set(MIGRATION_NAMES)


def schema_problems(connection: Connection, schema: str) -> list[str]:
    """Return the tables, indexes and safeguards that are missing or not as the store made them."""
    return [
        problem
        for check in (_tables, _columns, _indexes, _functions, _triggers, _rules)
        for problem in check(connection, schema)
    ]


def _ask(connection: Connection, sql: str, schema: str, names: Iterable[str]) -> list[TupleRow]:
    parameters = (schema, list(names))
    return connection.execute(sql.replace("{ours}", _OURS).encode(), parameters).fetchall()


def _tables(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, c.relkind = 'r' AND c.relpersistence = 'p', c.relrowsecurity,"
        " EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))"
        " FROM pg_catalog.pg_class c WHERE {ours}",
        schema,
        TABLES,
    )
    properties_by_table = {name: tuple(rest) for name, *rest in rows}
    for table in TABLES:
        if table not in properties_by_table:
            yield f"{table} is missing"
        elif properties_by_table[table] != (True, False, False):
            yield f"{table} is not as the store made it (no plain table, row security, or a child)"


def _columns(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, a.attname, format_type(a.atttypid, NULL), a.attnotnull,"
        " a.attgenerated = 's', pg_get_expr(d.adbin, d.adrelid)"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
        " LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        " WHERE {ours} AND a.attnum > 0 AND NOT a.attisdropped",
        schema,
        _KEPT,
    )
    columns = {(table, name): rest for table, name, *rest in rows}
    tables = {table for table, _ in columns}  # a missing one has been named already
    for (table, name), (kind, not_null, member) in _COLUMNS.items():
        column = columns.pop((table, name), None)
        expressions = [f"audit_member(header, '{member}'::text)"] if member else [None]
        expected = [kind, not_null, member is not None, *expressions]
        if table in tables and column != expected:
            yield f"column {name} of {table} is not as the store made it"
    yield from (f"column {name} of {table} is not the store's" for table, name in columns)


def _indexes(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, i.indisvalid AND i.indpred IS NULL, pg_get_indexdef(c.oid)"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid"
        " WHERE {ours}",
        schema,
        _INDEXES,
    )
    definitions = {name: sql if sound else "" for name, sound, sql in rows}
    for name, columns in _INDEXES.items():
        if name not in definitions:
            yield f"{name} is missing"
        elif not definitions[name].endswith(f" USING btree {columns}"):
            yield f"{name} is not as the store made it"


def _functions(connection: Connection, schema: str) -> Iterator[str]:
    rows = connection.execute(
        "SELECT proname, prosrc, prosecdef, proconfig FROM pg_catalog.pg_proc"
        " WHERE pronamespace = to_regnamespace(%s)",
        (schema,),
    ).fetchall()
    properties_by_name = {name: tuple(rest) for name, *rest in rows}
    for name, body in FUNCTIONS.items():
        if name not in properties_by_name:
            yield f"function {name} is missing"
        elif properties_by_name[name] != (body.format(schema), False, None):
            yield f"function {name} is not as the store made it"
    if len(rows) != len(properties_by_name) or properties_by_name.keys() - FUNCTIONS.keys():
        yield "there are functions in the schema that the store did not make"


def _triggers(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, t.tgname, p.proname, p.pronamespace = c.relnamespace, t.tgtype,"
        " t.tgenabled = 'A', t.tgqual IS NULL AND t.tgattr = ''::int2vector"
        " FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid"
        " JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid WHERE {ours} AND NOT t.tgisinternal",
        schema,
        _KEPT,
    )
    triggers = {(table, name): tuple(rest) for table, name, *rest in rows}
    for (table, name), (verb, function) in TRIGGERS.items():
        trigger = triggers.pop((table, name), None)
        if trigger is None:
            yield f"trigger {name} on {table} is missing"
        elif trigger != (function, True, _VERBS[verb], True, True):
            yield f"trigger {name} on {table} is not as the store made it, or is switched off"
    for table, name in triggers:
        yield f"{name} on {table} is a trigger that the store did not make"


def _rules(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, r.rulename FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c"
        " ON c.oid = r.ev_class WHERE {ours}",
        schema,
        TABLES,
    )
    return (f"{name} on {table} is a rule that the store did not make" for table, name in rows)
