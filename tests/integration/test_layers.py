"""Layers mounted by the real sandbox: what commands see, and what is left of what they did."""

import os
import subprocess
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult
from fallback_tier.files.folders import remove_tree
from fallback_tier.files.tree import FileTree
from fallback_tier.gates.trees.bases import Bases
from fallback_tier.gates.trees.worktrees import LayeredWorktree, RunnerWorktree, Worktrees, uncover
from fallback_tier.repo import RepoContext
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.confinement import writable_worktree
from fallback_tier.sandbox.mounting import mounting
from fallback_tier.sandbox.runners import BubblewrapSandbox, UnsandboxedRunner, find_bwrap
from tests.fakes.repository import write
from tests.integration.gate_setup import diff_of, needs_sandbox, repository
from tests.kinds import OfKind
from tests.unit.gates.trees.listings import listing, snapshot
from tests.waiting import exit_code, joined

pytestmark = pytest.mark.sandbox

FILES = {"app.py": "one\n", "gone.py": "x\n", "lib/a.py": "a\n", "lib/deep/b.py": "b\n"}
CHANGES = {"app.py": "patched\n", "gone.py": None, "lib/new.py": "new\n"}
PATCHED = {"app.py": "patched\n", "lib/a.py": "a\n", "lib/deep/b.py": "b\n", "lib/new.py": "new\n"}


@pytest.fixture
def sandbox(tmp_path: Path) -> BubblewrapSandbox:
    needs_sandbox()
    sandbox = BubblewrapSandbox()
    if not sandbox.mounts_layers(tmp_path):
        pytest.skip("no layers can be mounted here")
    return sandbox


@pytest.fixture
def repo(tmp_path: Path) -> RepoContext:
    return repository(tmp_path / "repo", FILES)


@pytest.fixture
def worktree(
    sandbox: BubblewrapSandbox, repo: RepoContext, tmp_path: Path
) -> Iterator[RunnerWorktree]:
    diff = diff_of(repo, CHANGES)
    with Worktrees(tmp_path / "state", SubprocessClients(), sandbox).open(repo) as worktree:
        assert isinstance(worktree, LayeredWorktree), "layers wherever they can be mounted"
        worktree.apply(diff)
        yield worktree


def sh(sandbox: BubblewrapSandbox, tree: FileTree, script: str) -> CommandResult:
    return sandbox.run(["sh", "-c", script], worktree=tree, timeout_s=60)


def texts(tree: FileTree) -> dict[str, str]:
    """Of plain files; a link is none."""
    found = {path: tree.find(path) for path in listing(tree)}
    return {path: place.read_text() for path, place in found.items() if place and place.is_file()}


def test_commands_see_the_patched_files_at_the_worktrees_place(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree
) -> None:
    seen = sh(sandbox, worktree.tree, "pwd; find . -path ./.git -prune -o -type f -print | sort")
    assert seen.output.split() == [str(worktree.tree.root), *(f"./{path}" for path in PATCHED)]
    assert texts(worktree.tree) == PATCHED
    assert sh(sandbox, worktree.tree, "cat app.py lib/new.py").output == "patched\nnew\n"


def test_git_is_readable_and_not_writable(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree
) -> None:
    assert sh(sandbox, worktree.tree, "cat .git/HEAD").ok
    for script in ("echo x > .git/config", "mv .git git", "rm -r .git", "mkdir .git/new"):
        assert not sh(sandbox, worktree.tree, script).ok, script


def test_nothing_reaches_the_base_or_the_next_attempt(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree
) -> None:
    before = [snapshot(layer) for layer in worktree.tree.lower]
    script = "rm -rf lib; echo evil > app.py; mkdir -p node_modules/x; chmod 0 ."
    assert sh(sandbox, worktree.tree, script).ok
    assert [snapshot(layer) for layer in worktree.tree.lower] == before
    worktree.reset()
    assert texts(worktree.tree) == FILES
    assert sh(sandbox, worktree.tree, "cat app.py lib/a.py").output == "one\na\n"


