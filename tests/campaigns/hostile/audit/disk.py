"""The disk of ``disk.c`` under a campaign, which runs in a process that was started with it."""

import ctypes
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from tests.campaigns.hostile.audit.apart import together
from tests.campaigns.hostile.audit.campaign import Ask, Skipped, Tally

SOURCE = Path(__file__).with_name("disk.c")
#: Where the loaded library is, for ctypes.
VARIABLE = "HOSTILE_AUDIT_DISK"

#: Calls that change a disk, and the two (open, mmap of the WAL index) without which none begins.
WRITING = "write,pwrite64,fsync,fdatasync,ftruncate,fallocate,open,rename,link,unlink,mkdir,mmap"

#: Instead of an errno.
KILL, HALF = -1, -2

NAMES = {errno.EIO: "EIO", errno.ENOSPC: "ENOSPC", KILL: "kill -9", HALF: "half a write"}


class Disk:
    """The library, in a process that has it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ[VARIABLE])

    def fail(
        self, below: Path, nth: int, error: int, *, again: bool = False, calls: str = WRITING
    ) -> None:
        self._library.disk_fail(os.fsencode(below), calls.encode(), nth, error, int(again))

    def seen(self) -> int:
        return int(self._library.disk_seen())

    def record(self, below: Path, descriptor: int) -> None:
        self._library.disk_record(os.fsencode(below), descriptor)

    def mark(self, text: str) -> None:
        self._library.disk_mark(text.encode())


def build(place: Path) -> Path:
    """Raises Skipped where there is no compiler, or another system than Linux."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        raise Skipped("needs a C compiler (cc) on Linux: the failing disk is a small library")
    library = place / "disk.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(f"cc can't build the failing disk: {done.stderr.strip()[:200]}")
    return library


def on_that_disk(campaign: Callable[[Ask], Tally]) -> Callable[[Ask], Tally]:
    """The campaign, in a process that has the disk below it: in another one where this has not."""

    @wraps(campaign)
    def run(ask: Ask) -> Tally:
        if VARIABLE in os.environ:
            return campaign(ask)
        library = str(build(ask.place))
        return together(campaign, [ask], {"LD_PRELOAD": library, VARIABLE: library})

    return run
