"""A patch on a branch: exactly it, by the user, and nothing else of the repository changes."""

from pathlib import Path

import pytest

from fallback_tier.errors import ConfigurationError, PatchError
from fallback_tier.handover.branch import branch_for, check_branch, commit_to_branch
from fallback_tier.outcome import FileChange
from fallback_tier.patch.diff import unified_diff
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from tests.fakes.repository import git, write
from tests.integration.gate_setup import applied, diff_of, repository
from tests.kinds import OfKind

CLIENTS = SubprocessClients()
FILES = {"src/a.txt": "one\n", "b.txt": "b\n", "c.bin": "c\n"}
CHANGES: dict[str, str | None] = {"src/a.txt": "two\n", "b.txt": None, "new/d.txt": "d"}


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    made = repository(tmp_path / "repo", FILES)
    git(made.root, "config", "user.name", "A Person")
    git(made.root, "config", "user.email", "person@example.invalid")
    return made


def state(root: Path) -> tuple[str, str, bytes]:
    return (
        git(root, "rev-parse", "HEAD"),
        git(root, "status", "--porcelain", "--ignored"),
        (root / ".git" / "index").read_bytes(),
    )


def test_the_branch_has_the_patch_and_the_rest_is_as_it_was(repo: RepoContext) -> None:
    diff = diff_of(repo, CHANGES)
    before = state(repo.root)
    made = commit_to_branch(
        applied(diff, tuple(CHANGES)), "Fix it\n\nwhy\n", "fix/it", repo, CLIENTS
    )
    assert state(repo.root) == before
    assert git(repo.root, "rev-parse", "fix/it").strip() == made.commit
    assert git(repo.root, "rev-parse", "fix/it^").strip() == repo.base_commit
    assert git(repo.root, "diff", "--no-renames", repo.base_commit, "fix/it") == diff
    assert git(repo.root, "log", "-1", "--format=%an <%ae>%n%B", "fix/it").strip() == (
        "A Person <person@example.invalid>\nFix it\n\nwhy"
    )
    git(repo.root, "fsck", "--strict")


def test_no_hook_runs(repo: RepoContext, tmp_path: Path) -> None:
    for name in (
        "pre-commit",
        "commit-msg",
        "post-commit",
        "reference-transaction",
        "post-index-change",
    ):
        hook = repo.root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/ran\n")
        hook.chmod(0o755)
    patch = applied(diff_of(repo, {"b.txt": "x\n"}), ("b.txt",))
    (tmp_path / "ran").unlink(missing_ok=True)  # git's own use in the line above may run one
    commit_to_branch(patch, "m", "x", repo, CLIENTS)
    assert not (tmp_path / "ran").exists()


def test_a_patch_that_declares_less_is_not_committed(repo: RepoContext) -> None:
    for path, kind in (("new/d.txt", "other_changes"), ("src/a.txt", "not_committed")):
        patch = applied(diff_of(repo, {"b.txt": "x\n", path: "y\n"}), ("b.txt",))
        with pytest.raises(PatchError, check=OfKind(kind)):
            commit_to_branch(patch, "m", "x", repo, CLIENTS)
    assert git(repo.root, "branch", "--list", "x") == ""


def test_a_patch_for_other_content_is_not_committed(repo: RepoContext) -> None:
    diff = diff_of(repo, {"b.txt": "x\n"}).replace("-b", "-other")
    with pytest.raises(PatchError, check=OfKind("not_committed"), match="git apply"):
        commit_to_branch(applied(diff, ("b.txt",)), "m", "x", repo, CLIENTS)


def test_a_branch_that_appeared_meanwhile_is_not_overwritten(repo: RepoContext) -> None:
    patch = applied(diff_of(repo, {"b.txt": "x\n"}), ("b.txt",))
    git(repo.root, "branch", "x")
    with pytest.raises(PatchError, check=OfKind("branch_taken")):
        commit_to_branch(patch, "m", "x", repo, CLIENTS)
    assert git(repo.root, "rev-parse", "x").strip() == repo.base_commit


def test_what_can_be_known_before_is_asked_before(repo: RepoContext) -> None:
    check_branch("fix/it", repo, CLIENTS)
    git(repo.root, "branch", "there")
    git(repo.root, "checkout", "-q", "-b", "dir/leaf")
    git(repo.root, "checkout", "-q", "there")
    for branch, kind in (
        ("there", "branch_taken"),
        ("a..b", "bad_branch_name"),
        ("-x", "bad_branch_name"),
        ("@{-1}", "bad_branch_name"),
        ("there/below", "branch_in_the_way"),
        ("dir", "branch_in_the_way"),
    ):
        with pytest.raises(ConfigurationError, check=OfKind(kind)):
            check_branch(branch, repo, CLIENTS)


def test_somebody_must_commit(repo: RepoContext) -> None:
    git(repo.root, "config", "user.name", "")
    with pytest.raises(ConfigurationError, check=OfKind("no_committer")):
        check_branch("fix/it", repo, CLIENTS)


def test_line_ends_of_the_working_tree_are_not_committed(repo: RepoContext) -> None:
    """A patch is made from the files of a working tree; what is committed of them has bare line feeds."""
    write(repo.root, {".gitattributes": "b.txt eol=crlf\n"})
    git(repo.root, "add", "-A")
    git(repo.root, "commit", "-qm", "attributes")
    repo = repo.model_copy(update={"base_commit": git(repo.root, "rev-parse", "HEAD").strip()})
    change = FileChange(path="b.txt", before="b\r\n", after="c\r\n")
    made = commit_to_branch(applied(unified_diff([change]), ("b.txt",)), "m", "x", repo, CLIENTS)
    assert git(repo.root, "diff", "--numstat", made.commit, "HEAD") == "1\t1\tb.txt\n"
    assert git(repo.root, "cat-file", "-s", f"{made.commit}:b.txt").strip() == str(len("c\n"))


def test_gits_remarks_are_no_part_of_its_answers(repo: RepoContext) -> None:
    """An old graft file makes git say so whenever it reads a commit."""
    info = repo.root / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "grafts").write_text(f"{repo.base_commit}\n")
    diff = diff_of(repo, {"b.txt": "x\n"})
    made = commit_to_branch(applied(diff, ("b.txt",)), "m", "x", repo, CLIENTS)
    again = commit_to_branch(applied(diff, ("b.txt",)), "m", "x", repo, CLIENTS)
    assert again == made.model_copy(update={"existed": True})


def test_the_digest_of_a_branch_is_of_all_its_advisories(repo: RepoContext) -> None:
    """As many, with the same first one."""
    names = [f"GHSA-{number}-{'x' * 20}" for number in range(6)]
    one, same, other = (
        branch_for(ids, "fix-1", repo, CLIENTS)
        for ids in (names[:5], names[4::-1], [*names[:4], names[5]])
    )
    assert one == same
    assert one != other
    assert one[:-8] == other[:-8]
