"""A disk that all but stops: a file as a disk (loop device), whose writes the kernel holds back.

The limit is the block layer's own (cgroup v1, ``blkio.throttle``), on this one device: data, and the file
system's journal. Nobody is told anything: a sync takes seconds. Linux, root, cgroup v1.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_BLKIO = Path("/sys/fs/cgroup/blkio")
_LIMIT = "blkio.throttle.write_iops_device"
_TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")

#: Enough for a few repositories, a record, and a small PostgreSQL; the file is sparse.
_BYTES = 1 << 30

_PATIENCE_S = 120.0


def missing() -> str | None:
    """Why no such disk can be had here; None where one can."""
    if not sys.platform.startswith("linux"):
        return "no slow disk: this is not Linux"
    if os.geteuid() != 0:
        return "no slow disk: this is not root"
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"no slow disk: {', '.join(absent)} not installed"
    if not (_BLKIO / _LIMIT).exists():
        return "no slow disk: the kernel's limits on a device (cgroup v1, blkio.throttle) are not there"
    if not Path("/dev/loop-control").exists():
        return "no slow disk: no loop devices"
    return None


@dataclass(frozen=True)
class SlowDisk:
    """``place``: where it is mounted."""

    place: Path
    device: str

    def allow(self, writes_a_second: int) -> None:
        """From now on; 0: no limit."""
        for group in _groups():
            (group / _LIMIT).write_text(f"{self.device} {writes_a_second}\n")


@contextmanager
def slow_disk(folder: Path) -> Iterator[SlowDisk]:
    """Empty, as quick as the disk below it; gone at the end."""
    folder.mkdir(parents=True)
    image, place = folder / "image", folder / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(_BYTES)
    _run("mkfs.ext4", "-q", str(image))
    device = _run("losetup", "--find", "--show", str(image)).strip()
    try:
        _run("mount", device, str(place))
        number = Path(device).stat().st_rdev
        made = SlowDisk(place, f"{os.major(number)}:{os.minor(number)}")
        try:
            yield made
        finally:
            made.allow(0)
            _run("umount", str(place))
    finally:
        _run("losetup", "--detach", device)
        image.unlink()


def _groups() -> set[Path]:
    """Ours, and the kernel's own, whose threads write the journal: a limit holds for one group alone."""
    ours = "/"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "blkio" in controllers.split(","):
            ours = path
    return {_BLKIO, _BLKIO / ours.lstrip("/")}


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE_S)
    return done.stdout
