"""What was installed once, by what decides it: whoever needs the same finds it made (ADR-0041).

An entry is written by its making alone. It is looked at whenever it is taken: all of its bytes once a boot,
after that sizes, times and names. One that was changed is made again.
"""

import hashlib
import json
import os
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from fallback_plugins.shared.installed import Installed
from fallback_tier.errors import ToolFailedError
from fallback_tier.files.entries import MARK, Entries, Entry, say_nothing
from fallback_tier.files.folders import boot_id
from fallback_tier.gate_ports import GateContext

#: Sets of what a project installs. Eight commits are kept checked out (ADR-0027); each is proved with its
#: own set and a patched one, and there is room for a retry's, for a second project folder, and for wheels
#: that were built for them.
MAX_ENTRIES = 64

#: A set is some 10 MB to 1 GB; files that a client's own cache shares with it are counted all the same.
MAX_BYTES = 20 * 1024**3

#: Folder of an entry: what was installed.
_CONTENT = "installed"

#: File of an entry: stands for its day, and for all that builds which failed for it may owe that to.
_TRIED = "tried"

#: Where a state folder's cache has them.
FOLDER = "installed"


@dataclass(frozen=True)
class _Found:
    """What was found of an entry. ``stats``: of names, sizes and times; ``content``: of every byte."""

    boot: str
    stats: str
    content: str


class InstalledStore:
    """The entries of one folder. What it gave out is in use for as long as this object lives."""

    def __init__(self, folder: Path, report: Callable[[str], None] = say_nothing) -> None:
        self._report = report
        self._entries = entries_of(folder, report)
        self._uses: dict[str, BinaryIO] = {}
        weakref.finalize(self, _let_go, self._uses)

    @classmethod
    def of(cls, context: GateContext) -> "InstalledStore":
        """The one of a gate's state folder."""
        return cls(context.cache / FOLDER, context.report)

    def entry(self, key: str, make: Callable[[Path], Installed], *, tried: str = "") -> Path:
        """The entry's folder, made if it is not there; ``Installed.kept`` tells what is in it.

        ``key``: all that decides it, ``KIND-DIGEST``; ``tried``: stands for the day, and for all that a
        failed build may owe its failure to. Where that is another, one that lacks what was not built or has
        releases of the day (``Installed.of_day``), is made again, once nobody uses it: the other tree's, or
        the next fix's, would be another. Raises what ``make`` raises, nothing is kept then; OSError;
        ToolFailedError where another run makes it and does not end.
        """
        with self._entries.turn(key) as place:
            if not self._is_whole(place) or self._is_replaced(key, place, tried):
                with self._entries.made(key) as part:
                    (part / _TRIED).write_text(tried, encoding="utf-8")
                    (part / _CONTENT).mkdir()
                    make(part / _CONTENT).keep(part / _CONTENT)
                    _mark(part)
            self._use(key)
        self._entries.tidy()
        return place / _CONTENT

    def has(self, key: str) -> bool:
        """Was the entry made? Nothing in it is looked at."""
        return (self._entries.folder / key).is_dir()

    def find(self, key: str) -> Path | None:
        """The entry's folder, if it was made and is whole. Raises OSError, ToolFailedError."""
        if not self.has(key):
            return None
        with self._entries.turn(key) as place:
            if not self._is_whole(place):
                return None
            self._use(key)
        return place / _CONTENT

    @staticmethod
    def digest(place: Path) -> str:
        """Of every byte of an entry's folder, as it was made."""
        mark = json.loads((place.parent / MARK).read_text(encoding="utf-8"))
        return str(mark["content"])

    def _use(self, key: str) -> None:
        use = self._entries.use(key)
        if (before := self._uses.pop(key, None)) is not None:
            before.close()
        self._uses[key] = use

    def _is_replaced(self, key: str, place: Path, tried: str) -> bool:
        return _is_stale(place, tried) and not self._entries.has_user(key)

    def _is_whole(self, place: Path) -> bool:
        """Is it as it was made? Looks at all of it where this boot has not, or where something differs."""
        if not place.exists():
            return False
        with suppress(
            OSError, ValueError, TypeError
        ):  # parts of it are gone, or its mark says nothing
            kept = _Found(**json.loads((place / MARK).read_text(encoding="utf-8")))
            if kept.boot == boot_id() and kept.stats == _digest(place / _CONTENT, _stats):
                return True
            if kept.content == _digest(place / _CONTENT, _content):
                _mark(place)
                return True
        self._report(f"what was installed was changed since, and is made again: {place}")
        return False


def entries_of(folder: Path, report: Callable[[str], None] = say_nothing) -> Entries:
    """The entries, as folders that are kept."""
    what = "what is to be installed"
    return Entries(folder, what, most=MAX_ENTRIES, most_bytes=MAX_BYTES, report=report)


def described(entry: Entry) -> tuple[str, str]:
    """An entry's kind, and how much of what was declared is in it."""
    kind = entry.key.partition("-")[0]
    try:
        return kind, Installed.kept(entry.place / _CONTENT).level
    except (OSError, ToolFailedError):
        return kind, "nothing that can be read"


def _is_stale(place: Path, tried: str) -> bool:
    found = Installed.kept(place / _CONTENT)
    if not found.unbuilt and not found.of_day:
        return False
    with suppress(OSError, ValueError):
        return (place / _TRIED).read_text(encoding="utf-8") != tried
    return True


def _let_go(uses: dict[str, BinaryIO]) -> None:
    for use in uses.values():
        use.close()


def _mark(place: Path) -> None:
    """Written in its turn, and whole: a reader has the turn too."""
    content = place / _CONTENT
    found = _Found(boot_id(), _digest(content, _stats), _digest(content, _content))
    partial = place / f"{MARK}.new"
    partial.write_text(json.dumps(asdict(found)), encoding="utf-8")
    partial.replace(place / MARK)


def _digest(top: Path, of: Callable[[bytes, os.stat_result], object]) -> str:
    """Of all below a folder: each one's name, kind and rights, and what ``of`` says of it."""
    whole = hashlib.sha256()
    start = os.fsencode(top)
    for path, found in _walk(start):
        name = path[len(start) :].hex()
        whole.update(f"{name} {found.st_mode} {of(path, found)}\n".encode())
    return whole.hexdigest()


def _walk(top: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    """Everything below a folder, in an order that is always the same; links are not followed."""
    waiting = _last_first(top)
    while waiting:
        entry = waiting.pop()
        yield entry.path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            waiting += _last_first(entry.path)


def _last_first(folder: bytes) -> list[os.DirEntry[bytes]]:
    """What is in one folder, by name."""
    return sorted(os.scandir(folder), key=lambda found: found.name, reverse=True)


def _stats(_path: bytes, found: os.stat_result) -> object:
    """Of a folder nothing: all that is in it is looked at. Not the time at which a file's own facts
    changed: a client's cache links it in further places."""
    if stat.S_ISDIR(found.st_mode):
        return ""
    return found.st_size, found.st_mtime_ns, found.st_ino


def _content(path: bytes, found: os.stat_result) -> object:
    if stat.S_ISLNK(found.st_mode):
        return os.readlink(path).hex()  # noqa: PTH115 (a name that no encoding has)
    if not stat.S_ISREG(found.st_mode):
        return ""
    with open(path, "rb") as file:  # noqa: PTH123 (as above)
        return hashlib.file_digest(file, "sha256").hexdigest()
