"""The disposable worktree: the user's repository is read, never written, and nothing of it runs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.errors import PatchError, RepositoryError
from fallback_tier.gates.clients import SubprocessClients
from fallback_tier.gates.isolation import RawChange, Worktree, inspect_repository
from fallback_tier.repo import RepoContext
from tests.fakes.repository import GIT_ENV, commit_all, git, write
from tests.integration.gate_setup import diff_of, repository

FILES = {
    "app.py": "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n",
    "run.sh": "x\n",
    ".gitignore": "build/\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return repository(tmp_path / "repo", FILES)


@pytest.fixture
def worktree(repo: RepoContext, tmp_path: Path) -> Iterator[Worktree]:
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as made:
        yield made


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every file below a folder, .git included: mode, time of change, content.

    Without the times of git's objects: git renews the time of one that it would have written anew,
    in a borrowed store too, so that it is not collected meanwhile.
    """
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.stat()
        when = 0 if "objects" in path.parts else stat.st_mtime_ns
        content = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (stat.st_mode, when, content)
    return found


def listing(tree: Path) -> set[str]:
    found = (path.relative_to(tree) for path in tree.rglob("*"))
    return {str(path) for path in found if path.parts[0] != ".git"}


def test_a_whole_life_leaves_the_users_repository_byte_for_byte(
    repo: RepoContext, tmp_path: Path
) -> None:
    diff = diff_of(repo, {"app.py": "ONE\n", "new.py": "x\n"})
    before = snapshot(repo.root)
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as worktree:
        worktree.apply(diff)
        worktree.changed()
        worktree.reset()
    assert snapshot(repo.root) == before
    assert not (tmp_path / "place").exists()


def test_the_base_commit_is_checked_out_detached(repo: RepoContext, worktree: Worktree) -> None:
    assert {path: (worktree.path / path).read_text() for path in FILES} == FILES
    assert (worktree.path / ".git" / "HEAD").read_text().strip() == repo.base_commit
    assert worktree.changed() == ()


def test_uncommitted_and_ignored_files_of_the_user_are_not_there(
    repo: RepoContext, tmp_path: Path
) -> None:
    write(repo.root, {"app.py": "edited\n", ".env": "SECRET=1\n", "build/out": "x"})
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as worktree:
        assert listing(worktree.path) == set(FILES)
        assert (worktree.path / "app.py").read_text() == FILES["app.py"]


def test_changes_are_raw(repo: RepoContext, worktree: Worktree) -> None:
    changes = {"app.py": "one\n", "run.sh": None, "new.py": "x\n"}
    worktree.apply(diff_of(repo, changes))
    assert worktree.changed() == (
        RawChange(path="app.py", status="M", old_mode="100644", new_mode="100644"),
        RawChange(path="new.py", status="A", old_mode="000000", new_mode="100644"),
        RawChange(path="run.sh", status="D", old_mode="100644", new_mode="000000"),
    )


def test_reset_takes_away_everything(repo: RepoContext, worktree: Worktree) -> None:
    worktree.apply(diff_of(repo, {"app.py": "x\n", "new.py": "y\n"}))
    tree = worktree.path
    write(tree, {"untracked": "x", "build/ignored": "x", "sub/.git/config": "x", "a/b/c": "x"})
    (tree / "link").symlink_to("/etc/passwd")
    (tree / "run.sh").chmod(0o755)
    (tree / "a" / "b").chmod(0)
    (tree / "a").chmod(0o500)
    worktree.reset()
    assert listing(tree) == set(FILES)
    assert (tree / "app.py").read_text() == FILES["app.py"]
    assert not (tree / "run.sh").stat().st_mode & 0o111
    assert worktree.changed() == ()


def test_close_removes_what_commands_made_unreadable(repo: RepoContext, tmp_path: Path) -> None:
    worktree = Worktree.create(repo, SubprocessClients(), tmp_path / "place")
    write(worktree.path, {"a/b/c": "x"})
    (worktree.path / "a" / "b").chmod(0)
    (worktree.path / "a").chmod(0)
    worktree.close()
    worktree.close()
    assert not (tmp_path / "place").exists()


def test_what_a_killed_run_left_is_replaced(repo: RepoContext, tmp_path: Path) -> None:
    write(tmp_path / "place", {"tree/half": "x", "tree/.git/config": "garbage"})
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as worktree:
        assert listing(worktree.path) == set(FILES)


def test_a_patch_for_other_content_does_not_apply_and_changes_nothing(
    repo: RepoContext, worktree: Worktree
) -> None:
    diff = diff_of(repo, {"app.py": FILES["app.py"].replace("two", "2")})
    with pytest.raises(PatchError, match="does not apply"):
        worktree.apply(diff.replace("-two", "-zwei"))
    assert worktree.changed() == ()


def test_a_patch_that_git_would_move_does_not_apply(repo: RepoContext, worktree: Worktree) -> None:
    diff = diff_of(repo, {"app.py": FILES["app.py"].replace("six", "6")})
    moved = diff.replace("@@ -3,7 +3,7 @@", "@@ -2,7 +2,7 @@")
    assert moved != diff
    plain = subprocess.run(
        ["git", "apply", "--check", "-"], input=moved, text=True, cwd=worktree.path, env=GIT_ENV
    )
    assert plain.returncode == 0, "git itself would have accepted it"
    with pytest.raises(PatchError):
        worktree.apply(moved)
    worktree.apply(diff)


