"""Locks that end with their process, however it ends (flock(2)). The name may be removed while held."""

import fcntl
import os
from pathlib import Path
from typing import BinaryIO


def hold(path: Path, *, shared: bool = False) -> BinaryIO:
    """Wait for the lock; closing the file lets go. Raises OSError where the file can't be made."""
    while True:
        file = _locked(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        if file is not None:
            return file


def try_hold(path: Path) -> BinaryIO | None:
    """As ``hold``, but None where somebody else has it."""
    try:
        return _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None


def _locked(path: Path, how: int) -> BinaryIO | None:
    """None where whoever held it removed the name between our opening and our locking."""
    file = path.open("ab")
    try:
        fcntl.flock(file, how)
        if os.path.samestat(path.stat(), os.fstat(file.fileno())):
            return file
    except FileNotFoundError:
        pass
    except BaseException:
        file.close()
        raise
    file.close()
    return None
