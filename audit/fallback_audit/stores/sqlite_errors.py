"""SQLite's errors as sentences: which file, why, and what to do."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from fallback_audit.disk_errors import failure_of
from fallback_audit.errors import AuditError, AuditIntegrityError, AuditStoreError
from fallback_audit.stores.sqlite_connection import FilesReplacedError, opened

#: A process may be wrong about a file that it has open, and a copy lacks the newest events: both are said.
LOOK_FROM_OUTSIDE = (
    "Stop what has it open (`fuser` shows it), then run `fallback-tier audit verify`. Only if that finds "
    "it damaged too, keep the file for analysis and restore a copy."
)

#: Primary result code (https://sqlite.org/rescode.html) → kind, reason, next step.
_REASONS: dict[int, tuple[str, str, str]] = {
    sqlite3.SQLITE_FULL: (
        "disk_full",
        "the disk is full",
        "Free space there, or set another state directory.",
    ),
    sqlite3.SQLITE_BUSY: (
        "locked",
        "it is locked by another process",
        "Wait for the other writer to end, or find it with `fuser`.",
    ),
    sqlite3.SQLITE_NOTADB: (
        "not_a_database",
        "it is not a SQLite database",
        f"Name the audit store itself. If it is the one: {LOOK_FROM_OUTSIDE}",
    ),
    sqlite3.SQLITE_CORRUPT: (
        "damaged",
        "its SQLite structure is damaged",
        LOOK_FROM_OUTSIDE,
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "not_openable",
        "it can't be opened (missing, or no permission)",
        "Check the path, its owner and its mode.",
    ),
    sqlite3.SQLITE_READONLY: (
        "read_only",
        "it can't be written (no permission, or a read-only file system)",
        "Check owner and mode of the file and its directory; readers need open_readonly.",
    ),
    sqlite3.SQLITE_PERM: (
        "not_permitted",
        "permission was denied",
        "Check the file's owner and mode.",
    ),
    sqlite3.SQLITE_IOERR: (
        "disk_failed",
        "the operating system reported an input/output error",
        "Check the disk and its quota (`dmesg`, `df`) before going on.",
    ),
}

#: Bytes that are not what SQLite wrote: the record is damaged, not merely out of reach.
_DAMAGE = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


#: Rows of a check: whether one says that a page could not be read is what counts.
_CHECKED_ROWS = 100
#: How it says that: with the result code, or, of a page of a list, without one.
_UNREAD_PAGE = re.compile(r"failed to get page|error code=(\d+)")


def store_error(path: Path, error: Exception) -> AuditError:
    """The one sentence for any failure of the store at ``path``: damaged, or out of order."""
    primary = _primary(error)
    if primary in _DAMAGE and not _is_damaged(path):
        primary = sqlite3.SQLITE_IOERR
    if primary < 0 and isinstance(error, sqlite3.OperationalError):
        primary = (
            sqlite3.SQLITE_CORRUPT
        )  # text that is no UTF-8, found by the sqlite3 module itself
    kind, reason, next_step = _REASONS.get(
        primary,
        (
            _kind_of(error),
            str(error) or type(error).__name__,
            "Check the path, its owner and its mode.",
        ),
    )
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.filename and Path(error.filename) != path:
            reason += f" ({error.filename})"
        failure = failure_of(error)
        next_step = failure.next_step if failure is not None else next_step
    error_class = AuditIntegrityError if primary in _DAMAGE else AuditStoreError
    return error_class(f"Audit store {path}: {reason}.", next_step=next_step, kind=kind)


def _kind_of(error: Exception) -> str:
    """Return the kind of an error without a result code: the sqlite3 module's own is use after `close`."""
    return "closed" if isinstance(error, sqlite3.ProgrammingError) else ""


def _primary(error: Exception) -> int:
    """SQLite's result code without its details; -1 where there is none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def _is_damaged(path: Path) -> bool:
    """SQLite calls it damage, too, where the system failed to read a page (SQLITE_IOERR_CORRUPTFS becomes
    SQLITE_CORRUPT in its virtual machine): a second look, on a connection of its own, tells them apart.

    By SQLite itself, not by opening the file: to close it again would drop the locks that SQLite has on it
    in this process. It reads the whole file, once, when the store has failed already.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with opened(path, partial(sqlite3.connect, uri, uri=True)) as again:
            reported = again.execute(f"PRAGMA integrity_check({_CHECKED_ROWS})").fetchall()
    except FilesReplacedError:
        return False
    except sqlite3.Error as error:
        return _primary(error) in _DAMAGE or _primary(error) < 0
    except OSError:
        return False
    return reported != [("ok",)] and not any(is_unread(str(text)) for (text,) in reported)


def is_unread(finding: str) -> bool:
    """Does this finding of SQLite's integrity check say that a page could not be had (input/output, memory,
    a file that can't be opened)? It is among those that say what is damaged."""
    found = _UNREAD_PAGE.search(finding)
    return found is not None and (found[1] is None or int(found[1]) & 0xFF not in _DAMAGE)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system raise into AuditStoreError or AuditIntegrityError."""
    try:
        yield
    except FilesReplacedError as error:
        raise AuditStoreError(
            f"Audit store {path}: {error}.",
            next_step="Try again: it is opened again then. If it stays so, stop this process, run "
            "`fallback-tier audit verify` from outside, and restore a copy only if that finds the record "
            "damaged.",
            kind="replaced",
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error
    except UnicodeDecodeError as error:  # the sqlite3 module could not read SQLite's own message
        raise AuditIntegrityError(
            f"Audit store {path}: its SQLite structure is damaged.",
            next_step=LOOK_FROM_OUTSIDE,
            kind="damaged",
        ) from error
