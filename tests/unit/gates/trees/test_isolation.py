"""The user's repository as found: read, never written."""

import os
from pathlib import Path

import pytest

from fallback_tier.errors import RepositoryError
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import Worktrees
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import UnsandboxedRunner
from tests.fakes.repository import commit_all, git, write
from tests.integration.gate_setup import repository
from tests.kinds import OfKind
from tests.unit.gates.trees.listings import listing, snapshot

FILES = {"app.py": "one\n", "run.sh": "x\n", ".gitignore": "build/\n"}


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return repository(tmp_path / "repo", FILES)


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


def test_a_missing_folder_and_a_plain_one(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, check=OfKind("not_a_folder")):
        inspect_repository(tmp_path / "nowhere", SubprocessClients())
    with pytest.raises(RepositoryError, check=OfKind("not_a_repository")) as caught:
        inspect_repository(tmp_path, SubprocessClients())
    assert "git init" in caught.value.next_step


def test_a_folder_inside_a_repository_is_not_taken_for_it(repo: RepoContext) -> None:
    (repo.root / "sub").mkdir()
    with pytest.raises(RepositoryError, check=OfKind("inside_another")):
        inspect_repository(repo.root / "sub", SubprocessClients())


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    with pytest.raises(RepositoryError, check=OfKind("no_commit")):
        inspect_repository(tmp_path, SubprocessClients())


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare")
    with pytest.raises(RepositoryError, check=OfKind("bare")):
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
    with pytest.raises(RepositoryError, check=OfKind("another_user")) as caught:
        inspect_repository(repo.root, clients)
    assert "safe.directory" in caught.value.next_step
    (home / ".gitconfig").write_text(f"[safe]\n\tdirectory = {repo.root}\n")
    assert inspect_repository(repo.root, clients).base_commit == repo.base_commit
    with Worktrees(tmp_path / "state", clients, UnsandboxedRunner()).open(repo) as worktree:
        assert listing(worktree.tree) == set(FILES)


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
