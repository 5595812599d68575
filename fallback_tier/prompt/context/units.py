"""A source file as units: whole functions and methods, and the code between them.

The units of a file are disjoint and in order, and together they are its lines: what is shown of a
file is a choice of units, so that nothing is cut inside one.
"""

import io
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fallback_tier.syntax import Definition, Structure

#: Code between definitions is parted at blank lines into runs of at most this size.
_RUN_BYTES = 1_500

#: Lines that belong to the definition below them.
_ABOVE = re.compile(r"[ \t]*(?:#|//|/\*|\*|@)")


class Unit(NamedTuple):
    """Lines of one file (from 0, the end excluded), and the names that they define."""

    path: str
    start: int
    end: int
    names: tuple[str, ...] = ()


def lines_of(text: str) -> list[str]:
    """Its lines with their ends. ``str.splitlines`` would also break at form feeds and U+2028."""
    return list(io.StringIO(text, newline="\n"))


def sizes_of(lines: Sequence[str]) -> list[int]:
    """The bytes of each line in UTF-8."""
    if all(map(str.isascii, lines)):
        return list(map(len, lines))
    return [len(line.encode("utf-8", "replace")) for line in lines]


def units_of(
    path: str, lines: Sequence[str], structure: Structure, max_bytes: int
) -> tuple[Unit, ...]:
    """The units of a file. A definition over ``max_bytes`` is parted into those that it holds."""
    sizes = sizes_of(lines)
    spans = list(_definitions(lines, sizes, structure.definitions, max_bytes))
    units: list[Unit] = []
    at = 0
    for start, end, names in [*spans, (len(lines), len(lines), ())]:
        units.extend(Unit(path, *run) for run in _runs(lines, sizes, at, start))
        if start < end:
            units.append(Unit(path, start, end, names))
        at = end
    return tuple(units)


def _definitions(
    lines: Sequence[str], sizes: Sequence[int], found: Sequence[Definition], max_bytes: int
) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Disjoint spans of definitions: of a class its methods, unless it is as short as a run."""
    after = 0
    for number, definition in enumerate(found):
        start, end = definition.start_line - 1, min(definition.end_line, len(lines))
        if start < after:
            continue
        while start > after and _ABOVE.match(lines[start - 1]):
            start -= 1
        most = _RUN_BYTES if definition.kind == "class" else max_bytes
        inner = _inside(found, number)
        if sum(sizes[start:end]) > most and inner:
            continue
        yield start, end, tuple(dict.fromkeys(d.name for d in (definition, *inner) if d.name))
        after = end


def _inside(found: Sequence[Definition], number: int) -> list[Definition]:
    inner: list[Definition] = []
    for other in found[number + 1 :]:
        if other.nesting <= found[number].nesting:
            break
        inner.append(other)
    return inner


def _runs(
    lines: Sequence[str], sizes: Sequence[int], begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Runs of lines, cut after blank ones where a run would grow over _RUN_BYTES."""
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
