"""A connection to the chain's server, with our limits set, made again when it was lost."""

from typing import TypeAlias

import psycopg
from psycopg.rows import TupleRow

from fallback_audit.errors import AuditStoreError
from fallback_audit.stores.postgres_errors import explained
from fallback_audit.stores.postgres_location import PostgresLocation

Connection: TypeAlias = "psycopg.Connection[TupleRow]"

#: A server that does not take a connection in this time is as good as down.
CONNECT_TIMEOUT_S = 10

#: How long a writer waits for another one. An append holds the lock for some milliseconds.
LOCK_TIMEOUT_S = 30.0

#: Any single statement. Longer than the wait for the lock, which has words of its own.
STATEMENT_TIMEOUT_S = 60.0

#: A writer that holds the lock and says nothing (stopped, or cut off) is ended by the server. Shorter
#: than LOCK_TIMEOUT_S: those who wait for the lock get it.
IDLE_TIMEOUT_S = 20.0

#: Bytes that the network does not confirm in this time mean a lost connection.
TCP_TIMEOUT_MS = 20_000

#: A connection on which nothing comes is asked whether it lives: after so many seconds, so many seconds
#: apart, so many times. Who waits for an answer has sent everything, so the limit above does not end that
#: wait; the system's own would, after two hours. The server forgets a machine that is gone in the same way.
KEEPALIVE_S, KEEPALIVE_AGAIN_S, KEEPALIVES = 10, 5, 2

#: … by the server's own settings.
SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": str(KEEPALIVE_S),
    "tcp_keepalives_interval": str(KEEPALIVE_AGAIN_S),
    "tcp_keepalives_count": str(KEEPALIVES),
}

#: Generated columns, and ``text`` that is UTF-8, are what the schema needs; 13 is the oldest release
#: that it was written for.
MIN_SERVER_VERSION = 130000

#: From this release on a table may be written anew by who does not own it (GRANT MAINTAIN).
MAINTAIN_SINCE = 170000


def connect(
    location: PostgresLocation,
    *,
    read_only: bool,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    endless: bool = False,
) -> Connection:
    """A new connection in autocommit mode; raises psycopg.Error, AuditStoreError.

    ``endless``: without a limit of time, for whoever reads a whole chain.
    """
    connection = psycopg.connect(
        noticing(location.conninfo, "fallback-tier audit"), autocommit=True
    )
    settings = {
        # Last of all the temporary tables, or a session's own table could stand in for one of ours.
        "search_path": f"{location.schema}, pg_temp",
        "default_transaction_read_only": "on" if read_only else "off",
        "lock_timeout": f"{lock_timeout_s * 1000:.0f}",  # milliseconds, as the next two
        "statement_timeout": "0" if endless else f"{STATEMENT_TIMEOUT_S * 1000:.0f}",
        "idle_in_transaction_session_timeout": "0" if endless else f"{IDLE_TIMEOUT_S * 1000:.0f}",
        **SERVER_KEEPALIVES,
    }
    try:
        connection.execute(
            "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS t(name, value)",
            (list(settings), list(settings.values())),
        )
        _check_server(connection, location)
    except BaseException:
        connection.close()
        raise
    return connection


def noticing(conninfo: str, application: str) -> str:
    """The same server, with limits that notice within half a minute that it is out of reach; what the
    address says of its own stays. ``application``: as the server lists the connection."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    defaults: dict[str, str | int] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "tcp_user_timeout": TCP_TIMEOUT_MS,
        "keepalives_idle": KEEPALIVE_S,
        "keepalives_interval": KEEPALIVE_AGAIN_S,
        "keepalives_count": KEEPALIVES,
        "application_name": application,
    }
    missing = {name: value for name, value in defaults.items() if name not in given}
    return psycopg.conninfo.make_conninfo(conninfo, **missing, client_encoding="UTF8")


def _check_server(connection: Connection, location: PostgresLocation) -> None:
    if connection.info.server_version < MIN_SERVER_VERSION:
        raise AuditStoreError(
            f"Audit store {location}: PostgreSQL {connection.info.server_version // 10000} is too old.",
            next_step=f"Use PostgreSQL {MIN_SERVER_VERSION // 10000} or later.",
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise AuditStoreError(
            f"Audit store {location}: the database's encoding is {encoding}, not UTF8.",
            next_step="Create a database with ENCODING 'UTF8'.",
            kind="bad_encoding",
        )


class Session:
    """One connection, which a restart of the server ends and the next use renews. Not thread-safe."""

    def __init__(
        self, location: PostgresLocation, *, read_only: bool, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self.location = location
        self._read_only = read_only
        self._lock_timeout_s = lock_timeout_s
        self._connection: Connection | None = None
        self._released = False

    def connection(self) -> Connection:
        """The connection, a new one where the last one was lost. Raises psycopg.Error, AuditStoreError."""
        if self._released:
            raise AuditStoreError(
                f"Audit store {self.location}: it was closed.",
                next_step="Open it again.",
                kind="closed",
            )
        if self._connection is None or self._connection.closed:
            self._connection = connect(
                self.location, read_only=self._read_only, lock_timeout_s=self._lock_timeout_s
            )
        return self._connection

    def read(self, sql: str, parameters: tuple[object, ...] = ()) -> list[TupleRow]:
        """The rows of a query; asked once more where the connection turns out to be lost.

        Raises AuditStoreError, AuditIntegrityError.
        """
        with explained(self.location):
            connection = self.connection()
            try:
                return self._rows(connection, sql, parameters)
            except psycopg.OperationalError:
                if not connection.closed:
                    raise
            return self._rows(self.connection(), sql, parameters)

    def drop(self) -> None:
        """Forget a connection in an unknown state: the server ends its transaction."""
        if self._connection is not None:
            self._connection.close()

    def close(self) -> None:
        """Release it for good. Idempotent."""
        self._released = True
        self.drop()

    @staticmethod
    def _rows(connection: Connection, sql: str, parameters: tuple[object, ...]) -> list[TupleRow]:
        # Binary: a payload as hexadecimal text would be twice its size on the way.
        with connection.cursor(binary=True) as cursor:
            return cursor.execute(sql.encode(), parameters).fetchall()
