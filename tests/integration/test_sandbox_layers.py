"""Each layer behind the namespaces by itself: what it holds, and that it is what holds it."""

import os
import shutil
import subprocess
import textwrap
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_tier.errors import SandboxError
from fallback_tier.sandbox.cgroups import (
    Bounds,
    Hierarchy,
    bounded_tree,
    find_hierarchies,
    hierarchies,
    remove_abandoned,
)
from fallback_tier.sandbox.landlock import PERL, landlock_version, landlocked
from fallback_tier.sandbox.runners import (
    BubblewrapSandbox,
    Hardening,
    UnsandboxedRunner,
    find_bwrap,
)
from tests.integration.by_the_clock import ended_by_the_clock
from tests.integration.gate_setup import needs_sandbox
from tests.waiting import PATIENCE_S, becomes

pytestmark = pytest.mark.sandbox


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A folder to write in, and one that is not."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    ours.mkdir()
    others.mkdir()
    (others / "file").write_text("x")
    return ours, others


def needs_landlock() -> int:
    if not (version := landlock_version()):
        pytest.skip("the kernel has no Landlock, or it is not switched on")
    if not os.access(PERL, os.X_OK):
        pytest.skip("Perl is not installed: nothing to enter a domain with")
    return version


def confined(writable: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A command under Landlock alone: no namespace, no filter."""
    before = landlocked(needs_landlock(), [str(writable)])
    if os.geteuid() != 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed: nothing to give up privileges with")
        before = ["setpriv", "--no-new-privs", *before]
    return subprocess.run([*before, *command], capture_output=True, text=True)


@pytest.mark.parametrize(
    "command",
    [
        "echo x > {folder}/new",
        "echo x >> {folder}/file",
        "rm {folder}/file",
        "mkdir {folder}/folder",
        "ln -s file {folder}/link",
        "mv {folder}/file {folder}/other",
    ],
)
def test_landlock_lets_write_only_where_it_says(places: tuple[Path, Path], command: str) -> None:
    ours, others = places
    (ours / "file").write_text("x")
    assert confined(ours, "sh", "-c", command.format(folder=ours)).returncode == 0
    refused = confined(ours, "sh", "-c", command.format(folder=others))
    assert refused.returncode != 0
    assert "denied" in refused.stderr
    assert [path.name for path in others.iterdir()] == ["file"]
    assert (others / "file").read_text() == "x"


def test_landlock_lets_read_and_run(places: tuple[Path, Path]) -> None:
    ours, others = places
    done = confined(ours, "sh", "-c", f"cat {others}/file; echo $((1 + 1)); exit 7")
    assert (done.returncode, done.stdout) == (7, "x2\n")


def test_landlock_keeps_signals_inside(places: tuple[Path, Path]) -> None:
    if needs_landlock() < 6:
        pytest.skip("this version of Landlock does not know of signals")
    with subprocess.Popen(["sleep", "600"]) as stranger:
        assert confined(places[0], "sh", "-c", f"kill -0 {stranger.pid}").returncode != 0
        assert confined(places[0], "sh", "-c", "sleep 600 & kill -0 $! && kill $!").returncode == 0
        assert stranger.poll() is None
        stranger.kill()


def test_no_device_node_and_no_mount_under_landlock(places: tuple[Path, Path]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root could")
    ours, _ = places
    assert confined(ours, "mknod", str(ours / "node"), "c", "1", "3").returncode != 0
    assert confined(ours, "mkfifo", str(ours / "fifo")).returncode == 0
    (ours / "place").mkdir()
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", str(ours / "place")]
    assert subprocess.run(mount, capture_output=True).returncode == 0, "so it can succeed"
    assert confined(ours, *mount).returncode != 0


def test_where_a_rule_can_not_be_made_nothing_runs(places: tuple[Path, Path]) -> None:
    ours, _ = places
    done = confined(ours / "no-such-folder", "touch", str(ours / "ran"))
    assert done.returncode != 0
    assert "no-such-folder" in done.stderr
    assert not (ours / "ran").exists()


def test_the_sandbox_is_a_landlock_domain(tmp_path: Path) -> None:
    """Its first process is bubblewrap's, outside the domain: signals tell."""
    needs_sandbox()
    if needs_landlock() < 6:
        pytest.skip("this version of Landlock does not know of signals")
    for landlock, expected in ((True, False), (False, True)):
        sandbox = BubblewrapSandbox(hardening=Hardening(landlock=landlock))
        result = sandbox.run(["sh", "-c", "kill -0 1"], worktree=tmp_path, timeout_s=60)
        assert result.ok is expected


def test_where_a_domain_can_not_be_entered_the_sandbox_stands_without(tmp_path: Path) -> None:
    """As in a container that tells Landlock's version and denies the rest."""
    needs_sandbox()
    needs_landlock()
    real, refusing = find_bwrap(), tmp_path / "bwrap"
    refusing.write_text(
        f'#!/bin/sh\ncase "$*" in *landlock_create*) echo no; exit 1; esac\nexec {real} "$@"\n'
    )
    refusing.chmod(0o755)
    (tmp_path / "tree").mkdir()
    result = BubblewrapSandbox(refusing).run(
        ["sh", "-c", "kill -0 1"], worktree=tmp_path / "tree", timeout_s=60
    )
    assert result.ok, result.output


def test_without_perl_there_is_no_second_wall_and_the_record_says_so(tmp_path: Path) -> None:
    needs_sandbox()
    version = needs_landlock()
    assert BubblewrapSandbox().bounds.endswith(f", Landlock {version}")
    without = BubblewrapSandbox(hardening=Hardening(perl="/no/such/perl"))
    assert without.bounds.endswith(", no Landlock (Perl is not installed)")
    assert without.run(["sh", "-c", "kill -0 1"], worktree=tmp_path, timeout_s=60).ok


def test_the_filter_is_what_denies_tracing(tmp_path: Path) -> None:
    needs_sandbox()
    if not BubblewrapSandbox().seccomp:
        pytest.skip("no filter for this machine")
    number = {"x86_64": 101}.get(os.uname().machine, 117)
    program = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, 0, 0, 0, 0))"
    for seccomp, expected in ((True, "-1\n"), (False, "0\n")):
        sandbox = BubblewrapSandbox(hardening=Hardening(seccomp=seccomp))
        result = sandbox.run(["python3", "-c", program], worktree=tmp_path, timeout_s=60)
        assert result.output == expected


