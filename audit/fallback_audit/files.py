"""Private files that survive a crash: the few system calls that both stores share."""

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

#: Whoever holds one of our locks longer than this hangs, or was stopped: what it does takes milliseconds.
LOCK_TIMEOUT_S = 30.0

#: flock(2) itself knows no time limit.
_LOCK_POLL_S = 0.01


def make_private_directory(path: Path) -> None:
    """Create what is missing of ``path``, mode 0700, durably. What exists stays as it is."""
    if path.is_dir():
        return
    make_private_directory(path.parent)
    try:
        path.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
    sync_directory(path.parent)


def create_private(path: Path) -> None:
    """Create an empty file with mode 0600 if there is none, without opening it.

    Closing any descriptor of a database file drops the POSIX locks that SQLite holds on it in this process:
    also the descriptor that made it, if another thread has opened the file by then.
    """
    with suppress(FileExistsError):
        os.mknod(path, stat.S_IFREG | FILE_MODE)
        sync_directory(path.parent)


def read_regular(path: Path, limit: int) -> bytes:
    """At most ``limit`` bytes of a regular file. Raises OSError, also for a pipe that somebody planted
    there: opening one would wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(limit)


@contextmanager
def descriptor_of(path: Path, flags: int) -> Iterator[int]:
    """Open it, without handing it on to other programs; a file that is made is private. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock(descriptor: int, operation: int, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """flock(2) with ``operation`` (LOCK_SH or LOCK_EX), waited for. Raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT, "another process holds its lock (`fuser` shows which)"
                ) from None
        time.sleep(_LOCK_POLL_S)


def sync_directory(path: Path) -> None:
    """Make the directory's entries durable."""
    with descriptor_of(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.fsync(descriptor)


@contextmanager
def made_whole(
    path: Path, prefix: str, put: Callable[[str, Path], None] = os.replace
) -> Iterator[BinaryIO]:
    """What is written stands at ``path``, mode 0600, once it is whole and durable; else nothing of it
    stays. ``prefix``: what it is called until then. ``put`` gives it its name. Raises OSError."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=prefix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        put(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    sync_directory(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Put a file there durably: whole or not at all, and never one that others can read. One writer a
    folder at a time: the caller holds its lock. Raises OSError."""
    fresh = path.with_name(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
