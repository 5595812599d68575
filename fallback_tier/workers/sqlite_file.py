"""A small SQLite file (a service's queue, a fleet's list). Never the audit trail.

It has two connections, one for reading and one for writing, each with a lock: a request holds it for a
millisecond, and no two threads use a connection at the same time, not even in an iterated generator. Other
processes have their own connections.
"""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from fallback_audit.files import create_private
from fallback_audit.stores.sqlite_connection import FilesReplacedError, SqliteConnection
from fallback_audit.stores.sqlite_schema import enable_wal
from fallback_tier.errors import StateFolderError

#: How long a writer waits for another process's transaction; each takes a few milliseconds.
BUSY_MS = 10_000


class SqliteFile:
    """The open file. Raises StateFolderError if it can't be used. ``close`` it at the end.

    ``steps``: migrations, each from the previous version to its own; the first one creates the tables; a
    newer file is not touched. ``owner``: the file's owner, for messages.
    """

    def __init__(self, path: Path, steps: Sequence[str], owner: str) -> None:
        self.path = path
        self._owner = owner
        self._steps = steps
        self._lock, self._reading = threading.RLock(), threading.RLock()
        with self._errors_explained():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            create_private(path)
            self._writer = SqliteConnection(path, self._writing_connection, writes=True)
            self._reader = SqliteConnection(path, partial(self._connected, "ro"))

    def _connected(self, mode: str) -> sqlite3.Connection:
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000
        )
        connection.row_factory = sqlite3.Row
        return connection

    def _writing_connection(self) -> sqlite3.Connection:
        """Return a durable connection, after updating the file's tables to this version."""
        db = self._connected("rw")
        try:
            enable_wal(db, BUSY_MS / 1000)
            db.execute("PRAGMA synchronous = FULL")
            with _transaction(db):
                self._make(db)
        except BaseException:
            db.close()
            raise
        return db

    def _make(self, db: sqlite3.Connection) -> None:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > len(self._steps):
            raise StateFolderError(
                f"{self.path} was written by a newer version of {self._owner} ({version}).",
                next_step="Start that version, or name another state folder.",
                kind="newer",
            )
        for step in self._steps[version:]:
            for statement in step.split(";"):
                db.execute(statement)
        if version < len(self._steps):
            db.execute(f"PRAGMA user_version = {len(self._steps)}")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for reading what is durable now: read to the end inside the block. A
        concurrent transaction that waits for the disk does not block it.
        """
        with self._reading, self._errors_explained(), self._reader.using() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in one durable transaction, exclusive from its start, rolled back by an
        exception.
        """
        with self._lock, self._errors_explained(), self._writer.using() as db, _transaction(db):
            yield db

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except FilesReplacedError as error:
            raise StateFolderError(
                f"The database {self.path} of {self._owner} can't be used: {error}.",
                next_step="Try again: it is opened again then. If it stays so, restart what uses it; "
                "restore a copy only if it can't be used then.",
                kind="unusable",
            ) from error
        except (sqlite3.Error, OSError) as error:
            raise StateFolderError(
                f"The database {self.path} of {self._owner} can't be used: {error}.",
                next_step="Look at the folder's rights, at free space, and at who else has it open.",
                kind="unusable",
            ) from error

    def close(self) -> None:
        """Close both connections. Idempotent."""
        with self._lock, self._reading:
            self._reader.close()
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
