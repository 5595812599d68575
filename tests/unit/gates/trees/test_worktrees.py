"""Disposable worktrees, in layers and as checkouts: the same for whoever uses them.

The user's repository is read, never written, and nothing of it runs.
"""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from fallback_tier.errors import PatchError, RepositoryError, StateFolderError
from fallback_tier.files.tree import RawChange
from fallback_tier.gates.trees.worktrees import RunnerWorktree, Worktrees
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from tests.fakes.repository import GIT_ENV, git, write
from tests.integration.gate_setup import diff_of, repository, smuggle
from tests.kinds import OfKind
from tests.unit.gates.trees.listings import listing, snapshot
from tests.waiting import PATIENCE_S, exit_code, next_line

FILES = {
    "app.py": "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n",
    "run.sh": "x\n",
    ".gitignore": "build/\n",
    "lib/deep/only.py": "x\n",
    "lib/other.py": "x\n",
}
FOLDERS = {"lib", "lib/deep"}

Open = Callable[[RepoContext], AbstractContextManager[RunnerWorktree]]


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return repository(tmp_path / "repo", FILES)


@pytest.fixture(params=[True, False], ids=["layers", "checkout"])
def layered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def opened(layered: bool, tmp_path: Path) -> Open:
    return Worktrees(
        tmp_path / "state", SubprocessClients(), UnsandboxedRunner(), layered=layered
    ).open


@pytest.fixture
def worktree(repo: RepoContext, opened: Open) -> Iterator[RunnerWorktree]:
    with opened(repo) as made:
        yield made


def written(worktree: RunnerWorktree) -> Path:
    """Where a command's files come to lie."""
    return worktree.tree.layers[0]


def text(worktree: RunnerWorktree, path: str) -> str:
    return worktree.tree.locate(path).read_text()


def test_a_whole_life_leaves_the_users_repository_byte_for_byte(
    repo: RepoContext, opened: Open, tmp_path: Path
) -> None:
    diff = diff_of(repo, {"app.py": "ONE\n", "new.py": "x\n"})
    before = snapshot(repo.root)
    with opened(repo) as worktree:
        worktree.apply(diff)
        worktree.changed()
        worktree.reset()
    assert snapshot(repo.root) == before
    assert list((tmp_path / "state" / "worktrees").iterdir()) == []


def test_the_base_commit_is_there_and_git_says_so(
    repo: RepoContext, worktree: RunnerWorktree
) -> None:
    assert {path: text(worktree, path) for path in FILES} == FILES
    assert text(worktree, ".git/HEAD").strip() == repo.base_commit
    assert worktree.changed() == ()


def test_uncommitted_and_ignored_files_of_the_user_are_not_there(
    repo: RepoContext, opened: Open
) -> None:
    write(repo.root, {"app.py": "edited\n", ".env": "SECRET=1\n", "build/out": "x"})
    with opened(repo) as worktree:
        assert listing(worktree.tree) == FILES.keys() | FOLDERS
        assert text(worktree, "app.py") == FILES["app.py"]


def test_changes_are_raw(repo: RepoContext, worktree: RunnerWorktree) -> None:
    changes = {"app.py": "one\n", "run.sh": None, "new/new.py": "x\n"}
    worktree.apply(diff_of(repo, changes))
    assert worktree.changed() == (
        RawChange(path="app.py", status="M", old_mode="100644", new_mode="100644"),
        RawChange(path="new/new.py", status="A", old_mode="000000", new_mode="100644"),
        RawChange(path="run.sh", status="D", old_mode="100644", new_mode="000000"),
    )
    assert listing(worktree.tree) == {"app.py", "new", "new/new.py", ".gitignore"} | FOLDERS | {
        "lib/deep/only.py",
        "lib/other.py",
    }


def test_what_is_in_no_diff_is_a_change_all_the_same(
    repo: RepoContext, worktree: RunnerWorktree
) -> None:
    worktree.apply(diff_of(repo, {"app.py": "one\n"}))
    smuggle(worktree, "lib/deep/evil.py", b"x\n")
    smuggle(worktree, "lib/other.py", b"y\n")
    paths = [change.path for change in worktree.changed()]
    assert paths == ["app.py", "lib/deep/evil.py", "lib/other.py"]


