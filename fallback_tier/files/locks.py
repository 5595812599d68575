"""Locks that are released when their process ends, in any way (flock(2)). Held names may be removed."""

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from fallback_tier.errors import ToolFailedError

#: Waiting for a lock is reported after this time.
_REPORTED_AFTER_S = 0.1

#: Work under a lock takes seconds; removing a large tree that a dead run left takes minutes.
MAX_HELD_S = 600.0

#: flock(2) itself has no time limit.
_POLL_S = 0.02


def hold(
    path: Path,
    *,
    shared: bool = False,
    waiting: Callable[[], None] = lambda: None,
    limit_s: float = MAX_HELD_S,
) -> BinaryIO:
    """Wait for the lock, and return its file; closing the file releases it.

    ``waiting`` is called once, if it takes time. Raises OSError if the file can't be created,
    ToolFailedError after ``limit_s``.
    """
    started, is_reported = time.monotonic(), False
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    while True:
        try:
            file = _locked(path, operation)
        except BlockingIOError:
            waited = time.monotonic() - started
            if waited > limit_s:
                raise _too_long(path, limit_s) from None
            if waited > _REPORTED_AFTER_S and not is_reported:
                waiting()
                is_reported = True
            time.sleep(_POLL_S)
        else:
            if file is not None:
                return file


def try_hold(path: Path) -> BinaryIO | None:
    """Do the same as ``hold``, but return None if another process has the lock."""
    try:
        return _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _locked(path: Path, operation: int) -> BinaryIO | None:
    """Lock the file, or return None if its holder removed the name between our opening and our locking."""
    file = path.open("ab")
    try:
        fcntl.flock(file, operation)
        if os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
    except FileNotFoundError:
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None


def _too_long(path: Path, limit_s: float) -> ToolFailedError:
    return ToolFailedError(
        f"Another run has held {path} for {limit_s / 60:.0f} minutes.",
        next_step=f"See what it does (`fuser {path}`), end it if it hangs, and run this again.",
        kind="locked",
    )
