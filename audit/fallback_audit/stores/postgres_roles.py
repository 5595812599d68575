"""Setup of a chain in PostgreSQL with one role per permission.

=================  ===========================================================================
``SCHEMA_owner``   owns the tables, and could switch safeguards off: for migrations only
``SCHEMA_writer``  reads and appends: for processes that run fixes
``SCHEMA_reader``  reads: for reports, ``audit verify``
``SCHEMA_keeper``  a writer that may also redact and seal, within what the triggers allow
=================  ===========================================================================

An administrator creates them once and grants them to users; none can log in (docs/postgresql.md).
"""

from contextlib import closing
from typing import NamedTuple

import psycopg

from fallback_audit.errors import AuditStoreError
from fallback_audit.stores.postgres_connection import MAINTAIN_SINCE, Connection, connect, explained
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_audit.stores.postgres_schema import (
    FUNCTIONS,
    TABLES,
    applied_migrations,
    check_version,
    migrate,
    take_lock,
)

#: From this release on, the creator of a role may not automatically act as it.
_SET_SINCE = 160000

_GRANTS = """
REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO {reader}, {writer}, {keeper};
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}, {writer}, {keeper};
GRANT EXECUTE ON FUNCTION {schema}.audit_member TO {writer}, {keeper};
GRANT INSERT (seq, header, leaf) ON {schema}.audit_header TO {writer}, {keeper};
GRANT INSERT ON {schema}.audit_payload TO {writer}, {keeper};
GRANT INSERT ON {schema}.audit_segment, {schema}.audit_tombstone TO {keeper};
GRANT UPDATE (payload) ON {schema}.audit_payload TO {keeper};
GRANT DELETE ON {schema}.audit_header, {schema}.audit_payload TO {keeper}
"""
_GRANT_MAINTAIN = "GRANT MAINTAIN ON {schema}.audit_header, {schema}.audit_payload TO {keeper}"


class Roles(NamedTuple):
    """The four roles of a chain."""

    owner: str
    writer: str
    reader: str
    keeper: str

    @classmethod
    def of(cls, schema: str) -> "Roles":
        """Return the roles' names, which begin with the schema's: roles belong to the whole server."""
        return cls._make(f"{schema}_{name}" for name in cls._fields)


def init_postgres(url: str, *, schema: str | None = None) -> Roles:
    """Create the chain's roles, schema and tables, and grant the roles what they need; all or nothing.

    Idempotent. A chain that a store has made itself is given to the owner role. The user of ``url`` needs
    CREATEROLE, CREATE on the database and, for such a chain, its ownership; a superuser has them. Raises
    AuditStoreError.
    """
    location = PostgresLocation.of(url, schema=schema)
    roles = Roles.of(location.schema)
    with explained(location), closing(connect(location, read_only=False)) as connection:
        try:
            with connection.transaction():
                take_lock(connection, location)
                applied = applied_migrations(connection, location)
                check_version(applied or set(), location)
                _make_roles(connection, roles)
                _own(connection, location.schema, roles.owner, tables=applied is not None)
                connection.execute(f"SET LOCAL ROLE {roles.owner}".encode())
                if applied is None:
                    migrate(connection, location)
                _grant(connection, location.schema, roles)
        except psycopg.errors.InsufficientPrivilege as error:
            raise AuditStoreError(
                f"Audit store {location}: this user may not set it up "
                f"({error.diag.message_primary}).",
                next_step="Run it as a superuser, or with CREATEROLE and CREATE on the database.",
                kind="setup_not_permitted",
            ) from None
    return roles


def _make_roles(connection: Connection, roles: Roles) -> None:
    rows = connection.execute(
        "SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = ANY(%s)", (list(roles),)
    ).fetchall()
    for role in sorted(set(roles) - {name for (name,) in rows}):
        connection.execute(f"CREATE ROLE {role} NOLOGIN".encode())
    # A user who is not a superuser must be a member to give the schema to the role, and to act as it.
    privilege = "SET" if connection.info.server_version >= _SET_SINCE else "MEMBER"
    may = connection.execute("SELECT pg_has_role(%s, %s)", (roles.owner, privilege)).fetchone()
    if may != (True,):
        connection.execute(f"GRANT {roles.owner} TO CURRENT_USER".encode())


def _own(connection: Connection, schema: str, owner: str, *, tables: bool) -> None:
    schema_exists = connection.execute(
        "SELECT to_regnamespace(%s) IS NOT NULL", (schema,)
    ).fetchone()
    if schema_exists == (True,):
        connection.execute(f"ALTER SCHEMA {schema} OWNER TO {owner}".encode())
    else:
        connection.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {owner}".encode())
    if tables:
        for table in TABLES:
            connection.execute(f"ALTER TABLE {schema}.{table} OWNER TO {owner}".encode())
        for function in FUNCTIONS:
            connection.execute(f"ALTER FUNCTION {schema}.{function} OWNER TO {owner}".encode())


def _grant(connection: Connection, schema: str, roles: Roles) -> None:
    grants = _GRANTS
    if connection.info.server_version >= MAINTAIN_SINCE:
        grants += ";" + _GRANT_MAINTAIN
    connection.execute(grants.format(schema=schema, **roles._asdict()).encode())