def test_a_folder_goes_with_its_last_file(repo: RepoContext, worktree: RunnerWorktree) -> None:
    worktree.apply(diff_of(repo, {"lib/deep/only.py": None}))
    assert "lib/deep" not in listing(worktree.tree)
    assert "lib/other.py" in listing(worktree.tree)
    worktree.reset()
    worktree.apply(diff_of(repo, {"lib/deep/only.py": None, "lib/other.py": None}))
    assert listing(worktree.tree) == {"app.py", "run.sh", ".gitignore"}
    assert [change.status for change in worktree.changed()] == ["D", "D"]


def test_files_and_folders_may_change_places(repo: RepoContext, worktree: RunnerWorktree) -> None:
    (repo.root / "run.sh").unlink()
    shutil.rmtree(repo.root / "lib" / "deep")
    write(repo.root, {"run.sh/inner": "x\n", "lib/deep": "file\n"})
    git(repo.root, "add", "-A")
    worktree.apply(git(repo.root, "diff", "--cached", "--no-renames"))
    assert [(change.path, change.status) for change in worktree.changed()] == [
        ("lib/deep", "A"),
        ("lib/deep/only.py", "D"),
        ("run.sh", "D"),
        ("run.sh/inner", "A"),
    ]
    assert text(worktree, "lib/deep") == "file\n"
    assert text(worktree, "run.sh/inner") == "x\n"


@pytest.mark.parametrize("path", ["lib", "run.sh/new.py", "link/new.py", "link"])
def test_a_patch_that_runs_into_the_repository_does_not_apply(
    tmp_path: Path, opened: Open, path: str
) -> None:
    write(tmp_path / "repo", FILES)
    (tmp_path / "repo" / "link").symlink_to("lib")
    repo = repository(tmp_path / "repo", {})
    diff = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
    with opened(repo) as worktree:
        with pytest.raises(PatchError):
            worktree.apply(diff + "@@ -0,0 +1 @@\n+x\n")
        assert worktree.changed() == ()
        assert {path: text(worktree, path) for path in FILES} == FILES


def test_a_link_is_changed_never_followed(tmp_path: Path, opened: Open) -> None:
    write(tmp_path / "repo", {"target": "x\n"})
    (tmp_path / "repo" / "link").symlink_to("target")
    repo = repository(tmp_path / "repo", {})
    diff = "diff --git a/link b/link\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-target\n"
    end = "\\ No newline at end of file\n"
    with opened(repo) as worktree:
        worktree.apply(f"{diff}{end}+elsewhere\n{end}")
        modes = [(change.path, change.new_mode) for change in worktree.changed()]
        assert modes == [("link", "120000")]
        assert text(worktree, "target") == "x\n"


