"""What a prompt shows of a fix's place."""

import pytest

from fallback_tier.prompt.fence import SourceKind, fence
from tests.campaigns.own_code.shown import HunkLines, Shown, shown, site
from tests.campaigns.own_code.upstream import FileFix

NONCE = "0123456789abcdef" * 2
BEFORE = "".join(f"value_{n} = {n}\n" for n in range(40))


def snippet(text: str, kind: SourceKind = SourceKind.REPOSITORY_SNIPPET) -> str:
    return f"S1:\n{fence(text, source_kind=kind, nonce=NONCE).text}\n"


def fix(after: str, before: str = BEFORE) -> FileFix:
    return FileFix(path="lib/a.py", before=before, after=after)


def test_removed_lines_are_what_must_be_seen() -> None:
    after = BEFORE.replace("value_3 = 3\n", "").replace("value_30 = 30", "value_30 = 31")
    assert site([fix(after)]) == (
        HunkLines(path="lib/a.py", lines=("value_3 = 3",)),
        HunkLines(path="lib/a.py", lines=("value_30 = 30",)),
    )


def test_an_insertion_has_the_lines_around_it() -> None:
    before = "def f():\n\n    first()\n}\n\n    second()\n"
    after = before.replace("}\n", "}\n    new()\n")
    (hunk,) = site([fix(after, before)])
    assert hunk.lines == ("first()", "second()")


def test_changes_that_git_shows_together_are_one_hunk() -> None:
    after = BEFORE.replace("= 3\n", "= 0\n").replace("= 9\n", "= 0\n").replace("= 30\n", "= 0\n")
    assert [len(hunk.lines) for hunk in site([fix(after)])] == [2, 1]


@pytest.mark.parametrize(
    ("prompt", "lines", "touched", "whole"),
    [
        (snippet("lib/a.py, lines 1-2:\n    one()\nelse:\n"), 1, 1, 0),
        (snippet("lib/a.py, lines 1-9:\n  one()\n\ttwo()\nthree()  \n"), 3, 2, 2),
        (snippet("lib/b.py, lines 1-9:\none()\ntwo()\n"), 0, 0, 0),
        (snippet("one()\ntwo()\n"), 2, 1, 1),
        (snippet("lib/a.py, lines 1-9:\nnot_one()\n"), 0, 0, 0),
        (snippet("lib/a.py, lines 1-9:\none()\n", SourceKind.ADVISORY), 0, 0, 0),
        ("one()\ntwo()\nthree()\n", 0, 0, 0),
    ],
)
def test_lines_are_looked_for_in_snippets_of_their_file(
    prompt: str, lines: int, touched: int, whole: int
) -> None:
    hunks = (
        HunkLines(path="lib/a.py", lines=("one()", "two()")),
        HunkLines(path="lib/a.py", lines=("three()",)),
    )
    found = shown(f"# Advisory\n{prompt}\nFix it.", hunks)
    expected = Shown(lines=3, lines_shown=lines, hunks=2, hunks_touched=touched, hunks_whole=whole)
    assert found == expected
    assert (found.any, found.half, found.all) == (lines > 0, lines >= 2, lines == 3)
