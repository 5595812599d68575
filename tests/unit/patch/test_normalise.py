"""What counts as the same edit set again, and what doesn't."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.outcome import FileChange, SearchReplace
from fallback_tier.patch.edits import apply_edits
from fallback_tier.patch.normalise import edit_digest
from tests.fakes.repository import context

BASE = "def f(x):\n    a = 1\n    return x\n\n\ndef g(x):\n    return x\n"


def digest(after: str | None, *, path: str = "a.py", before: str | None = BASE) -> str:
    return edit_digest([FileChange(path=path, before=before, after=after)])


def joined(lines: list[str] | None) -> str | None:
    return None if lines is None else "\n".join(lines)


FIX = BASE.replace("    a = 1\n", "    a = 1\n    if not x:\n        raise ValueError\n")


@pytest.mark.parametrize(
    "same",
    [
        FIX.replace("\n", "\r\n"),
        FIX.replace("\n\n\n", "\n"),
        FIX.replace("a = 1", "a  =   1 "),
        FIX.replace("    ", "  "),
        FIX.replace("    ", "\t"),
        FIX.rstrip("\n"),
        FIX.replace("a = 1\n", "a = 1\n\n   \n"),
    ],
)
def test_formatting_does_not_count(same: str) -> None:
    assert digest(same) == digest(FIX)


@pytest.mark.parametrize(
    "other",
    [
        BASE,
        FIX.replace("ValueError", "TypeError"),
        FIX.replace("        raise", "    raise"),
        FIX.replace("        raise", "      raise").replace("    if", "        if"),
        FIX.replace("    a = 1\n", ""),
        BASE.replace("    a = 1\n", "    if not x:\n        raise ValueError\n    a = 1\n"),
        FIX + "a\n",
    ],
)
def test_a_different_edit_differs(other: str) -> None:
    assert digest(other) != digest(FIX)


def test_the_same_lines_at_another_place_differ() -> None:
    guard = "    if not x:\n        raise ValueError\n"
    in_f = BASE.replace("def f(x):\n", "def f(x):\n" + guard)
    in_g = BASE.replace("def g(x):\n", "def g(x):\n" + guard)
    assert digest(in_f) != digest(in_g)


def test_a_repaired_indentation_is_not_a_repeat() -> None:
    broken = BASE.replace("    a = 1\n", "    a = 1\n  b = 2\n")
    repaired = BASE.replace("    a = 1\n", "    a = 1\n    b = 2\n")
    assert digest(broken) != digest(repaired)


def test_indentation_means_nothing_in_javascript() -> None:
    one, two = "if (x) {\n  y()\n}\n", "if (x) {\ny()\n}\n"
    assert digest(one, path="a.js") == digest(two, path="a.js")
    assert digest(one, path="a.py") != digest(two, path="a.py")


def test_path_creation_and_deletion_count() -> None:
    digests = {
        digest("a\n", path="a.py", before="b\n"),
        digest("a\n", path="b.py", before="b\n"),
        digest("a\n", before=None),
        digest(None, before="a\n"),
        digest("", before=None),
        digest(None, before=""),
    }
    assert len(digests) == 6


def test_files_that_only_change_format_are_left_out() -> None:
    fix = FileChange(path="a.py", before=BASE, after=FIX)
    tidy = FileChange(path="b.js", before="x ( 1 )\n", after="x  ( 1 )\n\n")
    assert edit_digest([fix, tidy]) == edit_digest([fix]) == edit_digest([tidy, fix])
    assert edit_digest([tidy]) == edit_digest([])


def test_order_and_cut_of_edits_do_not_count(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": BASE, "b.py": "x = 1\n"})
    one = SearchReplace(path="a.py", old="    a = 1\n", new="    a = 2\n    b = 3\n")
    two = SearchReplace(path="b.py", old="x = 1", new="x = 2")
    parts = [
        SearchReplace(path="a.py", old="a = 1", new="a = 2"),
        SearchReplace(path="a.py", old="a = 2\n", new="a = 2\n    b  =  3\n"),
    ]
    expected = edit_digest(apply_edits(repo, [one, two]))
    assert edit_digest(apply_edits(repo, [two, one])) == expected
    assert edit_digest(apply_edits(repo, [*parts, two])) == expected


WORDS = st.lists(st.sampled_from(["a", "b", "c = d", "if x:", "}"]), min_size=1, max_size=12)
#: … of a file that is there, or is made.
SIDE = WORDS | st.none()


@given(SIDE, WORDS, st.randoms(use_true_random=False))
def test_any_reformatting_has_the_same_digest(
    before: list[str] | None, after: list[str], rng: random.Random
) -> None:
    def reformat(line: str) -> str:
        blanks = rng.choice([" ", "  ", "\t"])
        return (
            rng.choice(["", "\n", " \n"])
            + rng.choice(["", "  ", "\t"])
            + line.replace(" ", blanks)
            + rng.choice(["\n", "\r\n", " \n", "\n\n"])
        )

    plain = digest("\n".join(after), path="a.js", before=joined(before))
    moved = digest("".join(map(reformat, after)), path="a.js", before=joined(before))
    assert moved == plain


@given(SIDE, WORDS, WORDS)
def test_different_results_have_different_digests(
    before: list[str] | None, one: list[str], two: list[str]
) -> None:
    base = joined(before)
    same = digest("\n".join(one), before=base) == digest("\n".join(two), before=base)
    assert same == (one == two)


@given(WORDS, WORDS)
def test_a_file_that_is_made_is_not_one_that_is_filled(one: list[str], two: list[str]) -> None:
    """Nor are the same lines under another name."""
    made = digest(joined(one), before=None)
    assert made != digest(joined(one), before="")
    assert made != digest(joined(one), before=None, path="b.py")
    assert (made == digest(joined(two), before=None)) == (one == two)
