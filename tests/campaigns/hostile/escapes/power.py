"""Becoming somebody else, and taking more than a share."""

import mmap
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.campaigns.hostile.escapes.base import Facts, ShutError, escape, opened

#: Not in every Python's mmap: no more is promised than is touched.
_NORESERVE = 0x4000


@escape
def setuid_program(facts: Facts) -> None:
    reported = subprocess.run([facts["setuid"], "-u"], capture_output=True, text=True, check=True)
    if int(reported.stdout) == os.getuid():
        raise ShutError


@escape
def capabilities_by_exec(facts: Facts) -> None:
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout
    sets = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
    if not any(int(value, 16) for value in sets.values()):
        raise ShutError


@escape
def another_user(facts: Facts) -> None:
    os.setuid(12345)


@escape
def other_groups(facts: Facts) -> None:
    os.setgroups([12345])


@escape
def higher_limits(facts: Facts) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard == resource.RLIM_INFINITY:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (hard + 1, hard + 1))
    except ValueError as error:
        raise ShutError from error


@escape
def memory_device(facts: Facts) -> None:
    opened("/dev/mem", os.O_RDONLY)


@escape
def kernel_log_device(facts: Facts) -> None:
    opened("/dev/kmsg", os.O_RDONLY)


@escape
def disk(facts: Facts) -> None:
    lines = Path("/proc/partitions").read_text().splitlines()[2:]
    for line in lines:
        try:
            return opened(f"/dev/{line.split()[3]}", os.O_RDONLY)
        except OSError:
            continue
    raise ShutError


@escape
def fuse_device(facts: Facts) -> None:
    opened("/dev/fuse", os.O_RDWR)


@escape
def any_other_device(facts: Facts) -> None:
    usual = {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
    found = (place for place in Path("/dev").iterdir() if place.name not in usual)
    if not any(not p.is_symlink() and (p.is_char_device() or p.is_block_device()) for p in found):
        raise ShutError


@escape
def processes_without_end(facts: Facts) -> None:
    children = []
    try:
        for _ in range(facts["processes"]):
            if (child := os.fork()) == 0:
                signal.pause()
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@escape
def memory_without_end(facts: Facts) -> None:
    """Address space only: nothing is touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    mmap.mmap(-1, facts["memory"], flags=flags).close()


@escape
def shared_memory_without_end(facts: Facts) -> None:
    """No limit of one process counts it."""

    def fill() -> None:
        shared = mmap.mmap(-1, facts["shared"], flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        for at in range(0, facts["shared"], mmap.PAGESIZE):
            shared[at] = 1

    _ended_well(fill)


@escape
def memory_by_descriptors_without_end(facts: Facts) -> None:
    """Files in memory that stand nowhere: of as many as one likes, each as large as a file may be."""

    def fill() -> None:
        for _ in range(4):
            place = os.memfd_create("escape")
            os.truncate(place, facts["shared"] // 4)
            # Mapped, so that it is this process that the kernel takes for the largest.
            part = mmap.mmap(place, facts["shared"] // 4)
            for at in range(0, len(part), mmap.PAGESIZE):
                part[at] = 1
            kept.append(part)

    kept: list[mmap.mmap] = []
    _ended_well(fill)


def _ended_well(fill: Callable[[], None]) -> None:
    """In a process of its own: the kernel kills it where there is too much."""
    if (child := os.fork()) == 0:
        try:
            fill()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise ShutError


@escape
def a_file_without_end(facts: Facts) -> None:
    """A hole: no block is written."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path("large").open("wb") as file:
        try:
            file.truncate(facts["file"])
        finally:
            Path("large").unlink()


@escape
def memory_files_without_end(facts: Facts) -> None:
    """Is a file system in memory larger than it may be?"""
    for place in ("/tmp", "/dev/shm"):
        room = os.statvfs(place)
        if room.f_blocks * room.f_frsize > facts["tmpfs"]:
            return
    raise ShutError


@escape
def a_core_dump(facts: Facts) -> None:
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        raise ShutError
