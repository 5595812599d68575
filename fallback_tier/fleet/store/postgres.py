"""The tables in PostgreSQL: the fleet of several machines. psycopg is an extra: ``require_driver`` first.

Writers take turns by a lock of the server, as with SQLite: a transaction takes a few milliseconds.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import psycopg
from psycopg import sql as composing
from psycopg.rows import DictRow, dict_row

from fallback_audit.errors import RequestError
from fallback_audit.stores.postgres_connection import SERVER_KEEPALIVES, noticing
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_tier.fleet.errors import FleetStoreError
from fallback_tier.fleet.store.tables import STEPS, Row, Session

#: Default schema, unless the address names one (``?schema=``).
SCHEMA = "fallback_fleet"

#: Time limit of a statement, including the wait for other writers (milliseconds).
STATEMENT_TIMEOUT_MS = 60_000

#: A writer that is idle for this long loses its lock (milliseconds).
IDLE_TIMEOUT_MS = 20_000

_SETTINGS = {
    "statement_timeout": str(STATEMENT_TIMEOUT_MS),
    "idle_in_transaction_session_timeout": str(IDLE_TIMEOUT_MS),
    **SERVER_KEEPALIVES,
}

#: Lock of a schema for one writer, until the end of its transaction.
_TURNS = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"

_Connection: TypeAlias = "psycopg.Connection[DictRow]"


@dataclass(frozen=True)
class _Session:
    db: _Connection

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        return list(self.db.execute(sql.replace("?", "%s").encode(), tuple(values)).fetchall())

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        return self.db.execute(sql.replace("?", "%s").encode(), tuple(values)).rowcount


class PostgresTables:
    """Implements ``Tables``. Creates missing schema and tables, which needs the right to do so once.
    Raises FleetStoreError.
    """

    def __init__(self, url: str) -> None:
        try:
            self._location = PostgresLocation.of(url, default=SCHEMA)
        except RequestError as error:
            raise FleetStoreError(
                "The fleet store's address is not a PostgreSQL URL.",
                next_step=error.next_step,
                kind="not_postgres",
            ) from error
        self._schema = self._location.schema
        self._lock = threading.RLock()
        self._connection: _Connection | None = None
        with self.writing() as session:
            self._make(session)

    @property
    def place(self) -> str:
        """Return the address without its password."""
        return str(self._location)

    def _make(self, session: Session) -> None:
        session.change("CREATE TABLE IF NOT EXISTS version (number BIGINT NOT NULL)")
        rows = session.rows("SELECT number FROM version")
        version = int(rows[0]["number"]) if rows else 0
        if version > len(STEPS):
            raise FleetStoreError(
                f"{self.place} was written by a newer version of the fleet ({version}).",
                next_step="Use that version, or name another schema (?schema=).",
                kind="newer",
            )
        for step in STEPS[version:]:
            for statement in step.split(";"):
                session.change(statement)
        session.change("DELETE FROM version")
        session.change("INSERT INTO version VALUES (?)", (len(STEPS),))

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session for reading."""
        with self._lock, self._explained():
            yield _Session(self._connected())

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Yield a session in one exclusive, durable transaction."""
        with self._lock, self._explained():
            connection = self._connected()
            with connection.transaction():
                connection.execute(_TURNS, (self._schema,))
                yield _Session(connection)

    def _connected(self) -> _Connection:
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> _Connection:
        connection = psycopg.connect(
            noticing(self._location.conninfo, "fallback-tier fleet"),
            autocommit=True,
            row_factory=dict_row,
        )
        schema = composing.Identifier(self._schema)
        try:
            for setting, limit in _SETTINGS.items():
                connection.execute("SELECT set_config(%s, %s, false)", (setting, limit))
            query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
            with connection.transaction():  # "IF NOT EXISTS" alone fails if two connect at once
                connection.execute(_TURNS, (self._schema,))
                if connection.execute(query, (self._schema,)).fetchone() is None:
                    connection.execute(composing.SQL("CREATE SCHEMA {}").format(schema))
            connection.execute(composing.SQL("SET search_path TO {}, pg_temp").format(schema))
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self._drop()
            message = self._location.scrubbed(" ".join(str(error).split()))
            raise FleetStoreError(
                f"The fleet store {self.place} can't be used: {message}",
                next_step="Look at the server, the address and the user's rights; then run it again.",
                kind="unusable",
            ) from error

    def _drop(self) -> None:
        """Close the connection: one in an unknown state is not used again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        with self._lock:
            self._drop()
