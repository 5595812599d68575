"""The files of one prompt: each read, parsed and split once, and not kept for the next prompt."""

import io
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fallback_audit.disk_errors import raise_failed
from fallback_tier.files.source_paths import SOURCE_SUFFIXES, is_beside, keeps_secrets
from fallback_tier.prompt.redact import redact_secrets
from fallback_tier.repo import RepoContext
from fallback_tier.syntax import Definition, Structure, grammar_of, structure

#: Code between definitions is split at blank lines into runs of at most this size.
_RUN_BYTES = 1_500

#: Lines that belong to the definition below them.
_ABOVE = re.compile(r"[ \t]*(?:#|//|/\*|\*|@)")


class Unit(NamedTuple):
    """Lines of one file (from 0, end excluded), and the names that they define."""

    path: str
    start: int
    end: int
    names: tuple[str, ...] = ()


def lines_of(text: str) -> list[str]:
    """Return the lines with their ends. ``str.splitlines`` would also break at form feeds and U+2028."""
    return list(io.StringIO(text, newline="\n"))


def sizes_of(lines: Sequence[str]) -> list[int]:
    """Return the bytes of each line in UTF-8."""
    if all(map(str.isascii, lines)):
        return list(map(len, lines))
    return [len(line.encode("utf-8", "replace")) for line in lines]


def units_of(
    path: str, lines: Sequence[str], structure: Structure, max_bytes: int
) -> tuple[Unit, ...]:
    """Return the units of a file. A definition over ``max_bytes`` is split into the inner ones."""
    sizes = sizes_of(lines)
    spans = list(_definitions(lines, sizes, structure.definitions, max_bytes))
    units: list[Unit] = []
    previous_end = 0
    for start, end, names in [*spans, (len(lines), len(lines), ())]:
        units.extend(Unit(path, *run) for run in _runs(lines, sizes, previous_end, start))
        if start < end:
            units.append(Unit(path, start, end, names))
        previous_end = end
    return tuple(units)


