"""What a target's commands find when they ask git: the commit, its history and tags, and nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fallback_tier.execution import Sandbox
from fallback_tier.files.tree import FileTree
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.private_git import WHOLE_COMMITS
from fallback_tier.gates.trees.worktrees import RunnerWorktree, Worktrees
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.fakes.repository import commit_all, git, write
from tests.integration.gate_setup import diff_of, needs_sandbox, repository
from tests.unit.gates.trees.listings import snapshot

pytestmark = pytest.mark.sandbox

FILES = {
    "app.py": "one\n",
    "gone.py": "x\n",
    ".gitattributes": "*.txt text eol=crlf\n",
    "a.txt": "a\r\n",
}
CHANGES = {"app.py": "patched\n", "gone.py": None, "lib/new.py": "new\n"}


@pytest.fixture(params=[True, False], ids=["layers", "checkout"])
def layered(request: pytest.FixtureRequest, tmp_path: Path) -> bool:
    needs_sandbox()
    if request.param and not BubblewrapSandbox().mounts_layers(tmp_path):
        pytest.skip("no layers can be mounted here")
    return bool(request.param)


@pytest.fixture
def sandbox() -> Sandbox:
    return BubblewrapSandbox()


@contextmanager
def opened(repo: RepoContext, sandbox: Sandbox, *, layered: bool) -> Iterator[RunnerWorktree]:
    worktrees = Worktrees(repo.root.parent / "state", SubprocessClients(), sandbox, layered=layered)
    with worktrees.open(repo) as worktree:
        yield worktree


def ask(sandbox: Sandbox, tree: FileTree, script: str) -> str:
    return sandbox.run(["sh", "-c", script], worktree=tree, timeout_s=60).output


def at_head(root: Path) -> RepoContext:
    facts = inspect_repository(root, SubprocessClients())
    return RepoContext(
        root=facts.root, base_commit=facts.base_commit, tracked_files=facts.tracked_files,
        manifests=(), fix_id="fix-1", gate_transition_id="gate-1",
    )  # fmt: skip


def test_git_says_the_same_of_both_trees_and_each_is_its_own_head(
    tmp_path: Path, sandbox: Sandbox, layered: bool
) -> None:
    repo = repository(tmp_path / "repo", FILES)
    git(repo.root, "tag", "-a", "v1.0", "-m", "first")
    git(repo.root, "tag", "light")
    write(repo.root, {"later.py": "x\n"})
    commit_all(repo.root, "Größe: later")
    git(repo.root, "tag", "-a", "v1.1", "-m", "second")
    repo = at_head(repo.root)
    diff = diff_of(repo, CHANGES)
    script = (
        "git status --porcelain; git diff-index HEAD; git describe --dirty; git describe --tags HEAD~1;"
        " git tag; git log --format=%an:%s:%cI; git rev-parse HEAD~1 --abbrev-ref HEAD; git remote"
    )
    with opened(repo, sandbox, layered=layered) as worktree:
        worktree.apply(diff)
        with worktree.fresh(patched=True) as ours, worktree.fresh(patched=False) as base:
            said = ask(sandbox, base, script)
            assert said.splitlines()[:2] == ["v1.1", "v1.0"]
            assert "Größe: later" in said
            assert ask(sandbox, ours, script) == said
            assert ask(sandbox, base, "git rev-parse HEAD").strip() == repo.base_commit
            seen = "git show HEAD:app.py HEAD:a.txt; git ls-files | sort | tr '\\n' ' '"
            assert ask(sandbox, base, seen).splitlines()[:1] == ["one"]
            assert ask(sandbox, ours, seen) == (
                "patched\na\n.gitattributes a.txt app.py later.py lib/new.py "
            )


def test_commands_may_commit_and_nothing_of_it_is_left(
    tmp_path: Path, sandbox: Sandbox, layered: bool
) -> None:
    repo = repository(tmp_path / "repo", FILES)
    hook = repo.root / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho the hook ran\n")
    hook.chmod(0o755)
    git(repo.root, "config", "alias.evil", "!echo the alias ran")
    script = (
        "git -c user.name=a -c user.email=a@b commit -qam more --allow-empty && git log --format=%s;"
        " git evil; git reset -q --hard HEAD; cat app.py; ls .git/hooks"
    )
    diff = diff_of(repo, CHANGES)
    before = snapshot(repo.root)
    with opened(repo, sandbox, layered=layered) as worktree:
        worktree.apply(diff)
        for patched, text in ((True, "patched"), (False, "one"), (True, "patched")):
            with worktree.fresh(patched=patched) as tree:
                said = ask(sandbox, tree, script)
                assert said.startswith("more\nbase\n")
                assert f"\n{text}\n" in said
                assert "ran" not in said
        assert "Read-only" in ask(sandbox, worktree.tree, "touch .git/x")
    assert snapshot(repo.root) == before


def test_no_other_branch_and_no_forgotten_commit_is_in_reach(
    tmp_path: Path, sandbox: Sandbox, layered: bool
) -> None:
    repo = repository(tmp_path / "repo", FILES)
    write(repo.root, {"secret": "password\n"})
    secret = commit_all(repo.root, "oops")
    git(repo.root, "branch", "other")
    git(repo.root, "tag", "elsewhere")
    git(repo.root, "reset", "-q", "--hard", repo.base_commit)
    with opened(repo, sandbox, layered=layered) as worktree, worktree.fresh(patched=False) as fresh:
        for tree in (worktree.tree, fresh):
            assert ask(sandbox, tree, "git cat-file -t HEAD") == "commit\n"
            said = ask(sandbox, tree, f"git cat-file -t {secret}; git branch -a; git tag")
            assert "could not get object info" in said
            assert "other" not in said
            assert "elsewhere" not in said


def test_of_a_long_history_the_commits_are_there_and_the_newest_files(
    tmp_path: Path, sandbox: Sandbox, layered: bool
) -> None:
    repo = repository(tmp_path / "repo", FILES)
    git(repo.root, "tag", "-a", "v0.1", "-m", "old")
    for number in range(WHOLE_COMMITS + 5):
        write(repo.root, {"app.py": f"{number}\n"})
        commit_all(repo.root, f"change {number}")
    repo = at_head(repo.root)
    commits = WHOLE_COMMITS + 6
    with opened(repo, sandbox, layered=layered) as worktree, worktree.fresh(patched=False) as tree:
        script = (
            "git rev-list --count HEAD; git describe; git log -1 --format= --numstat;"
            f" git show HEAD~9:app.py; git show HEAD~{WHOLE_COMMITS + 2}:app.py 2>/dev/null || echo none;"
            " git status --porcelain"
        )
        count, described, stat, old, older = ask(sandbox, tree, script).splitlines()
    assert (count, described.split("-g")[0]) == (str(commits), f"v0.1-{commits - 1}")
    assert (stat, old, older) == ("1\t1\tapp.py", str(WHOLE_COMMITS - 5), "none")


@pytest.mark.parametrize(
    ("how", "commits"), [("--depth=2", 2), ("--filter=blob:none", 6), ("--filter=tree:0", 1)]
)
def test_what_a_clone_lacks_is_left_out(
    tmp_path: Path, sandbox: Sandbox, layered: bool, how: str, commits: int
) -> None:
    origin = repository(tmp_path / "origin", FILES)
    git(origin.root, "tag", "v1")
    for number in range(5):
        write(origin.root, {"app.py": f"{number}\n"})
        commit_all(origin.root, f"change {number}")
    git(origin.root, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", how, f"file://{origin.root}", "clone")
    with (
        opened(at_head(tmp_path / "clone"), sandbox, layered=layered) as worktree,
        worktree.fresh(patched=False) as tree,
    ):
        said = ask(
            sandbox, tree, "git status --porcelain; git log --format=%s; cat app.py; git fsck"
        )
        log = ["change 4", "change 3", "change 2", "change 1", "change 0", "base"][:commits]
        assert said.splitlines()[: commits + 1] == [*log, "4"]
        assert "fatal" not in said
