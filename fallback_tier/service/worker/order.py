"""What a worker is given on its standard input, and the lock that it holds for as long as it lives."""

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from pydantic import Field, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.files.locks import try_hold
from fallback_tier.gates.trees.state_folder import writing_below
from fallback_tier.service.configuring import Secrets
from fallback_tier.service.database import service_dir
from fallback_tier.service.settings import ServiceSettings


class WorkOrder(Frozen):
    """Which fix, in which service. ``lock``: the number of the inherited file that holds its lock."""

    fix_id: str
    state_dir: Path
    settings: ServiceSettings
    lock: int
    secrets: dict[str, SecretStr] = Field(default_factory=dict)

    def to_pipe(self, secrets: Secrets) -> bytes:
        """Its bytes, keys in them: they go through a pipe, and stand in no argument or file."""
        plain = self.model_dump(mode="json") | {"secrets": secrets.revealed()}
        return json.dumps(plain).encode()


def lock_path(state_dir: Path, fix_id: str) -> Path:
    """The lock of a fix's worker. ``fix_id`` is one of ours."""
    return service_dir(state_dir) / "workers" / f"{fix_id}.lock"


def log_path(state_dir: Path, fix_id: str) -> Path:
    """What a worker wrote to its standard error: nothing, unless it broke."""
    return service_dir(state_dir) / "workers" / f"{fix_id}.log"


def try_lock(state_dir: Path, fix_id: str) -> BinaryIO | None:
    """The worker's lock; None: a worker is alive. It ends with the last process that has the file open.
    Who held it before stands in it no more: that process may be anybody's by now.

    Raises StateFolderError.
    """
    path = lock_path(state_dir, fix_id)
    with writing_below(state_dir):
        path.parent.mkdir(parents=True, exist_ok=True)
        if (lock := try_hold(path)) is not None:
            lock.truncate(0)
        return lock


def write_holder(lock: int) -> None:
    """Who holds it, so that another service can end this worker."""
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())


def ask_to_end(state_dir: Path, fix_id: str) -> None:
    """Ask the worker that holds the lock, and no other process, to end; where it has said who it is."""
    with suppress(OSError, ValueError):  # it has not said so, or has just gone
        pidfd = os.pidfd_open(int(lock_path(state_dir, fix_id).read_bytes()))
        try:
            if (lock := try_lock(state_dir, fix_id)) is not None:
                lock.close()  # it has gone, and its number may be another's
            else:
                signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        finally:
            os.close(pidfd)
