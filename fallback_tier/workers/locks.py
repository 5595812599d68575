"""The lock that a worker holds for as long as it lives, whoever its parent is by then.

A fix that is said to run whose lock is free has no worker.
"""

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold


@dataclass(frozen=True)
class WorkerLocks:
    """Those of one owner's workers, below ``home``, a folder in the state folder. A ``fix_id`` is one of
    ours."""

    state_dir: Path
    home: Path

    def path(self, fix_id: str) -> Path:
        """The lock of a fix's worker."""
        return self.home / "workers" / f"{fix_id}.lock"

    def log(self, fix_id: str) -> Path:
        """What a worker wrote to its standard error: nothing, unless it broke."""
        return self.home / "workers" / f"{fix_id}.log"

    def take(self, fix_id: str) -> BinaryIO | None:
        """The worker's lock; None: a worker is alive. It ends with the last process that has the file
        open. Who held it before stands in it no more: that process may be anybody's by now.

        Raises StateFolderError.
        """
        path = self.path(fix_id)
        with writing_below(self.state_dir):
            path.parent.mkdir(parents=True, exist_ok=True)
            if (lock := try_hold(path)) is not None:
                lock.truncate(0)
            return lock

    def end_holder(self, fix_id: str, *, at_once: bool = False) -> None:
        """Ask the worker that holds the lock, and no other process, to end, or kill it (``at_once``); its
        guard removes what it leaves. Nothing happens if it has not written who it is."""
        with suppress(OSError, ValueError):  # it has not said so, or has just gone
            pidfd = os.pidfd_open(int(self.path(fix_id).read_bytes()))
            try:
                if (lock := self.take(fix_id)) is not None:
                    lock.close()  # it has gone, and its number may be another's
                else:
                    how = signal.SIGKILL if at_once else signal.SIGTERM
                    signal.pidfd_send_signal(pidfd, how)
            finally:
                os.close(pidfd)

    def tidy(self, fix_id: str) -> None:
        """Its worker has gone: remove the lock, and a log in which nothing stands."""
        log = self.log(fix_id)
        if log.exists() and not log.stat().st_size:
            log.unlink()
        if (lock := self.take(fix_id)) is not None:
            with lock:
                self.path(fix_id).unlink(missing_ok=True)  # while it is held


def write_holder(lock: int) -> None:
    """Who holds it, so that another process can end this worker. No client of ours inherits it: none may
    outlive the worker with it."""
    os.set_inheritable(lock, False)
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
