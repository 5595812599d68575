"""Is the chain's schema in PostgreSQL as the migrations made it? Asked of the server's catalogue."""

from collections.abc import Iterable, Iterator

from psycopg.rows import TupleRow

from fallback_audit.stores.postgres_connection import Connection
from fallback_audit.stores.postgres_schema import FUNCTIONS, MEMBERS, TABLES, TRIGGERS

_KEPT = ("audit_header", "audit_payload", "audit_segment", "audit_tombstone")

#: (table, column) → type, not null, generated from.
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

# pg_trigger.tgtype: 1 = row, 2 = before, then the verb.
_VERBS = {"INSERT": 4 | 3, "DELETE": 8 | 3, "UPDATE": 16 | 3, "TRUNCATE": 32 | 2}

#: In a query: the relations of the chain's schema with these names.
_OURS = "c.relnamespace = to_regnamespace(%s) AND c.relname = ANY(%s)"


def schema_problems(connection: Connection, schema: str) -> list[str]:
    """Tables, index and safeguards that are missing or not as they were made."""
    return [
        problem
        for ask in (_tables, _columns, _indexes, _functions, _triggers, _rules)
        for problem in ask(connection, schema)
    ]


def _ask(connection: Connection, sql: str, schema: str, names: Iterable[str]) -> list[TupleRow]:
    asked = (schema, list(names))
    return connection.execute(sql.replace("{ours}", _OURS).encode(), asked).fetchall()


def _tables(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, c.relkind = 'r' AND c.relpersistence = 'p', c.relrowsecurity,"
        " EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE c.oid IN (i.inhparent, i.inhrelid))"
        " FROM pg_catalog.pg_class c WHERE {ours}",
        schema,
        TABLES,
    )
    found = {name: tuple(rest) for name, *rest in rows}
    for table in TABLES:
        if table not in found:
            yield f"{table} is missing"
        elif found[table] != (True, False, False):
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
    found = {(table, name): rest for table, name, *rest in rows}
    tables = {table for table, _ in found}  # a missing one has been named already
    for (table, name), (kind, not_null, member) in _COLUMNS.items():
        column = found.pop((table, name), None)
        made = [f"audit_member(header, '{member}'::text)"] if member else [None]
        expected = [kind, not_null, member is not None, *made]
        if table in tables and column != expected:
            yield f"column {name} of {table} is not as the store made it"
    yield from (f"column {name} of {table} is not the store's" for table, name in found)


def _indexes(connection: Connection, schema: str) -> Iterator[str]:
    rows = _ask(
        connection,
        "SELECT c.relname, i.indisvalid AND i.indpred IS NULL, pg_get_indexdef(c.oid)"
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid"
        " WHERE {ours}",
        schema,
        _INDEXES,
    )
    found = {name: sql if sound else "" for name, sound, sql in rows}
    for name, columns in _INDEXES.items():
        if name not in found:
            yield f"{name} is missing"
        elif not found[name].endswith(f" USING btree {columns}"):
            yield f"{name} is not as the store made it"


def _functions(connection: Connection, schema: str) -> Iterator[str]:
    rows = connection.execute(
        "SELECT proname, prosrc, prosecdef, proconfig FROM pg_catalog.pg_proc"
        " WHERE pronamespace = to_regnamespace(%s)",
        (schema,),
    ).fetchall()
    found = {name: tuple(rest) for name, *rest in rows}
    for name, body in FUNCTIONS.items():
        if name not in found:
            yield f"function {name} is missing"
        elif found[name] != (body.format(schema), False, None):
            yield f"function {name} is not as the store made it"
    if len(rows) != len(found) or found.keys() - FUNCTIONS.keys():
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
    found = {(table, name): tuple(rest) for table, name, *rest in rows}
    for (table, name), (verb, function) in TRIGGERS.items():
        trigger = found.pop((table, name), None)
        if trigger is None:
            yield f"trigger {name} on {table} is missing"
        elif trigger != (function, True, _VERBS[verb], True, True):
            yield f"trigger {name} on {table} is not as the store made it, or is switched off"
    for table, name in found:
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
