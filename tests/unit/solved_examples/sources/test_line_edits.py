"""Edits from two texts: applied by the product's own replacer they give the second, byte for byte."""

from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_plugins.solved_examples.sources import release_files
from fallback_plugins.solved_examples.sources.release_files import edits_between
from fallback_tier.errors import EditError
from fallback_tier.patch.edits import replace_once

#: Few different lines: most stand many times, so that edits have to grow.
LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "  a\n", "x = 1\n"]), max_size=14)


def applied(path: str, before: str, after: str) -> str:
    text = before
    for edit in edits_between(path, before, after):
        text = replace_once(text, edit)
    return text


@given(LINES, LINES, st.sampled_from(["", "end", "a"]), st.sampled_from(["", "end"]))
def test_edits_give_the_second_text(old: list[str], new: list[str], tail: str, end: str) -> None:
    before, after = "".join(old) + tail, "".join(new) + end
    if before:
        assert applied("f.py", before, after) == after


@given(LINES, LINES)
def test_line_ends_are_kept(old: list[str], new: list[str]) -> None:
    before, after = ("".join(lines).replace("\n", "\r\n") for lines in (old, new))
    if before and before.replace("\r", "") != after.replace("\r", ""):
        assert applied("f.py", before, after).replace("\r", "") == after.replace("\r", "")


def test_every_old_text_stands_once_in_the_file_itself() -> None:
    before = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"
    after = before[::-1].replace("1 nruter", "2 nruter", 1)[::-1]
    (edit,) = edits_between("f.py", before, after)
    assert before.count(edit.old) == 1
    assert edit.old == "def g():\n    return 1\n"


def test_distant_changes_are_edits_of_their_own() -> None:
    lines = [f"line {n}\n" for n in range(50)]
    changed = [*lines]
    changed[3], changed[40] = "three\n", "forty\n"
    edits = edits_between("f.py", "".join(lines), "".join(changed))
    assert [edit.new for edit in edits] == [
        "line 2\nthree\nline 4\n",
        "line 39\nforty\nline 41\n",
    ]


def test_other_line_separators_are_text() -> None:
    before, after = "a\x0c\u2028b\nc\n", "a\x0c\u2028d\nc\n"
    assert applied("f.py", before, after) == after


def test_a_text_too_large_for_difflib_is_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_files, "MAX_CELLS", 4)
    lines = ["0\n", *(f"{n // 2}\n" for n in range(14)), "8\n"]
    changed = ["0\n", "x\n", *lines[2:-2], "y\n", "8\n"]
    (edit,) = edits_between("f.py", "".join(lines), "".join(changed))
    assert edit.new == "".join(changed)


def test_distant_changes_of_a_large_file_stay_edits_of_their_own() -> None:
    lines = [f"line {n}\n" for n in range(6_000)]
    changed = [*lines]
    changed[3], changed[5_000] = "three\n", "five\n"
    edits = edits_between("f.py", "".join(lines), "".join(changed))
    assert [edit.new for edit in edits] == [
        "line 2\nthree\nline 4\n",
        "line 4999\nfive\nline 5001\n",
    ]


@given(LINES, LINES, st.integers(0, 9))
def test_edits_are_right_whatever_the_bound(old: list[str], new: list[str], cells: int) -> None:
    before, after = "".join(old), "".join(new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_files, "MAX_CELLS", cells)
        if before:
            assert applied("f.py", before, after) == after


def test_difflib_compares_no_more_than_the_bound_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in each piece between two anchors: a large file has thousands of those."""
    compared = 0

    def counted(
        _: None, before: list[str], after: list[str], *, autojunk: bool
    ) -> SequenceMatcher[str]:
        nonlocal compared
        compared += len(before) * len(after)
        return SequenceMatcher(None, before, after, autojunk=autojunk)

    monkeypatch.setattr(release_files, "MAX_CELLS", 100)
    monkeypatch.setattr(release_files, "SequenceMatcher", counted)
    old = [part for n in range(400) for part in (f"{n}\n", "old\n")]
    new = [part for n in range(400) for part in (f"{n}\n", "new\n")]
    assert len(list(release_files.changes_between(old, new))) == 400
    assert compared == 100


@pytest.mark.parametrize(("before", "after"), [("", "new\n"), ("a\r\n", "a\n")])
def test_what_edits_cannot_say(before: str, after: str) -> None:
    with pytest.raises(EditError, match=r"f\.py"):
        edits_between("f.py", before, after)


def test_equal_texts_need_no_edit() -> None:
    assert edits_between("f.py", "a\n", "a\n") == ()
