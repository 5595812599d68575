"""Temporary folders of a test run, in memory: a test that writes an audit trail mostly waited for the disk.

Each event of a trail, and each file of its evidence, is synced to the disk: 3 ms on a quiet machine, more
if others write to it. In memory the same calls are made, and return at once. Programs that tests start
inherit the folder (``TMPDIR``).
"""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

#: Where Linux has a file system in memory.
_MEMORY = Path("/dev/shm")

#: More than a run of all tests needs at one time.
_ROOM_BYTES = 8 << 30


def temporary_in_memory(memory: Path = _MEMORY, room_bytes: int = _ROOM_BYTES) -> Path | None:
    """Make a folder in ``memory`` that is the place of temporary folders from now on, and return it.

    Return None, and change nothing, if the caller of the tests chose one (``TMPDIR``), or if ``memory`` has
    no room or runs no programs, as ``/dev/shm`` of many containers. Nothing of the folder is kept after the
    run: to look at the files of a failed test, set ``TMPDIR``.
    """
    if "TMPDIR" in os.environ or not _fits(memory, room_bytes):
        return None
    _remove_left(memory)
    # Short: sockets' paths have 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix=f"ft-{os.getpid()}-", dir=memory))
    folder.chmod(0o1777)  # as /tmp: PostgreSQL of tests that root runs is another user's
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def leave(folder: Path) -> None:
    """Remove what is in the folder. That of ``multiprocessing`` goes when the process ends, and the next
    run removes the rest."""
    for inner in folder.iterdir():
        if not inner.name.startswith("pymp-"):
            shutil.rmtree(inner, ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def _remove_left(memory: Path) -> None:
    """Remove what killed runs left: it takes memory."""
    for folder in memory.glob("ft-*-*"):
        owner = folder.name.split("-")[1]
        if not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _fits(memory: Path, room_bytes: int) -> bool:
    try:
        may_execute = not os.statvfs(memory).f_flag & os.ST_NOEXEC
        return (
            may_execute
            and shutil.disk_usage(memory).free >= room_bytes
            and os.access(memory, os.W_OK)
        )
    except OSError:
        return False
