"""Pristine checkouts of base commits, made once and shared by every worktree of that commit.

Nobody writes to one: it is a lower layer, and commands see it only below a layer of their own. A base
is never the user's live checkout: an edit in mid-fix would show through, and so would untracked
secrets.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fallback_tier.errors import ToolFailedError
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.trees.isolation import alternates, check_out, git, remove_tree
from fallback_tier.gates.trees.locks import hold, try_hold
from fallback_tier.repo import RepoContext

#: Bases kept. A base is as large as a checkout; a fleet works on a few commits of a few repositories.
MAX_BASES = 8

#: Says of a base that it was found whole, and during which run of the system that was.
_MARK = "whole"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
        (self.place / _MARK).unlink(missing_ok=True)

    def close(self) -> None:
        """Done with it. Idempotent."""
        self.held.close()


class Bases:
    """The bases of one state folder."""

    def __init__(self, folder: Path, clients: ClientRunner) -> None:
        self._folder = folder
        self._clients = clients

    def open(self, repo: RepoContext) -> Base:
        """The base of ``repo``'s commit, made where it is missing. Close it after use.

        Raises RepositoryError where the objects are not there, ToolFailedError where git fails
        otherwise, OSError where the folder can't be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        key = hashlib.sha256(f"{repo.root}\0{repo.base_commit}".encode()).hexdigest()[:32]
        place = self._folder / key
        while True:
            held = hold(self._lock(key), shared=True)
            if _is_sound(place):
                os.utime(place / _MARK)
                return Base(place, held)
            held.close()
            with hold(self._lock(key)):
                if not _is_sound(place):
                    self._make(repo, place)
                    self._remove_oldest()

    def _make(self, repo: RepoContext, place: Path) -> None:
        if place.exists() and self._is_clean(place):
            (place / _MARK).write_text(_boot_id(), encoding="ascii")
            return
        part = place.with_suffix(".part")
        remove_tree(place)
        remove_tree(part)
        try:
            (part / "tree").mkdir(parents=True)
            check_out(repo, part / "tree", self._clients)
            (part / _MARK).write_text(_boot_id(), encoding="ascii")
            part.rename(place)
        except BaseException:
            remove_tree(part)
            raise

    def _is_clean(self, place: Path) -> bool:
        """Does it still hold the commit's files and no others? Looks at every file's size and times."""
        tree = place / "tree"
        status = ["status", "--porcelain=v1", "--untracked-files=all", "--ignored=matching"]
        try:
            return (tree / ".git").is_dir() and not git(self._clients, tree, status)
        except ToolFailedError:  # of what it borrows, something is gone
            return False

    def _remove_oldest(self) -> None:
        """Keep the last used; one in use is left alone, whatever its age."""
        marks = sorted(self._folder.glob(f"*/{_MARK}"), key=_last_used, reverse=True)
        for mark in marks[MAX_BASES:]:
            lock = self._lock(mark.parent.name)
            held = try_hold(lock)
            if held is not None:
                with held:
                    remove_tree(mark.parent)
                    lock.unlink(missing_ok=True)

    def _lock(self, key: str) -> Path:
        return self._folder / f"{key}.lock"


def _is_sound(place: Path) -> bool:
    """Renamed into place when it was whole, and no power was lost since (files are not synced); and the
    objects that it borrows are still where they were."""
    try:
        if (place / _MARK).read_text(encoding="ascii") != _boot_id():
            return False
        borrowed = alternates(place / "tree").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return Path(borrowed.removesuffix("\n")).is_dir()


def _boot_id() -> str:
    return _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""


def _last_used(mark: Path) -> float:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:
        return 0.0
