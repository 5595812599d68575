"""The stores under one test: how each is opened, looked into, and tampered with."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from fallback_audit.ports import AppendGuard, KeepableStore
from fallback_audit.stores import postgres, sqlite
from fallback_audit.stores.appending import Clock
from fallback_audit.stores.postgres_location import PostgresLocation
from fallback_audit.verifying.report import VerificationReport
from fallback_audit.verifying.sources import VerifiableStore
from fallback_audit.verifying.verify import verify
from tests.unit.audit.tamper import behind_the_triggers, fixed_clock


class Store(KeepableStore, VerifiableStore, Protocol):
    """What every backend's store can do."""


class Backend(Protocol):
    """One kind of store at one place."""

    address: str
    #: What the database itself raises where a safeguard refuses a change.
    refusal: type[Exception]
    mark: str

    def store(
        self,
        *,
        guard: AppendGuard | None = None,
        clock: Clock = fixed_clock,
        patience_s: float = 30.0,
    ) -> Store: ...

    def reader(self) -> Any: ...

    def connect(self) -> Any:
        """The owner of the database, safeguards on: a connection with ``execute``."""

    def attacker(self) -> Any:
        """Safeguards off, then on again as they were: only the change itself can be noticed."""


class SqliteBackend:
    refusal: type[Exception] = sqlite3.IntegrityError
    mark = "?"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

    def store(
        self,
        *,
        guard: AppendGuard | None = None,
        clock: Clock = fixed_clock,
        patience_s: float = 30.0,
    ) -> Store:
        return sqlite.SqliteAuditStore(
            self.path, guard=guard, clock=clock, busy_timeout_s=patience_s
        )

    def reader(self) -> sqlite.SqliteAuditReader:
        return sqlite.open_readonly(self.path)

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(exist_ok=True)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            yield connection

    @contextmanager
    def attacker(self) -> Iterator[sqlite3.Connection]:
        with behind_the_triggers(self.path) as connection:
            yield connection


class PostgresBackend:
    refusal: type[Exception] = psycopg.errors.RestrictViolation
    mark = "%s"

    def __init__(self, url: str) -> None:
        self.address = url
        self.location = PostgresLocation.of(url)

    def store(
        self,
        *,
        guard: AppendGuard | None = None,
        clock: Clock = fixed_clock,
        patience_s: float = 30.0,
    ) -> Store:
        return postgres.PostgresAuditStore(
            self.address, guard=guard, clock=clock, lock_timeout_s=patience_s
        )

    def reader(self) -> postgres.PostgresAuditReader:
        return postgres.open_readonly(self.address)

    @contextmanager
    def connect(self) -> "Iterator[psycopg.Connection[Any]]":
        with psycopg.connect(self.location.conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.location.schema}")
            connection.execute(f"SET search_path = {self.location.schema}")
            yield connection

    @contextmanager
    def attacker(self) -> "Iterator[psycopg.Connection[Any]]":
        tables = ("audit_header", "audit_payload", "audit_segment", "audit_tombstone")
        with self.connect() as connection:
            for table in tables:
                connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
            yield connection
            for table in tables:
                for verb in ("insert", "update", "delete", "truncate"):
                    connection.execute(f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER audit_{verb}")


def report(store: VerifiableStore) -> VerificationReport:
    """Integrity and contract; checkpoints are not asked for."""
    return verify(store, checkpoints=None)


def report_of(backend: Backend) -> VerificationReport:
    with closing(backend.reader()) as reader:
        return report(reader)
