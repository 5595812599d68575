"""The service's own SQLite file: its queue, its keys, its people. Never the audit trail.

One connection behind a lock: a request holds it for a millisecond, and a generator that is iterated by
another thread can't meet it in the middle. Workers have a connection of their own.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from fallback_tier.errors import StateFolderError

#: How long a writer waits for another process's transaction; each is a few milliseconds.
BUSY_MS = 10_000

#: Each brings a file from the version before it to its own; the first begins an empty one.
_STEPS = (
    """
CREATE TABLE orders (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  fix_id TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL,
  repository TEXT NOT NULL,
  advisory_id TEXT NOT NULL,
  submission TEXT NOT NULL,
  submitted_by TEXT NOT NULL,
  submitted_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  base_commit TEXT,
  cancelling INTEGER NOT NULL DEFAULT 0,
  takes INTEGER NOT NULL DEFAULT 0,
  outcome TEXT,
  ended TEXT,
  problem TEXT
) STRICT;
CREATE INDEX orders_by_state ON orders (state, number);
CREATE TABLE tokens (
  owner TEXT NOT NULL,
  token TEXT NOT NULL,
  body_sha256 TEXT NOT NULL,
  fix_id TEXT NOT NULL,
  kept_until REAL NOT NULL,
  PRIMARY KEY (owner, token)
) STRICT;
CREATE TABLE answers (
  owner TEXT NOT NULL,
  token TEXT NOT NULL,
  body_sha256 TEXT NOT NULL,
  answer TEXT,
  kept_until REAL NOT NULL,
  PRIMARY KEY (owner, token)
) STRICT;
CREATE TABLE keys (
  key_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  sha256 TEXT NOT NULL UNIQUE,
  roles TEXT NOT NULL,
  made_at TEXT NOT NULL,
  expires_at TEXT,
  revoked_at TEXT
) STRICT;
CREATE TABLE people (
  name TEXT PRIMARY KEY,
  salt BLOB NOT NULL,
  hash BLOB NOT NULL,
  roles TEXT NOT NULL
) STRICT;
""",
    # Whose attempts a fix's are that the queue does not have; one table of idempotency keys, not two.
    """
CREATE TABLE claims (fix_id TEXT PRIMARY KEY, owner TEXT NOT NULL) STRICT;
CREATE TABLE requests (
  owner TEXT NOT NULL,
  token TEXT NOT NULL,
  body_sha256 TEXT NOT NULL,
  fix_id TEXT,
  answer TEXT,
  kept_until REAL NOT NULL,
  PRIMARY KEY (owner, token)
) STRICT;
INSERT INTO requests SELECT owner, token, body_sha256, fix_id, NULL, kept_until FROM tokens;
INSERT OR IGNORE INTO requests SELECT owner, token, body_sha256, NULL, answer, kept_until FROM answers;
DROP TABLE tokens;
DROP TABLE answers;
""",
    # What every open session carries; another value ends them all.
    """
CREATE TABLE sessions (generation TEXT NOT NULL) STRICT;
INSERT INTO sessions VALUES (lower(hex(randomblob(16))));
""",
)

#: Of the tables now; a newer file is not touched.
VERSION = len(_STEPS)


class Database:
    """The file, opened. Raises StateFolderError where it can't be used. ``close`` it at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._errors_explained():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
        self._make()

    def _make(self) -> None:
        with self.writing() as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            for step in _STEPS[version:]:
                for statement in step.split(";"):
                    db.execute(statement)
            if version < VERSION:
                db.execute(f"PRAGMA user_version = {VERSION}")
        if version > VERSION:
            self.close()
            raise StateFolderError(
                f"{self.path} was written by a newer version of the service ({version}).",
                next_step="Start that version, or name another state folder.",
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Alone with the connection: read what is asked to its end before it is left."""
        with self._lock, self._errors_explained():
            yield self._db

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
                f"The service's database {self.path} can't be used: {error}.",
                next_step="Look at the folder's rights, at free space, and at who else has it open.",
            ) from error

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def service_dir(state_dir: Path) -> Path:
    """Where all that is the service's own stands, below the state folder."""
    return state_dir / "service"


def service_db(state_dir: Path) -> Path:
    """Its database."""
    return service_dir(state_dir) / "service.db"