@pytest.mark.parametrize(
    "diff", ["", "not a diff\n", "--- a/x\n+++ b/../outside\n@@ -0,0 +1 @@\n+x\n"]
)
def test_what_is_no_patch_does_not_apply(worktree: Worktree, tmp_path: Path, diff: str) -> None:
    with pytest.raises(PatchError):
        worktree.apply(diff)
    assert not (tmp_path / "place" / "outside").exists()


def test_line_ends_are_kept(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo", {"dos.txt": "one\r\ntwo\r\n"})
    diff = "--- a/dos.txt\n+++ b/dos.txt\n@@ -1,2 +1,2 @@\n one\r\n-two\r\n+2\r\n"
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as worktree:
        worktree.apply(diff)
        assert (worktree.path / "dos.txt").read_bytes() == b"one\r\n2\r\n"


def test_nothing_that_the_repository_names_is_run(tmp_path: Path) -> None:
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
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as worktree:
        worktree.reset()
    assert not ran.exists()


def test_a_linked_worktree_of_the_user_can_be_fixed(repo: RepoContext, tmp_path: Path) -> None:
    git(repo.root, "worktree", "add", "-q", str(tmp_path / "linked"), "HEAD")
    linked = repo.model_copy(update={"root": tmp_path / "linked"})
    with Worktree.create(linked, SubprocessClients(), tmp_path / "place") as worktree:
        assert listing(worktree.path) == set(FILES)


def test_a_commit_that_is_not_there_is_a_repository_error(
    repo: RepoContext, tmp_path: Path
) -> None:
    gone = repo.model_copy(update={"base_commit": "1" * 40})
    with pytest.raises(RepositoryError, match="can't be checked out"):
        Worktree.create(gone, SubprocessClients(), tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_a_place_that_can_not_be_written_is_said(repo: RepoContext, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RepositoryError, match="No worktree can be made") as caught:
        Worktree.create(repo, SubprocessClients(), tmp_path / "file" / "place")
    assert "state directory" in caught.value.next_step


# --- inspecting -----------------------------------------------------------------------------------


def test_facts_of_a_clean_repository(repo: RepoContext) -> None:
    facts = inspect_repository(repo.root, SubprocessClients())
    assert facts.root == repo.root
    assert facts.base_commit == git(repo.root, "rev-parse", "HEAD").strip()
    assert facts.tracked_files == tuple(sorted(FILES))
    assert facts.dirty == ()
    assert not facts.tracked_files_cut


def test_dirty_files_are_told_untracked_ones_are_not(repo: RepoContext) -> None:
    write(repo.root, {"app.py": "x", "untracked": "x"})
    (repo.root / "run.sh").unlink()
    git(repo.root, "add", "app.py")
    assert inspect_repository(repo.root, SubprocessClients()).dirty == ("app.py", "run.sh")


def test_unusual_names_come_through(tmp_path: Path) -> None:
    names = {'qu"ote.py', "new\nline.py", "späce ü.py", "-dash.py", "tab\t.py"}
    repo = repository(tmp_path / "repo", dict.fromkeys(names, "x\n"))
    assert set(repo.tracked_files) == names
    with Worktree.create(repo, SubprocessClients(), tmp_path / "place") as worktree:
        write(worktree.path, {"späce ü.py": "y\n"})
        git(worktree.path, "add", "-A")
        assert [change.path for change in worktree.changed()] == ["späce ü.py"]


def test_a_missing_folder_and_a_plain_one(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="is not a folder"):
        inspect_repository(tmp_path / "nowhere", SubprocessClients())
    with pytest.raises(RepositoryError, match="is not a git repository") as caught:
        inspect_repository(tmp_path, SubprocessClients())
    assert "git init" in caught.value.next_step


def test_a_folder_inside_a_repository_is_not_taken_for_it(repo: RepoContext) -> None:
    (repo.root / "sub").mkdir()
    with pytest.raises(RepositoryError, match="lies inside the repository"):
        inspect_repository(repo.root / "sub", SubprocessClients())


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(RepositoryError, match="no commit yet"):
        inspect_repository(tmp_path, SubprocessClients())


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare")
    with pytest.raises(RepositoryError, match="bare"):
        inspect_repository(tmp_path, SubprocessClients())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_repository_of_somebody_else_unless_the_user_trusts_it(
    repo: RepoContext, tmp_path: Path
) -> None:
    for path in (repo.root, *repo.root.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    home = tmp_path / "home"
    home.mkdir()
    clients = SubprocessClients({"PATH": "/usr/bin:/bin", "HOME": str(home)})
    with pytest.raises(RepositoryError, match="another user") as caught:
        inspect_repository(repo.root, clients)
    assert "safe.directory" in caught.value.next_step
    (home / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repo.root}\n")
    assert inspect_repository(repo.root, clients).base_commit == repo.base_commit
    with Worktree.create(repo, clients, tmp_path / "place") as worktree:
        assert listing(worktree.path) == set(FILES)


def test_inspecting_writes_nothing(repo: RepoContext) -> None:
    os.utime(repo.root / "app.py", (1, 1))  # git would refresh its index, given the chance
    before = snapshot(repo.root)
    inspect_repository(repo.root, SubprocessClients())
    assert snapshot(repo.root) == before
    git(repo.root, "status")
    assert snapshot(repo.root) != before


def test_commits_are_made_for_tests_only(tmp_path: Path) -> None:
    write(tmp_path / "r", {"a": "x"})
    assert len(commit_all(tmp_path / "r")) == 40
