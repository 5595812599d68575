"""How programs are run: clients outside the sandbox, a target's commands inside (ADR-0009)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from fallback_audit.frozen import Frozen
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
        """The wall-clock limit ended it."""
        return self.exit_code is None

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.exit_code == 0


_COUNTS: dict[object, Callable[[], int]] = {}


@contextmanager
def counted(tests: Callable[[], int]) -> Iterator[None]:
    """For as long as a command runs: ``tests`` returns how many have run so far, in any thread."""
    key = object()
    _COUNTS[key] = tests
    try:
        yield
    finally:
        del _COUNTS[key]


def tests_so_far() -> int:
    """Return how many tests the running commands have reported; 0 if none does."""
    return sum(tests() for tests in _COUNTS.copy().values())


class ClientRunner(Protocol):
    """Runs package clients (npm, uv) and git *outside* the sandbox: allow-listed environment, time limit.

    ``tool`` is a bare name, looked up by the runner. Raises ToolMissingError.
    """

    def __hash__(self) -> int:
        """Of the runner itself: what it was asked once is known."""
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
        """stdout and stderr joined, bounded; never raises for a non-zero exit."""
        ...


@runtime_checkable
class KnowsHosts(Protocol):
    """Clients that tell which hosts they ask, for the audit trail."""

    def allowed_hosts(self, tools: Sequence[str]) -> tuple[str, ...]:
        """The hosts that these clients may ask, in order."""
        ...

    def take_refused(self) -> tuple[str, ...]:
        """The hosts that were refused since this was last asked, in order."""
        ...


def allowing(clients: ClientRunner, hosts: Sequence[str]) -> ClientRunner:
    """The clients, which may ask these hosts too (``HOST`` or ``HOST:PORT``)."""
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
        both = dict(env or {})
        both[ALLOW_HOST] = ",".join(filter(None, (both.get(ALLOW_HOST), *self.hosts)))
        return self.inner.run(tool, args, cwd=cwd, timeout_s=timeout_s, env=both)


class Sandbox(Protocol):
    """Runs a target's commands: no network, read-only system, empty environment, limits."""

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
        """``worktree`` (a path: a plain folder) is writable, its .git only if it is disposable, and is the
        working directory; ``readable`` paths are bound read-only at their own place; ``silent_s``: a
        command that prints nothing for so long, and of which no test is reported, is ended as at
        ``timeout_s``. ``servers``: names of those that the command starts itself; they lead to the loopback
        network, and nothing runs as root, which such servers refuse. Raises SandboxError where no sandbox
        can be had."""
        ...

    def mounts_layers(self, folder: Path) -> bool:
        """Can a tree of several layers be mounted whose upper lies in ``folder``? Tried, not guessed.

        Raises SandboxError where no sandbox can be had.
        """
        ...
