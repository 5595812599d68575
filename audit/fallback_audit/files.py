"""Private files that survive a crash: system calls that the audit and evidence stores share."""

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

#: A process that holds one of our locks longer than this hangs or was stopped: its work takes milliseconds.
LOCK_TIMEOUT_S = 30.0

#: flock(2) itself has no time limit, so it is polled.
_LOCK_POLL_S = 0.01


def make_private_directory(path: Path) -> None:
    """Create ``path`` and its missing parents durably, mode 0700. Existing ones stay as they are."""
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

    Closing any descriptor of a database file drops the POSIX locks that SQLite has on it in this process:
    also the descriptor with which it was created, if another thread has opened the file by then.
    """
    with suppress(FileExistsError):
        os.mknod(path, stat.S_IFREG | FILE_MODE)
        sync_directory(path.parent)


def read_regular(path: Path, limit: int) -> bytes:
    """Read at most ``limit`` bytes of a regular file. Raises OSError, also if the path is a pipe (planted):
    opening one normally would block forever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(limit)


@contextmanager
def descriptor_of(path: Path, flags: int) -> Iterator[int]:
    """Open a file, closed on exec; a new file is private. Raises OSError."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def lock(descriptor: int, operation: int, timeout_s: float = LOCK_TIMEOUT_S) -> None:
    """Wait for flock(2) with ``operation`` (LOCK_SH or LOCK_EX). Raises TimeoutError."""
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
    """Yield a file that appears at ``path``, mode 0600, once it is whole and durable.

    On an error nothing of it stays. ``prefix``: how its temporary name begins. ``put`` moves it to
    ``path``. Raises OSError.
    """
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
    """Write a file durably: whole or not at all, and never readable by others.

    One writer per folder at a time: the caller holds its lock. Raises OSError.
    """
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
