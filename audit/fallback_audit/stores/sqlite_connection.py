"""Connections that follow the database file at their path, whichever of its files other processes delete.

A SQLite file's newest transactions are in its log (``-wal``); all processes find them there through an
index in shared memory (``-shm``). The process that closes the last connection copies the log into the file
and deletes both. A process that lost its locks on the file continues to use the deleted ones: it reads old
pages among new ones ("malformed"), and what it writes is lost (ADR-0091). A process loses its locks when it
closes *any* descriptor of the file (POSIX). Hence two rules:

* Outside the stores no code opens a database file, its log or its index, for whatever purpose.
* A connection compares its files with those at its path, by ``stat`` alone, before and after each use. If
  they differ, the process closes all its connections to the file, since SQLite gives them one index, and
  opens each again at its next use.

Errors of SQLite are translated into sentences: which file, why, and what to do.
"""

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from fallback_audit.disk_errors import failure_of
from fallback_audit.errors import AuditError, AuditIntegrityError, AuditStoreError

T = TypeVar("T")

#: How long a renewal waits until other threads stop using deleted files. A use takes milliseconds, except
#: an export or a verification.
RENEWAL_WAIT_S = 2.0

#: Two risks: a process may be wrong about a file that it has open, and a copy lacks the newest events.
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

#: Result codes for bytes that SQLite did not write: the audit trail is damaged, not merely unavailable.
_DAMAGE = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}

#: Rows of an integrity check that are read: any of them may say that a page could not be read.
_CHECKED_ROWS = 100

#: That message: with the result code or, for a page of a list, without one.
_UNREAD_PAGE = re.compile(r"failed to get page|error code=(\d+)")


class FilesReplacedError(Exception):
    """A connection can't be used. The text says why, as a phrase to put after the file's name. ``kind``:
    that of the store's error."""

    def __init__(
        self,
        reason: str = "files of it were deleted or replaced while it was open",
        *,
        kind: str = "replaced",
    ) -> None:
        super().__init__(reason)
        self.kind = kind


class _Files(NamedTuple):
    """A database's files: each one's device and inode, None if it is missing."""

    file: tuple[int, int] | None
    log: tuple[int, int] | None
    shm: tuple[int, int] | None
    content: tuple[int, int] | None  #: Modification time and size of ``file``.
    log_bytes: int

    @classmethod
    def at(cls, names: tuple[str, str, str]) -> "_Files":
        file, log, shm = map(_stat, names)
        return cls(
            (file.st_dev, file.st_ino) if file else None,
            (log.st_dev, log.st_ino) if log else None,
            (shm.st_dev, shm.st_ino) if shm else None,
            (file.st_mtime_ns, file.st_size) if file else None,
            log.st_size if log else 0,
        )


class _Shared:
    """One file's connections in this process, and the threads that use one now."""

    known: ClassVar["WeakValueDictionary[str, _Shared]"] = WeakValueDictionary()
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self.connections: set[SqliteConnection] = set()
        self.is_inherited = False
        self.begin()

    def begin(self) -> None:
        """Forget all uses: no thread has one, e.g. in a forked child."""
        self._changed = threading.Condition()
        self._users: dict[int, int] = {}
        self._is_renewing = False

    @classmethod
    def of(cls, real_path: str) -> "_Shared":
        with cls.lock:
            if (shared := cls.known.get(real_path)) is None:
                shared = cls.known[real_path] = cls()
            return shared

    def enter(self) -> int:
        """Begin a use, and return its key. A thread with another use does not wait for a renewal."""
        user = threading.get_ident()
        with self._changed:
            while self._is_renewing and user not in self._users:
                self._changed.wait()
            self._users[user] = self._users.get(user, 0) + 1
        return user

    def leave(self, user: int) -> None:
        """End a use."""
        with self._changed:
            if self._users[user] > 1:
                self._users[user] -= 1
                return
            del self._users[user]
            if self._is_renewing:
                self._changed.notify_all()

    def renew(self) -> None:
        """Close all connections once no thread uses one. Raises FilesReplacedError after RENEWAL_WAIT_S."""
        with self._changed:
            if threading.get_ident() in self._users:
                raise FilesReplacedError
            if self._is_renewing:
                self._changed.wait_for(lambda: not self._is_renewing)
                return
            self._is_renewing = True
            try:
                if not self._changed.wait_for(lambda: not self._users, RENEWAL_WAIT_S):
                    raise FilesReplacedError
                # Readers first: the last connection of a process may copy the log into the file.
                for connection in sorted(
                    self.connections, key=lambda connection: connection.writes
                ):
                    connection.release()
            finally:
                self._is_renewing = False
                self._changed.notify_all()


