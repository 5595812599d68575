"""What the sandbox keeps in and out, each probe shown to be able to fail.

A probe is a small program that prints ``open`` or ``shut``. Every probe that must find the sandbox
shut is run by the plain runner too, where it must find the same thing open: else it proves nothing.
"""

import ast
import os
import socket
import subprocess
import sys
import textwrap
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult, Sandbox
from fallback_tier.sandbox import launching
from fallback_tier.sandbox.confinement import MAX_TMPFS_BYTES
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES
from fallback_tier.sandbox.runners import BubblewrapSandbox, UnsandboxedRunner
from tests.integration.by_the_clock import LIMITS_S, ended_by_the_clock
from tests.integration.gate_setup import needs_sandbox
from tests.kinds import OfKind
from tests.waiting import at_once, becomes

pytestmark = pytest.mark.sandbox

SECRET = "launcher-secret-4711"


@pytest.fixture(scope="module")
def sandbox() -> BubblewrapSandbox:
    needs_sandbox()
    return BubblewrapSandbox()


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / ".git").mkdir(parents=True)
    (tree / ".git" / "config").write_text("[core]\n")
    return tree


def python(runner: Sandbox, worktree: Path, program: str, *args: str) -> CommandResult:
    return runner.run(
        ["python3", "-c", textwrap.dedent(program), *args], worktree=worktree, timeout_s=60
    )


def probe(runner: Sandbox, worktree: Path, attempt: str, *args: str) -> str:
    """``open`` where the attempt's statements end, ``shut`` where the system refuses them."""
    program = "import ctypes, os, socket, sys\ntry:\n" + textwrap.indent(
        textwrap.dedent(attempt).strip(), "    "
    )
    program += "\nexcept OSError:\n    print('shut')\nelse:\n    print('open')\n"
    result = python(runner, worktree, program, *args)
    assert result.ok, result.output
    return result.output.strip()


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def abstract_socket() -> Iterator[str]:
    name = f"fallback-tier-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        yield name


@pytest.fixture
def private_file(tmp_path: Path) -> Path:
    place = tmp_path / "private"
    place.write_text("not for targets")
    return place


def _both(sandbox: BubblewrapSandbox, worktree: Path, attempt: str, *args: str) -> tuple[str, str]:
    inside = probe(sandbox, worktree, attempt, *args)
    return inside, probe(UnsandboxedRunner(), worktree, attempt, *args)


def test_a_server_on_the_hosts_loopback_is_out_of_reach(
    sandbox: BubblewrapSandbox, worktree: Path, listener: int
) -> None:
    attempt = "socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5)"
    assert _both(sandbox, worktree, attempt, str(listener)) == ("shut", "open")


def test_an_abstract_socket_of_the_host_is_out_of_reach(
    sandbox: BubblewrapSandbox, worktree: Path, abstract_socket: str
) -> None:
    attempt = "socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])"
    assert _both(sandbox, worktree, attempt, abstract_socket) == ("shut", "open")


