"""Where an edit's old text stands but for white space: the slips that models make, and no others.

Forgiven, together or alone: blanks at a line's end, blank lines before and after the old text, and an
indentation that all its lines have too much or too little of. Never forgiven: anything inside a line, a
tab for four spaces, a line left out. Nothing is guessed by likeness, as editors that fall back on edit
distance do: a fix in the wrong one of two similar branches passes for a fix.

Whole lines are compared, so a match replaces whole lines; what old and new have in common at their
heads and tails keeps the file's own bytes.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from fallback_tier.patch.lines import git_lines

#: Blanks of source code. Form feeds, no-break spaces and the like are content.
_INDENT: Final = " \t"
_BLANKS: Final = _INDENT + "\r"

#: Places that are told. One is needed; of more, a few show what to add around the old text.
MAX_PLACES: Final = 6

#: What opens or closes a string that may span lines (Python, JavaScript).
_LONG_QUOTES: Final = ('"""', "'''", "`")


@dataclass(frozen=True)
class _Shift:
    """What found lines are indented by more, and less, than typed ones (one of the two is empty)."""

    more: str
    less: str


@dataclass(frozen=True)
class _Core:
    """Lines without the blank ones around them, and how many of those there were."""

    lines: tuple[str, ...]
    before: int
    after: int


def loose_lines(text: str, old: str) -> tuple[int, ...]:
    """The numbers (from 0) of the lines at which the words of ``old`` begin, at most MAX_PLACES.

    Whatever their indentation: where the words stand twice, nothing but the exact text tells the two
    places apart. None where it has no word to go by.
    """
    core = _core(old)
    if not re.search(r"\w", "".join(core.lines)):
        return ()
    return tuple(islice(_alike(text.split("\n"), core.lines), MAX_PLACES))


def loosely_replaced(text: str, first: int, old: str, new: str) -> str | None:
    """The text with ``new`` in the place of ``old``, which begins at line ``first``, indented as that is.

    None: the lines differ by more than one indentation, or the new ones can't be shifted safely (inside
    a string that spans lines indentation is content; or they have less of it than is to go).
    """
    core = _core(old)
    lines = _trimmed(new, core)
    head = _common(core.lines, lines)
    tail = _common(core.lines[head:][::-1], lines[head:][::-1])
    inserted = lines[head : len(lines) - tail]
    shift = _uniform_shift(text.split("\n")[first:], core.lines)
    if shift is None:
        return None
    if shift.more or shift.less:
        if _indentation_is_content(core.lines[:head], inserted):
            return None
        if not all(line.startswith(shift.less) for line in inserted if line.strip(_BLANKS)):
            return None
        inserted = [_indented(line, shift) for line in inserted]
    return _spliced(text, slice(first + head, first + len(core.lines) - tail), inserted)


def _spliced(text: str, span: slice, inserted: Sequence[str]) -> str:
    """The lines of a span exchanged, with the line end of the place. A file whose last line has no end
    keeps it so."""
    lines = git_lines(text)
    near = (*lines[span.start : span.stop + 1], *lines[span.start - 1 : span.start])
    ended = next((line for line in near if line.endswith("\n")), "\n")
    line_end = "\r\n" if ended.endswith("\r\n") else "\n"
    is_open = not text.endswith("\n") and (bool(inserted) or span.stop < len(lines))
    if is_open:
        lines[-1] += line_end
    lines[span] = [line + line_end for line in inserted]
    whole = "".join(lines)
    return whole.removesuffix(line_end) if is_open else whole


def _core(text: str) -> _Core:
    lines = text.replace("\r\n", "\n").split("\n")
    full = [number for number, line in enumerate(lines) if line.strip(_BLANKS)]
    if not full:
        return _Core((), len(lines), 0)
    first, last = full[0], full[-1] + 1
    return _Core(tuple(lines[first:last]), first, len(lines) - last)


def _trimmed(new: str, old: _Core) -> list[str]:
    """The lines of ``new`` without as many blank ones around them as ``old`` had."""
    core = _core(new)
    if not core.lines:
        return [""] * max(0, core.before - old.before - old.after)
    before, after = max(0, core.before - old.before), max(0, core.after - old.after)
    return [*[""] * before, *core.lines, *[""] * after]


def _alike(lines: Sequence[str], core: Sequence[str]) -> Iterator[int]:
    """The numbers of the lines at which the core's words begin, whatever their indentation."""
    bodies, wanted = _bodies(lines), _bodies(core)
    at = number = 0
    while (found := bodies.find(wanted, at)) >= 0:
        number += bodies.count("\n", at, found)
        yield number
        at, number = found + 1, number + 1


def _bodies(lines: Sequence[str]) -> str:
    return "".join(f"\n{line.rstrip(_BLANKS).lstrip(_INDENT)}" for line in lines) + "\n"


def _uniform_shift(lines: Sequence[str], core: Sequence[str]) -> _Shift | None:
    """The one shift by which all lines that aren't blank differ; None: there isn't one."""
    pairs = zip(lines, core, strict=False)
    shifts = {_shift(found, typed) for found, typed in pairs if typed.strip(_BLANKS)}
    return shifts.pop() if len(shifts) == 1 else None


def _shift(found: str, typed: str) -> _Shift | None:
    there, here = _indentation(found), _indentation(typed)
    if there.endswith(here):
        return _Shift(there.removesuffix(here), "")
    return _Shift("", here.removesuffix(there)) if here.endswith(there) else None


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_INDENT))]


def _indented(line: str, shift: _Shift) -> str:
    return shift.more + line.removeprefix(shift.less) if line.strip(_BLANKS) else line


def _indentation_is_content(before: Sequence[str], inserted: Sequence[str]) -> bool:
    """May one of the inserted lines begin inside a string?"""
    is_open = any("".join(before).count(quote) % 2 for quote in _LONG_QUOTES)
    goes_on = any(line.endswith("\\") for line in (*before[-1:], *inserted))
    opens = any(line.count(quote) % 2 for line in inserted for quote in _LONG_QUOTES)
    return is_open or goes_on or opens


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
