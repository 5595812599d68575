"""Does a prompt show the place of the true fix? The lines that it removes, or that it stands between.

Matched by content, white space at the ends aside, and where snippets name their file, in those of the
same file only. A line that says nothing (fewer than three characters, or only brackets) is not counted.
"""

import re
from collections.abc import Iterable, Sequence

from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.chunking.units import lines_of
from fallback_plugins.solved_examples.sources.release_files import Change, changes_between
from fallback_tier.prompt.fence import PREFIX
from tests.campaigns.own_code.upstream import FileFix

#: Unchanged lines between two changes that git still shows as one hunk.
_SAME_HUNK_LINES = 6

#: Fewer characters than this, blanks aside, say nothing.
_MIN_CHARS = 3

_FENCE = re.compile(
    r"^<<<UNTRUSTED (?P<code>\S+) repository_snippet[^\n]*>>>\n(?P<body>.*?)^<<<END (?P=code)>>>",
    re.MULTILINE | re.DOTALL,
)
_NAMES_ITS_FILE = re.compile(r"(?P<path>.+), lines \d+-\d+:")


class HunkLines(Frozen):
    """What must be seen of one hunk: its removed lines, else those around the insertion."""

    path: str
    lines: tuple[str, ...]


class Shown(Frozen):
    """How much of the fix's place one prompt shows."""

    lines: int
    lines_shown: int
    hunks: int
    hunks_touched: int
    hunks_whole: int

    @property
    def any(self) -> bool:
        return self.lines_shown > 0

    @property
    def half(self) -> bool:
        return self.any and 2 * self.lines_shown >= self.lines

    @property
    def all(self) -> bool:
        return self.any and self.lines_shown == self.lines


def hunk_groups(file: FileFix) -> tuple[tuple[Change, ...], ...]:
    """The changed blocks of a file, those that git would show together in one tuple."""
    before = lines_of(file.before.replace("\r\n", "\n"))
    groups: list[list[Change]] = []
    for change in changes_between(before, lines_of(file.after)):
        if groups and change.i1 - groups[-1][-1].i2 <= _SAME_HUNK_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    return tuple(map(tuple, groups))


def site(files: Iterable[FileFix]) -> tuple[HunkLines, ...]:
    """What must be seen of a fix, one entry a hunk that has a line that says something."""
    found = []
    for file in files:
        lines = [line.strip() for line in lines_of(file.before.replace("\r\n", "\n"))]
        for group in hunk_groups(file):
            removed = [line for one in group for line in lines[one.i1 : one.i2] if says(line)]
            wanted = removed or [line for one in group for line in _around(lines, one)]
            if wanted:
                found.append(HunkLines(path=file.path, lines=tuple(dict.fromkeys(wanted))))
    return tuple(found)


def says(line: str) -> bool:
    """Is it a line that tells one place from another?"""
    bare = "".join(line.split())
    return len(bare) >= _MIN_CHARS and any(char.isalnum() for char in bare)


def shown(prompt: str, hunks: Sequence[HunkLines]) -> Shown:
    """How much of these hunks stands in a prompt's snippets."""
    by_path, unnamed = _snippets(prompt)
    counts = []
    for hunk in hunks:
        seen = by_path.get(hunk.path, set()) | unnamed
        counts.append((len(hunk.lines), sum(line in seen for line in hunk.lines)))
    return Shown(
        lines=sum(of for of, _ in counts),
        lines_shown=sum(seen for _, seen in counts),
        hunks=len(counts),
        hunks_touched=sum(seen > 0 for _, seen in counts),
        hunks_whole=sum(seen == of for of, seen in counts),
    )


def _around(lines: Sequence[str], change: Change) -> list[str]:
    """The nearest lines that say something, above and below."""
    above = next((line for line in reversed(lines[: change.i1]) if says(line)), None)
    below = next((line for line in lines[change.i2 :] if says(line)), None)
    return [line for line in (above, below) if line is not None]


def _snippets(prompt: str) -> tuple[dict[str, set[str]], set[str]]:
    """Lines by the file that a snippet names, and those of snippets that name none."""
    named: dict[str, set[str]] = {}
    unnamed: set[str] = set()
    for fence in _FENCE.finditer(prompt):
        lines = [line.removeprefix(PREFIX).strip() for line in fence["body"].split("\n")]
        head = _NAMES_ITS_FILE.fullmatch(lines[0])
        held = unnamed if head is None else named.setdefault(head["path"], set())
        held.update(lines)
    return named, unnamed
