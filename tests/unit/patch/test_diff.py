"""Our diffs against real git: accepted, and reproducing every byte."""

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fallback_tier.errors import PatchError
from fallback_tier.outcome import FileChange
from fallback_tier.patch.diff import MAX_GAP_CELLS, git_lines, patch_digest, unified_diff
from fallback_tier.patch.diff import changes as aligned
from fallback_tier.patch.parse import parse_patch
from tests.fakes.repository import GIT_ENV, write
from tests.kinds import OfKind

#: Lines that have misled readers of diffs: other line separators, form feeds, marks of the format.
LINES = st.sampled_from(
    [
        *["", "a", "b", "c", "x\x0cy", "a\u2028b", "a\x85b", "\x1c", "-- a/x", "++ b/x"],
        *["@@ -1 +1 @@", "\\ No newline at end of file", "é", "\ufeffa", " ", "\t", "a\rb"],
        "diff --git a/x b/x",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n"])
TEXT = st.builds(
    lambda lines, last: "".join(line + end for line, end in lines) + last,
    st.lists(st.tuples(LINES, ENDS), max_size=14),
    st.sampled_from(["", "", "tail", "\x0c", "a\r"]),
)
PATHS = ["a.txt", "b c/d e.txt", "é.txt", "lock/package-lock.json"]
SIDES = st.tuples(st.none() | TEXT, st.none() | TEXT).filter(lambda sides: sides != (None, None))


def apply_with_git(root: Path, diff: str) -> None:
    subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=root,
        env=GIT_ENV,
        input=diff.encode(),
        check=True,
        capture_output=True,
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(SIDES, min_size=1, max_size=len(PATHS)))
@example([("", None), (None, ""), ("a", "a\n"), ("a\n", "")])
@example([("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9")])
def test_git_reproduces_after(sides: list[tuple[str | None, str | None]]) -> None:
    changes = [
        FileChange(path=path, before=before, after=after)
        for path, (before, after) in zip(PATHS, sides, strict=False)
    ]
    diff = unified_diff(changes)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(root, {c.path: c.before for c in changes if c.before is not None})
        if diff:
            apply_with_git(root, diff)
        for change in changes:
            place = root / change.path
            found = place.read_bytes().decode() if place.exists() else None
            assert found == change.after
    expected = {c.path for c in changes if c.before != c.after}
    assert {patch.path for patch in parse_patch(diff)} == expected if diff else not expected


def test_exact_form() -> None:
    before = "".join(f"{n}\n" for n in range(1, 21))
    after = before.replace("2\n", "two\n", 1).replace("19\n", "19\nnew\n")
    assert unified_diff([FileChange(path="a b.txt", before=before, after=after)]) == (
        "diff --git a/a b.txt b/a b.txt\n--- a/a b.txt\t\n+++ b/a b.txt\t\n"
        "@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n"
        "@@ -17,4 +17,5 @@\n 17\n 18\n 19\n+new\n 20\n"
    )


def test_hunks_join_where_their_contexts_touch() -> None:
    def diff(distance: int) -> str:
        before = "a\n" + "".join(f"{n}\n" for n in range(distance)) + "b\n"
        after = before.replace("a\n", "A\n").replace("b\n", "B\n")
        return unified_diff([FileChange(path="f", before=before, after=after)])

    assert diff(6).count("@@ -") == 1
    assert diff(7).count("@@ -") == 2


def test_order_of_changes_does_not_matter() -> None:
    changes = [FileChange(path=p, before="a\n", after="b\n") for p in ("z", "a", "m")]
    assert unified_diff(changes) == unified_diff(changes[::-1])
    assert unified_diff([FileChange(path="a", before="x", after="x")]) == ""


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("../x", "a", "`..`"),
        ("a\nb", "a", "control"),
        ('a"b', "a", "quote"),
        ("a", "\0", "NUL"),
    ],
)
def test_what_a_strict_reader_refuses_is_not_written(path: str, text: str, message: str) -> None:
    with pytest.raises(PatchError, match=message):
        unified_diff([FileChange(path=path, before=None, after=text)])


def test_a_path_stands_once() -> None:
    change = FileChange(path="a", before=None, after="x")
    with pytest.raises(PatchError, check=OfKind("duplicate_path")):
        unified_diff([change, change])


@given(st.lists(st.sampled_from("abcde"), max_size=25), st.lists(st.sampled_from("abcdef")))
def test_alignment_is_a_script_from_before_to_after(before: list[str], after: list[str]) -> None:
    rebuilt: list[str] = []
    at = 0
    for change in aligned(before, after):
        assert change.i1 >= at
        rebuilt += before[at : change.i1] + after[change.j1 : change.j2]
        at = change.i2
    assert rebuilt + before[at:] == after


def test_a_huge_gap_is_replaced_as_a_whole() -> None:
    side = int(MAX_GAP_CELLS**0.5) + 10
    before, after = ["a", "b"] * side, ["b", "b", "a"] * side
    script = list(aligned(before, after))
    assert len(script) == 1, "no line is unique, and the gap is too large for a quadratic search"


def test_a_small_gap_is_not() -> None:
    assert len(list(aligned(["a", "b"] * 4, ["b", "a", "a"] * 4))) > 1


def test_only_line_feeds_end_lines() -> None:
    text = "a\x0cb\u2028c\rd\x85e\x1cf\r\ng"
    assert git_lines(text) == ["a\x0cb\u2028c\rd\x85e\x1cf\r\n", "g"]
    assert git_lines("") == []
    assert git_lines("a\n") == ["a\n"]


def test_digest_is_of_the_utf8_bytes() -> None:
    assert patch_digest("é") == ("4a99557e4033c3539de2eb65472017cad5f9557f7a0625a09f1c3f6e2ba69c4c")
