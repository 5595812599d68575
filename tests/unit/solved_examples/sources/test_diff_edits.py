"""Edits from real git diffs make the change again; what they can't say is named."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_plugins.solved_examples.sources.dataset import (
    Hunk,
    LeftOut,
    LeftOutReason,
    edits_of,
    hunks,
)
from fallback_tier.outcome import SearchReplace
from fallback_tier.patch.edits import replace_once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diff")


def git_diff(folder: Path, before: str, after: str, name: str = "a.py", *options: str) -> str:
    """What git prints for a file before and after."""
    for side, text in (("a", before), ("b", after)):
        (folder / side).mkdir(exist_ok=True)
        (folder / side / name).write_bytes(text.encode())
    done = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", *options, f"a/{name}", f"b/{name}"],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    assert done.returncode in {0, 1}, done.stderr
    return done.stdout.decode()


# Few different lines, so that they repeat: diffs of such texts are the hard ones. Line ends of both
# kinds, separators that splitlines() would take for line ends, lines that look like a diff's own.
LINES = st.sampled_from(
    [
        "a",
        "b",
        "",
        " ",
        "x\r",
        "\u2028",
        "\x0c",
        "-- a",
        "++ b",
        "@@ -1 +1 @@",
        "é",
        "diff --git a b",
    ]
)
TEXTS = st.builds(
    lambda found, end: "\n".join(found) + end,
    st.lists(LINES, max_size=25),
    st.sampled_from(["", "\n"]),
)


@settings(deadline=None, max_examples=120)
@given(before=TEXTS, after=TEXTS)
def test_the_edits_are_the_change_wherever_the_hunks_say(
    folder: Path, before: str, after: str
) -> None:
    """Applied at their lines, they turn the one file into the other, byte by byte."""
    parts = list(hunks(git_diff(folder, before, after)))
    out, at = "", 0
    rest = before.split("\n")
    lines = [f"{line}\n" for line in rest[:-1]] + ([rest[-1]] if rest[-1] else [])
    for part in parts:
        if isinstance(part, LeftOut):
            assert part.reason is LeftOutReason.NO_ANCHOR
            return
        start, count = part.line - 1, _count(part.edit.old)
        assert "".join(lines[start : start + count]) == part.edit.old
        out += "".join(lines[at:start]) + part.edit.new
        at = start + count
    assert out + "".join(lines[at:]) == after


def _count(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_where_every_line_is_another_search_and_replace_makes_the_change(
    folder: Path, data: st.DataObject
) -> None:
    lines = [f"line {number:03}\n" for number in range(data.draw(st.integers(1, 60)))]
    before = "".join(lines)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(lines)))
        new = [
            f"new {number:05}\n"
            for number in data.draw(st.lists(st.integers(0, 99_999), max_size=3))
        ]
        lines[at : at + data.draw(st.integers(0, 3))] = new
    after = "".join(lines)
    edits, left_out = edits_of(git_diff(folder, before, after))
    assert left_out == ()
    text = before
    for edit in edits:
        text = replace_once(text, edit)
    assert text == after


@given(st.text(st.characters() | st.sampled_from("@-+ \n\\,1ab/"), max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    edits_of(text)
    edits_of(f"--- a/x\n+++ b/x\n{text}")


def test_a_line_number_that_is_none_is_read_without_an_error() -> None:
    assert edits_of(f"--- a/x\n+++ b/x\n@@ -1,{'9' * 5_000} +1 @@\n a\n")[0] == ()


def test_a_file_without_an_end_of_line(folder: Path) -> None:
    edits, _ = edits_of(git_diff(folder, "a\nb", "a\nb\n"))
    assert edits == (SearchReplace(path="a.py", old="a\nb", new="a\nb\n"),)


@pytest.mark.parametrize(
    "name", ["a b.py", "café.py", 'q"uote\t.py', "back\\slash.py", "/".join("ab")]
)
def test_paths_are_as_the_file_system_has_them(tmp_path: Path, name: str) -> None:
    """In a repository, as the data set's diffs were made: with prefixes, and quoted."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("one\n")

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-c", "core.autocrlf=false", *arguments],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        return done.stdout.decode()

    git("init", "-q")
    git("add", "-A")
    (tmp_path / name).write_text("two\n")
    edits, left_out = edits_of(git("diff"))
    assert edits == (SearchReplace(path=name, old="one\n", new="two\n"),)
    assert left_out == ()


def test_a_renamed_file_is_searched_under_its_old_name() -> None:
    diff = (
        "diff --git a/old.py b/new.py\nsimilarity index 90%\nrename from old.py\nrename to new.py\n"
        "--- a/old.py\n+++ b/new.py\n@@ -1,2 +1,2 @@\n keep\n-one\n+two\n"
    )
    assert edits_of(diff)[0] == (
        SearchReplace(path="old.py", old="keep\none\n", new="keep\ntwo\n"),
    )


HEAD = "diff --git a/a.py b/a.py\n"
SIDES = "--- a/a.py\n+++ b/a.py\n"
GOOD = "@@ -1 +1 @@\n-one\n+two\n"


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (f"{HEAD}new file mode 100644\n--- /dev/null\n+++ b/a.py\n@@ -0,0 +1 @@\n+x\n", "NEW_FILE"),
        (f"{HEAD}new file mode 100644\nindex 0..1\n", "NEW_FILE"),
        (
            f"{HEAD}deleted file mode 100644\n--- a/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
            "DELETED_FILE",
        ),
        (f"{HEAD}index 1..2\nBinary files a/a.py and b/a.py differ\n", "BINARY"),
        (f"{HEAD}index 1..2\nGIT binary patch\nliteral 3\n", "BINARY"),
        (f"diff --cc a.py\n{SIDES}@@@ -1,1 -1,1 +1,1 @@@\n- one\n -two\n++three\n", "COMBINED"),
        (f"{HEAD}{SIDES}@@ -0,0 +1 @@\n+x\n", "NO_ANCHOR"),
        (f"{HEAD}{SIDES}@@ -1 +1,2 @@\n \n+x\n", "NO_ANCHOR"),
        (f"{HEAD}{SIDES}@@ -1,3 +1,3 @@\n-one\n+two\n", "BROKEN"),
        (f"{HEAD}{SIDES}@@ -1 +1 @@\n", "BROKEN"),
    ],
)
def test_what_search_and_replace_can_not_say_is_left_out_by_name(diff: str, reason: str) -> None:
    assert edits_of(diff) == ((), (LeftOut("a.py", LeftOutReason[reason]),))
    # And it costs no other file its edit.
    after = f"diff --git a/b.py b/b.py\n--- a/b.py\n+++ b/b.py\n{GOOD}"
    if reason != "BROKEN":
        assert [part.edit.path for part in hunks(diff + after) if isinstance(part, Hunk)] == [
            "b.py"
        ]
    assert [part.edit.path for part in hunks(after + diff) if isinstance(part, Hunk)] == ["b.py"]
