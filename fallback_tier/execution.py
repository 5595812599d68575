"""Running of programs: clients outside the sandbox, a target's commands inside (ADR-0009)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from fallback_audit.frozen import Frozen
from fallback_tier.errors import StoppedError
from fallback_tier.files.tree import FileTree
from fallback_tier.hosts import ALLOW_HOST


class CommandResult(Frozen):
    """What a command did. ``exit_code`` is None where the wall clock killed it.

    ``refused_hosts``: hosts that a client was kept from asking, since only the repository names them.
    """

    argv: tuple[str, ...]
    exit_code: int | None
    output: str
    duration_ms: int
    truncated: bool = False
    refused_hosts: tuple[str, ...] = ()

    @property
    def timed_out(self) -> bool:
        """Whether the wall-clock limit ended it."""
        return self.exit_code is None

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.exit_code == 0


_COUNTS: dict[object, Callable[[], int]] = {}


@contextmanager
def counted(tests: Callable[[], int]) -> Iterator[None]:
    """Register ``tests`` while a command runs: it returns how many have run so far, in any thread."""
    key = object()
    _COUNTS[key] = tests
    try:
        yield
    finally:
        del _COUNTS[key]


def tests_so_far() -> int:
    """Return how many tests the running commands have reported; 0 if none does."""
    return sum(tests() for tests in _COUNTS.copy().values())


class StepCount(NamedTuple):
    """How many of the affected packages of a project have a step."""

    found: int
    packages: int


_STEPS: dict[object, Callable[[], StepCount]] = {}


@contextmanager
def counting_steps(count: Callable[[], StepCount]) -> Iterator[None]:
    """Register ``count`` while a project is resolved: it returns how far it is, in any thread."""
    key = object()
    _STEPS[key] = count
    try:
        yield
    finally:
        del _STEPS[key]


def steps_so_far() -> StepCount | None:
    """Return how far the project is that is being resolved, or None if none is."""
    return next((count() for count in _STEPS.copy().values()), None)


class ClientRunner(Protocol):
    """Runner of package clients (npm, uv) and git *outside* the sandbox: allow-listed environment, time
    limit.

    ``tool`` is a bare name, looked up by the runner. Raises ToolMissingError.
    """

    def __hash__(self) -> int:
        """Return a hash of the runner itself, for caches of its answers."""
        ...

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a client; its output is stdout and stderr, bounded. Never raises for a non-zero exit."""
        ...


@runtime_checkable
class KnowsHosts(Protocol):
    """Clients that report which hosts they contact, for the audit trail."""

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Return the hosts that these clients may contact, in order."""
        ...

    def take_refused(self) -> tuple[str, ...]:
        """Return the hosts that were refused since the last call, in order."""
        ...


def allowing(clients: ClientRunner, hosts: Sequence[str]) -> ClientRunner:
    """Return the clients with permission to contact these hosts too (``HOST`` or ``HOST:PORT``)."""
    return _Allowing(clients, tuple(hosts)) if hosts else clients


@dataclass(frozen=True)
class _Allowing:
    inner: ClientRunner
    hosts: tuple[str, ...]

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        variables = dict(env or {})
        variables[ALLOW_HOST] = ",".join(filter(None, (variables.get(ALLOW_HOST), *self.hosts)))
        return self.inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=variables)


class StoppableClients:
    """Clients that stop running: after the time of ``begin``, or if a person interrupts one of their runs.

    ``stopped``: why they refused or ended a run; None while they have not. ``interrupt``: the person's
    KeyboardInterrupt, for the caller to raise once the results so far are shown.
    """

    def __init__(self, inner: ClientRunner) -> None:
        self._inner = inner
        self._deadline: float | None = None
        self._limit_s = 0.0
        self.stopped: StoppedError | None = None
        self.interrupt: KeyboardInterrupt | None = None

    def begin(self, limit_s: float) -> None:
        """Stop after this time. Until this is called, the inner clients' own limits apply."""
        self._limit_s, self._deadline = limit_s, time.monotonic() + limit_s

    def run(
        self,
        tool: str,
        args: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run as ``ClientRunner``, until the limit at the latest. Raises StoppedError, too."""
        if self._deadline is None:
            return self._inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)
        left_s = self._deadline - time.monotonic()
        if self.stopped is not None or left_s <= 0:
            raise self._stop()
        timeout_s = min(timeout_s, left_s)
        try:
            result = self._inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=env)
        except KeyboardInterrupt as interrupt:
            self.interrupt = interrupt
            raise self._stop() from interrupt
        if result.timed_out and timeout_s == left_s:
            raise self._stop()
        return result

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        """Return the same as ``KnowsHosts``; nothing if the inner clients don't report hosts."""
        inner = self._inner
        return inner.allowed_hosts(tools) if isinstance(inner, KnowsHosts) else ()

    def take_refused(self) -> tuple[str, ...]:
        """Return the same as ``KnowsHosts``; nothing if the inner clients don't report hosts."""
        inner = self._inner
        return inner.take_refused() if isinstance(inner, KnowsHosts) else ()

    def _stop(self) -> StoppedError:
        if self.interrupt is not None:
            error = StoppedError(
                "Not resolved before the interruption.",
                next_step="Run it again.",
                kind="interrupted",
            )
        else:
            error = StoppedError(
                f"Not resolved within {self._limit_s:g} s.",
                next_step="Give it more time.",
                kind="time_limit",
            )
        self.stopped = error
        return error


class Sandbox(Protocol):
    """Runner of a target's commands: no network, read-only system, empty environment, limits."""

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
        """Run a command. ``worktree`` (a path: a plain folder) is writable, its .git only if it is
        disposable, and is the working directory; ``readable`` paths are bound read-only at their own place;
        ``silent_s``: a command that prints nothing for so long, and of which no test is reported, is ended
        as at ``timeout_s``. ``servers``: names of servers that the command starts itself; they lead to the
        loopback network, and nothing runs as root, which such servers refuse. Raises SandboxError if no
        sandbox is available."""
        ...

    def mounts_layers(self, folder: Path) -> bool:
        """Return whether a tree of several layers can be mounted whose upper is in ``folder``: tried, not
        guessed.

        Raises SandboxError if no sandbox is available.
        """
        ...
