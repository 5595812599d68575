"""The tables in an SQLite file: the fleet of one machine."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fallback_tier.errors import StateFolderError
from fallback_tier.fleet.refusals import FleetStoreError
from fallback_tier.fleet.store.tables import STEPS, Row, Session
from fallback_tier.workers.sqlite_file import SqliteFile


@dataclass(frozen=True)
class _Session:
    db: sqlite3.Connection

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        return [dict(row) for row in self.db.execute(sql, tuple(values)).fetchall()]

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        return self.db.execute(sql, tuple(values)).rowcount


class SqliteTables:
    """Implements ``Tables``. Raises FleetStoreError where the file can't be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _explained():
            self._file = SqliteFile(path, STEPS, "the fleet")

    @property
    def place(self) -> str:
        """The file's path."""
        return str(self._path)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Look."""
        with _explained(), self._file.reading() as db:
            yield _Session(db)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """One durable transaction."""
        with _explained(), self._file.writing() as db:
            yield _Session(db)

    def close(self) -> None:
        """Idempotent."""
        self._file.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StateFolderError as error:
        raise FleetStoreError(error.problem, next_step=error.next_step, kind=error.kind) from error
