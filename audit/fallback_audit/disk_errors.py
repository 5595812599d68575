"""Tell failures of the system, e.g. of a full disk, from bad input and from damage.

Code that reads or writes files translates the system's errors into ours, and mostly blames the
path or its permissions. It calls ``blamed`` first, which recognises failures of the system itself.
"""

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from fallback_audit.errors import DiskError, FallbackError

_NO_ROOM = "Free space there, or use a place on another disk, then run it again."
_NO_MORE = "Raise this system's limits (`ulimit -a`) or end other programs, then run it again."
_FAILING = "Check the disk and its quota (`dmesg`, `df`), then run it again."

#: errno(3) of failures that no path, permission or content causes: the next step.
_NEXT_STEPS = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EMFILE: _NO_MORE,
    errno.ENFILE: _NO_MORE,
    errno.ENOMEM: _NO_MORE,
    errno.ENOLCK: _NO_MORE,
    errno.EIO: _FAILING,
    # A file system that is damaged itself (its checksums, its structure).
    errno.EBADMSG: _FAILING,
    errno.EUCLEAN: _FAILING,
    # A file system that is gone: network, FUSE, a removable medium.
    errno.ESTALE: _FAILING,
    errno.EREMOTEIO: _FAILING,
    errno.ENOTCONN: _FAILING,
    errno.ENOMEDIUM: _FAILING,
}

#: SQLITE_IOERR and SQLITE_FULL (https://sqlite.org/rescode.html) → errno. As numbers, so that a process
#: which opens no store need not import sqlite3.
_OF_SQLITE = {10: errno.EIO, 13: errno.ENOSPC}

#: Number of causes that are followed; an error raised while handling another has a few.
_CAUSES = 10


class Failure(NamedTuple):
    """The system's description of a failure, and what a person can do."""

    meaning: str
    next_step: str


def failure_of(error: BaseException) -> Failure | None:
    """Return how the system failed, or None if the path, its permissions or the content are at fault."""
    number = _number(error)
    if number not in _NEXT_STEPS:
        return None
    return Failure(os.strerror(number), _NEXT_STEPS[number])


def blamed(error: BaseException, what: str, otherwise: FallbackError) -> FallbackError:
    """Return the error to raise for ``error``: a DiskError about ``what`` (the option, the file) if the
    system failed, else ``otherwise``.

    Causes of ``error`` count too: decoders (zipfile, tarfile) report damage if a read failed.
    """
    failure = next(filter(None, map(failure_of, _causes(error))), None)
    if failure is None:
        return otherwise
    return DiskError(f"{what}: {failure.meaning}.", next_step=failure.next_step)


def raise_failed(error: BaseException, what: str) -> None:
    """Raise DiskError if the system failed. For callers that take other errors for "nothing is there"."""
    failure = failure_of(error)
    if failure is not None:
        raise DiskError(f"{what}: {failure.meaning}.", next_step=failure.next_step) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(_CAUSES):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__ or cause.__context__


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    code = getattr(error, "sqlite_errorcode", None)
    return _OF_SQLITE.get(code & 0xFF) if isinstance(code, int) else None
