"""Unified diffs in git's own form, computed by the tool from the text before and after."""

import hashlib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from fallback_audit.events import Digest
from fallback_tier.errors import PatchError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.paths import unsafe_reason

#: A gap without a line that is unique on both sides is passed to difflib up to this many cells (lines times
#: lines), about 0.1 s; a larger one is replaced as a whole: longer to read, but as correct.
MAX_GAP_CELLS = 250_000


class Change(NamedTuple):
    """A range ``before[i1:i2]`` that became ``after[j1:j2]``; the lines between two changes are equal."""

    i1: int
    i2: int
    j1: int
    j2: int


def changes(before: Sequence[str], after: Sequence[str]) -> Iterator[Change]:
    """Yield the differing ranges, in order, none of them empty on both sides. Deterministic."""
    pending = [Change(0, len(before), 0, len(after))]
    while pending:
        i1, i2, j1, j2 = pending.pop()
        while i1 < i2 and j1 < j2 and before[i1] == after[j1]:
            i1, j1 = i1 + 1, j1 + 1
        while i1 < i2 and j1 < j2 and before[i2 - 1] == after[j2 - 1]:
            i2, j2 = i2 - 1, j2 - 1
        gap = Change(i1, i2, j1, j2)
        if gap.i1 == gap.i2 or gap.j1 == gap.j2:
            if gap.i1 < gap.i2 or gap.j1 < gap.j2:
                yield gap
        elif parts := _split_at_unique_lines(before, after, gap):
            pending += reversed(parts)
        elif (gap.i2 - gap.i1) * (gap.j2 - gap.j1) <= MAX_GAP_CELLS:
            yield from _by_difflib(before, after, gap)
        else:
            yield gap


def _split_at_unique_lines(
    before: Sequence[str], after: Sequence[str], gap: Change
) -> list[Change]:
    """Return the gaps between lines that occur once on each side, in the same order on both."""
    index_in_after = {
        line: gap.j1 + offset for line, offset in _unique(after[gap.j1 : gap.j2]).items()
    }
    pairs = [
        (gap.i1 + offset, index_in_after[line])
        for line, offset in _unique(before[gap.i1 : gap.i2]).items()
        if line in index_in_after
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
    return {line: index for index, line in enumerate(lines) if counts[line] == 1}


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of pairs, ordered by the first number, whose second number also increases."""
    tails: list[int] = []
    ends: list[int] = []
    previous: list[int | None] = []
    for index, (_, j) in enumerate(pairs):
        length = bisect_left(tails, j)
        previous.append(ends[length - 1] if length else None)
        tails[length : length + 1] = [j]
        ends[length : length + 1] = [index]
    run: list[tuple[int, int]] = []
    index_of_pair: int | None = ends[-1]
    while index_of_pair is not None:
        run.append(pairs[index_of_pair])
        index_of_pair = previous[index_of_pair]
    return run[::-1]


def _by_difflib(before: Sequence[str], after: Sequence[str], gap: Change) -> Iterator[Change]:
    matcher = SequenceMatcher(None, before[gap.i1 : gap.i2], after[gap.j1 : gap.j2], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield Change(gap.i1 + i1, gap.i1 + i2, gap.j1 + j1, gap.j1 + j2)


#: git's default; `git apply` finds a hunk by it.
CONTEXT_LINES = 3

NO_NEWLINE = "\\ No newline at end of file"


#: The header in our diffs of a new file. No line of a file begins so, because a hunk's lines begin with a
#: mark.
_NEW_FILE = re.compile(r"^diff --git a/(.+) b/\1\nnew file mode ", re.MULTILINE)


def unified_diff(file_changes: Sequence[FileChange]) -> str:
    """Return the diff from every ``before`` to its ``after``; "" if nothing differs.

    `git apply` reproduces ``after`` byte for byte. Sorted by path, three context lines, no `index` lines
    (the target may lack those blobs); new files are 100644. Raises PatchError for what a strict parser
    refuses: an unsafe path (``paths``), one path twice, NUL characters.
    """
    ordered = sorted(file_changes, key=lambda change: change.path)
    for change, following in pairwise(ordered):
        if change.path == following.path:
            raise PatchError(
                f"{change.path!r} is changed twice in one patch.",
                next_step="Merge the changes of a file before making the diff.",
                kind="duplicate_path",
            )
    return "".join(_block(change) for change in ordered if change.before != change.after)


def new_files(diff: str) -> frozenset[str]:
    """Return the files that one of our diffs creates."""
    return frozenset(_NEW_FILE.findall(diff))


def patch_digest(diff: str) -> Digest:
    """Return the SHA-256 of a diff's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(diff.encode("utf-8")).hexdigest()


def _block(change: FileChange) -> str:
    reason = unsafe_reason(change.path)
    if reason is None and "\0" in (change.before or "") + (change.after or ""):
        reason = "the text has a NUL character, so that git takes the file for binary"
    if reason is not None:
        raise PatchError(
            f"No patch can be made for {change.path!r}: {reason}.",
            next_step="Only text files with plain relative names are changed.",
        )
    path, before, after = change.path, change.before, change.after
    lines = [f"diff --git a/{path} b/{path}\n"]
    if before is None:
        lines.append("new file mode 100644\n")
    if after is None:
        lines.append("deleted file mode 100644\n")
    if before or after:
        # git ends a name that has a space with a tab, so that parsers know where it ends.
        tab = "\t" if " " in path else ""
        lines.append("--- /dev/null\n" if before is None else f"--- a/{path}{tab}\n")
        lines.append("+++ /dev/null\n" if after is None else f"+++ b/{path}{tab}\n")
        lines += _hunks(git_lines(before or ""), git_lines(after or ""))
    return "".join(lines)


def _hunks(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for group in _grouped(before, after):
        first, last = group[0], group[-1]
        lead = min(CONTEXT_LINES, first.i1)
        tail = min(CONTEXT_LINES, len(before) - last.i2)
        old = _range(first.i1 - lead, last.i2 + tail)
        new = _range(first.j1 - lead, last.j2 + tail)
        yield f"@@ -{old} +{new} @@\n"
        at = first.i1 - lead
        for change in group:
            yield from _marked(" ", before[at : change.i1])
            yield from _marked("-", before[change.i1 : change.i2])
            yield from _marked("+", after[change.j1 : change.j2])
            at = change.i2
        yield from _marked(" ", before[at : at + tail])


def _grouped(before: Sequence[str], after: Sequence[str]) -> Iterator[list[Change]]:
    """Yield groups of changes: changes whose contexts touch share a hunk."""
    group: list[Change] = []
    for change in changes(before, after):
        if group and change.i1 - group[-1].i2 > 2 * CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _range(start: int, stop: int) -> str:
    """Return ``first,count`` as git writes it: no ",1", and an empty range named by the line before."""
    count = stop - start
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line if line.endswith("\n") else f"{mark}{line}\n{NO_NEWLINE}\n"


def git_lines(text: str) -> list[str]:
    """Return the lines as git sees them, each with its ``\\n``; a last line may lack one. Empty text: none.

    ``str.splitlines`` also cuts at form feeds, ``\\x1c``, U+2028 and others, which git keeps inside a line:
    a diff made from its lines is refused, or worse, applied to something else.
    """
    lines = [line + "\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
