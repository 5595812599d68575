"""Opening the SQLite file of an example store: read-only snapshots, and one writer at a time."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from fallback_audit.files import create_private
from fallback_plugins.solved_examples.interfaces import ExampleStoreError
from fallback_tier.errors import InputError

#: How long a reader or a writer waits for another writer: an ingest of some records takes well
#: under a second, and one of thousands holds the lock until its end.
BUSY_TIMEOUT_S = 10.0

#: Changed pages that a writer keeps in memory (KiB). Past it SQLite spills them into the file, and
#: locks every reader out until the end of the transaction.
_WRITER_CACHE_KIB = 64 * 1024


@contextmanager
def read_snapshot(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that can't write, on one state of the file.

    A missing file is an error, never an empty new store. Raises ExampleStoreError.
    """
    with _explained(path), closing(_connect(path)) as connection:
        # Not mode=ro: after a writer was killed, the first to open rolls its work back.
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield connection


@contextmanager
def write_transaction(path: Path, *, create: bool) -> Iterator[sqlite3.Connection]:
    """One immediate transaction: all of it, or nothing; not even the file, where it was ``create``d.

    The file is private (mode 0600): harvested fixes are somebody's code. Raises ExampleStoreError.
    """
    with _explained(path):
        made = create and _create(path)
        with closing(_connect(path)) as connection:
            try:
                connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if made:
                    # Still under the lock: SQLite lets nobody who waits for it write to a file
                    # that has gone.
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
    """Whether there was no file. Only who made it may take it away again."""
    try:
        if path.exists():
            return False
        create_private(path)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error), kind="unusable") from error
    return True


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What SQLite says, as an error that names the file, or the value, and the next step."""
    try:
        yield
    except sqlite3.Error as error:
        raise _unusable(path, str(error), kind="unusable") from error
    except UnicodeEncodeError as error:  # bytes of a command line that are no UTF-8
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
