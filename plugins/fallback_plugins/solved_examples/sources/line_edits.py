"""Search/replace edits from a file's text before and after: each ``old`` stands exactly once.

Edits are what a record stores and what a replay applies. Line ends are not their business: they are
written with ``\\n`` and match either (ADR-0006).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from fallback_plugins.solved_examples.chunking.units import lines_of
from fallback_tier.errors import EditError
from fallback_tier.outcome import SearchReplace

#: Unchanged lines on each side of a change: enough to see where it stands. More only where it would
#: stand twice; the last resort is one edit from the first change to the last.
CONTEXT_LINES = 1

#: difflib is quadratic: lines times lines that it may compare (about 2 s at worst). What is larger is
#: first cut at the lines that both sides have once; where that does not help, it is one change.
MAX_CELLS = 4_000_000


class Change(NamedTuple):
    """``before[i1:i2]`` became ``after[j1:j2]``."""

    i1: int
    i2: int
    j1: int
    j2: int


def edits_between(path: str, before: str, after: str) -> tuple[SearchReplace, ...]:
    """Edits that, applied in order, turn ``before`` into ``after``; none where they are equal.

    Raises EditError where no edit can say it: the file is empty before, or differs in line ends only.
    """
    old, new = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    if before == after:
        return ()
    if not old or old == new:
        raise EditError(
            f"The change of {path!r} can't be written as search/replace edits.",
            next_step="An edit needs some text to find; line ends alone are not edited.",
        )
    lines, now = lines_of(old), lines_of(new)
    changes = list(changes_between(lines, now))

    def edit(start: int, stop: int) -> SearchReplace:
        """The range holds whole changes: its other side follows from those before and inside it."""
        first = next(change for change in changes if change.i1 >= start)
        last = next(change for change in reversed(changes) if change.i2 <= stop)
        text = now[first.j1 - (first.i1 - start) : last.j2 + (stop - last.i2)]
        return SearchReplace(path=path, old="".join(lines[start:stop]), new="".join(text))

    ranges = _unique(old, lines, [(change.i1, change.i2) for change in changes])
    edits = tuple(edit(*one) for one in ranges)
    if _applied(old, edits) != new:  # an earlier edit made a later one's text stand twice
        edits = (edit(ranges[0][0], ranges[-1][1]),)
    return edits


def changes_between(before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    """What differs, in order. Its time has a bound (MAX_CELLS): beyond it changes grow together."""
    start, stop, end = 0, len(before), len(after)
    while start < min(stop, end) and before[start] == after[start]:
        start += 1
    while start < min(stop, end) and before[stop - 1] == after[end - 1]:
        stop, end = stop - 1, end - 1
    cells = MAX_CELLS
    for gap in _gaps(before, after, Change(start, stop, start, end)):
        i1, i2, j1, j2 = gap
        if (i2 - i1) * (j2 - j1) > cells:
            yield gap
            continue
        cells -= (i2 - i1) * (j2 - j1)
        matcher = SequenceMatcher(None, before[i1:i2], after[j1:j2], autojunk=False)
        for tag, a1, a2, b1, b2 in matcher.get_opcodes():
            if tag != "equal":
                yield Change(i1 + a1, i1 + a2, j1 + b1, j1 + b2)


def _gaps(before: Sequence[str], after: Sequence[str], whole: Change) -> Iterator[Change]:
    """What is too large for difflib, in the pieces between lines that stand on both sides once, in
    the same order (as a patience diff does: a large file with two far changes stays two edits)."""
    i1, i2, j1, j2 = whole
    if (i2 - i1) * (j2 - j1) <= MAX_CELLS:
        yield whole
        return
    for i, j in (*_anchors(before[i1:i2], after[j1:j2]), (i2 - whole.i1, j2 - whole.j1)):
        gap = Change(i1, whole.i1 + i, j1, whole.j1 + j)
        if gap.i1 < gap.i2 or gap.j1 < gap.j2:
            yield gap
        i1, j1 = gap.i2 + 1, gap.j2 + 1


def _anchors(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that each side has once: the longest run of them in the same order."""
    here, there = Counter(before), Counter(after)
    place = {line: j for j, line in enumerate(after) if there[line] == here[line] == 1}
    pairs = [(i, place[line]) for i, line in enumerate(before) if line in place]
    tails: list[int] = []  # lowest last place of a run, by the run's length
    lengths: list[int] = []
    for _, j in pairs:
        at = bisect_left(tails, j)
        tails[at : at + 1] = [j]
        lengths.append(at)
    run: list[tuple[int, int]] = []
    wanted = len(tails) - 1
    for pair, length in zip(reversed(pairs), reversed(lengths), strict=True):
        if length == wanted:  # the last of its length has the lowest place of them
            run.append(pair)
            wanted -= 1
    return run[::-1]


def _unique(
    text: str, lines: Sequence[str], ranges: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The ranges with their context, those that would touch merged, each text found exactly once."""
    grown = _merged([_wider(one, CONTEXT_LINES, len(lines)) for one in ranges])
    step = 0
    while twice := {one for one in grown if not _once(text, "".join(lines[slice(*one)]))}:
        step += 1  # slowly at first, so that an edit stays short; the whole file stands once
        by = 1 + step // 4
        grown = _merged([_wider(one, by, len(lines)) if one in twice else one for one in grown])
    return grown


def _wider(one: tuple[int, int], by: int, count: int) -> tuple[int, int]:
    return max(0, one[0] - by), min(count, one[1] + by)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    return merged


def _once(text: str, part: str) -> bool:
    first = text.find(part)
    return first >= 0 and text.find(part, first + 1) < 0


def _applied(text: str, edits: Sequence[SearchReplace]) -> str | None:
    for edit in edits:
        if not _once(text, edit.old):
            return None
        text = text.replace(edit.old, edit.new)
    return text
