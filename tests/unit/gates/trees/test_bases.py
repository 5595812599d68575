"""Shared checkouts of base commits: made once, never trusted blindly, few."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_tier.errors import RepositoryError, ToolFailedError
from fallback_tier.files import entries, folders
from fallback_tier.gates.trees.bases import Base, Bases
from fallback_tier.gates.trees.worktrees import LayeredWorktree
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import commit_all, git, write
from tests.integration.gate_setup import repository
from tests.kinds import OfKind

FILES = {"app.py": "one\n", "lib/x.py": "x\n"}
DIFF = "--- a/app.py\n+++ b/app.py\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return repository(tmp_path / "repo", FILES)


class Counting(SubprocessClients):
    """Counts checkouts: what a base is to save."""

    checkouts = 0

    def run(self, tool, args, **options):  # type: ignore[no-untyped-def]
        self.checkouts += args[0] == "checkout"
        return super().run(tool, args, **options)


@pytest.fixture
def clients() -> Counting:
    return Counting()


@pytest.fixture
def store(tmp_path: Path, clients: Counting) -> Bases:
    return Bases(tmp_path / "bases", clients)


def commits(repo: RepoContext, count: int) -> list[RepoContext]:
    """The repository at so many commits of its own."""
    found = []
    for number in range(count):
        write(repo.root, {"number": f"{number}\n"})
        found.append(repo.model_copy(update={"base_commit": commit_all(repo.root)}))
    return found


def kept(store: Bases) -> set[str]:
    return {mark.parent.name for mark in store._entries.folder.glob("*/whole")}


def test_a_base_is_made_once(repo: RepoContext, store: Bases, clients: Counting) -> None:
    for _ in range(3):
        base = store.open(repo)
        assert (base.tree / "app.py").read_text() == "one\n"
        base.close()
    assert clients.checkouts == 1


def test_every_commit_has_its_own(repo: RepoContext, store: Bases) -> None:
    (later,) = commits(repo, 1)
    with store.open(repo).held, store.open(later).held:
        assert len(kept(store)) == 2


def test_those_who_come_at_once_make_one(
    repo: RepoContext, store: Bases, clients: Counting
) -> None:
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: store.open(repo), range(8)))
    assert clients.checkouts == 1
    for base in opened:
        base.close()


def test_the_last_used_are_kept_and_one_in_use_is_never_removed(
    repo: RepoContext, store: Bases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_entries", replace(store._entries, most=2))
    first, second, third, fourth = commits(repo, 4)
    in_use = store.open(first)
    for age, made in ((300, second), (200, third)):
        base = store.open(made)
        base.close()
        when = (base.place / "whole").stat().st_mtime - age
        os.utime(base.place / "whole", (when, when))
    os.utime(in_use.place / "whole", (1, 1))
    last = store.open(fourth)
    last.close()
    assert in_use.place.name in kept(store), "in use, although it is the oldest"
    assert last.place.name in kept(store)
    assert len(kept(store)) == 2 + 1
    in_use.close()
    (fifth,) = commits(repo, 1)
    store.open(fifth).close()
    assert in_use.place.name not in kept(store)
    assert len(list(store._entries.folder.glob("*.lock"))) == len(kept(store)) == 2


def test_half_of_a_base_is_never_used(
    repo: RepoContext, store: Bases, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        patch.setattr(entries, "remove_tree", lambda _: None)  # kill -9 cleans nothing up
        with pytest.raises(KeyboardInterrupt):
            store.open(repo)
    (part,) = (tmp_path / "bases").glob("*.part")
    (part / "tree" / "app.py").unlink()
    with (base := store.open(repo)).held:
        assert (base.tree / "app.py").read_text() == "one\n"
    assert list((tmp_path / "bases").glob("*.part")) == []


@pytest.mark.parametrize("restarted", [False, True])
def test_a_base_whose_borrowed_objects_moved_away_is_made_anew(
    repo: RepoContext, store: Bases, tmp_path: Path, restarted: bool
) -> None:
    store.open(repo).close()
    git(repo.root, "init", "-q", f"--separate-git-dir={tmp_path / 'elsewhere'}")
    if restarted:
        (mark,) = (tmp_path / "bases").glob("*/whole")
        mark.write_text("before")
    with (base := store.open(repo)).held:
        assert git(base.tree, "cat-file", "-t", repo.base_commit) == "commit\n"


HURTS = {
    "shorter": lambda tree: (tree / "app.py").write_text(""),
    "gone": lambda tree: (tree / "app.py").unlink(),
    "planted": lambda tree: write(tree, {"lib/evil.py": "x\n"}),
    "no repository": lambda tree: shutil.rmtree(tree / ".git"),
}


@pytest.mark.parametrize("kind", HURTS)
def test_after_a_restart_of_the_system_it_is_looked_at_whole(
    repo: RepoContext, store: Bases, clients: Counting, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Files of a checkout are not synced: a power loss may have emptied them."""
    base = store.open(repo)
    base.close()
    restarted = base.place.parent / "boot-id"
    restarted.write_text("another\n")
    monkeypatch.setattr(folders, "_BOOT_ID", restarted)
    store.open(repo).close()
    assert clients.checkouts == 1, "nothing was wrong with it"
    HURTS[kind](base.tree)
    restarted.write_text("a third\n")
    store.open(repo).close()
    assert clients.checkouts == 2
    assert {p.name for p in base.tree.iterdir()} == {"app.py", "lib", ".git"}
    assert (base.tree / "app.py").read_text() == "one\n"
    assert not (base.tree / "lib" / "evil.py").exists()


def layered(base: Base, repo: RepoContext, place: Path) -> LayeredWorktree:
    place.mkdir()
    return LayeredWorktree(base, repo.base_commit, SubprocessClients(), place)


@pytest.mark.parametrize(
    "hurt",
    [
        lambda place: place.write_text("one\n# planted\n"),
        lambda place: place.chmod(0o755),
        lambda place: place.unlink(),
    ],
    ids=["content", "mode", "gone"],
)
def test_a_patch_is_never_made_of_a_file_that_was_changed_from_outside(
    repo: RepoContext, store: Bases, tmp_path: Path, hurt
) -> None:  # type: ignore[no-untyped-def]
    with (base := store.open(repo)).held:
        hurt(base.tree / "app.py")
        with pytest.raises(ToolFailedError, check=OfKind("base_changed")):
            layered(base, repo, tmp_path / "place").apply(DIFF)
    with (again := store.open(repo)).held:
        layered(again, repo, tmp_path / "again").apply(DIFF)


def test_a_base_of_a_repository_of_sha256_names(tmp_path: Path, store: Bases) -> None:
    write(tmp_path / "repo", FILES)
    git(tmp_path / "repo", "init", "-q", "--object-format=sha256", "-b", "main")
    repo = repository(tmp_path / "repo", {})
    with (base := store.open(repo)).held:
        worktree = layered(base, repo, tmp_path / "place")
        worktree.apply(DIFF)
        assert [change.path for change in worktree.changed()] == ["app.py"]


def test_a_commit_that_is_not_there_leaves_nothing(repo: RepoContext, store: Bases) -> None:
    with pytest.raises(RepositoryError, check=OfKind("no_checkout")):
        store.open(repo.model_copy(update={"base_commit": "1" * 40}))
    assert [p.suffix for p in store._entries.folder.iterdir()] == [".lock"]
