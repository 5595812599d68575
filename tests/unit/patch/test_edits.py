"""Search/replace edits: exactly one place, the file's own line ends, in order."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_tier.errors import EditError, RepositoryError
from fallback_tier.outcome import FileChange, SearchReplace
from fallback_tier.patch.edits import apply_edits, merge_edits, new_file_text, replace_once
from tests.fakes.repository import context
from tests.kinds import OfKind


def edit(old: str, new: str, path: str = "a.py") -> SearchReplace:
    return SearchReplace(path=path, old=old, new=new)


def test_edits_of_one_file_apply_in_order(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "one\n", "b.py": "x\n"})
    changes = apply_edits(
        repo, [edit("x", "y", "b.py"), edit("one", "two"), edit("two", "three\nfour")]
    )
    assert changes == (
        FileChange(path="a.py", before="one\n", after="three\nfour\n"),
        FileChange(path="b.py", before="x\n", after="y\n"),
    )
    assert (tmp_path / "a.py").read_text() == "one\n", "the repository is not written"


def test_an_edit_can_make_a_later_one_ambiguous(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "one\ntwo\n"})
    with pytest.raises(EditError, check=OfKind("several_matches"), match=r"\b2 .*\(lines 1, 2\)"):
        apply_edits(repo, [edit("one", "two"), edit("two", "three")])


@pytest.mark.parametrize(
    ("text", "old", "kind", "value"),
    [
        ("a\n", "b", "no_match", "a.py"),
        ("a\na\n", "a", "several_matches", r"\b2 .*\(lines 1, 2\)"),
        ("aaa", "aa", "several_matches", r"\b2 "),
        ("x" * 9, "x", "several_matches", r"\b9 .*, …"),
        ("x" * 1_000, "x", "several_matches", r"\b100 "),
        # Quadratic for a regular expression: minutes.
        ("a = 1\n" * 200_000, "a = 1\n" * 2_000 + "b", "no_match", "a.py"),
        # Each place counted from the top of the file: minutes.
        ("\r\n" * 1_000_000 + "x\r\n" * 200, "x\n", "several_matches", r"\b100 "),
        ("if x:\n\treturn\n", "if x:\n    return", "no_match", r"line 1\b"),
    ],
)
def test_not_exactly_once(text: str, old: str, kind: str, value: str) -> None:
    with pytest.raises(EditError, check=OfKind(kind), match=value) as caught:
        replace_once(text, edit(old, "new"))
    assert "'a.py'" in caught.value.problem
    assert caught.value.next_step


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", "x\r\ny\r\nc\r\n"),
        ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
        ("a\r\nb\r\n", "\nb", "\n1\n2", "a\r\n1\r\n2\r\n"),
        ("a\r\nb", "b", "1\n2", "a\r\n1\r\n2"),
        ("a\r\nb\nc\n", "b", "1\n2", "a\r\n1\n2\nc\n"),
        ("a\nb\r\n", "b", "1\n2", "a\n1\r\n2\r\n"),
        ("a\nb\n", "a\nb", "x\r\ny", "x\ny\n"),
        ("a", "a", "x\ny", "x\ny"),
    ],
)
def test_line_ends_are_those_of_the_place(text: str, old: str, new: str, after: str) -> None:
    assert replace_once(text, edit(old, new)) == after


@given(st.text("ab\n", max_size=30), st.text("ab\n", min_size=1, max_size=4), st.text("xy\n"))
def test_a_crlf_file_behaves_as_its_unix_twin(text: str, old: str, new: str) -> None:
    def attempt(place: str) -> str | None:
        try:
            return replace_once(place, edit(old, new))
        except EditError:
            return None

    unix, windows = attempt(text), attempt(text.replace("\n", "\r\n"))
    if unix is None or "\n" not in text:
        assert windows == unix
    else:
        assert windows == unix.replace("\n", "\r\n")


@given(
    st.lists(st.sampled_from(["a", "b", "\n", "\r\n"])).map("".join),
    st.text("ab\n", min_size=1, max_size=3),
)
def test_line_ends_may_be_mixed(text: str, old: str) -> None:
    plain = text.replace("\r\n", "\n")
    first = plain.find(old)
    if first >= 0 and plain.find(old, first + 1) < 0:
        left = replace_once(text, edit(old, ""))
        assert left.replace("\r\n", "\n") == plain.replace(old, "")
        removed = len(text) - len(left)
        assert any(text[:at] + text[at + removed :] == left for at in range(len(text)))


@given(st.text(max_size=60), st.text(min_size=1, max_size=5))
def test_a_replacement_is_found_exactly_where_python_finds_it(text: str, old: str) -> None:
    text, old = text.replace("\r", ""), old.replace("\r", "") or "a"
    first = text.find(old)
    once = first >= 0 and text.find(old, first + 1) < 0
    if once:
        assert replace_once(text, edit(old, "")) == text[:first] + text[first + len(old) :]
    else:
        with pytest.raises(EditError):
            replace_once(text, edit(old, ""))


def test_nothing_changed_is_an_error(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "one\n"})
    for edits in ([edit("one", "one")], [edit("one", "two"), edit("two", "one")], []):
        with pytest.raises(EditError, check=OfKind("changes_nothing")):
            apply_edits(repo, edits)


def test_untracked_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError):
        apply_edits(context(tmp_path, {"a.py": "one\n"}), [edit("one", "two", "b.py")])


def test_edits_on_top_of_a_recipe(tmp_path: Path) -> None:
    repo = context(tmp_path, {"deps.txt": "p 1\n", "a.py": "one\n"})
    recipe = FileChange(path="deps.txt", before="p 1\n", after="p 2\n")
    merged = merge_edits(repo, [recipe], [edit("p 2", "p 3", "deps.txt"), edit("one", "two")])
    assert merged.changes == (
        FileChange(path="a.py", before="one\n", after="two\n"),
        FileChange(path="deps.txt", before="p 1\n", after="p 3\n"),
    )
    assert merge_edits(repo, [recipe], []) == ((recipe,), ())
    with pytest.raises(EditError, check=OfKind("changes_nothing")):
        merge_edits(repo, [recipe], [edit("p 2", "p 1", "deps.txt")])
    gone = FileChange(path="a.py", before="one\n", after=None)
    with pytest.raises(EditError, check=OfKind("deleted")):
        merge_edits(repo, [gone], [edit("one", "two")])


def test_an_edit_without_old_text_makes_a_file(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "one\n"})
    made = merge_edits(repo, (), [edit("", "x = 1", "b.py"), edit("one", "two")])
    assert made.changes == (
        FileChange(path="a.py", before="one\n", after="two\n"),
        FileChange(path="b.py", before=None, after="x = 1\n"),
    )
    assert not (tmp_path / "b.py").exists(), "the repository is not written"


def test_what_was_made_may_be_edited(tmp_path: Path) -> None:
    repo = context(tmp_path, {"a.py": "one\n"})
    made = merge_edits(repo, (), [edit("", "x = 1\r\ny = 1", "b.py"), edit("y = 1", "y", "b.py")])
    assert made.changes == (FileChange(path="b.py", before=None, after="x = 1\ny\n"),)


@pytest.mark.parametrize("path", ["a.py", "empty.py", "deps.txt", "b.py"])
def test_a_file_that_exists_is_not_made(tmp_path: Path, path: str) -> None:
    repo = context(tmp_path, {"a.py": "one\n", "empty.py": "", "deps.txt": "p 1\n"})
    recipe = FileChange(path="deps.txt", before="p 1\n", after="p 2\n")
    with pytest.raises(EditError, check=OfKind("file_exists")):
        merge_edits(repo, [recipe], [edit("", "x", "b.py"), edit("", "y", path)])


@given(st.lists(st.sampled_from(["a", "b", "\n", "\r\n"]), min_size=1).map("".join))
def test_a_new_file_is_the_same_however_its_text_was_typed(new: str) -> None:
    text = new_file_text(edit("", new))
    assert text.endswith("\n")
    assert "\r" not in text
    for other in (text, new.replace("\r\n", "\n"), text.replace("\n", "\r\n")):
        assert new_file_text(edit("", other)) == text