def test_a_submodule_can_not_be_replaced(tmp_path: Path, opened: Open) -> None:
    write(tmp_path / "repo", FILES)
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    git(tmp_path / "repo", "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    git(tmp_path / "repo", "commit", "-q", "-m", "sub")
    base = git(tmp_path / "repo", "rev-parse", "HEAD").strip()
    repo = repository(tmp_path / "other", FILES).model_copy(
        update={"root": tmp_path / "repo", "base_commit": base}
    )
    for path in ("sub", "sub/new.py"):
        diff = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
        with opened(repo) as worktree, pytest.raises(PatchError):
            worktree.apply(diff + "@@ -0,0 +1 @@\n+x\n")


def test_reset_takes_away_everything(repo: RepoContext, worktree: RunnerWorktree) -> None:
    worktree.apply(diff_of(repo, {"app.py": "x\n", "new.py": "y\n"}))
    top = written(worktree)
    write(top, {"untracked": "x", "build/ignored": "x", "sub/.git/config": "x", "a/b/c": "x"})
    (top / "link").symlink_to("/etc/passwd")
    write(top, {"run.sh": "changed"})
    (top / "run.sh").chmod(0o755)
    (top / "a" / "b").chmod(0)
    (top / "a").chmod(0o500)
    worktree.reset()
    assert listing(worktree.tree) == FILES.keys() | FOLDERS
    assert {path: text(worktree, path) for path in FILES} == FILES
    assert not worktree.tree.locate("run.sh").stat().st_mode & 0o111
    assert worktree.changed() == ()


def test_restore_gives_back_tracked_files_and_keeps_what_was_installed(
    repo: RepoContext, worktree: RunnerWorktree
) -> None:
    worktree.apply(diff_of(repo, {"app.py": "patched\n", "run.sh": None, "lib/new.py": "new\n"}))
    write(
        written(worktree),
        {"app.py": "evil\n", "lib/new.py": "evil\n", "lib/other.py/x": "in the way\n"}
        if worktree.tree.lower
        else {"app.py": "evil\n", "lib/new.py": "evil\n"},
    )
    write(written(worktree), {"node_modules/left/index.js": "left\n", "lib/built.js": "built\n"})
    worktree.restore()
    assert text(worktree, "app.py") == "patched\n"
    assert text(worktree, "lib/new.py") == "new\n"
    assert text(worktree, "lib/other.py") == "x\n"
    assert text(worktree, "node_modules/left/index.js") == "left\n"
    assert text(worktree, "lib/built.js") == "built\n"
    assert worktree.tree.find("run.sh") is None


def test_restore_takes_away_again_what_the_patch_removed(
    repo: RepoContext, worktree: RunnerWorktree, tmp_path: Path
) -> None:
    """A command of an earlier gate made it anew: the next one judges the patch, not that."""
    worktree.apply(diff_of(repo, {"run.sh": None, "lib/deep/only.py": None}))
    worktree.restore()
    top = written(worktree)
    write(top, {"run.sh": "back\n", "lib/deep/only.py": "back\n", "lib/deep/built.js": "kept\n"})
    worktree.restore()
    assert worktree.tree.find("run.sh") is None
    assert worktree.tree.find("lib/deep/only.py") is None
    assert text(worktree, "lib/deep/built.js") == "kept\n"
    write(top, {"run.sh/inner": "a folder now\n"})
    shutil.rmtree(top / "lib" / "deep")
    write(tmp_path / "elsewhere", {"only.py": "not ours\n"})
    (top / "lib" / "deep").symlink_to(tmp_path / "elsewhere")
    worktree.restore()
    assert worktree.tree.find("run.sh") is None
    assert not (top / "lib" / "deep").is_symlink()
    assert (tmp_path / "elsewhere" / "only.py").read_text() == "not ours\n"


def test_restore_opens_folders_that_a_command_closed(
    repo: RepoContext, worktree: RunnerWorktree
) -> None:
    """Without privileges in the sandbox, the next command could not even start there."""
    worktree.apply(diff_of(repo, {"app.py": "patched\n"}))
    write(written(worktree), {"lib/deep/made.js": "built\n"})
    for folder in ("lib/deep", "lib", "."):
        (written(worktree) / folder).chmod(0)
    worktree.restore()
    for folder in ("lib/deep", "lib", "."):
        assert (written(worktree) / folder).stat().st_mode & 0o700 == 0o700
    assert text(worktree, "app.py") == "patched\n"


def test_fresh_files_are_those_of_git_and_nothing_else(
    repo: RepoContext, worktree: RunnerWorktree
) -> None:
    worktree.apply(diff_of(repo, {"app.py": "patched\n", "lib/other.py": None}))
    write(written(worktree), {"app.py": "evil\n", "node_modules/x": "x"})
    tracked = FILES.keys() | FOLDERS
    with worktree.fresh(patched=True) as ours, worktree.fresh(patched=False) as base:
        assert listing(ours) == tracked - {"lib/other.py"}
        assert listing(base) == tracked
        assert ours.locate("app.py").read_text() == "patched\n"
        assert base.locate("app.py").read_text() == FILES["app.py"]
        ours.add("proof/test.py", b"x")
        assert base.find("proof/test.py") is None
        assert worktree.tree.find("proof/test.py") is None
    assert worktree.tree.find("node_modules/x") is not None
    assert list(worktree.tree.root.parent.glob("fresh-*")) == []


def test_what_commands_made_unreadable_is_removed_at_the_end(
    repo: RepoContext, opened: Open, tmp_path: Path
) -> None:
    with opened(repo) as worktree:
        write(written(worktree), {"a/b/c": "x"})
        (written(worktree) / "a" / "b").chmod(0)
        (written(worktree) / "a").chmod(0)
        written(worktree).chmod(0)
    assert list((tmp_path / "state" / "worktrees").iterdir()) == []


def test_a_patch_for_other_content_does_not_apply_and_changes_nothing(
    repo: RepoContext, worktree: RunnerWorktree
) -> None:
    diff = diff_of(repo, {"app.py": FILES["app.py"].replace("two", "2")})
    with pytest.raises(PatchError, check=OfKind("does_not_apply")):
        worktree.apply(diff.replace("-two", "-zwei"))
    assert worktree.changed() == ()


def test_a_patch_that_git_would_move_does_not_apply(
    repo: RepoContext, worktree: RunnerWorktree, tmp_path: Path
) -> None:
    diff = diff_of(repo, {"app.py": FILES["app.py"].replace("six", "6")})
    moved = diff.replace("@@ -3,7 +3,7 @@", "@@ -2,7 +2,7 @@")
    assert moved != diff
    plain = subprocess.run(
        ["git", "apply", "--check", "-"], input=moved, text=True, cwd=repo.root, env=GIT_ENV
    )
    assert plain.returncode == 0, "git itself would have accepted it"
    with pytest.raises(PatchError):
        worktree.apply(moved)
    assert worktree.changed() == ()
    worktree.apply(diff)


@pytest.mark.parametrize(
    "diff", ["", "not a diff\n", "--- a/x\n+++ b/../outside\n@@ -0,0 +1 @@\n+x\n"]
)
def test_what_is_no_patch_does_not_apply(
    worktree: RunnerWorktree, tmp_path: Path, diff: str
) -> None:
    with pytest.raises(PatchError):
        worktree.apply(diff)
    assert list(tmp_path.rglob("outside")) == []


@pytest.mark.parametrize("attributes", ["", "*.txt text eol=crlf\n"], ids=["plain", "converted"])
def test_line_ends_are_kept(tmp_path: Path, opened: Open, attributes: str) -> None:
    files = {"dos.txt": "one\r\ntwo\r\n", ".gitattributes": attributes}
    repo = repository(tmp_path / "repo", files)
    diff = "--- a/dos.txt\n+++ b/dos.txt\n@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\r\n"
    with opened(repo) as worktree:
        worktree.apply(diff.replace("\r", "") if attributes else diff)
        assert worktree.tree.locate("dos.txt").read_bytes() == b"one\r\n2\r\n"
        assert [change.path for change in worktree.changed()] == ["dos.txt"]


def test_unusual_names_come_through(tmp_path: Path, opened: Open) -> None:
    names = ["späce ü.py", "-dash.py", "a b/c d.py", "x b/y.py"]
    repo = repository(tmp_path / "repo", dict.fromkeys(names, "x\n"))
    git(repo.root, "config", "core.quotePath", "false")
    diff = diff_of(repo, dict.fromkeys(names, "y\n"))
    with opened(repo) as worktree:
        worktree.apply(diff)
        assert [change.path for change in worktree.changed()] == sorted(names)


def test_an_executable_file_stays_one(tmp_path: Path, opened: Open) -> None:
    write(tmp_path / "repo", {"run.sh": "x\n"})
    (tmp_path / "repo" / "run.sh").chmod(0o755)
    repo = repository(tmp_path / "repo", {})
    with opened(repo) as worktree:
        worktree.apply("--- a/run.sh\n+++ b/run.sh\n@@ -1 +1 @@\n-x\n+y\n")
        (change,) = worktree.changed()
        assert (change.old_mode, change.new_mode) == ("100755", "100755")


def test_nothing_that_the_repository_names_is_run(tmp_path: Path, opened: Open) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ntouch "{ran}"\ncat\n')
    program.chmod(0o755)
    repo = repository(tmp_path / "repo", {"a.txt": "x\n", ".gitattributes": "*.txt filter=f\n"})
    hook = repo.root / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(program, hook)
    for key in ("filter.f.smudge", "filter.f.clean", "core.fsmonitor"):
        git(repo.root, "config", key, str(program))
    with opened(repo) as worktree:
        worktree.apply("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-x\n+y\n")
        worktree.reset()
    assert not ran.exists()


def test_a_linked_worktree_of_the_user_can_be_fixed(
    repo: RepoContext, opened: Open, tmp_path: Path
) -> None:
    git(repo.root, "worktree", "add", "-q", str(tmp_path / "linked"), "HEAD")
    linked = repo.model_copy(update={"root": tmp_path / "linked"})
    with opened(linked) as worktree:
        assert listing(worktree.tree) == FILES.keys() | FOLDERS


def test_a_commit_that_is_not_there_is_a_repository_error(
    repo: RepoContext, opened: Open, tmp_path: Path
) -> None:
    gone = repo.model_copy(update={"base_commit": "1" * 40})
    with pytest.raises(RepositoryError, check=OfKind("no_checkout")), opened(gone):
        pass
    assert list((tmp_path / "state" / "worktrees").iterdir()) == []
    assert list(tmp_path.glob("state/bases/*/")) == []


def test_a_place_that_can_not_be_written_is_said(repo: RepoContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    worktrees = Worktrees(tmp_path / "file" / "state", SubprocessClients(), UnsandboxedRunner())
    with pytest.raises(StateFolderError, check=OfKind("no_worktree")) as caught:
        worktrees.open(repo).__enter__()
    assert caught.value.next_step


# --- crashes --------------------------------------------------------------------------------------

HOLDER = """\
    import sys, time
    from pathlib import Path
    from fallback_tier.sandbox.clients import SubprocessClients
    from fallback_tier.sandbox.runners import UnsandboxedRunner
    from fallback_tier.gates.trees.worktrees import Worktrees
    from fallback_tier.repo import RepoContext
    state, layered = Path(sys.argv[1]), sys.argv[2] == "True"
    worktrees = Worktrees(state, SubprocessClients(), UnsandboxedRunner(), layered=layered)
    with worktrees.open(RepoContext.model_validate_json(sys.argv[3]), sys.argv[4]) as worktree:
        written = worktree.tree.layers[0] / "installed" / "deep"
        written.mkdir(parents=True)
        written.chmod(0)
        print("there", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def hold(repo: RepoContext, layered: bool, tmp_path: Path) -> Iterator[Callable[[str], int]]:
    """Open a worktree in another process; returns its id."""
    processes: list[subprocess.Popen[str]] = []

    def start(name: str) -> int:
        program = [sys.executable, "-c", textwrap.dedent(HOLDER)]
        arguments = [str(tmp_path / "state"), str(layered), repo.model_dump_json(), name]
        process = subprocess.Popen([*program, *arguments], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        assert next_line(process) == "there\n"
        return process.pid

    yield start
    for process in processes:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_the_next_start_removes_what_a_killed_run_left_and_nothing_else(
    repo: RepoContext, opened: Open, hold: Callable[[str], int], tmp_path: Path
) -> None:
    places = tmp_path / "state" / "worktrees"
    hold("alive")
    os.kill(dead := hold("dead"), signal.SIGKILL)
    exit_code(dead)
    write(places, {"of-an-old-version/tree/half": "x", "fix-1/tree/.git/config": "garbage"})
    assert {place.name for place in places.iterdir()} >= {"alive", "dead"}
    with opened(repo) as worktree:
        assert listing(worktree.tree) == FILES.keys() | FOLDERS
        assert {place.name for place in places.iterdir()} == {"alive", "fix-1"}
    assert {place.name for place in places.iterdir()} == {"alive"}


def test_two_processes_never_share_a_worktree(
    repo: RepoContext, opened: Open, hold: Callable[[str], int]
) -> None:
    hold(repo.fix_id)
    with pytest.raises(RepositoryError, check=OfKind("locked")), opened(repo):
        pass
