"""The tables, the store's interface to a database that has them, and the tables in an SQLite file."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fallback_tier.errors import StateFolderError
from fallback_tier.fleet.errors import FleetStoreError
from fallback_tier.workers.sqlite_file import SqliteFile

#: A row: values by column.
Row = Mapping[str, Any]

#: Migrations: each updates the tables from the previous version to its own. Types exist in both databases;
#: integers have 64 bits, and reals double precision.
STEPS = (
    """
CREATE TABLE campaigns (
  campaign TEXT PRIMARY KEY,
  digest TEXT NOT NULL,
  settings TEXT NOT NULL,
  state TEXT NOT NULL,
  created_at TEXT NOT NULL,
  cap BIGINT,
  fix_cap BIGINT
);
CREATE TABLE repositories (
  campaign TEXT NOT NULL,
  repository TEXT NOT NULL,
  source TEXT NOT NULL,
  base_commit TEXT NOT NULL,
  PRIMARY KEY (campaign, repository)
);
CREATE TABLE advisories (
  campaign TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  record TEXT NOT NULL,
  PRIMARY KEY (campaign, sha256)
);
CREATE TABLE fixes (
  fix_id TEXT PRIMARY KEY,
  campaign TEXT NOT NULL,
  number BIGINT NOT NULL,
  repository TEXT NOT NULL,
  advisory_id TEXT NOT NULL,
  advisory_sha256 TEXT NOT NULL,
  ecosystem TEXT NOT NULL,
  risk TEXT NOT NULL,
  priority DOUBLE PRECISION NOT NULL,
  state TEXT NOT NULL,
  why TEXT,
  sentence TEXT,
  cap BIGINT,
  cost BIGINT,
  tokens BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  takes BIGINT NOT NULL,
  holder TEXT,
  lease DOUBLE PRECISION NOT NULL,
  not_before DOUBLE PRECISION NOT NULL,
  UNIQUE (campaign, number)
);
CREATE INDEX fixes_by_state ON fixes (campaign, state, number);
CREATE TABLE buckets (
  name TEXT PRIMARY KEY,
  bucket TEXT NOT NULL
)
""",
    """
ALTER TABLE campaigns ADD COLUMN said_by TEXT;
ALTER TABLE campaigns ADD COLUMN said_because TEXT;
ALTER TABLE campaigns ADD COLUMN said_at TEXT
""",
    """
ALTER TABLE fixes ADD COLUMN branch TEXT
""",
    """
ALTER TABLE fixes ADD COLUMN proof TEXT
""",
    """
ALTER TABLE campaigns ADD COLUMN left_out TEXT
""",
    """
CREATE TABLE turns (
  provider TEXT NOT NULL,
  number BIGINT NOT NULL,
  tokens BIGINT NOT NULL,
  seen DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (provider, number)
)
""",
    """
ALTER TABLE turns ADD COLUMN token TEXT
""",
)


class Session(Protocol):
    """A database connection of one caller."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of a statement; ``?`` is a placeholder for a value."""
        ...

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Return the number of rows that a statement changed."""
        ...


class Tables(Protocol):
    """The database with these tables. Threads and processes may share it."""

    @property
    def place(self) -> str:
        """Return its location as text, without a password."""
        ...

    def reading(self) -> AbstractContextManager[Session]:
        """Yield a session for reading. Raises FleetStoreError."""
        ...

    def writing(self) -> AbstractContextManager[Session]:
        """Yield a session in one durable transaction, exclusive from its first read on, rolled back by
        an exception. Raises FleetStoreError.
        """
        ...

    def close(self) -> None:
        """Close the database. Idempotent."""
        ...


@dataclass(frozen=True)
class _Session:
    db: sqlite3.Connection

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        return [dict(row) for row in self.db.execute(sql, tuple(values)).fetchall()]

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        return self.db.execute(sql, tuple(values)).rowcount


class SqliteTables:
    """Implements ``Tables``. Raises FleetStoreError if the file can't be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _explained():
            self._file = SqliteFile(path, STEPS, "the fleet")

    @property
    def place(self) -> str:
        """Return the file's path."""
        return str(self._path)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session for reading."""
        with _explained(), self._file.reading() as db:
            yield _Session(db)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """Yield a session in one durable transaction."""
        with _explained(), self._file.writing() as db:
            yield _Session(db)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StateFolderError as error:
        raise FleetStoreError(error.problem, next_step=error.next_step, kind=error.kind) from error
