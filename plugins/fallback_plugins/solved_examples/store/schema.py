"""The SQLite file of an example store: tables, numbered migrations, the values of ``meta``, and opening it.

A reader has a read-only snapshot; there is one writer at a time.

::

    examples      every version of every record; ``state`` says which are live
    withdrawals   who took which record out, when and why
    chunks        what is searched: of live records only (ADR-0019)
    chunks_fts    the words of the chunks (FTS5, kept by triggers); chunks_terms counts them
    vectors       row of the vector file → chunk; a row whose chunk is gone is dead
    meta          format, chunker, embedding model, manifest

Only a writer of a new file imports sqlite_utils: that takes 160 ms.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from fallback_audit.files import create_private
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_tier.errors import InputError

if TYPE_CHECKING:
    from sqlite_utils import Database


#: The format of stores that this version reads and writes. 1 was never released.
FORMAT = "2"

_MIGRATION_SET = "example_memory"

#: FTS5 with its default tokenizer but for accents: "café" and "cafe" are two words, as in code.
#: ``detail=full`` stays: bm25() on less reads every document again.
TABLES = (
    """CREATE TABLE examples (
        id INTEGER PRIMARY KEY,
        content_sha256 TEXT NOT NULL UNIQUE,
        example_id TEXT NOT NULL,
        version INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('live', 'superseded', 'withdrawn')),
        ecosystem TEXT NOT NULL,
        package TEXT NOT NULL,
        language TEXT NOT NULL,
        cwe TEXT NOT NULL,
        record TEXT NOT NULL,
        chunker TEXT NOT NULL,
        added_at TEXT NOT NULL,
        UNIQUE (example_id, version)
    )""",
    "CREATE UNIQUE INDEX examples_live ON examples (example_id) WHERE state = 'live'",
    "CREATE INDEX examples_package ON examples (ecosystem, package) WHERE state = 'live'",
    # Each change computes the corpus digest from this index alone (33 ms at 20,000 records).
    "CREATE INDEX examples_corpus ON examples (content_sha256) WHERE state = 'live'",
    """CREATE TABLE withdrawals (
        id INTEGER PRIMARY KEY,
        example_id TEXT NOT NULL UNIQUE,
        content_sha256 TEXT NOT NULL UNIQUE,
        reason TEXT NOT NULL,
        by TEXT NOT NULL,
        at TEXT NOT NULL
    )""",
    # AUTOINCREMENT: the id of a deleted chunk must never come back, or its dead vector would be taken
    # for that of another text.
    """CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        example INTEGER NOT NULL REFERENCES examples (id),
        ordinal INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('advisory', 'code')),
        context TEXT NOT NULL,
        text TEXT NOT NULL,
        tokens INTEGER NOT NULL,
        edits TEXT NOT NULL,
        UNIQUE (example, ordinal)
    )""",
    """CREATE VIRTUAL TABLE chunks_fts USING fts5 (
        context, text, content='chunks', content_rowid='id',
        tokenize="unicode61 remove_diacritics 0"
    )""",
    "CREATE VIRTUAL TABLE chunks_terms USING fts5vocab (chunks_fts, row)",
    """CREATE TRIGGER chunks_added AFTER INSERT ON chunks BEGIN
        INSERT INTO chunks_fts (rowid, context, text) VALUES (new.id, new.context, new.text);
    END""",
    """CREATE TRIGGER chunks_deleted AFTER DELETE ON chunks BEGIN
        INSERT INTO chunks_fts (chunks_fts, rowid, context, text)
        VALUES ('delete', old.id, old.context, old.text);
    END""",
    """CREATE TRIGGER chunks_updated AFTER UPDATE ON chunks BEGIN
        INSERT INTO chunks_fts (chunks_fts, rowid, context, text)
        VALUES ('delete', old.id, old.context, old.text);
        INSERT INTO chunks_fts (rowid, context, text) VALUES (new.id, new.context, new.text);
    END""",
    # No reference to chunks: a row outlives its chunk, as the vector file is only appended to.
    "CREATE TABLE vectors (row INTEGER PRIMARY KEY, chunk INTEGER NOT NULL UNIQUE)",
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
)


class State(StrEnum):
    """What a version of a record is to a reader: only a live one is ever found."""

    LIVE = "live"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


class Meta(StrEnum):
    """The keys of ``meta``."""

    FORMAT = "format"
    #: Version of the chunker that cut every live record; absent before the first ingest.
    CHUNKER = "chunker"
    #: The model of the vectors, in three values; absent if nothing was embedded.
    EMBEDDING_MODEL = "embedding_model"
    EMBEDDING_SHA256 = "embedding_sha256"
    EMBEDDING_DIMENSION = "embedding_dimension"
    #: Number of the current vector file; 0 if absent.
    VECTORS_GENERATION = "vectors_generation"
    #: Which text of a chunk is embedded (``indexing.EMBEDDED_TEXT``).
    EMBEDDING_TEXT = "embedding_text"
    #: The state of the chunks that the posting lists are of (``word_index``); absent before the first.
    POSTINGS = "postings"
    #: The manifest as JSON, and its digest: written with every change (``manifest``).
    MANIFEST = "manifest"
    MANIFEST_SHA256 = "manifest_sha256"


def get_meta(connection: sqlite3.Connection, key: Meta) -> str | None:
    """Return one value of ``meta``; None if it is not set."""
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [key.value]).fetchone()
    return None if row is None else str(row[0])


def set_meta(connection: sqlite3.Connection, key: Meta, value: str) -> None:
    """Set one value of ``meta``."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key.value, value])