def _definitions(
    lines: Sequence[str], sizes: Sequence[int], definitions: Sequence[Definition], max_bytes: int
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield disjoint spans of definitions: for a class its methods', unless it is as short as a run."""
    previous_end = 0
    for number, definition in enumerate(definitions):
        start, end = definition.start_line - 1, min(definition.end_line, len(lines))
        if start < previous_end:
            continue
        while start > previous_end and _ABOVE.match(lines[start - 1]):
            start -= 1
        max_size = _RUN_BYTES if definition.kind == "class" else max_bytes
        inner: list[Definition] = []
        for following in definitions[number + 1 :]:
            if following.nesting <= definitions[number].nesting:
                break
            inner.append(following)
        if sum(sizes[start:end]) > max_size and inner:
            continue
        yield (
            start,
            end,
            tuple(dict.fromkeys(part.name for part in (definition, *inner) if part.name)),
        )
        previous_end = end


def _runs(
    lines: Sequence[str], sizes: Sequence[int], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Yield runs of lines, cut after blank ones if a run would exceed _RUN_BYTES."""
    start, cut, size = begin, begin, 0
    for number in range(begin, end):
        if size + sizes[number] > _RUN_BYTES and cut > start:
            yield start, cut
            size = sum(sizes[cut:number])
            start = cut
        size += sizes[number]
        if not lines[number].strip():
            cut = number + 1
    if start < end:
        yield start, end


#: Source files opened per prompt: about half a second of reading; those nearest the root come first.
MAX_SCANNED_FILES = 2_000

#: Larger source files are usually generated or bundled; the largest that people write (lodash.js) has half
#: of it.
MAX_SOURCE_BYTES = 1024 * 1024

#: A longer line is minified code or data, from which no edit is copied. If such lines are most of a file, a
#: program wrote it and it is skipped; otherwise they are shown as cut.
MAX_LINE_CHARS = 1_000

#: The beginning of the text that replaces such a line.
CUT_LINE = "<<<CUT a line of"

#: Folders of third-party code and of built files.
_NOT_OURS = frozenset(
    {"node_modules", "bower_components", "site-packages", "venv", ".venv", ".tox", ".yarn"}
    | {"vendor", "vendored", "_vendor", "third_party", "third-party"}
    | {"dist", "build", "out", "min", "coverage"}
)


def scannable(tracked: Sequence[str], named_paths: Collection[str]) -> list[str]:
    """Return source files of the project itself, at most MAX_SCANNED_FILES: named ones, then by depth."""
    source_paths = (path for path in tracked if _is_source(path))
    order = sorted(
        source_paths,
        key=lambda path: (path not in named_paths, is_beside(path), path.count("/"), path),
    )
    return order[:MAX_SCANNED_FILES]


class Reader:
    """Reads tracked text files as strictly as ``RepoContext.read_text`` (no link, nothing outside the
    root), for hundreds of files: each folder is checked once."""

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        self._folders: dict[str, bool] = {}

    def read(self, path: str) -> str | None:
        """Return the text of a path that git lists, or None for a missing file, a link, a binary or a file
        that is too large."""
        if not self._is_plain(path.rpartition("/")[0]):
            return None
        try:
            file = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_SOURCE_BYTES:
                    return None
                # A file object would take as long as all the rest, hundreds of times.
                text = os.read(file, status.st_size + 1).decode("utf-8")
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise_failed(error, f"{self._root}/{path}")
            return None
        return _by_a_person(text)

    def _is_plain(self, folder: str) -> bool:
        """Return whether a folder is a real folder below the root, under its own name."""
        if folder not in self._folders:
            path = f"{self._root}/{folder}" if folder else self._root
            self._folders[folder] = os.path.realpath(path) == path
        return self._folders[folder]


def _by_a_person(text: str) -> str | None:
    """Return the text with its long lines cut, or None if a program wrote most of it."""
    if "\0" in text:
        return None
    if not _has_long_lines(text):
        return text
    lines = [
        line if len(line) <= MAX_LINE_CHARS else f"{CUT_LINE} {len(line):,} characters>>>"
        for line in text.split("\n")
    ]
    shortened = "\n".join(lines)
    return shortened if 2 * len(shortened) > len(text) else None


def _has_long_lines(text: str) -> bool:
    start = 0
    # From a line's start to the last line end within reach: one search per kilobyte, not per line.
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


#: Characters read for one prompt: twice what MAX_SCANNED_FILES files usually have. Each file is searched
#: for each name and kept, so 2,000 files of the largest size would take minutes and 2 GB.
MAX_READ_CHARS = 32 * 1024 * 1024

#: Characters parsed for one prompt: about 3 MB a second. The remaining files count as without definitions,
#: and are split at blank lines.
MAX_PARSED_CHARS = 1024 * 1024

#: Steps of one parse. Code that a person wrote, MAX_PARSED_CHARS of it, takes fewer.
_MAX_STEPS = 4_000


class Sources:
    """Reads through ``repo``. ``max_bytes``: a file up to this size is one unit, and is not parsed."""

    def __init__(self, repo: RepoContext, max_bytes: int) -> None:
        self._reader = Reader(repo.root)
        self._max_bytes = max_bytes
        self._texts: dict[str, str | None] = {}
        self._lines: dict[str, list[str]] = {}
        self._structures: dict[str, Structure] = {}
        self._units: dict[str, tuple[Unit, ...]] = {}
        self._left = MAX_PARSED_CHARS
        self._left_to_read = MAX_READ_CHARS

    def text(self, path: str) -> str | None:
        """Return a tracked text file, or None if ``Reader.read`` returned None, the file's name says that
        it contains secrets, or MAX_READ_CHARS are used up."""
        if path not in self._texts:
            is_readable = self._left_to_read > 0 and not keeps_secrets(path)
            text = self._reader.read(path) if is_readable else None
            self._left_to_read -= len(text or "")
            self._texts[path] = text
        return self._texts[path]

    def lines(self, path: str) -> list[str]:
        """Return the file's lines with their ends; none if it can't be read."""
        if path not in self._lines:
            self._lines[path] = lines_of(self.text(path) or "")
        return self._lines[path]

    def is_small(self, path: str) -> bool:
        """Return whether the file is shown whole."""
        text = self.text(path) or ""
        return len(text) <= self._max_bytes and len(text.encode()) <= self._max_bytes

    def structure(self, path: str) -> Structure:
        """Return definitions and imports; none if the file can't be parsed, or the limit is reached."""
        if path not in self._structures:
            self._structures[path] = self._parse(path, self.text(path) or "")
        return self._structures[path]

    def units(self, path: str) -> tuple[Unit, ...]:
        """Return a small file as one unit, any other as the units of ``units_of``."""
        if path not in self._units:
            lines = self.lines(path)
            self._units[path] = (
                (Unit(path, 0, len(lines)),)
                if self.is_small(path)
                else units_of(path, lines, self.structure(path), self._max_bytes)
            )
        return self._units[path]

    def body(self, unit: Unit) -> str:
        """Return the unit's text."""
        return "".join(self.lines(unit.path)[unit.start : unit.end])

    def _parse(self, path: str, text: str) -> Structure:
        grammar = grammar_of(path)
        if not grammar or len(text) > self._left:
            return Structure()
        self._left -= len(text)
        return structure(text, grammar, max_steps=_MAX_STEPS) or Structure()


class Showable:
    """Files as they may be shown: without ``secrets``, each redacted once."""

    def __init__(self, sources: Sources, secrets: frozenset[str]) -> None:
        self._sources = sources
        self._secrets = secrets
        self._lines: dict[str, list[str]] = {}
        self._hidden: dict[str, frozenset[int]] = {}

    def lines(self, path: str) -> list[str]:
        """Return the file's lines with their ends."""
        if path not in self._lines:
            text = self._sources.text(path) or ""
            self._lines[path] = lines_of(redact_secrets(text, self._secrets)[0])
        return self._lines[path]

    def hidden(self, path: str) -> frozenset[int]:
        """Return the numbers, from 1, of lines that are not shown as they are in the file."""
        if path not in self._hidden:
            pairs = zip(self.lines(path), self._sources.lines(path), strict=False)
            self._hidden[path] = frozenset(
                number
                for number, (shown, line) in enumerate(pairs, start=1)
                if shown != line or line.startswith(CUT_LINE)
            )
        return self._hidden[path]
