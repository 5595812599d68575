"""Cached folders by key: each created once, used by many runs at once, removed when no run uses it.

A key has two locks, and both are released when their holder ends. The *turn* is exclusive: its holder
checks whether the entry is complete, and creates it if not. The *use* is shared by all users. To remove a
key, a process needs both exclusively.
"""

import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import BinaryIO

from fallback_tier.files.folders import remove_tree, size_of
from fallback_tier.files.locks import hold, try_hold

#: The file of an entry that is written when it is complete, and touched at each use: its time is the last
#: use.
MARK = "whole"

#: The file with an entry's size in bytes when it was created.
_SIZE = "bytes"

#: Endings of folders that are being made or were set aside, next to complete ones. Those of a dead run are
#: removed.
_PART, _GONE = ".part", ".gone"

#: The longest time to make an entry: some clients install one package after the other.
MAX_WAIT_S = 3600.0


@dataclass(frozen=True)
class Entry:
    """A complete entry."""

    key: str
    place: Path
    size: int
    last_used: float


def say_nothing(_what: str) -> None:
    """Ignore a message."""


@dataclass(frozen=True)
class Entries:
    """The entries of one folder. ``what``: the name of an entry in messages to ``report``. The last used
    ``most`` entries and ``most_bytes`` are kept, and those in use."""

    folder: Path
    what: str
    _: KW_ONLY
    most: int
    most_bytes: float = math.inf
    report: Callable[[str], None] = say_nothing

    @contextmanager
    def turn(self, key: str) -> Iterator[Path]:
        """Hold an entry's path, complete or absent, exclusively. Raises OSError if the folder isn't
        writable, ToolFailedError if others take too long."""
        self.folder.mkdir(parents=True, exist_ok=True)

        def say() -> None:
            self.report(f"another run is busy with {self.what}: waiting for it")

        with hold(self._turn_of(key), waiting=say, limit_s=MAX_WAIT_S):
            yield self.folder / key

    def use(self, key: str) -> BinaryIO:
        """Start to use an entry, in its turn: it is not removed until the file is closed."""
        os.utime(self.folder / key / MARK)
        return hold(self._use_of(key), shared=True)

    @contextmanager
    def made(self, key: str) -> Iterator[Path]:
        """Yield a folder to make the entry in, in its turn; it becomes the entry if there was no error."""
        with self.part(key) as part:
            yield part
            self.put(part, key)

    @contextmanager
    def part(self, key: str) -> Iterator[Path]:
        """Yield a temporary folder, in the key's turn. It is removed unless it was ``put``."""
        for half in self.folder.glob(f"{key}.*{_PART}"):  # of a run that was killed in this turn
            remove_tree(half)
        part = self.folder / f"{key}.{secrets.token_hex(4)}{_PART}"
        try:
            part.mkdir()
            yield part
        finally:
            if part.exists():
                remove_tree(part)

    def put(self, part: Path, key: str) -> None:
        """Make a part the entry of a key, in the key's turn."""
        (part / _SIZE).write_text(str(size_of(part)), encoding="ascii")
        self._replace(self.folder / key, part)

    def all(self) -> list[Entry]:
        """Return the complete entries, the last used first. Nothing is locked, so entries may disappear."""
        entries = []
        for mark in self.folder.glob(f"*/{MARK}"):
            if mark.parent.suffix not in {_PART, _GONE}:
                with suppress(FileNotFoundError):
                    entries.append(_entry(mark))
        return sorted(entries, key=lambda entry: entry.last_used, reverse=True)

    def tidy(self) -> None:
        """Remove the leftovers of dead runs, and entries beyond the limits."""
        for folder in self.folder.glob("*.*"):
            if folder.suffix in {_PART, _GONE}:
                with self._alone(folder.name.partition(".")[0]) as is_exclusive:
                    if is_exclusive:
                        remove_tree(folder)
        size = 0
        for number, entry in enumerate(self.all()):
            size += entry.size
            if (number >= self.most or size > self.most_bytes) and self.remove(entry.key):
                size -= entry.size

    def remove(self, key: str) -> bool:
        """Remove an entry. Return False if it is in use."""
        with self._alone(key) as is_exclusive:
            if is_exclusive and (folder := self.folder / key).exists():
                remove_tree(_set_aside(folder))
            return is_exclusive

    def in_use(self, key: str) -> bool:
        """Return whether a run uses the entry now."""
        with self._alone(key) as is_exclusive:
            return not is_exclusive

    def _replace(self, folder: Path, part: Path) -> None:
        """Replace an entry. Runs that still use the old one keep its files until the next tidying."""
        old_folder = _set_aside(folder) if folder.exists() else None
        part.rename(folder)
        if old_folder is not None:
            use = try_hold(self._use_of(folder.name))
            if use is not None:
                with use:
                    remove_tree(old_folder)

    @contextmanager
    def _alone(self, key: str) -> Iterator[bool]:
        """Yield whether the entry is exclusively ours until the end. Remove its locks if it is gone."""
        with ExitStack() as exit_stack:
            locks = (self._turn_of(key), self._use_of(key))
            for lock in locks:
                file = try_hold(lock)
                if file is None:
                    yield False
                    return
                exit_stack.enter_context(file)
            yield True
            if not (self.folder / key).exists():
                for lock in locks:
                    lock.unlink(missing_ok=True)

    def _turn_of(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _use_of(self, key: str) -> Path:
        return self.folder / f"{key}.use"


def _set_aside(folder: Path) -> Path:
    """Rename a folder at once: removing takes time, and may be interrupted."""
    renamed = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}{_GONE}")
    folder.rename(renamed)
    return renamed


def _entry(mark: Path) -> Entry:
    folder = mark.parent
    size = folder / _SIZE
    bytes_ = int(size.read_text(encoding="ascii")) if size.exists() else size_of(folder)
    return Entry(folder.name, folder, bytes_, mark.stat().st_mtime)
