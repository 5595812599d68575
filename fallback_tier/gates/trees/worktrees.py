"""A disposable worktree a fix, reset between attempts; and what a killed run left is cleared away.

Gates that are run again also have a cache for their gate transition alone: what was seen at the base commit
before, or what could be installed then, may be what misled them.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from fallback_audit.ports import Scope
from fallback_tier import gate_ports
from fallback_tier.errors import RepositoryError, StateFolderError
from fallback_tier.execution import ClientRunner, Sandbox
from fallback_tier.files.entries import say_nothing
from fallback_tier.files.folders import remove_tree
from fallback_tier.files.locks import hold, try_hold
from fallback_tier.gates.trees.bases import Bases
from fallback_tier.gates.trees.checkout import CheckoutWorktree
from fallback_tier.gates.trees.layers import LayeredWorktree
from fallback_tier.repo import RepoContext

#: Folder of a state folder: its bases.
BASES = "bases"

#: In a worktree's place: held for as long as the process that made it lives.
_LOCK = "lock"

#: Held while worktrees are made or cleared away.
_TURNS = "worktrees.lock"


class RunnerWorktree(gate_ports.Worktree, Protocol):
    """What the gate runner does with a worktree; gates see only ``gate_ports.Worktree``."""

    def apply(self, diff: str) -> None:
        """Apply a unified diff, exactly where it says. Raises PatchError; all is as before then."""
        ...

    def restore(self) -> None:
        """Tracked files as the patch left them, gone where it removed them, whatever a command did since.

        What a command installed stays. Without this a gate's command could rewrite what the next
        gate reads, and the proof would be of something else than the patch.
        """
        ...

    def reset(self) -> None:
        """Back to the pristine base commit: no patch, and nothing of what commands wrote."""
        ...

    def close(self) -> None:
        """Let go of what is held. Idempotent."""
        ...


class Worktrees:
    """Makes the worktrees of one state folder, in layers wherever the sandbox can mount them there.

    ``layered``: False for plain checkouts, True for layers whatever the probe would say. ``report`` hears
    where another run is waited for.
    """

    def __init__(
        self,
        workspace: Path,
        clients: ClientRunner,
        sandbox: Sandbox,
        *,
        layered: bool | None = None,
        report: Callable[[str], None] = say_nothing,
    ) -> None:
        self._workspace = workspace.resolve()
        self._clients = clients
        self._sandbox = sandbox
        self._layered = layered
        self._report = report
        self._lock = self._workspace / _TURNS

    @contextmanager
    def open(self, repo: RepoContext, name: str = "") -> Iterator[RunnerWorktree]:
        """A worktree of ``repo``'s base commit, removed at the end; ``name``: instead of the fix's.

        First whatever worktrees of dead processes are here is removed. Raises RepositoryError where the
        objects are not there (a partial clone), and where another process has this worktree;
        StateFolderError where it can't be made; SandboxError; ToolFailedError where git fails otherwise.
        """
        place = self._workspace / "worktrees" / (name or repo.fix_id)
        with self._claimed(place):
            try:
                worktree = self._make(repo, place)
            except OSError as error:
                raise _disk_full(place, error) from error
            with closing(worktree):
                yield worktree

    def remove_leftovers(self) -> None:
        """``remove_leftovers`` of this state folder."""
        remove_leftovers(self._workspace)

    @contextmanager
    def _claimed(self, place: Path) -> Iterator[None]:
        """The empty folder ``place``, ours until the end, however this process ends."""
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with hold(self._lock):
                _remove_dead(place.parent)
                place.mkdir()
                lock = hold(place / _LOCK)
        except FileExistsError as error:
            raise RepositoryError(
                f"The worktree {place} is in use by another process.",
                next_step="Wait for it to end.",
                kind="locked",
            ) from error
        except OSError as error:
            raise _disk_full(place, error) from error
        with lock:
            try:
                yield
            finally:
                _empty(place)
                with hold(self._lock):
                    _remove(place)

    def _make(self, repo: RepoContext, place: Path) -> RunnerWorktree:
        layered = self._layered
        if layered is None:
            layered = self._sandbox.mounts_layers(self._workspace)
        if not layered:
            return CheckoutWorktree.create(repo, self._clients, place)
        base = Bases(self._workspace / BASES, self._clients, self._report).open(repo)
        try:
            return LayeredWorktree(base, repo.base_commit, self._clients, place)
        except BaseException:
            base.close()
            raise


def remove_leftovers(workspace: Path) -> None:
    """Remove the worktrees of dead processes; another live run's is left alone."""
    folder = workspace / "worktrees"
    if folder.is_dir():
        # In turns: between making a folder and holding its lock, it looks like a dead one's.
        with hold(workspace / _TURNS):
            _remove_dead(folder)


def cache_of_its_own(cache: Path, scope: Scope) -> Path:
    """Return the folder below the shared cache; gates make it, and the next process finds it."""
    # An identifier is anybody's text: it names no path.
    name = f"{scope.fix_id}\0{scope.gate_transition_id}".encode("utf-8", "replace")
    return cache / f"again-{hashlib.sha256(name).hexdigest()[:32]}"


def forget_cache(cache: Path, scope: Scope) -> None:
    """The transition has ended, and that is on record: what can't be removed costs space alone."""
    with suppress(OSError):
        remove_tree(cache_of_its_own(cache, scope))


def _remove_dead(folder: Path) -> None:
    for place in [path for path in folder.iterdir() if path.is_dir()]:
        with suppress(FileNotFoundError):  # it ended by itself just now
            lock = try_hold(place / _LOCK)
            if lock is not None:
                with lock:
                    _remove(place)


def _remove(place: Path) -> None:
    """Call it with the turns lock held: ``_remove_dead`` would recreate the lock file."""
    _empty(place)
    (place / _LOCK).unlink(missing_ok=True)
    place.rmdir()


def _empty(place: Path) -> None:
    for entry in place.iterdir():
        if entry.is_dir():
            remove_tree(entry)
        elif entry.name != _LOCK:
            entry.unlink()


def _disk_full(place: Path, error: OSError) -> StateFolderError:
    return StateFolderError(
        f"No worktree can be made in {place}: {error.strerror}.",
        next_step="Free some space there, or choose another state directory.",
        kind="no_worktree",
    )
