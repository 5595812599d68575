"""Pristine checkouts of base commits, made once and shared by every worktree of that commit.

Nobody writes to one: it is a lower layer, and commands see it only below a layer of their own. A base
is never the user's live checkout: an edit in mid-fix would show through, and so would untracked
secrets.
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

#: Bases kept. A base is as large as a checkout; a fleet works on a few commits of a few repositories.
MAX_BASES = 8

#: Changed with what a base has: one of an older version is not taken.
_FORMAT = 2

#: File of a base that names its repository.
_OF = "repository"


@dataclass(frozen=True)
class Base:
    """A base in use: nobody removes it until it is closed."""

    place: Path
    held: BinaryIO

    @property
    def tree(self) -> Path:
        """The checkout, with its ``.git``."""
        return self.place / "tree"

    def distrust(self) -> None:
        """It is not what the commit says: whoever opens it next looks at all of it."""
        (self.place / MARK).unlink(missing_ok=True)

    def close(self) -> None:
        """Done with it. Idempotent."""
        self.held.close()


class Bases:
    """The bases of one state folder. ``report`` hears where another run's making is waited for."""

    def __init__(
        self, folder: Path, clients: ClientRunner, report: Callable[[str], None] = say_nothing
    ) -> None:
        self._clients = clients
        self._entries = entries_of(folder, report)

    def open(self, repo: RepoContext) -> Base:
        """Return the base of ``repo``'s commit, made if missing; close it after use. Raises RepositoryError
        if objects are missing, ToolFailedError if git fails, OSError if the folder isn't writable."""
        of = f"{_FORMAT}\0{repo.root}\0{repo.base_commit}"
        key = hashlib.sha256(of.encode()).hexdigest()[:32]
        with self._entries.turn(key) as place:
            if not _is_sound(place):
                self._make(repo, place)
            base = Base(place, self._entries.use(key))
        self._entries.tidy()
        return base

    def _make(self, repo: RepoContext, place: Path) -> None:
        if place.exists() and self._is_clean(place):
            (place / MARK).write_text(boot_id(), encoding="ascii")
            return
        with self._entries.made(place.name) as part:
            (part / "tree").mkdir()
            check_out(repo, part / "tree", self._clients)
            keep_history(repo, part / "tree", self._clients)
            (part / _OF).write_text(str(repo.root), encoding="utf-8")
            (part / MARK).write_text(boot_id(), encoding="ascii")

    def _is_clean(self, place: Path) -> bool:
        """Does it still hold the commit's files and no others? Looks at every file's size and times."""
        tree = place / "tree"
        status = ["status", "--porcelain=v1", "--untracked-files=all", "--ignored=matching"]
        try:
            return (tree / ".git").is_dir() and not git(self._clients, tree, status)
        except ToolFailedError:  # an object is gone
            return False


def entries_of(folder: Path, report: Callable[[str], None] = say_nothing) -> Entries:
    """The bases of a state folder, as folders that are kept."""
    return Entries(folder, "the checkout of the base commit", most=MAX_BASES, report=report)


def described(entry: Entry) -> tuple[str, str]:
    """What kind of entry a base is, and of which repository and commit."""
    try:
        repository = (entry.place / _OF).read_text(encoding="utf-8")
        commit = (entry.place / "tree" / ".git" / "HEAD").read_text(encoding="ascii")
    except (OSError, ValueError):
        return "checkout", "nothing that can be read"
    return "checkout", f"{repository} at {commit[:12]}"


def _is_sound(place: Path) -> bool:
    """Renamed into place when it was whole, and no power was lost since (files are not synced)."""
    try:
        return (place / MARK).read_text(encoding="ascii") == boot_id()
    except FileNotFoundError:
        return False
