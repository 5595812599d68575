"""Is there room on the disks?"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fallback_tier.observing.health.report import CheckState, Finding, degraded, failed, ok

#: What a fix needs at least: a checkout, an environment, logs.
MIN_FREE_BYTES = 1024**3

#: Files that an environment has, at least.
MIN_FREE_FILES = 20_000

#: Times the least at which it is time to act.
_EARLY = 2

_GIB = 1024**3

_MAKE_ROOM = (
    "Free some space: `fallback-tier cache clear` removes what later fixes can make anew; "
    "docs/runbook.md has the rest."
)


class Room(NamedTuple):
    """What is free below a folder. ``files`` None: this file system has no such limit."""

    free_bytes: int
    files: int | None


def room(folder: Path) -> Room:
    """Of the disk that holds it, or would. Raises OSError."""
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    found = os.statvfs(folder)
    return Room(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else None)


def disk(places: Iterable[Path], min_free_bytes: int = MIN_FREE_BYTES) -> Finding:
    """Of these folders and the one for temporary files, the one with the least room. Raises OSError."""
    folders = dict.fromkeys([*places, Path(tempfile.gettempdir())])
    found = [_judged(folder, room(folder), min_free_bytes) for folder in folders]
    order = [CheckState.FAILED, CheckState.DEGRADED, CheckState.OK]
    return min(found, key=lambda one: order.index(one.state))


def _judged(folder: Path, found: Room, least: int) -> Finding:
    message = f"{found.free_bytes / _GIB:.1f} GiB are free for {folder}"
    if found.files is not None and found.files < MIN_FREE_FILES:
        return failed(
            f"{found.files:,} more files fit on the disk of {folder}; a fix may need "
            f"{MIN_FREE_FILES:,}.",
            _MAKE_ROOM,
        )
    if found.free_bytes < least:
        return failed(f"{message}; a fix may need {least / _GIB:.1f} GiB.", _MAKE_ROOM)
    if found.free_bytes < _EARLY * least:
        return degraded(f"{message}; below {least / _GIB:.1f} GiB no fix is begun.", _MAKE_ROOM)
    return ok(f"{message}.")
