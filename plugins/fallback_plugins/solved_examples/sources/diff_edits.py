"""From a unified diff (as git makes it) to search/replace edits: one hunk, one edit.

``old`` is what the hunk removes with the context around it, ``new`` what stands there afterwards,
both exactly as in the diff, line ends too. A diff says less than its files: an ``old`` may stand in
the file twice, so such edits are shown and never replayed (ADR-0013).

What search and replace can't say is left out, and named: a new or deleted file, a binary one, a
merge's combined diff, and an insertion without context (no text to search for).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fallback_tier.outcome import SearchReplace

#: Nine digits a number: no file has more lines, and int() raises beyond 4,300.
_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")

#: How git writes what it quotes in a path: three octal digits a byte, or one letter.
_QUOTED = re.compile(rb"\\([0-7]{3}|.)")
_LETTERS = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


class LeftOutReason(StrEnum):
    """Why a part of a diff became no edit."""

    NEW_FILE = "new file"
    DELETED_FILE = "deleted file"
    BINARY = "binary file"
    COMBINED = "combined diff of a merge"
    NO_ANCHOR = "insertion without context"
    BROKEN = "broken hunk"


@dataclass(frozen=True)
class LeftOut:
    """A part of a diff that is no edit: one hunk, or one file."""

    path: str
    reason: LeftOutReason


@dataclass(frozen=True)
class Hunk:
    """One hunk. ``line``: where ``old`` begins in the file before, counted from 1."""

    line: int
    edit: SearchReplace


def hunks(diff: str) -> Iterator[Hunk | LeftOut]:
    """Every hunk as an edit, in the diff's order, or what was left out and why. Never raises."""
    for header, body in _sections(diff.removesuffix("\n").split("\n")):
        path = _path(header)
        reason = _no_edit(header)
        if reason is not None:
            yield LeftOut(path, reason)
        else:
            yield from _hunks(path, body)


def edits_of(diff: str) -> tuple[tuple[SearchReplace, ...], tuple[LeftOut, ...]]:
    """The edits of a diff in its order, and what was left out. Never raises."""
    found = tuple(hunks(diff))
    return (
        tuple(part.edit for part in found if isinstance(part, Hunk)),
        tuple(part for part in found if isinstance(part, LeftOut)),
    )


def _sections(lines: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """(header, body) of each file. A body's length is by its hunks: they may hold any line."""
    at = 0
    while at < len(lines):
        if not lines[at].startswith(("diff --git ", "diff --cc ", "diff --combined ", "--- ")):
            at += 1
            continue
        header = [lines[at]]
        at += 1
        while at < len(lines) and not lines[at].startswith(("@@", "diff --")):
            header.append(lines[at])
            at += 1
        start = at
        while at < len(lines) and (match := _HUNK.match(lines[at])):
            at = _end(lines, at + 1, match)
        yield header, list(lines[start:at])


def _end(lines: Sequence[str], at: int, hunk: re.Match[str]) -> int:
    """The line after a hunk's last one; the end of the diff where it is cut short."""
    old, new = _count(hunk[2]), _count(hunk[4])
    while at < len(lines) and (old > 0 or new > 0):
        mark = lines[at][:1]
        old -= mark != "+" and mark != "\\"
        new -= mark != "-" and mark != "\\"
        at += 1
    return at + (at < len(lines) and lines[at].startswith("\\"))


def _count(given: str | None) -> int:
    return 1 if given is None else int(given)


def _no_edit(header: Sequence[str]) -> LeftOutReason | None:
    """Why a whole file is left out."""
    text = "\n".join(header)
    if header[0].startswith(("diff --cc ", "diff --combined ")):
        return LeftOutReason.COMBINED
    if "\nnew file mode" in text or "--- /dev/null" in header:
        return LeftOutReason.NEW_FILE
    if "\ndeleted file mode" in text or "+++ /dev/null" in header:
        return LeftOutReason.DELETED_FILE
    if "\nBinary files " in text or "\nGIT binary patch" in text:
        return LeftOutReason.BINARY
    return None


def _hunks(path: str, body: Sequence[str]) -> Iterator[Hunk | LeftOut]:
    at = 0
    while at < len(body) and (match := _HUNK.match(body[at])):
        end = _end(body, at + 1, match)
        yield _hunk(path, match, body[at + 1 : end])
        at = end


def _hunk(path: str, head: re.Match[str], lines: Sequence[str]) -> Hunk | LeftOut:
    old: list[str] = []
    new: list[str] = []
    last: list[list[str]] = []
    for line in lines:
        if line.startswith("\\"):
            for side in last:  # "\ No newline at end of file"
                side[-1] = side[-1][:-1]
            continue
        last = [old] if line[:1] == "-" else [new] if line[:1] == "+" else [old, new]
        for side in last:
            side.append(line[1:] + "\n")
    if (len(old), len(new)) != (_count(head[2]), _count(head[4])) or not path:
        return LeftOut(path, LeftOutReason.BROKEN)
    before = "".join(old)
    if not before.strip():
        return LeftOut(path, LeftOutReason.NO_ANCHOR)
    return Hunk(int(head[1]), SearchReplace(path=path, old=before, new="".join(new)))


def _path(header: Sequence[str]) -> str:
    """The file's path before the change: that is where ``old`` is found."""
    for mark, prefix in (("--- ", "a/"), ("+++ ", "b/")):
        for line in header:
            # git ends a path that has blanks with a tab.
            path = _unquoted(line.removeprefix(mark).rstrip("\r").removesuffix("\t"))
            if line.startswith(mark) and path != "/dev/null":
                return path.removeprefix(prefix)
    # No text was changed: a binary or an empty file.
    return _unquoted(header[0].rpartition(" ")[2]).removeprefix("b/")


def _unquoted(path: str) -> str:
    r"""A path as the file system has it: git writes ``"caf\303\251.py"`` for ``café.py``."""
    if len(path) < 2 or path[0] != '"' or path[-1] != '"':
        return path

    def byte(found: re.Match[bytes]) -> bytes:
        if found[1].isdigit():
            return bytes([int(found[1], 8) & 0xFF])
        return _LETTERS.get(found[1], found[1])

    return _QUOTED.sub(byte, path[1:-1].encode()).decode("utf-8", "replace")
