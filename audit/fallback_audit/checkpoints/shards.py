"""Where the file of a checkpoint is, and which there are: listed by every writer, so listed quickly."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

#: Sizes a subfolder has room for. A writer lists the subfolders and the last one of them, and its time
#: must not grow with the log: of ten million events, in fixes of 16, that is a thousand, and 625 files.
SHARD_EVENTS = 10_000

_SHARD = re.compile(r"[0-9]{12}", re.ASCII)
_FILE = re.compile(r"([0-9]{16})\.checkpoint", re.ASCII)


def file_of(folder: Path, size: int) -> Path:
    """Where the checkpoint of this size is, or would be."""
    return folder / f"{size // SHARD_EVENTS:012d}" / f"{size:016d}.checkpoint"


def sizes_in(folder: Path) -> Iterator[int]:
    """The sizes of which there are files, ascending. Raises OSError."""
    for shard in _shards(folder):
        yield from sorted(size for name in _names(shard) if (size := _size(name, shard)))


def smallest_in(folder: Path) -> int:
    """Return the smallest size of which there is a file; 0 if there is none. Raises OSError."""
    return next(sizes_in(folder), 0)


def largest_in(folder: Path) -> int:
    """The largest of them; 0 where there is none. Raises OSError."""
    for shard in reversed(_shards(folder)):
        for name in sorted(_names(shard), reverse=True):
            if size := _size(name, shard):
                return size
    return 0


def _shards(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [folder / name for name in sorted(filter(_SHARD.fullmatch, _names(folder)))]


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _size(name: str, shard: Path) -> int:
    """Of the checkpoint in the file of this name; 0: it is none, or stands in the wrong subfolder."""
    found = _FILE.fullmatch(name)
    size = int(found[1]) if found else 0
    return size if size // SHARD_EVENTS == int(shard.name) else 0
