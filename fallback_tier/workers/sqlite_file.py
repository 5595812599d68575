"""A small SQLite file of one's own (a service's queue, a fleet's list). Never the audit trail.

Two connections, one that reads and one that writes, each behind a lock: a request holds it for a
millisecond, and a generator that is iterated by another thread can't meet it in the middle. Other processes
have connections of their own.
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

#: How long a writer waits for another process's transaction; each is a few milliseconds.
BUSY_MS = 10_000


class SqliteFile:
    """The file, opened. Raises StateFolderError where it can't be used. ``close`` it at the end.

    ``steps``: each brings a file from the version before it to its own, the first begins an empty one; a
    newer file is not touched. ``owner``: whose it is, in words.
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
        """Durable, and with the file's tables brought to this version."""
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
        """What is durable now: read what is asked to its end before it is left. A transaction that is
        written meanwhile, and waits for the disk, keeps nobody waiting here."""
        with self._reading, self._errors_explained(), self._reader.using() as db:
            yield db

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction, from its first read on; undone where an exception leaves it."""
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
        """Idempotent."""
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
