"""Bounds for a whole tree of processes, which resource limits can't give.

RLIMIT_NPROC does not bind root, and RLIMIT_DATA counts private memory of one process: what many have
together, and what they share (mappings, System V segments, memfd), it does not see. A cgroup counts
all of it, whoever is in it, the files in the sandbox's /tmp and /dev/shm too. We make one for each
command where we may: in version 1 below our own place in the ``pids`` and ``memory`` hierarchies; in
version 2 beside our own cgroup, where that is ours to write and the parent gives both controllers
on (systemd's user manager, a delegated scope). Version 2 gives a cgroup that holds processes no
controller to hand on, and containers mostly mount it read-only. ``Bounds`` says what is held.
"""

import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "fallback-tier-"

_CONTROLLERS = ("pids", "memory")

#: A killed tree leaves its cgroup within milliseconds; after that, we leave an empty folder.
_LEAVING_S = 1.0
_LOOK_AGAIN_S = 0.002


@dataclass(frozen=True)
class Hierarchy:
    """A folder in which cgroups may be made, and what those then bound."""

    folder: Path
    version: int
    controllers: tuple[str, ...]

    @property
    def members(self) -> str:
        """The file that one joins by. Version 1's of threads: to move oneself alone takes no lock, where
        cgroup.procs waits 10 ms for all."""
        return "tasks" if self.version == 1 else "cgroup.procs"


@dataclass(frozen=True)
class Bounds:
    """What one command may have, all its processes together."""

    processes: int
    memory_bytes: int

    def files(self, hierarchy: Hierarchy) -> Iterator[tuple[str, str, bool]]:
        """Name, value, and whether every kernel has it. Without swap: what is swapped out is used too."""
        if "pids" in hierarchy.controllers:
            yield "pids.max", str(self.processes), True
        if "memory" in hierarchy.controllers and hierarchy.version == 1:
            yield "memory.limit_in_bytes", str(self.memory_bytes), True
            yield "memory.memsw.limit_in_bytes", str(self.memory_bytes), False
        elif "memory" in hierarchy.controllers:
            yield "memory.max", str(self.memory_bytes), True
            yield "memory.swap.max", "0", False
            yield "memory.oom.group", "1", False


def find_hierarchies() -> tuple[Hierarchy, ...]:
    """Where this process may make cgroups of its own; empty where nowhere."""
    try:
        membership = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ()
    return hierarchies(mounts, membership)


def hierarchies(mountinfo: str, membership: str) -> tuple[Hierarchy, ...]:
    """From /proc/self/mountinfo and /proc/self/cgroup: those that can be written."""
    found = []
    for controller in _CONTROLLERS:
        place = _own_place(mountinfo, membership, controller)
        if place is not None and os.access(place, os.W_OK):
            found.append(Hierarchy(place, 1, (controller,)))
    own = _own_place(mountinfo, membership, "")
    if not found and own is not None and (beside := _beside(own.parent)) is not None:
        found.append(beside)
    return tuple(found)


def _own_place(mountinfo: str, membership: str, controller: str) -> Path | None:
    """``controller`` empty: of version 2."""
    lists = rf"\d+:(?:[^:]*,)?{controller}(?:,[^:]*)?" if controller else "0:"
    own = re.search(rf"^{lists}:(.*)$", membership, re.MULTILINE)
    for line in mountinfo.splitlines():
        seen, _, kind = line.partition(" - ")
        is_it = (
            kind.startswith("cgroup ") and controller in kind.split()[-1].split(",")
            if controller
            else kind.startswith("cgroup2 ")
        )
        if own and is_it:
            root, mounted = seen.split()[3:5]
            if Path(own[1]).is_relative_to(root):
                return Path(mounted) / Path(own[1]).relative_to(root)
    return None


def _beside(parent: Path) -> Hierarchy | None:
    """Version 2: to move between two cgroups, one must be allowed to write their parent's members."""
    try:
        handed_on = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    writable = (parent, parent / "cgroup.procs")
    if not set(_CONTROLLERS) <= set(handed_on) or not all(os.access(p, os.W_OK) for p in writable):
        return None
    return Hierarchy(parent, 2, _CONTROLLERS)


@contextmanager
def bounded_tree(where: Sequence[Hierarchy], bounds: Bounds) -> Iterator[tuple[Path, ...]]:
    """Return files: a process that writes ``0`` to each is bounded, with all that it starts. The cgroups
    end with their last process. Raises OSError."""
    with ExitStack() as made:
        yield tuple(made.enter_context(_cgroup(one, bounds)) for one in where)


@contextmanager
def _cgroup(hierarchy: Hierarchy, bounds: Bounds) -> Iterator[Path]:
    place = hierarchy.folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    place.mkdir()
    try:
        for name, value, is_needed in bounds.files(hierarchy):
            if is_needed or (place / name).exists():
                (place / name).write_text(value)
        yield place / hierarchy.members
    finally:
        _remove(place)


def remove_abandoned(folder: Path) -> None:
    """Remove what launchers that were killed left: empty cgroups that name a process now gone."""
    for place in folder.glob(f"{_PREFIX}*"):
        pid = place.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with suppress(OSError):
                place.rmdir()


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