class SqliteConnection:
    """A connection to the file at ``path``. One thread at a time may use it: callers hold a lock.

    ``connect`` opens it, again whenever its files were replaced; ``writes``: it may write to the file.
    """

    def __init__(
        self, path: Path, connect: Callable[[], sqlite3.Connection], *, writes: bool = False
    ) -> None:
        self.path = path
        self.writes = writes
        self._connect = connect
        self._db: sqlite3.Connection | None = None
        self._is_closed = False
        self._opened: _Files
        self._locate()
        with self.using():
            pass

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """Yield the open connection.

        Raises FilesReplacedError if its files are replaced meanwhile, even if another error occurs: what
        was read can't be trusted, and what was written may be lost.
        """
        user, db = self._entered()
        shared = self._shared
        try:
            yield db
        except Exception as error:
            if self.is_current():
                raise
            raise FilesReplacedError from error
        else:
            if not self.is_current():
                raise FilesReplacedError
        finally:
            shared.leave(user)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of ``work``, retried once if files were replaced. Raises as ``using``."""
        with suppress(FilesReplacedError), self.using() as db:
            return work(db)
        with self.using() as db:
            return work(db)

    def is_current(self) -> bool:
        """Return whether the open files are those at its path."""
        now, opened = _Files.at(self._names), self._opened
        # SQLite opens a log or index that was missing so far when it needs it.
        is_same = (
            now.file == opened.file
            and opened.log in (None, now.log)
            and opened.shm in (None, now.shm)
        )
        if is_same:
            self._opened = now
        return is_same

    def close(self) -> None:
        """Close it for good. Idempotent. A later use raises sqlite3.ProgrammingError."""
        self._is_closed = True
        self.release()
        self._shared.connections.discard(self)

    def release(self) -> None:
        """Close the open connection, if any; the next use opens it again."""
        db, self._db = self._db, None
        if db is None:
            return
        if not self.writes or self.is_current() or self._has_newest():
            db.close()
        else:
            self._close_without_writing(db)

    def _locate(self) -> None:
        real_path = os.path.realpath(self.path)  # SQLite follows links, too
        self._names = (str(self.path), f"{real_path}-wal", f"{real_path}-shm")
        self._shared = _Shared.of(real_path)
        self._opened = _Files.at(self._names)

    def _entered(self) -> tuple[int, sqlite3.Connection]:
        for _ in range(2):
            if self._is_closed:
                raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
            if self._shared.is_inherited:
                raise FilesReplacedError(
                    "this process is a fork of one that has it open", kind="fork"
                )
            shared = self._shared
            user = shared.enter()
            try:
                if self._may_be_used():
                    return user, self._db or self._open()
            except BaseException:
                shared.leave(user)
                raise
            shared.leave(user)
            shared.renew()
            shared.connections.discard(self)
            self._locate()
        raise FilesReplacedError

    def _may_be_used(self) -> bool:
        if self._db is not None:
            return self.is_current()
        # A connection opened next to one with a deleted index would share that index.
        others = (other for other in tuple(self._shared.connections) if other._db is not None)
        return all(other.is_current() for other in others)

    def _open(self) -> sqlite3.Connection:
        db = self._db = self._connect()
        self._opened = _Files.at(self._names)
        self._shared.connections.add(self)
        return db

    def _has_newest(self) -> bool:
        """Return whether the deleted log is the newest state.

        It is if the file is as it was at the last use here, and no other log has content. Closing then
        copies the log into the file, unless another process has the file open.
        """
        now = _Files.at(self._names)
        is_unchanged = (now.file, now.content) == (self._opened.file, self._opened.content)
        return is_unchanged and not now.log_bytes

    def _close_without_writing(self, db: sqlite3.Connection) -> None:
        """Close it without copying its log over newer pages, and without deleting another log.

        SQLite does neither while this process has another connection to the file, nor for a read-only one.
        """
        uri = f"{self.path.absolute().as_uri()}?mode=ro"
        with ExitStack() as stack:
            with suppress(sqlite3.Error):  # reading may fail (malformed): only its lock matters
                second = stack.enter_context(closing(sqlite3.connect(uri, uri=True)))
                second.execute("SELECT count(*) FROM sqlite_master").fetchone()
            db.close()


@contextmanager
def opened(path: Path, connect: Callable[[], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    """Yield a separate connection for reading. Raises FilesReplacedError as ``using`` does."""
    with closing(SqliteConnection(path, connect)) as connection, connection.using() as db:
        yield db


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 (twice as fast as Path's, six times a use)
    except OSError:  # treat a file without access as another one than was opened
        return None


#: Files that a fork inherited open: listed here, so that the fork keeps refusing them.
_inherited: list[_Shared] = []


def _after_fork() -> None:
    """Make the child neither use nor close inherited connections, nor open their files.

    SQLite's locks stay with the parent. The child's SQLite assumes that it has them: a new connection would
    have none, and closing an inherited one could copy an old log of the parent's into the file.
    """
    _Shared.lock = threading.Lock()
    for shared in list(_Shared.known.values()):
        shared.begin()
        for connection in shared.connections:
            if connection._db is not None:
                import ctypes

                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection._db))  # never closed
                connection._db = None
                shared.is_inherited = True
        if shared.is_inherited:
            _inherited.append(shared)


os.register_at_fork(after_in_child=_after_fork)


def store_error(path: Path, error: Exception) -> AuditError:
    """Return the error to raise for any failure of the store at ``path``: damaged, or not available."""
    primary = _primary(error)
    if primary in _DAMAGE and not _is_damaged(path):
        primary = sqlite3.SQLITE_IOERR
    if primary < 0 and isinstance(error, sqlite3.OperationalError):
        primary = sqlite3.SQLITE_CORRUPT  # the sqlite3 module found text that is not UTF-8
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
    """Return SQLite's primary result code; -1 if the error has none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


