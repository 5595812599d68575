"""Connections to the chain's server, with time limits, reopened if lost; PostgreSQL's errors as sentences.

A sentence names the server, the reason and the next step, never a password.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import psycopg
from psycopg.rows import TupleRow

from fallback_audit.errors import AuditError, AuditIntegrityError, AuditStoreError
from fallback_audit.stores.postgres_location import PostgresLocation

_READING = (
    "Check the server's log and its disk, then run `fallback-tier audit verify`; restore from a backup "
    "only what one of them finds damaged."
)

#: SQLSTATE, or its class (two characters): kind, reason, next step.
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
_REASONS: dict[str, tuple[str, str, str]] = {
    "55P03": (
        "locked",
        "it is locked by another writer",
        "Wait for it to end, or find it in pg_locks (locktype 'advisory').",
    ),
    "57014": (
        "timed_out",
        "the server did not answer in time",
        "Look at its load, then try again.",
    ),
    "53100": ("disk_full", "the server's disk is full", "Free space there."),
    "53300": (
        "too_many_connections",
        "the server takes no more connections",
        "Raise max_connections, or close some.",
    ),
    "42501": (
        "not_permitted",
        "permission was denied",
        "Grant this user the chain's writer role (or reader, keeper): see docs/postgresql.md.",
    ),
    "25006": (
        "read_only",
        "the server takes no writes (a standby, or a read-only session)",
        "Name the primary server; audits may read a standby.",
    ),
    "42P01": (
        "no_tables",
        "its tables are missing",
        "Check database and schema; a chain has one schema.",
    ),
    "23001": (
        "safeguard",
        "a safeguard refused the change",
        "The audit trail is append-only; see ADR-0032.",
    ),
    "22P05": (
        "not_indexable",
        "the event has a character that PostgreSQL can't index",
        "Remove NUL characters.",
    ),
    "XX001": ("damaged", "its data are damaged", _READING),
    "XX002": ("index_damaged", "an index of it is damaged", "REINDEX its tables, then verify."),
    "58": ("disk_failed", "the server reported an input/output error", _READING),
    "25P03": (
        "stopped_half_way",
        "the append was stopped half-way, and the server ended it for the other writers",
        "Try again; look at what stopped this process.",
    ),
    "57P01": (
        "server_ended",
        "the server ended the connection",
        "Try again; ask its administrator why.",
    ),
    "57P": ("server_not_up", "the server is shutting down or starting", "Try again when it is up."),
    "53": (
        "out_of_resources",
        "the server is out of resources",
        "Look at its memory, disk and connections.",
    ),
}

#: States for bytes that PostgreSQL did not write: the audit trail is damaged, not merely unavailable.
_DAMAGE = {"XX001", "XX002"}

Connection: TypeAlias = "psycopg.Connection[TupleRow]"

#: Time limit for opening a connection; a slower server counts as down.
CONNECT_TIMEOUT_S = 10

#: How long a writer waits for another's lock. An append holds it for some milliseconds.
LOCK_TIMEOUT_S = 30.0

#: Time limit of any statement. Longer than the wait for the lock, which has its own message.
STATEMENT_TIMEOUT_S = 60.0

#: After this time the server ends the session of a writer that holds the lock and sends nothing (stopped,
#: or cut off). Shorter than LOCK_TIMEOUT_S, so that those who wait for the lock get it.
IDLE_TIMEOUT_S = 20.0

#: A connection is lost if the network does not acknowledge sent bytes in this time.
TCP_TIMEOUT_MS = 20_000

#: TCP keepalive probes of an idle connection: seconds before the first, seconds between them, and their
#: number. A client that waits for an answer has sent everything, so the limit above does not end its wait;
#: the system's own keepalive would, after two hours. The server drops lost clients likewise.
KEEPALIVE_S, KEEPALIVE_AGAIN_S, KEEPALIVES = 10, 5, 2

#: The same limits as settings of the server.
SERVER_KEEPALIVES = {
    "tcp_keepalives_idle": str(KEEPALIVE_S),
    "tcp_keepalives_interval": str(KEEPALIVE_AGAIN_S),
    "tcp_keepalives_count": str(KEEPALIVES),
}

#: The schema needs generated columns and ``text`` in UTF-8. It was written for release 13 and later.
MIN_SERVER_VERSION = 130000

#: From this release on, a user who does not own a table may be allowed to rewrite it (GRANT MAINTAIN).
MAINTAIN_SINCE = 170000


def store_error(location: PostgresLocation, error: psycopg.Error) -> AuditError:
    """Return the error to raise for any failure of the chain at ``location``."""
    state = error.sqlstate or ""
    first_line = (str(error).strip() or type(error).__name__).partition("\n")[0].rstrip(".")
    kind, reason, next_step = (
        _REASONS.get(state)
        or _REASONS.get(state[:3])
        or _REASONS.get(state[:2])
        or (
            "",
            location.scrubbed(first_line),
            "Check host, port, database, user and that the server is up (`pg_isready`).",
        )
    )
    error_class = AuditIntegrityError if state in _DAMAGE else AuditStoreError
    return error_class(f"Audit store {location}: {reason}.", next_step=next_step, kind=kind)


@contextmanager
def explained(location: PostgresLocation) -> Iterator[None]:
    """Turn what psycopg raises into AuditStoreError or AuditIntegrityError."""
    try:
        yield
    except psycopg.Error as error:
        # Not chained: the driver's message may repeat a connection string.
        raise store_error(location, error) from None


def connect(
    location: PostgresLocation,
    *,
    read_only: bool,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    endless: bool = False,
) -> Connection:
    """Open a connection in autocommit mode. Raises psycopg.Error, AuditStoreError.

    ``endless``: without time limits of statements, to read a whole chain.
    """
    connection = psycopg.connect(
        noticing(location.conninfo, "fallback-tier audit"), autocommit=True
    )
    settings = {
        # Temporary tables last: otherwise a session's own table could replace one of ours.
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
    """Add time limits to ``conninfo`` by which an unreachable server is noticed within half a minute.

    Values that it already has stay. ``application``: the connection's name in the server's lists.
    """
    parameters = psycopg.conninfo.conninfo_to_dict(conninfo)
    defaults: dict[str, str | int] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "tcp_user_timeout": TCP_TIMEOUT_MS,
        "keepalives_idle": KEEPALIVE_S,
        "keepalives_interval": KEEPALIVE_AGAIN_S,
        "keepalives_count": KEEPALIVES,
        "application_name": application,
    }
    missing = {name: value for name, value in defaults.items() if name not in parameters}
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
    """One connection, reopened at the next use if a restart of the server ended it. Not thread-safe."""

    def __init__(
        self, location: PostgresLocation, *, read_only: bool, lock_timeout_s: float = LOCK_TIMEOUT_S
    ) -> None:
        self.location = location
        self._read_only = read_only
        self._lock_timeout_s = lock_timeout_s
        self._connection: Connection | None = None
        self._released = False

    def connection(self) -> Connection:
        """Return the connection, reopened if it was lost. Raises psycopg.Error, AuditStoreError."""
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
        """Return the rows of a query. Retry once if the connection was lost.

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
        """Close it for good. Idempotent."""
        self._released = True
        self.drop()

    @staticmethod
    def _rows(connection: Connection, sql: str, parameters: tuple[object, ...]) -> list[TupleRow]:
        # Binary: a payload would be twice its size as hexadecimal text.
        with connection.cursor(binary=True) as cursor:
            return cursor.execute(sql.encode(), parameters).fetchall()
