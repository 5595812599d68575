"""Which lines of two texts correspond: patience diff, then difflib in the small gaps that remain.

Why not difflib alone: it is quadratic where changes are scattered over a large lock file (minutes
for 135,000 lines; this takes under a second). Why not ``git diff``: a subprocess, and an answer
that depends on its version and the user's configuration.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

#: A gap without a line unique to both sides goes to difflib up to this many cells (lines times
#: lines), about 0.1 s; a larger one is replaced as a whole: longer to read, just as right.
MAX_GAP_CELLS = 250_000


class Change(NamedTuple):
    """``before[i1:i2]`` became ``after[j1:j2]``; what lies between two changes is equal."""

    i1: int
    i2: int
    j1: int
    j2: int


def changes(before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    """The differing ranges, in order, none of them empty on both sides. Deterministic."""
    todo = [Change(0, len(before), 0, len(after))]
    while todo:
        gap = _trimmed(before, after, todo.pop())
        if gap.i1 == gap.i2 or gap.j1 == gap.j2:
            if gap.i1 < gap.i2 or gap.j1 < gap.j2:
                yield gap
        elif parts := _split_at_unique_lines(before, after, gap):
            todo += reversed(parts)
        elif (gap.i2 - gap.i1) * (gap.j2 - gap.j1) <= MAX_GAP_CELLS:
            yield from _by_difflib(before, after, gap)
        else:
            yield gap


def _trimmed(before: Sequence[str], after: Sequence[str], gap: Change) -> Change:
    i1, i2, j1, j2 = gap
    while i1 < i2 and j1 < j2 and before[i1] == after[j1]:
        i1, j1 = i1 + 1, j1 + 1
    while i1 < i2 and j1 < j2 and before[i2 - 1] == after[j2 - 1]:
        i2, j2 = i2 - 1, j2 - 1
    return Change(i1, i2, j1, j2)


def _split_at_unique_lines(
    before: Sequence[str], after: Sequence[str], gap: Change
) -> list[Change]:
    """The gaps between lines that occur once on each side and stand in the same order on both."""
    place_in_after = {
        line: gap.j1 + offset for line, offset in _unique(after[gap.j1 : gap.j2]).items()
    }
    pairs = [
        (gap.i1 + offset, place_in_after[line])
        for line, offset in _unique(before[gap.i1 : gap.i2]).items()
        if line in place_in_after
    ]
    if not pairs:
        return []
    parts: list[Change] = []
    i, j = gap.i1, gap.j1
    for anchor_i, anchor_j in [*_longest_increasing(pairs), (gap.i2, gap.j2)]:
        if i < anchor_i or j < anchor_j:
            parts.append(Change(i, anchor_i, j, anchor_j))
        i, j = anchor_i + 1, anchor_j + 1
    return parts


def _unique(lines: Sequence[str]) -> dict[str, int]:
    counts = Counter(lines)
    return {line: place for place, line in enumerate(lines) if counts[line] == 1}


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, ordered by the first, whose second also increases."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int | None] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect_left(tails, j)
        previous.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [j]
        ends[length : length + 1] = [index]
    run: list[tuple[int, int]] = []
    at: int | None = ends[-1]
    while at is not None:
        run.append(pairs[at])
        at = previous[at]
    return run[::-1]


def _by_difflib(before: Sequence[str], after: Sequence[str], gap: Change) -> Iterator[Change]:
    matcher = SequenceMatcher(None, before[gap.i1 : gap.i2], after[gap.j1 : gap.j2], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield Change(gap.i1 + i1, gap.i1 + i2, gap.j1 + j1, gap.j1 + j2)
