"""A disk that fails, or is full, is neither bad input nor damage: the one place that tells them apart.

Whoever reads or writes a file turns the system's errors into errors of ours, and mostly it is the path or
its rights that are wrong. ``blamed`` is asked before that is said.
"""

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from fallback_audit.errors import DiskError, FallbackError

_NO_ROOM = "Free space there, or use a place on another disk, then run it again."
_NO_MORE = "Raise this system's limits (`ulimit -a`) or end other programs, then run it again."
_FAILING = "Check the disk and its quota (`dmesg`, `df`), then run it again."

#: What no path, no right and no content is the reason of, as the system says it (errno(3)): the next step.
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
    # One that went away: network, FUSE, a medium.
    errno.ESTALE: _FAILING,
    errno.EREMOTEIO: _FAILING,
    errno.ENOTCONN: _FAILING,
    errno.ENOMEDIUM: _FAILING,
}

#: SQLITE_IOERR and SQLITE_FULL (https://sqlite.org/rescode.html): the errno that they stand for. By number:
#: who never opens a store does not pay for importing sqlite3.
_OF_SQLITE = {10: errno.EIO, 13: errno.ENOSPC}

#: How long a chain of causes is followed; an error raised in an error's handler has a few.
_CAUSES = 10


class Failure(NamedTuple):
    """What failed, in the system's words, and what a person can do."""

    meaning: str
    next_step: str


def failure_of(error: BaseException) -> Failure | None:
    """How the system failed; None where it did not: the path, its rights or the content are at fault."""
    number = _number(error)
    if number not in _NEXT_STEPS:
        return None
    return Failure(os.strerror(number), _NEXT_STEPS[number])


def blamed(error: BaseException, what: str, otherwise: FallbackError) -> FallbackError:
    """The error to raise for ``error``: DiskError over ``what`` (the option, the file) where the system
    failed, else ``otherwise``.

    Decoders say "damaged" where a read failed (zipfile, tarfile): so what an error came from counts, too.
    """
    failure = next(filter(None, map(failure_of, _causes(error))), None)
    if failure is None:
        return otherwise
    return DiskError(f"{what}: {failure.meaning}.", next_step=failure.next_step)


def raise_failed(error: BaseException, what: str) -> None:
    """Raises DiskError where the system failed: asked by who takes an error for "nothing is there"."""
    failure = failure_of(error)
    if failure is not None:
        raise DiskError(f"{what}: {failure.meaning}.", next_step=failure.next_step) from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__ or found.__context__


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    code = getattr(error, "sqlite_errorcode", None)
    return _OF_SQLITE.get(code & 0xFF) if isinstance(code, int) else None
