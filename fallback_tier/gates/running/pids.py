"""A bound for a tree of processes that RLIMIT_NPROC can't give: the kernel exempts root from it.

A cgroup with a ``pids`` controller counts whoever is in it. We make one for each command where we
may: as root, in a version 1 hierarchy that is mounted writable. Version 2 gives a child no
controller while its parent holds processes, so that there we would have to move processes that are
not ours; and containers mostly mount it read-only. Without, a fork bomb of root's ends with the
wall clock; nobody else needs one.
"""

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "fallback-tier-"

#: A killed tree leaves its cgroup within milliseconds; after that, we leave an empty folder.
_LEAVING_S = 1.0
_LOOK_AGAIN_S = 0.002


def pids_hierarchy(mountinfo: str, membership: str) -> Path | None:
    """Our own place in the ``pids`` hierarchy, from /proc/self/mountinfo and /proc/self/cgroup."""
    own = re.search(r"^\d+:(?:[^:]*,)?pids(?:,[^:]*)?:(.*)$", membership, re.MULTILINE)
    for line in mountinfo.splitlines():
        seen, _, kind = line.partition(" - ")
        if own and kind.startswith("cgroup ") and "pids" in kind.split()[-1].split(","):
            root, mounted = seen.split()[3:5]
            if Path(own[1]).is_relative_to(root):
                return Path(mounted) / Path(own[1]).relative_to(root)
    return None


def find_hierarchy() -> Path | None:
    """Where this process may make cgroups of its own; None where that is not needed or not had."""
    if os.geteuid() != 0:
        return None
    try:
        membership = Path("/proc/self/cgroup").read_text()
        place = pids_hierarchy(Path("/proc/self/mountinfo").read_text(), membership)
    except OSError:
        return None
    return place if place is not None and os.access(place, os.W_OK) else None


@contextmanager
def bounded_tree(hierarchy: Path | None, limit: int) -> Iterator[int | None]:
    """A descriptor: the thread that writes ``0`` to it is one of at most ``limit`` from then on.

    It is version 1's file of threads: to move oneself alone takes no lock, where cgroup.procs waits
    10 ms for all. None where no cgroup can be had. The cgroup goes with the last of its threads.
    """
    place = None if hierarchy is None else _make(hierarchy, limit)
    if place is None:
        yield None
        return
    descriptor = os.open(place / "tasks", os.O_WRONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        _remove(place)


def remove_abandoned(hierarchy: Path) -> None:
    """Remove what launchers that were killed left: empty cgroups that name a process now gone."""
    for place in hierarchy.glob(f"{_PREFIX}*"):
        pid = place.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with suppress(OSError):
                place.rmdir()


def _make(hierarchy: Path, limit: int) -> Path | None:
    place = hierarchy / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    try:
        place.mkdir()
        (place / "pids.max").write_text(str(limit))
    except OSError:
        with suppress(OSError):
            place.rmdir()
        return None
    return place


def _remove(place: Path) -> None:
    until = time.monotonic() + _LEAVING_S
    while True:
        try:
            place.rmdir()
        except OSError:
            if time.monotonic() > until:
                return
            time.sleep(_LOOK_AGAIN_S)
        else:
            return
