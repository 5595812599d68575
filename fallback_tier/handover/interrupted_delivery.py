"""A delivery that was interrupted: is the proved patch on the working tree, in part, or not at all?

What stands there is compared with what stood there before and with what the patch makes of it, byte by
byte. Anything else is a person's, and stays.
"""

from dataclasses import dataclass
from pathlib import Path

from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.private_index import private_index
from fallback_tier.handover.delivery import put_back, put_on_working_tree
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class _File:
    """One file that the patch changes: before, after, and now (None: absent)."""

    path: str
    before: bytes | None
    after: bytes | None
    now: bytes | None

    @property
    def is_ours(self) -> bool:
        """Nothing is lost if it is written anew: git removes a file before it writes the new one, and a
        kill may stop that anywhere."""
        cut = self.now is not None and self.after is not None and self.after.startswith(self.now)
        return self.now in (None, self.before, self.after) or cut


def complete(application: Applied, repo: RepoContext, clients: ClientRunner) -> None:
    """Deliver what an interrupted run had proved: nothing where it had arrived, the rest where it had not.

    Raises RepositoryError where HEAD has moved or a person's changes are in the way: they stay as they
    are. Else as ``put_on_working_tree``.
    """
    facts = inspect_repository(repo.root, clients)
    if facts.base_commit != repo.base_commit:
        put_on_working_tree(application, repo, clients)  # says what is wrong
        return
    files = _files(application, repo, clients)
    if all(file.now == file.before for file in files):
        put_on_working_tree(application, repo, clients)
        return
    foreign = sorted({*facts.dirty} - {*application.files})
    foreign += [file.path for file in files if not file.is_ours]
    if foreign:
        raise RepositoryError(
            f"The proved patch is partly on {repo.root}, or {foreign[0]} was changed by somebody else.",
            next_step=f"Look at `git diff`, put the tree back, then `fallback-tier resume {repo.fix_id}`.",
            kind="changed_meanwhile",
        )
    if any(file.now != file.after for file in files):
        put_back(application, repo, clients)
        put_on_working_tree(application, repo, clients)


def _files(application: Applied, repo: RepoContext, clients: ClientRunner) -> list[_File]:
    """Both states as git writes them into a working tree."""
    with private_index(application, repo, clients) as its:
        before = {path: _read(its.tree / path) for path in application.files}
        its.apply()
        return [
            _File(path, before[path], _read(its.tree / path), _read(repo.root / path))
            for path in application.files
        ]


def _read(place: Path) -> bytes | None:
    """None: absent. What is no file is marked by a NUL, which no file of a patch has."""
    if place.is_symlink() or place.is_dir():
        return b"\0"
    return place.read_bytes() if place.exists() else None
