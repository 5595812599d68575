"""A small SQLite file of one's own (a service's queue, a fleet's list). Never the audit trail.

Two connections, one that reads and one that writes, each behind a lock: a request holds it for a
millisecond, and a generator that is iterated by another thread can't meet it in the middle. Other processes
have connections of their own.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

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
        self._lock, self._reading = threading.RLock(), threading.RLock()
        with self._errors_explained():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = _connected(path)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._reader = _connected(path)
        self._make(steps)

    def _make(self, steps: Sequence[str]) -> None:
        with self.writing() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            for step in steps[version:]:
                for statement in step.split(";"):
                    db.execute(statement)
            if version < len(steps):
                db.execute(f"PRAGMA user_version = {len(steps)}")
        if version > len(steps):
            self.close()
            raise StateFolderError(
                f"{self.path} was written by a newer version of {self._owner} ({version}).",
                next_step="Start that version, or name another state folder.",
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """What is durable now: read what is asked to its end before it is left. A transaction that is
        written meanwhile, and waits for the disk, keeps nobody waiting here."""
        with self._reading, self._errors_explained():
            yield self._reader

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction, from its first read on; undone where an exception leaves it."""
        with self._lock, self._errors_explained():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StateFolderError(
                f"The database {self.path} of {self._owner} can't be used: {error}.",
                next_step="Look at the folder's rights, at free space, and at who else has it open.",
            ) from error

    def close(self) -> None:
        """Idempotent."""
        with self._lock, self._reading:
            self._reader.close()
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    return connection