# --- processes ------------------------------------------------------------------------------------

FORKS = """
    import os, signal
    children = []
    try:
        while len(children) < 120:
            child = os.fork()
            if child == 0:
                signal.pause()
            children.append(child)
    except OSError:
        print("stopped", end=" ")
    print(len(children))
    for child in children:
        os.kill(child, signal.SIGKILL)
"""


def test_a_fork_bomb_is_stopped_long_before_the_wall_clock(tmp_path: Path) -> None:
    needs_sandbox()
    if os.geteuid() == 0 and not _bounding("pids"):
        pytest.skip("root can't have a cgroup of its own here: the wall clock ends it")
    command = ["python3", "-c", textwrap.dedent(FORKS)]
    small = BubblewrapSandbox(hardening=Hardening(max_processes=50))
    stopped = small.run(command, worktree=tmp_path, timeout_s=60).output.split()
    assert stopped[0] == "stopped"
    assert 30 < int(stopped[1]) < 50
    assert BubblewrapSandbox().run(command, worktree=tmp_path, timeout_s=60).output == "120\n"


SHARED = """
    import mmap
    shared = mmap.mmap(-1, 96 << 20)
    for at in range(0, len(shared), 4096):
        shared[at] = 1
    print("filled")
"""


def test_memory_that_is_shared_counts_too(tmp_path: Path) -> None:
    """No resource limit sees it; without the cgroup it is as large as one likes."""
    needs_sandbox()
    if not _bounding("memory"):
        pytest.skip("no cgroup of one's own that bounds memory")
    command = ["python3", "-c", textwrap.dedent(SHARED)]
    small = Hardening(max_memory_bytes=64 << 20)
    sandbox = BubblewrapSandbox(hardening=small)
    assert "all memory 64 MiB together (cgroup)" in sandbox.bounds
    assert "filled" not in sandbox.run(command, worktree=tmp_path, timeout_s=60).output
    without = BubblewrapSandbox(hardening=replace(small, cgroup=False))
    assert "together" not in without.bounds
    assert without.run(command, worktree=tmp_path, timeout_s=60).output == "filled\n"


def _bounding(controller: str) -> list[Hierarchy]:
    return [one for one in find_hierarchies() if controller in one.controllers]


@pytest.fixture
def hierarchy() -> Hierarchy:
    found = [one for one in _bounding("pids") if one.version == 1]
    if not found:
        pytest.skip("no cgroup hierarchy of version 1 that this user may write")
    return found[0]


