"""The service's own SQLite file: its queue, its keys, its people. Never the audit trail."""

from pathlib import Path

from fallback_tier.workers.sqlite_file import SqliteFile

#: Migrations: each updates a file from the previous version to its own; the first creates the tables.
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
    # Callers who make the attempts of fixes that are not in the queue; one table of idempotency keys, not
    # two.
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
    # The generation that every open session carries; a new value ends them all.
    """
CREATE TABLE sessions (generation TEXT NOT NULL) STRICT;
INSERT INTO sessions VALUES (lower(hex(randomblob(16))));
""",
    # The callers who last cancelled and resumed a fix, and when.
    """
ALTER TABLE orders ADD COLUMN cancelled_by TEXT;
ALTER TABLE orders ADD COLUMN cancelled_at TEXT;
ALTER TABLE orders ADD COLUMN resumed_by TEXT;
ALTER TABLE orders ADD COLUMN resumed_at TEXT;
""",
    # Sessions that were signed out of, until they would have expired (seconds, Unix).
    """
CREATE TABLE ended_sessions (session_sha256 TEXT PRIMARY KEY, until REAL NOT NULL) STRICT;
CREATE INDEX ended_sessions_by_time ON ended_sessions (until);
""",
)

#: Version of the tables; a file with a newer one is not touched.
VERSION = len(_STEPS)


class Database(SqliteFile):
    """The open file. Raises StateFolderError if it can't be used. ``close`` it at the end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, _STEPS, "the service")


def service_dir(state_dir: Path) -> Path:
    """Return the service's own folder, below the state folder."""
    return state_dir / "service"


def service_db(state_dir: Path) -> Path:
    """Return the path of the service's database."""
    return service_dir(state_dir) / "service.db"