def test_no_interface_but_loopback(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    program = "import socket; print([name for _, name in socket.if_nameindex()])"
    assert python(sandbox, worktree, program).output.strip() == "['lo']"


def test_files_outside_the_worktree_are_out_of_reach(
    sandbox: BubblewrapSandbox, worktree: Path, private_file: Path
) -> None:
    attempt = "open(sys.argv[1]).read()"
    assert _both(sandbox, worktree, attempt, str(private_file)) == ("shut", "open")


def test_the_users_home_is_out_of_reach(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    home = Path.home()
    name = next((entry.name for entry in home.iterdir() if entry.is_file()), None)
    if name is None:
        pytest.skip("this home has no file")
    assert _both(sandbox, worktree, "os.stat(sys.argv[1])", str(home / name)) == ("shut", "open")


@pytest.mark.parametrize(
    "path", ["/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern", "/usr/bin/env"]
)
def test_the_systems_files_are_not_writable(
    sandbox: BubblewrapSandbox, worktree: Path, path: str
) -> None:
    """Probed by opening, never by writing: as root this would be the host's own."""
    inside = probe(sandbox, worktree, "os.close(os.open(sys.argv[1], os.O_WRONLY))", path)
    assert inside == "shut"
    if os.access(path, os.W_OK):
        attempt = "os.close(os.open(sys.argv[1], os.O_WRONLY))"
        if probe(UnsandboxedRunner(), worktree, attempt, path) == "shut":
            pytest.skip(f"{path} is busy or read-only on this host as well")


def test_the_launchers_environment_is_not_to_be_seen(tmp_path: Path) -> None:
    """In a process of its own, whose environment holds a secret."""
    needs_sandbox()
    (tmp_path / "tree").mkdir()
    program = textwrap.dedent("""
        import sys
        from pathlib import Path
        from fallback_tier.sandbox.runners import BubblewrapSandbox, UnsandboxedRunner
        look = "cat /proc/*/environ /proc/self/cmdline; env"
        for runner in BubblewrapSandbox(), UnsandboxedRunner():
            result = runner.run(["sh", "-c", look], worktree=Path(sys.argv[1]), timeout_s=60)
            print(sys.argv[2] in result.output, "PATH=" in result.output)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "tree"), SECRET[::-1][::-1]],
        env={"PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": SECRET, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["False True", "True True"]


def test_the_environment_is_an_allow_list(
    sandbox: BubblewrapSandbox, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for runner in (sandbox, UnsandboxedRunner()):
        result = runner.run(["env"], worktree=worktree, timeout_s=60, env={"EXTRA": "yes"})
        names = {line.partition("=")[0] for line in result.output.splitlines()}
        assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {
            "PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "TERM", "CI", "PYTHONHASHSEED",
            "PYTHONDONTWRITEBYTECODE", "EXTRA",
        }  # fmt: skip


def test_colours_are_taken_out_of_the_output(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    """And nothing else: a project's tests decide about colours as in its CI, and logs are read as text."""
    program = r"print('\x1b[1;38:5:9mFAILED\x1b[0m test\x1b[2K[0m \x1b[m')"
    for runner in (sandbox, UnsandboxedRunner()):
        assert python(runner, worktree, program).output == "FAILED test\x1b[2K[0m \n"


def test_the_worktree_is_writable_and_its_git_folder_is_not(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    assert probe(sandbox, worktree, "open('new.txt', 'w').write('x')") == "open"
    assert (worktree / "new.txt").read_text() == "x"
    assert _both(sandbox, worktree, "open('.git/config', 'a').close()") == ("shut", "open")
    assert probe(sandbox, worktree, "os.rename('.git', 'git')") == "shut"


def test_readable_paths_are_readable_only(
    sandbox: BubblewrapSandbox, worktree: Path, private_file: Path
) -> None:
    for mode, expected in (("r", "open"), ("a", "shut")):
        program = f"""
            try:
                open({str(private_file)!r}, {mode!r}).close()
            except OSError:
                print("shut")
            else:
                print("open")
        """
        result = sandbox.run(
            ["python3", "-c", textwrap.dedent(program)],
            worktree=worktree,
            timeout_s=60,
            readable=[private_file],
        )
        assert result.output.strip() == expected


def test_memory_file_systems_have_a_size(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    program = """
        import os
        for place in "/tmp", "/dev/shm", os.environ["HOME"]:
            facts = os.statvfs(place)
            print(facts.f_blocks * facts.f_frsize)
    """
    sizes = python(sandbox, worktree, program).output.split()
    assert set(sizes) == {str(MAX_TMPFS_BYTES)}
    for place in ("/new", "/dev/new", "/etc/new", "/root/new"):
        assert probe(sandbox, worktree, "open(sys.argv[1], 'w')", place) == "shut"


def test_no_capability_is_left(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    status = sandbox.run(["cat", "/proc/self/status"], worktree=worktree, timeout_s=60).output
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(facts[name], 16) == 0
    assert facts["NoNewPrivs"] == "1"
    if sandbox.seccomp:
        assert facts["Seccomp"] == "2"


def test_a_suite_that_leaves_a_thousand_threads_behind_is_no_hog(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    if "(cgroup), private" not in sandbox.bounds:
        pytest.skip("no cgroup bounds memory here")
    program = """
        import threading
        over = threading.Event()
        for _ in range(1_100):
            threading.Thread(target=over.wait).start()
        bytearray(2 ** 20)
        print(threading.active_count())
        over.set()
    """
    assert python(sandbox, worktree, program).output.strip() == "1101"


def test_limits_are_set(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    program = """
        import resource as r
        for limit in r.RLIMIT_CORE, r.RLIMIT_FSIZE, r.RLIMIT_DATA, r.RLIMIT_CPU, r.RLIMIT_NPROC:
            print(r.getrlimit(limit)[1])
    """
    core, size, data, cpu, processes = map(int, python(sandbox, worktree, program).output.split())
    assert core == 0
    assert size in {2**30, 2**31}
    held = "(cgroup), private" in sandbox.bounds
    assert data == launching.data_kib(in_cgroup=held) * 1024
    assert 0 < cpu <= 241
    assert processes == launching.MAX_PROCESSES


SYSCALLS = {
    "io_uring_setup": 425,
    "clone3": 435,
    "open_tree": 428,
    "fsopen": 430,
    "pidfd_getfd": 438,
}
SYSCALLS_X86_64 = {
    "ptrace": 101,
    "keyctl": 250,
    "add_key": 248,
    "bpf": 321,
    "userfaultfd": 323,
    "unshare": 272,
    "setns": 308,
    "mount": 165,
    "perf_event_open": 298,
    "process_vm_readv": 310,
}


@pytest.mark.parametrize("name", [*SYSCALLS, *SYSCALLS_X86_64])
def test_a_denied_system_call_is_denied_by_the_filter(
    sandbox: BubblewrapSandbox, worktree: Path, name: str
) -> None:
    """EPERM or ENOSYS for arguments to which the kernel itself answers something else."""
    if not sandbox.seccomp or (name in SYSCALLS_X86_64 and os.uname().machine != "x86_64"):
        pytest.skip("no number of this call for this machine")
    number = (SYSCALLS | SYSCALLS_X86_64)[name]
    program = """
        import ctypes, errno, sys
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall(int(sys.argv[1]), *[ctypes.c_long(-1)] * 6)
        print(errno.errorcode.get(ctypes.get_errno()))
    """
    inside = python(sandbox, worktree, program, str(number)).output.strip()
    outside = python(UnsandboxedRunner(), worktree, program, str(number)).output.strip()
    assert inside == ("ENOSYS" if name == "clone3" else "EPERM")
    if outside == inside:
        pytest.skip(f"this kernel answers {outside} by itself")


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_ALG", "AF_PACKET"])
def test_address_families_that_namespaces_do_not_isolate_are_denied(
    sandbox: BubblewrapSandbox, worktree: Path, family: str
) -> None:
    if not sandbox.seccomp:
        pytest.skip("no filter for this machine")
    kind = {"AF_VSOCK": 1, "AF_ALG": 5, "AF_PACKET": 3}[family]
    assert probe(sandbox, worktree, f"socket.socket(socket.{family}, {kind})") == "shut"


@pytest.mark.parametrize("family", ["AF_UNIX", "AF_INET", "AF_INET6"])
def test_ordinary_sockets_work(sandbox: BubblewrapSandbox, worktree: Path, family: str) -> None:
    assert probe(sandbox, worktree, f"socket.socket(socket.{family})") == "open"


def test_threads_processes_and_interpreters_work(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    program = """
        import multiprocessing, ssl, subprocess, threading
        thread = threading.Thread(target=print, args=("thread",))
        thread.start()
        thread.join()
        with multiprocessing.Pool(2) as pool:
            print(pool.map(abs, [-1, -2]))
        subprocess.run(["node", "-e", "console.log(require('os').userInfo().uid >= 0)"], check=True)
    """
    result = python(sandbox, worktree, program)
    assert sorted(result.output.split()) == ["2]", "[1,", "thread", "true"], result.output


def test_names_users_types_and_certificates_are_found(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    program = """
        import mimetypes, os, pwd, socket, ssl
        print(socket.gethostbyname("localhost"), pwd.getpwuid(os.getuid()).pw_name != "")
        print(ssl.create_default_context().cert_store_stats()["x509_ca"] >= 0)
        print(sorted(os.listdir("/etc")))
    """
    result = python(sandbox, worktree, program)
    lines = result.output.splitlines()
    assert lines[:2] == ["127.0.0.1 True", "True"], result.output
    assert not {"shadow", "gshadow", "machine-id", "ssh", "sudoers"} & set(
        ast.literal_eval(lines[2])
    )


# --- the wall clock, the output, what is left behind ----------------------------------------------


def _alive(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark in (entry / "cmdline").read_text(errors="replace"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


TREES = {
    "background": "sleep {n} & sleep {n}",
    "own session": "setsid sleep {n} & setsid sh -c 'sleep {n}; true' & sleep {n}",
    "ignores signals": "trap '' TERM INT HUP; sleep {n} & wait; sleep {n}",
    "stopped": "sleep {n} & kill -STOP $!; sleep {n}",
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("plain", [False, True])
def test_the_wall_clock_ends_the_whole_tree(
    sandbox: BubblewrapSandbox, worktree: Path, tree: str, plain: bool
) -> None:
    runner = UnsandboxedRunner() if plain else sandbox
    mark = f"9{uuid.uuid4().int % 10**9:09d}"  # a number of seconds that nobody else sleeps
    command = ["sh", "-c", "echo begun; " + TREES[tree].format(n=mark)]
    result = ended_by_the_clock(runner, command, worktree)
    assert result.timed_out
    assert result.exit_code is None
    assert result.output == "begun\n"
    assert _alive(mark) == []


class _Slow:
    """On a machine so busy that nothing begins within the first limits."""

    def __init__(self, sandbox: Sandbox, *outcomes: str) -> None:
        self._sandbox, self._outcomes = sandbox, list(outcomes)

    def run(self, argv: Sequence[str], *, worktree: Path, timeout_s: float) -> CommandResult:
        if not self._outcomes:
            return self._sandbox.run(argv, worktree=worktree, timeout_s=timeout_s)
        if (outcome := self._outcomes.pop(0)) == "silent":
            return CommandResult(argv=tuple(argv), exit_code=None, output="", duration_ms=1000)
        raise SandboxError(outcome, next_step="Look.")


def test_a_command_that_has_not_begun_is_no_end_by_the_clock(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    """``ended_by_the_clock``, with which the tests around ask, asks again; another error is told."""
    command = ["sh", "-c", "echo begun; sleep 600"]
    slow = _Slow(sandbox, "No sandbox: it did not start in time.", "silent")
    result = ended_by_the_clock(slow, command, worktree, (0.1, 0.1, *LIMITS_S))
    assert (result.timed_out, result.output) == (True, "begun\n")
    with pytest.raises(SandboxError, match="no bubblewrap"):
        ended_by_the_clock(_Slow(sandbox, "no bubblewrap"), command, worktree)


def test_a_daemon_ends_with_its_sandbox(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    """Twice forked and in a session of its own: only the PID namespace reaches it."""
    mark = f"8{uuid.uuid4().int % 10**9:09d}"
    daemon = f"setsid sh -c 'touch up; exec sleep {mark}' >/dev/null 2>&1"
    wait = "until [ -e up ]; do sleep 0.05; done; rm up; echo done"
    command = ["sh", "-c", f"({daemon} &); {wait}"]
    assert sandbox.run(command, worktree=worktree, timeout_s=60).output == "done\n"
    # bwrap hands on the exit status a moment before the kernel has emptied the namespace.
    becomes(lambda: not _alive(mark), "the daemon has ended")
    UnsandboxedRunner().run(command, worktree=worktree, timeout_s=60)
    left = _alive(mark)
    for pid in left:
        os.kill(pid, 9)
    assert left, "the plain runner is known not to reach it (documented)"


def test_nothing_is_left_of_many_starts(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    def children() -> set[str]:
        tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
        return {child for task in tasks for child in (task / "children").read_text().split()}

    def descriptors() -> Counter[str]:
        # By what they lead to: what an earlier test left to be closed may go meanwhile, and would hide
        # in a count of all as many that stay.
        listed = Path("/proc/self/fd").iterdir()
        return Counter(str(each.readlink()) for each in listed if os.path.lexists(each))

    before, opened = children(), descriptors()
    for _ in range(20):
        sandbox.run(["true"], worktree=worktree, timeout_s=60)
    assert children() == before
    assert not descriptors() - opened


def test_threads_can_share_a_sandbox(sandbox: BubblewrapSandbox, worktree: Path) -> None:
    results: list[str] = []

    def work(number: int) -> None:
        command = ["sh", "-c", f"echo {number}"]
        results.append(sandbox.run(command, worktree=worktree, timeout_s=60).output)

    at_once(partial(work, number) for number in range(6))
    assert sorted(results) == [f"{number}\n" for number in range(6)]


@pytest.mark.parametrize("plain", [False, True])
def test_a_flood_of_output_is_bounded_and_keeps_its_ends(
    sandbox: BubblewrapSandbox, worktree: Path, plain: bool
) -> None:
    runner = UnsandboxedRunner() if plain else sandbox
    flood = ["sh", "-c", f"echo first; yes | head -c {8 * MAX_OUTPUT_BYTES}; echo last"]
    result = runner.run(flood, worktree=worktree, timeout_s=60)
    assert result.ok
    assert result.truncated
    assert len(result.output.encode()) < MAX_OUTPUT_BYTES + 100
    assert result.output.startswith("first\n")
    assert result.output.endswith("last\n")
    assert "bytes left out" in result.output


def test_exit_codes_come_through_and_a_missing_command_is_the_targets_failure(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    assert sandbox.run(["sh", "-c", "exit 7"], worktree=worktree, timeout_s=60).exit_code == 7
    missing = sandbox.run(["no-such-program"], worktree=worktree, timeout_s=60)
    assert missing.exit_code == 127
    assert "no-such-program" in missing.output


def test_a_command_that_speaks_like_bubblewrap_is_still_the_target(
    sandbox: BubblewrapSandbox, worktree: Path
) -> None:
    command = ["sh", "-c", "echo 'bwrap: Creating new namespace failed'; exit 1"]
    result = sandbox.run(command, worktree=worktree, timeout_s=60)
    assert result.exit_code == 1


# --- where no sandbox can be had ------------------------------------------------------------------


def test_a_bwrap_that_fails_gives_reason_and_next_step(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace'; exit 1\n")
    fake.chmod(0o755)
    with pytest.raises(SandboxError, match="No permissions to create new namespace") as caught:
        BubblewrapSandbox(fake).probe()
    assert "--no-sandbox" in caught.value.next_step


def test_a_bwrap_that_runs_nothing_is_not_taken_for_a_sandbox(tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    with pytest.raises(SandboxError):
        BubblewrapSandbox(fake).run(["true"], worktree=tmp_path, timeout_s=60)


def test_a_missing_bwrap_is_a_sandbox_error(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, check=OfKind("not_startable")):
        BubblewrapSandbox(tmp_path / "bwrap").probe()


@pytest.mark.parametrize("plain", [False, True], ids=["sandbox", "no sandbox"])
def test_a_command_that_is_too_long_to_be_started_is_no_missing_sandbox(
    sandbox: BubblewrapSandbox, tmp_path: Path, plain: bool
) -> None:
    """A target decides how long it is: nobody is to be told to do without a sandbox for it."""
    runner = UnsandboxedRunner() if plain else sandbox
    argv = ["/bin/true", "x" * 200_000]
    result = runner.run(argv, worktree=tmp_path, timeout_s=60)
    assert (result.exit_code, result.output) == (126, "/bin/true: Argument list too long\n")
    assert result.argv == tuple(argv)
