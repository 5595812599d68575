"""Which files are looked at, and how they are read."""

import os
import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from fallback_audit.disk_errors import raise_failed
from fallback_tier.files.source_paths import SOURCE_SUFFIXES, is_beside

#: Source files opened per prompt: about half a second of reading; those nearest the root come first.
MAX_SCANNED_FILES = 2_000

#: Larger source files are generated or bundled as a rule; the largest that people write (lodash.js) has
#: half of it.
MAX_SOURCE_BYTES = 1024 * 1024

#: A line longer than this is minified code or data: nothing to copy an edit from. Where such lines are
#: most of a file, a program wrote it; else they are shown as cut.
MAX_LINE_CHARS = 1_000

#: How what stands in such a line's place begins.
CUT_LINE = "<<<CUT a line of"

#: Folders of other people's code and of built files.
_NOT_OURS = frozenset(
    {"node_modules", "bower_components", "site-packages", "venv", ".venv", ".tox", ".yarn"}
    | {"vendor", "vendored", "_vendor", "third_party", "third-party"}
    | {"dist", "build", "out", "min", "coverage"}
)


def scannable(tracked: Sequence[str], named: Collection[str]) -> list[str]:
    """Source files of the project itself, at most MAX_SCANNED_FILES: named ones, then by depth."""
    ours = (path for path in tracked if _is_source(path))
    order = sorted(
        ours, key=lambda path: (path not in named, is_beside(path), path.count("/"), path)
    )
    return order[:MAX_SCANNED_FILES]


class Reader:
    """Reads tracked text files of hand-written size, a folder's safety checked once.

    As strict as ``RepoContext.read_text`` (no link, nothing outside the root), for hundreds of files.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, bool] = {}

    def read(self, path: str) -> str | None:
        """The text of a path that git lists, or None: no such file, a link, binary, too large."""
        if not self._is_plain(path.rpartition("/")[0]):
            return None
        try:
            file = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE_BYTES:
                    return None
                # A file object costs as much as the rest of it, hundreds of times.
                text = os.read(file, status.st_size + 1).decode("utf-8")
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise_failed(error, f"{self._root}/{path}")
            return None
        return _by_a_person(text)

    def _is_plain(self, folder: str) -> bool:
        """A real folder below the root, by its own name."""
        if folder not in self._folders:
            place = f"{self._root}/{folder}" if folder else self._root
            self._folders[folder] = os.path.realpath(place) == place
        return self._folders[folder]


def _by_a_person(text: str) -> str | None:
    """The text with its long lines cut; None where a program wrote most of it."""
    if "\0" in text:
        return None
    if not _has_long_lines(text):
        return text
    lines = [
        line if len(line) <= MAX_LINE_CHARS else f"{CUT_LINE} {len(line):,} characters>>>"
        for line in text.split("\n")
    ]
    kept = "\n".join(lines)
    return kept if 2 * len(kept) > len(text) else None


def _has_long_lines(text: str) -> bool:
    start = 0
    # From a line's start to the last line end within reach: a look a kilobyte, not a look a line.
    while len(text) - start > MAX_LINE_CHARS:
        end = text.rfind("\n", start, start + MAX_LINE_CHARS + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _is_source(path: str) -> bool:
    *folders, name = path.split("/")
    return (
        f".{name.rpartition('.')[2]}" in SOURCE_SUFFIXES
        and ".min." not in name
        and ".bundle." not in name
        and _NOT_OURS.isdisjoint(folders)
    )