def test_the_cgroup_goes_with_its_processes(hierarchy: Hierarchy) -> None:
    with bounded_tree([hierarchy], Bounds(10, 1 << 30)) as (members,):
        (place,) = hierarchy.folder.glob(f"fallback-tier-{os.getpid()}-*")
        assert (place / "pids.max").read_text() == "10\n"
        join = 'echo 0 >"$1"; exec sleep 600'
        with subprocess.Popen(["sh", "-c", join, "sh", members]) as joined:
            becomes(lambda: (place / "cgroup.procs").read_text(), "it has joined")
            assert (place / "cgroup.procs").read_text() == f"{joined.pid}\n"
            joined.kill()
    assert not place.exists()


@pytest.mark.parametrize("lacking", ["", "memory", "pids"])
def test_of_version_2_it_is_made_beside_our_own(tmp_path: Path, lacking: str) -> None:
    """A cgroup that holds processes hands no controller on; its parent may."""
    parent = tmp_path / "mnt" / "app.slice"
    (parent / "ours.scope").mkdir(parents=True)
    on = " ".join({"cpu", "memory", "pids"} - {lacking})
    for name, text in (("cgroup.subtree_control", f"{on}\n"), ("cgroup.procs", "")):
        (parent / name).write_text(text)
    mounts = f"31 24 0:27 / {tmp_path}/mnt rw - cgroup2 cgroup2 rw\n"
    found = hierarchies(mounts, "0::/app.slice/ours.scope\n")
    if lacking:
        assert found == ()
        return
    assert found == (Hierarchy(parent, 2, ("pids", "memory")),)
    reported = dict(pair[:2] for pair in Bounds(10, 4096).files(found[0]))
    assert (reported["pids.max"], reported["memory.max"], reported["memory.swap.max"]) == (
        "10",
        "4096",
        "0",
    )
    assert found[0].members == "cgroup.procs"


def test_what_can_not_join_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that the record names holds, or nothing runs."""
    needs_sandbox()
    sandbox = BubblewrapSandbox()
    sandbox.probe()
    monkeypatch.setattr(sandbox, "_hierarchies", (Hierarchy(tmp_path, 2, ()),))
    monkeypatch.setattr(Hierarchy, "members", "no/such/file")
    (tmp_path / "work").mkdir()
    with pytest.raises(SandboxError):
        sandbox.run(["true"], worktree=tmp_path / "work", timeout_s=60)


def test_what_a_killed_launcher_left_is_removed_and_nothing_else(hierarchy: Hierarchy) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait(PATIENCE_S)
    abandoned = hierarchy.folder / f"fallback-tier-{gone.pid}-{uuid.uuid4().hex[:8]}"
    in_use = hierarchy.folder / f"fallback-tier-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    abandoned.mkdir()
    in_use.mkdir()
    try:
        remove_abandoned(hierarchy.folder)
        assert not abandoned.exists()
        assert in_use.exists()
    finally:
        in_use.rmdir()


# --- the wall clock -------------------------------------------------------------------------------

TRACER = """
    import ctypes, os, signal, sys
    libc = ctypes.CDLL(None)
    child = os.fork()
    if child == 0:
        libc.ptrace(0, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    print("tracing", flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("plain", [False, True])
def test_a_stuck_tracer_does_not_outlive_the_wall_clock(tmp_path: Path, plain: bool) -> None:
    """Without the filter that denies tracing: --die-with-parent alone is known to leave it."""
    needs_sandbox()
    runner = UnsandboxedRunner() if plain else BubblewrapSandbox(hardening=Hardening(seccomp=False))
    mark = f"tracer-{uuid.uuid4()}"
    command = ["python3", "-c", textwrap.dedent(TRACER), mark]
    result = ended_by_the_clock(runner, command, tmp_path)
    assert result.timed_out
    assert result.output == "tracing\n"
    assert subprocess.run(["pgrep", "--full", mark]).returncode == 1, "nothing of it runs"


# --- elsewhere ------------------------------------------------------------------------------------


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_elsewhere_than_on_linux_it_refuses_and_says_what_to_do(platform: str) -> None:
    sandbox = BubblewrapSandbox(platform=platform)
    with pytest.raises(SandboxError, match=platform) as caught:
        sandbox.probe()
    assert "--no-sandbox" in caught.value.next_step
    assert "Linux" in caught.value.next_step
    assert not sandbox.seccomp
