"""The disk of ``disk.c`` under a campaign, which runs in a process that was started with it."""

import ctypes
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import asdict
from functools import wraps
from importlib import import_module
from pathlib import Path

from tests.hostile.audit.campaign import Ask, BrokenRecordError, Skipped, Tally

SOURCE = Path(__file__).with_name("disk.c")
ROOT = Path(__file__).parents[3]

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
    """The campaign, in a process of its own that has the disk below it."""

    @wraps(campaign)
    def run(ask: Ask) -> Tally:
        library = build(ask.place)
        given = {key: value for key, value in asdict(ask).items() if key != "told"}
        given["place"], given["until"] = str(ask.place), min(ask.until, 1e12)
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                __name__,
                campaign.__module__,
                campaign.__name__,
                json.dumps(given),
            ],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(library)},
        )
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                said = json.loads(line)
                if "done" in said:
                    ask.told(said["done"], said["total"])
                elif "broken" in said:
                    raise BrokenRecordError(said["broken"])
                else:
                    return Tally(**{**said, "counts": Counter(said["counts"])})
        raise BrokenRecordError(
            f"{campaign.__module__} ended with {process.returncode} and said nothing"
        )

    return run


def _say(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def main(module: str, name: str, given: str) -> None:
    """The other end of ``on_that_disk``."""
    ask = Ask(**{**json.loads(given), "told": lambda done, total: _say(done=done, total=total)})
    ask.place = Path(ask.place)
    try:
        with redirect_stderr(io.StringIO()):  # "made a key", thousands of times
            tally = getattr(import_module(module), name).__wrapped__(ask)
    except BrokenRecordError as broken:
        _say(broken=str(broken))
    else:
        _say(**vars(tally))


if __name__ == "__main__":
    main(*sys.argv[1:])
