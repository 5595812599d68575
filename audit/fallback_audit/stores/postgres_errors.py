"""PostgreSQL's errors as sentences: which server, why, and what to do. Never with a password."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

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

#: Bytes that are not what PostgreSQL wrote: the record is damaged, not merely out of reach.
_DAMAGE = {"XX001", "XX002"}


def store_error(location: PostgresLocation, error: psycopg.Error) -> AuditError:
    """The one sentence for any failure of the chain at ``location``."""
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
        # Not chained: the driver's own words may repeat a connection string.
        raise store_error(location, error) from None
