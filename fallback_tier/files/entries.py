"""Folders by key, in one place: each made once, used by many runs at a time, removed while none uses it.

A key has two locks, and both die with whoever holds them. Its *turn* is had by one at a time, who looks
whether the entry is whole and makes it where it is not. Its *use* is shared by all who use it. A key is
removed by whoever has both alone.
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

#: In an entry: written when it is whole; changed at each use, so that its time says when that was.
MARK = "whole"

#: In an entry: its size in bytes when it was made.
_SIZE = "bytes"

#: What is being made, or was set aside, beside what is whole. Of a dead run: it is removed.
_PART, _GONE = ".part", ".gone"

#: As long as somebody may make an entry: some clients are asked for one package after the other.
MAX_WAIT_S = 3600.0


@dataclass(frozen=True)
class Entry:
    """One folder that is kept."""

    key: str
    place: Path
    size: int
    last_used: float


def say_nothing(_what: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Entries:
    """The entries of one folder. ``what``: one of them, in messages to ``report``. The last used ``most``
    entries and ``most_bytes`` are kept, and those in use."""

    folder: Path
    what: str
    _: KW_ONLY
    most: int
    most_bytes: float = math.inf
    report: Callable[[str], None] = say_nothing

    @contextmanager
    def turn(self, key: str) -> Iterator[Path]:
        """Hold an entry's place, complete or absent, exclusively. Raises OSError if the folder isn't
        writable, ToolFailedError if others take too long."""
        self.folder.mkdir(parents=True, exist_ok=True)

        def say() -> None:
            self.report(f"another run is busy with {self.what}: waiting for it")

        with hold(self._turn_of(key), waiting=say, limit_s=MAX_WAIT_S):
            yield self.folder / key

    def use(self, key: str) -> BinaryIO:
        """Take it, in its turn: nobody removes it until the file is closed."""
        os.utime(self.folder / key / MARK)
        return hold(self._use_of(key), shared=True)

    @contextmanager
    def made(self, key: str) -> Iterator[Path]:
        """A folder to make the entry in, in its turn; it stands in its place once all went well."""
        with self.part(key) as part:
            yield part
            self.put(part, key)

    @contextmanager
    def part(self, key: str) -> Iterator[Path]:
        """Yield a folder to make something in, in the key's turn. It is removed if it was not ``put``."""
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
        """What is kept, the last used first. Nothing is locked: some of it may just go."""
        found = []
        for mark in self.folder.glob(f"*/{MARK}"):
            if mark.parent.suffix not in {_PART, _GONE}:
                with suppress(FileNotFoundError):
                    found.append(_entry(mark))
        return sorted(found, key=lambda entry: entry.last_used, reverse=True)

    def tidy(self) -> None:
        """Remove what dead runs left, and what is too much."""
        for place in self.folder.glob("*.*"):
            if place.suffix in {_PART, _GONE}:
                with self._alone(place.name.partition(".")[0]) as alone:
                    if alone:
                        remove_tree(place)
        size = 0
        for number, entry in enumerate(self.all()):
            size += entry.size
            if (number >= self.most or size > self.most_bytes) and self.remove(entry.key):
                size -= entry.size

    def remove(self, key: str) -> bool:
        """Remove an entry; False where it is in use."""
        with self._alone(key) as alone:
            if alone and (place := self.folder / key).exists():
                remove_tree(_set_aside(place))
            return alone

    def in_use(self, key: str) -> bool:
        """Does a run have it, now?"""
        with self._alone(key) as alone:
            return not alone

    def _replace(self, place: Path, part: Path) -> None:
        """Who still uses what stood there keeps its files until the next tidying."""
        gone = _set_aside(place) if place.exists() else None
        part.rename(place)
        if gone is not None:
            use = try_hold(self._use_of(place.name))
            if use is not None:
                with use:
                    remove_tree(gone)

    @contextmanager
    def _alone(self, key: str) -> Iterator[bool]:
        """Is it ours alone, until the end? Its locks go where nothing of it is left."""
        with ExitStack() as held:
            locks = (self._turn_of(key), self._use_of(key))
            for lock in locks:
                file = try_hold(lock)
                if file is None:
                    yield False
                    return
                held.enter_context(file)
            yield True
            if not (self.folder / key).exists():
                for lock in locks:
                    lock.unlink(missing_ok=True)

    def _turn_of(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _use_of(self, key: str) -> Path:
        return self.folder / f"{key}.use"


def _set_aside(place: Path) -> Path:
    """Out of the way at once: removing takes its time, and may be ended in the middle."""
    gone = place.with_name(f"{place.name}.{secrets.token_hex(4)}{_GONE}")
    place.rename(gone)
    return gone


def _entry(mark: Path) -> Entry:
    place = mark.parent
    size = place / _SIZE
    bytes_ = int(size.read_text(encoding="ascii")) if size.exists() else size_of(place)
    return Entry(place.name, place, bytes_, mark.stat().st_mtime)
