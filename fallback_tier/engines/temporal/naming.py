"""The name of a worker, and so of its own queue: no other's, and the same one when it comes back.

Two workers with one queue would get one another's steps, and neither would have the fix open.
"""

import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fallback_tier.errors import ConfigurationError
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import try_hold

#: What tells a host's state folders apart: made once for each. Eight digits are enough for one host.
_SUFFIX = re.compile(r"[0-9a-f]{8}")

#: What a file's name may not have.
_UNPLAIN = re.compile(r"[^A-Za-z0-9.-]")


@contextmanager
def worker_name(state_dir: Path, told: str = "") -> Iterator[str]:
    """Hold it as long as the worker works: the host's name and this state folder's suffix, or what a person
    has ``told`` it, which is theirs to keep apart from other machines'.

    Raises ConfigurationError where a worker of this state folder has the name, StateFolderError.
    """
    path = state_dir / "fleet" / f"worker{told and '-' + _UNPLAIN.sub('-', told)}.lock"
    with writing_below(state_dir):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = try_hold(path)
        if lock is None:
            raise ConfigurationError(
                f"Another worker of the state folder {state_dir} has this name.",
                next_step="Give it more --fixes, or this one a --host NAME or a --state-dir of its own.",
                kind="name_taken",
            )
    with lock:
        with writing_below(state_dir):
            name = told or f"{_hostname()}-{_suffix(path, lock)}"
        yield name


def _suffix(path: Path, lock: BinaryIO) -> str:
    """Kept in the lock's own file: who holds it may write there."""
    if found := _SUFFIX.fullmatch(path.read_text(errors="replace")):
        return found.group()
    made = uuid.uuid4().hex[:8]
    lock.truncate(0)
    lock.write(made.encode())
    lock.flush()
    return made


def _hostname() -> str:
    return _UNPLAIN.sub("-", socket.gethostname()) or "host"
