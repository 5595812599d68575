"""Limits for a whole process tree, which resource limits can't give.

RLIMIT_NPROC does not bind root, and RLIMIT_DATA counts private memory of one process, not what several have
together or share (mappings, System V segments, memfd). A cgroup counts all of it, for all members,
including the files in the sandbox's /tmp and /dev/shm. We create one per command if we may: in version 1
below our own cgroup in the ``pids`` and ``memory`` hierarchies; in version 2 next to our own cgroup, if
that is writable for us and the parent passes on both controllers (systemd's user manager, a delegated
scope). In version 2 a cgroup that has processes can't pass on controllers, and containers mostly mount it
read-only. ``Bounds`` says what is limited.
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

#: A killed tree leaves its cgroup within milliseconds; after this time the empty folder is left.
_LEAVING_S = 1.0
_LOOK_AGAIN_S = 0.002


@dataclass(frozen=True)
class Hierarchy:
    """A folder in which cgroups may be created, and the controllers that then apply."""

    folder: Path
    version: int
    controllers: tuple[str, ...]

    @property
    def members(self) -> str:
        """The file to join by. In version 1 that of threads: moving a single thread takes no lock, but
        cgroup.procs waits 10 ms for all."""
        return "tasks" if self.version == 1 else "cgroup.procs"


@dataclass(frozen=True)
class Bounds:
    """The limits of one command, for all its processes together."""

    processes: int
    memory_bytes: int

    def files(self, hierarchy: Hierarchy) -> Iterator[tuple[str, str, bool]]:
        """Yield name, value, and whether every kernel has the file. Swap is disabled, because swapped
        memory is used too."""
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
    """Return the hierarchies in which this process may create cgroups; empty if there is none."""
    try:
        membership = Path("/proc/self/cgroup").read_text()
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ()
    return hierarchies(mounts, membership)


def hierarchies(mountinfo: str, membership: str) -> tuple[Hierarchy, ...]:
    """Return the writable hierarchies of /proc/self/mountinfo and /proc/self/cgroup."""
    writable = []
    for controller in _CONTROLLERS:
        folder = _own_place(mountinfo, membership, controller)
        if folder is not None and os.access(folder, os.W_OK):
            writable.append(Hierarchy(folder, 1, (controller,)))
    own_cgroup = _own_place(mountinfo, membership, "")
    if (
        not writable
        and own_cgroup is not None
        and (sibling := _beside(own_cgroup.parent)) is not None
    ):
        writable.append(sibling)
    return tuple(writable)


def _own_place(mountinfo: str, membership: str, controller: str) -> Path | None:
    """Return the folder of our own cgroup, or None. ``controller`` empty: of version 2."""
    lists = rf"\d+:(?:[^:]*,)?{controller}(?:,[^:]*)?" if controller else "0:"
    membership_match = re.search(rf"^{lists}:(.*)$", membership, re.MULTILINE)
    for line in mountinfo.splitlines():
        mount_fields, _, kind = line.partition(" - ")
        is_wanted = (
            kind.startswith("cgroup ") and controller in kind.split()[-1].split(",")
            if controller
            else kind.startswith("cgroup2 ")
        )
        if membership_match and is_wanted:
            root, mount_point = mount_fields.split()[3:5]
            if Path(membership_match[1]).is_relative_to(root):
                return Path(mount_point) / Path(membership_match[1]).relative_to(root)
    return None


def _beside(parent: Path) -> Hierarchy | None:
    """Return the hierarchy for cgroups next to our own in version 2, or None: to move between two cgroups,
    a process must be allowed to write their parent's members."""
    try:
        passed_on = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    writable = (parent, parent / "cgroup.procs")
    if not set(_CONTROLLERS) <= set(passed_on) or not all(
        os.access(path, os.W_OK) for path in writable
    ):
        return None
    return Hierarchy(parent, 2, _CONTROLLERS)


@contextmanager
def bounded_tree(
    usable_hierarchies: Sequence[Hierarchy], bounds: Bounds
) -> Iterator[tuple[Path, ...]]:
    """Yield files: a process that writes ``0`` to each is limited, with all processes that it starts. The
    cgroups end with their last process. Raises OSError."""
    with ExitStack() as exit_stack:
        yield tuple(
            exit_stack.enter_context(_cgroup(hierarchy, bounds)) for hierarchy in usable_hierarchies
        )


@contextmanager
def _cgroup(hierarchy: Hierarchy, bounds: Bounds) -> Iterator[Path]:
    folder = hierarchy.folder / f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        for name, value, is_needed in bounds.files(hierarchy):
            if is_needed or (folder / name).exists():
                (folder / name).write_text(value)
        yield folder / hierarchy.members
    finally:
        _remove(folder)


def remove_abandoned(folder: Path) -> None:
    """Remove what killed launchers left: empty cgroups that name a process which has ended."""
    for cgroup in folder.glob(f"{_PREFIX}*"):
        pid = cgroup.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with suppress(OSError):
                cgroup.rmdir()


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _LEAVING_S
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(_LOOK_AGAIN_S)
        else:
            return