def _is_damaged(path: Path) -> bool:
    """Return whether the file is damaged, and not only unreadable.

    SQLite reports damage also if the system failed to read a page (SQLITE_IOERR_CORRUPTFS becomes
    SQLITE_CORRUPT in its virtual machine): an integrity check on a separate connection tells them apart. It
    goes through SQLite: opening and closing the file here would drop the locks that SQLite has on it in
    this process. It reads the whole file, once, after the store has failed.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with opened(path, partial(sqlite3.connect, uri, uri=True)) as db:
            findings = db.execute(f"PRAGMA integrity_check({_CHECKED_ROWS})").fetchall()
    except FilesReplacedError:
        return False
    except sqlite3.Error as error:
        return _primary(error) in _DAMAGE or _primary(error) < 0
    except OSError:
        return False
    return findings != [("ok",)] and not any(is_unread(str(finding)) for (finding,) in findings)


def is_unread(finding: str) -> bool:
    """Return whether a finding of SQLite's integrity check says that a page could not be read (input/output
    error, no memory, a file that can't be opened). Such findings are mixed with those of damage."""
    match = _UNREAD_PAGE.search(finding)
    return match is not None and (match[1] is None or int(match[1]) & 0xFF not in _DAMAGE)


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
            kind=error.kind,
        ) from error
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error
    except UnicodeDecodeError as error:  # the sqlite3 module could not decode SQLite's message
        raise AuditIntegrityError(
            f"Audit store {path}: its SQLite structure is damaged.",
            next_step=LOOK_FROM_OUTSIDE,
            kind="damaged",
        ) from error
