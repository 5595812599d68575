"""Facts without which a figure can't be read: processor, cores, kernel, Python, disk, load."""

import os
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

#: Writes of one page each, enough for a steady median.
_SYNCS, _PAGE = 50, 4096


@dataclass(frozen=True)
class Machine:
    """The machine and its disk. ``load`` is the one-minute load average when the run began."""

    cpu: str
    cores: int
    kernel: str
    python: str
    filesystem: str
    fdatasync_ms: float
    load: float


def describe(place: Path) -> Machine:
    """Look at this machine; ``place`` is a folder on the disk that the rows use."""
    return Machine(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        python=platform.python_version(),
        filesystem=filesystem(place, Path("/proc/self/mounts").read_text()),
        fdatasync_ms=round(_fdatasync_s(place) * 1000, 3),
        load=round(os.getloadavg()[0], 2),
    )


def filesystem(place: Path, mounts: str) -> str:
    """The type of the file system under a folder, from the text of /proc/self/mounts."""
    path, best, kind = place.resolve(), -1, "unknown"
    for line in mounts.splitlines():
        _, mount, found, *_ = line.split(" ")
        point = Path(mount.replace(r"\040", " "))
        # The last of equal mounts is the one on top.
        if path.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _fdatasync_s(place: Path) -> float:
    path, times = place / "fdatasync", []
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for _ in range(_SYNCS):
            os.write(descriptor, bytes(_PAGE))
            start = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(times)
