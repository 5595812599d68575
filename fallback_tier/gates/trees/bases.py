"""Pristine checkouts of base commits, created once and shared by every worktree of that commit.

No process writes to one: it is a lower layer, and commands see it only below their own layer. A base is
never the user's live checkout: an edit during a fix would show through, and so would untracked secrets.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import ClientRunner
from fallback_tier.files.entries import MARK, Entries, Entry, say_nothing
from fallback_tier.files.folders import boot_id
from fallback_tier.gates.trees.isolation import check_out, git
from fallback_tier.gates.trees.private_git import keep_history
from fallback_tier.repo import RepoContext

#: How many bases are kept. A base is as large as a checkout; a fleet works on a few commits of a few
#: repositories.
MAX_BASES = 8

#: The version of a base's content: a base of an older version is not used.
_FORMAT = 2

#: The file of a base that names its repository.
_OF = "repository"


@dataclass(frozen=True)
class Base:
    """A base in use: it is not removed until it is closed."""

    place: Path
    held: BinaryIO

    @property
    def tree(self) -> Path:
        """The checkout, with its ``.git``."""
        return self.place / "tree"

    def distrust(self) -> None:
        """Record that it does not match the commit: the next process that opens it checks all of it."""
        (self.place / MARK).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the base. Idempotent."""
        self.held.close()


class Bases:
    """The bases of one state folder. ``report`` is called if another run is waited for."""

    def __init__(
        self, folder: Path, clients: ClientRunner, report: Callable[[str], None] = say_nothing
    ) -> None:
        self._clients = clients
        self._entries = entries_of(folder, report)

    def open(self, repo: RepoContext) -> Base:
        """Return the base of ``repo``'s commit, created if missing; close it after use.

        Raises RepositoryError if objects are missing, ToolFailedError if git fails, OSError if the folder
        isn't writable.
        """
        identity = f"{_FORMAT}\0{repo.root}\0{repo.base_commit}"
        key = hashlib.sha256(identity.encode()).hexdigest()[:32]
        with self._entries.turn(key) as folder:
            if not _is_sound(folder):
                self._make(repo, folder)
            base = Base(folder, self._entries.use(key))
        self._entries.tidy()
        return base

    def _make(self, repo: RepoContext, folder: Path) -> None:
        if folder.exists() and self._is_clean(folder):
            (folder / MARK).write_text(boot_id(), encoding="ascii")
            return
        with self._entries.made(folder.name) as part:
            (part / "tree").mkdir()
            check_out(repo, part / "tree", self._clients)
            keep_history(repo, part / "tree", self._clients)
            (part / _OF).write_text(str(repo.root), encoding="utf-8")
            (part / MARK).write_text(boot_id(), encoding="ascii")

    def _is_clean(self, folder: Path) -> bool:
        """Return whether it still has exactly the commit's files. Checks every file's size and times."""
        tree = folder / "tree"
        status = ["status", "--porcelain=v1", "--untracked-files=all", "--ignored=matching"]
        try:
            return (tree / ".git").is_dir() and not git(self._clients, tree, status)
        except ToolFailedError:  # an object is missing
            return False


def entries_of(folder: Path, report: Callable[[str], None] = say_nothing) -> Entries:
    """Return the bases of a state folder as cache entries."""
    return Entries(folder, "the checkout of the base commit", most=MAX_BASES, report=report)


def described(entry: Entry) -> tuple[str, str]:
    """Return what kind of entry a base is, and its repository and commit."""
    try:
        repository = (entry.place / _OF).read_text(encoding="utf-8")
        commit = (entry.place / "tree" / ".git" / "HEAD").read_text(encoding="ascii")
    except (OSError, ValueError):
        return "checkout", "nothing that can be read"
    return "checkout", f"{repository} at {commit[:12]}"


def _is_sound(folder: Path) -> bool:
    """Return whether it was renamed into place when complete, in the current boot (files aren't synced)."""
    try:
        return (folder / MARK).read_text(encoding="ascii") == boot_id()
    except FileNotFoundError:
        return False