DAMAGE = {
    "rewritten": "echo evil > app.py; echo evil > lib/new.py",
    "removed": "rm app.py lib/deep/b.py",
    "a whole folder": "rm -rf lib",
    "a folder made anew": "rm -rf lib; mkdir -p lib/deep; echo evil > lib/a.py",
    "renamed": "mv app.py moved.py; cp -r lib other; rm -r lib; mv other lib; echo evil > lib/a.py",
    "file to folder": "rm app.py; mkdir app.py; echo evil > app.py/x",
    "folder to file": "rm -rf lib/deep; echo evil > lib/deep",
    "folder to link": "rm -rf lib; ln -s /usr lib",
    "file to link": "ln -sf /etc/passwd app.py",
    "modes": "chmod 0 app.py lib/deep; chmod 0500 lib; chmod 0 .",
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_restore_undoes_what_a_command_did_to_tracked_files(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree, kind: str
) -> None:
    installed = "mkdir -p node_modules/left lib/__pycache__; echo left > node_modules/left/i.js; "
    installed += "echo c > lib/__pycache__/a.pyc; "
    kept = {"node_modules/left/i.js": "left\n"}
    assert sh(sandbox, worktree.tree, installed + DAMAGE[kind]).ok
    if kind != "modes":
        assert not texts(worktree.tree).items() >= PATCHED.items(), "there is something to undo"
    worktree.restore()
    found = texts(worktree.tree)
    assert found.items() >= (PATCHED | kept).items()
    seen = sh(sandbox, worktree.tree, "cat app.py lib/deep/b.py lib/new.py lib/a.py; ls lib/deep")
    assert seen.output == "patched\nb\nnew\na\nb.py\n"
    modes = {path: worktree.tree.locate(path).stat().st_mode for path in ("app.py", "lib/deep")}
    assert {path: mode & 0o700 for path, mode in modes.items()} == {
        "app.py": 0o600,
        "lib/deep": 0o700,
    }


def test_what_was_installed_is_not_even_looked_at(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh(sandbox, worktree.tree, "mkdir -p node_modules/a/b/c lib/deep/built/x; echo x > app.py")
    looked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(str(path)) or scandir(path))
    worktree.restore()
    assert looked
    assert not [path for path in looked if "node_modules" in path or "built" in path]


def test_fresh_trees_have_nothing_that_was_written(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree
) -> None:
    sh(sandbox, worktree.tree, "echo evil > app.py; mkdir node_modules")
    with worktree.fresh(patched=True) as ours, worktree.fresh(patched=False) as base:
        ours.add("proof/test.py", b"proof\n")
        seen = sh(sandbox, ours, "cat app.py proof/test.py; ls -A; echo mine > app.py")
        assert seen.output == "patched\nproof\n" + ".git\napp.py\nlib\nproof\n"
        assert (
            sh(sandbox, base, "cat app.py gone.py; ls -A").output
            == "one\nx\n.git\napp.py\ngone.py\nlib\n"
        )
    assert sh(sandbox, worktree.tree, "cat app.py; ls -A").output == (
        "evil\n.git\napp.py\nlib\nnode_modules\n"
    )


def test_one_upper_layer_is_never_mounted_twice_at_once(
    sandbox: BubblewrapSandbox, worktree: RunnerWorktree
) -> None:
    done: list[CommandResult] = []
    with mounting(worktree.tree):
        work = lambda: done.append(sh(sandbox, worktree.tree, "true"))  # noqa: E731
        other = threading.Thread(target=work, daemon=True)
        other.start()
        time.sleep(0.5)
        assert done == []
    joined(other)
    assert done[0].ok


def test_layers_are_not_mounted_without_a_sandbox(worktree: RunnerWorktree) -> None:
    with pytest.raises(SandboxError, check=OfKind("layers")):
        UnsandboxedRunner().run(["true"], worktree=worktree.tree, timeout_s=60)


@pytest.mark.parametrize("why", ["old bubblewrap", "no sandbox", "forced"])
def test_a_plain_checkout_where_no_layers_can_be_mounted(
    repo: RepoContext, tmp_path: Path, why: str, sandbox: BubblewrapSandbox
) -> None:
    old = tmp_path / "bwrap"
    old.write_text(
        '#!/bin/sh\nfor word in "$@"; do [ "$word" != --overlay-src ] || '
        f'{{ echo "bwrap: Unknown option $word"; exit 1; }}; done\nexec "{find_bwrap()}" "$@"\n'
    )
    old.chmod(0o755)
    runner = {"old bubblewrap": BubblewrapSandbox(old), "no sandbox": UnsandboxedRunner()}
    worktrees = Worktrees(
        tmp_path / "state",
        SubprocessClients(),
        runner.get(why, sandbox),
        layered=False if why == "forced" else None,
    )
    with worktrees.open(repo) as worktree:
        assert worktree.tree.upper is None
        assert texts(worktree.tree) == FILES
    assert list(tmp_path.rglob("probe-*")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.usefixtures("sandbox")
def test_it_all_works_without_privileges() -> None:
    """The work folder is mode 000 then, and whiteouts are made by somebody without capabilities."""
    bwrap = find_bwrap()
    if not all(folder.stat().st_mode & 0o005 == 0o005 for folder in bwrap.parents):
        pytest.skip(f"nobody else may run {bwrap}")
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to everybody else
        place = Path(folder)
        repo = repository(place / "repo", FILES)
        diff = diff_of(repo, {**CHANGES, "lib/deep/b.py": None})
        for path in (place, *place.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        child = os.fork()
        if child == 0:
            _end(lambda: _as_nobody(repo, diff, place, bwrap))
        assert exit_code(child) == 0


def _end(work: Callable[[], None]) -> NoReturn:
    """The child's whole life: it must not go on as a second test run."""
    code = 1
    try:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 (the parent's assertion tells)
        traceback.print_exc()
    finally:
        os._exit(code)


def _as_nobody(repo: RepoContext, diff: str, place: Path, bwrap: Path) -> None:
    clients = SubprocessClients({"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(place)})
    base = Bases(place / "bases", clients).open(repo)
    (place / "worktree").mkdir()
    worktree = LayeredWorktree(base, repo.base_commit, clients, place / "worktree")
    worktree.apply(diff)
    system = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"]
    system += ["--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"]
    root = str(worktree.tree.root)
    script = "cat app.py; ls -A lib; rm -r lib; mkdir -p lib made; chmod 0 made lib ."
    bound = [*system, *writable_worktree(worktree.tree), "--chdir", root]
    done = subprocess.run(
        [str(bwrap), "--unshare-all", "--cap-drop", "ALL", *bound, "sh", "-c", script],
        capture_output=True,
        text=True,
        env={},
    )
    assert (done.stdout, done.stderr) == ("patched\na.py\nnew.py\n", "")
    worktree.restore()
    for path in PATCHED.keys() - {"lib/deep/b.py"}:
        assert worktree.tree.locate(path).read_text() == PATCHED[path]
    assert worktree.tree.find("lib/deep") is None
    worktree.reset()
    assert texts(worktree.tree) == FILES
    worktree.close()
    remove_tree(place / "worktree")


def test_restoring_takes_an_opaque_mark_away(tmp_path: Path) -> None:
    write(tmp_path / "base", {"lib/a": "a"})
    write(tmp_path / "upper", {"lib/made": "x"})
    os.setxattr(tmp_path / "upper" / "lib", "user.overlay.opaque", b"y")
    uncover(tmp_path / "upper", [tmp_path / "base"])
    tree = FileTree(root=tmp_path, lower=(tmp_path / "base",), upper=tmp_path / "upper")
    assert texts(tree) == {"lib/a": "a", "lib/made": "x"}