def number(connection: sqlite3.Connection, sql: str, values: Sequence[object] = ()) -> int:
    """Return the one number that a query returns."""
    return int(connection.execute(sql, values).fetchone()[0])


def is_new(connection: sqlite3.Connection) -> bool:
    """Return whether nothing was ever written to the file."""
    return not _tables(connection)


def create(connection: sqlite3.Connection) -> None:
    """Run the pending migrations, in order. The caller holds the write lock.

    A released migration is never edited: add the next.
    """
    from sqlite_utils import Database
    from sqlite_utils.migrations import Migrations

    numbered = Migrations(_MIGRATION_SET)

    @numbered(name="0001_memory")
    def _memory(db: "Database") -> None:
        for statement in TABLES:
            db.conn.execute(statement)
        set_meta(connection, Meta.FORMAT, FORMAT)

    # No sqlite-utils plugins: nothing foreign may hook into the connection.
    numbered.apply(Database(connection, execute_plugins=False))


def check_format(connection: sqlite3.Connection, path: str) -> None:
    """Raise ExampleStoreError for a file that is not an example store of FORMAT."""
    kind = "another_format"
    tables = _tables(connection)
    if "meta" in tables and (recorded := get_meta(connection, Meta.FORMAT)) is not None:
        if recorded == FORMAT:
            return
        what = f"has format {recorded}, and this version reads format {FORMAT}"
    elif "examples" in tables:
        what = f"has the format of an early version, and this one reads format {FORMAT}"
        kind = "early_format"
    else:
        what, kind = "has no example memory in it", "no_store"
    raise ExampleStoreError(
        f"The example store {path!r} {what}.",
        next_step="Make a new one from the records: `fallback-tier examples ingest FILE --store NEW`.",
        kind=kind,
    )


def check_chunker(connection: sqlite3.Connection, path: str, version: str) -> None:
    """Raise ExampleStoreError if the records were cut by another chunker."""
    recorded = get_meta(connection, Meta.CHUNKER)
    if recorded not in {None, version}:
        raise ExampleStoreError(
            f"The example store {path!r} was cut by chunker {recorded}, and this is {version}.",
            next_step=f"Cut and index it again: `fallback-tier examples index --store {path}`.",
            kind="another_chunker",
        )


def _tables(connection: sqlite3.Connection) -> set[str]:
    return {
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
    }


#: Seconds that a reader or a writer waits for another writer: an ingest of some records takes well
#: under a second, and one of thousands holds the lock until its end.
BUSY_TIMEOUT_S = 10.0

#: Changed pages that a writer keeps in memory (KiB). Past it SQLite spills them into the file, and
#: locks every reader out until the end of the transaction.
_WRITER_CACHE_KIB = 64 * 1024


@contextmanager
def read_snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a read-only connection on one state of the file. Raises ExampleStoreError, also if there is no
    file."""
    with _explained(path), closing(_connect(path)) as connection:
        # Not mode=ro: after a writer was killed, the first to open rolls its work back.
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield connection


@contextmanager
def write_transaction(path: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
    """Yield a connection in one immediate transaction: all or nothing, not even a ``create``d file.

    The file is private (mode 0600): harvested fixes are proprietary code. Raises ExampleStoreError.
    """
    with _explained(path):
        is_created = create and _create(path)
        with closing(_connect(path)) as connection:
            try:
                connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if is_created:
                    # Still under the lock: SQLite lets no waiting writer write to a deleted file.
                    path.unlink(missing_ok=True)
                raise


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path.absolute()))}?mode=rw",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
    )


def _create(path: Path) -> bool:
    """Create the file; return False if there is one, which the caller may not delete."""
    try:
        if path.exists():
            return False
        create_private(path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error), kind="unusable") from error
    return True


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as ones that name the file, or the value, and the next step."""
    try:
        yield
    except sqlite3.Error as error:
        raise _unusable(path, str(error), kind="unusable") from error
    except UnicodeEncodeError as error:  # bytes of a command line that are not UTF-8
        raise InputError(
            f"{error.object!r} is not Unicode text, and no example store has such a thing.",
            next_step="Give it in UTF-8.",
            kind="not_unicode",
        ) from error


def _unusable(path: Path, reason: str, *, kind: str = "") -> ExampleStoreError:
    return ExampleStoreError(
        f"The example store {str(path)!r} can't be used: {reason}.",
        next_step="Check the path. Where it is locked, another process writes to it: try again after "
        "that. Else ingest the examples into a new file.",
        kind=kind,
    )
