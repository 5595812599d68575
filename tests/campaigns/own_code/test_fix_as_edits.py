"""Upstream's diff as the edits of a plan: each found once, together exactly upstream's files."""

import subprocess
from pathlib import Path

import pytest

from tests.campaigns.own_code.checkout import Checkout
from tests.campaigns.own_code.upstream import Fix, Unsayable, applied, fix_of
from tests.fakes.repository import commit_all, git, write

REPEATED = "".join(f"def f{n}():\n    x = 1\n    return x\n\n\n" for n in range(8))
LONG = "".join(f"line{n} = {n}\n" for n in range(60))


def changed(root: Path, before: dict[str, str], after: dict[str, str | None]) -> Fix:
    """The fix between two commits of a repository that is at the first."""
    write(root, before)
    base = commit_all(root)
    for path, text in after.items():
        (root / path).unlink(missing_ok=True)
        if text is not None:
            write(root, {path: text})
    fixed = commit_all(root, "fix")
    diff = git(root, "diff", base, fixed) if "\r" not in str(after) else _bytes(root, base, fixed)
    git(root, "checkout", "-q", base)
    return fix_of(diff, Checkout(root, fixed))


def _bytes(root: Path, base: str, fixed: str) -> str:
    """As git wrote it: text mode would take the carriage returns out."""
    done = subprocess.run(["git", "diff", base, fixed], cwd=root, capture_output=True, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(REPEATED, REPEATED.replace("x = 1", "x = 2", 3), id="the same context"),
        pytest.param(REPEATED, "import os\n" + REPEATED, id="at the start"),
        pytest.param(REPEATED, REPEATED + "END = 1\n", id="at the end"),
        pytest.param("a = 1\nb = 2", "a = 1\nb = 3", id="no last newline"),
        pytest.param("a = 1\nb = 2", "a = 1\nb = 2\n", id="a last newline added"),
        pytest.param(
            LONG, LONG.replace("= 5\n", "= 0\n").replace("= 44\n", "= 0\n"), id="two hunks"
        ),
        pytest.param("a\r\nb\r\nc\r\n", "a\r\nB\r\nx\r\nc\r\n", id="CRLF"),
        pytest.param("a = 1\n\n\nb = 2\n", "a = 1\n", id="removed to the end"),
    ],
)
def test_the_edits_make_upstreams_file(tmp_path: Path, before: str, after: str) -> None:
    fix = changed(tmp_path, {"lib/a.py": before}, {"lib/a.py": after})
    assert fix.unsayable is None
    assert fix.exact is True
    text = before
    for edit in fix.edits:
        assert text.replace("\r\n", "\n").count(edit.old) == 1
        text = applied(text, [edit])
    assert text == after


def test_what_no_plan_may_edit_is_left_out_by_name(tmp_path: Path) -> None:
    before = {"lib/a.js": "let a = 1\n", "package.json": "{}\n", "CHANGELOG.md": "-\n"}
    before |= {"test/a.js": "1\n", "docs/a.js": "1\n", "package-lock.json": "{}\n"}
    fix = changed(tmp_path, before, {path: text + "2\n" for path, text in before.items()})
    assert [edit.path for edit in fix.edits] == ["lib/a.js"]
    assert set(fix.left_out) == before.keys() - {"lib/a.js"}


def test_what_tests_are_judged_with_is_left_out_by_name(tmp_path: Path) -> None:
    """A server that only the tests start: no plan may change it, so the true one does not."""
    before = {
        "src/left/__init__.py": "A = 1\n",
        "dummyserver/app.py": "A = 1\n",
        "test/test_left.py": "import left\nfrom dummyserver import app\n",
        "pyproject.toml": '[project]\nname = "left"\nversion = "1"\n',
    }
    after: dict[str, str | None] = dict.fromkeys([*before][:2], "A = 2\n")
    fix = changed(tmp_path, before, after)
    assert [edit.path for edit in fix.edits] == ["src/left/__init__.py"]
    assert fix.left_out == ("dummyserver/app.py",)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({"new/new.py": "x = 1\n"}, Unsayable.NEW_FILE),
        ({"lib/new.sh": "x = 1\n"}, Unsayable.NEW_FILE),
        ({"lib/new.py": ""}, Unsayable.NEW_FILE),
        ({"lib/a.py": None}, Unsayable.MOVED_FILE),
        ({"lib/a.py": None, "lib/b.py": "a = 1\n" * 9}, Unsayable.MOVED_FILE),
        ({"tests/test_a.py": "x = 1\n"}, Unsayable.NOTHING),
        ({"lib/a.py": "b = 2\n" * 9_000}, Unsayable.TOO_LARGE),
        ({"lib/empty.py": "x = 1\n"}, Unsayable.FILLED_FILE),
    ],
)
def test_what_no_plan_can_say_is_named(
    tmp_path: Path, after: dict[str, str | None], why: Unsayable
) -> None:
    before = {"lib/__init__.py": "", "lib/a.py": "a = 1\n" * 9, "lib/empty.py": ""}
    fix = changed(tmp_path, before, after)
    assert (fix.unsayable, fix.edits) == (why, ())


@pytest.mark.parametrize("new", ["x = 1\n", "x = 1\r\ny = 2\r\n", "x = 1"])
def test_a_file_that_upstream_added_is_made(tmp_path: Path, new: str) -> None:
    """To the byte, where its lines end as those of a new file do."""
    before = {"lib/__init__.py": "", "lib/a.py": "a = 1\n"}
    fix = changed(tmp_path, before, {"lib/a.py": "a = 2\n", "lib/new.py": new})
    assert (fix.unsayable, fix.exact) == (None, new == "x = 1\n")
    (made,) = [edit for edit in fix.edits if edit.makes_file]
    assert made.path == "lib/new.py"
    assert applied("", [made]) == new.replace("\r\n", "\n").rstrip("\n") + "\n"


def test_a_diff_of_another_commit_is_not_made(tmp_path: Path) -> None:
    write(tmp_path, {"lib/a.py": "a = 1\n"})
    commit = commit_all(tmp_path)
    diff = "--- a/lib/a.py\n+++ b/lib/a.py\n@@ -1 +1 @@\n-b = 1\n+b = 2\n"
    fix = fix_of(diff, Checkout(tmp_path, commit))
    assert fix.unsayable is Unsayable.NOT_THE_DIFF
