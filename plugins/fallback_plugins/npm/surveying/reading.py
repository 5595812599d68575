"""What of a repository's npm files can't be read, told for one advisory (``unread``)."""

from collections.abc import Sequence
from pathlib import PurePosixPath

from fallback_plugins.npm.locks.always import nothing_in
from fallback_plugins.npm.locks.yarn_berry import is_berry
from fallback_plugins.npm.locks.yarn_lock import parse_yarn_lock
from fallback_plugins.npm.manifests.layout import (
    BINARY_LOCKS,
    FOREIGN_LOCKS,
    LOCKS,
    MANIFEST,
    YARN_LOCK,
    is_manifest,
    names_any,
)
from fallback_plugins.npm.manifests.manifest import parse_manifest
from fallback_plugins.npm.refusals import unreadable
from fallback_plugins.npm.surveying.projects import Site
from fallback_plugins.shared.unread import LeftOut, Reader
from fallback_tier.errors import RecipeError
from fallback_tier.repo import RepoContext

_LOCKS = frozenset({*LOCKS, *FOREIGN_LOCKS})


def left_out(packages: Sequence[str], repo: RepoContext) -> LeftOut:
    """Collects what is left out by someone who looks for these packages."""
    return LeftOut(Reader(repo, packages, _kind, names_any, _parse))


def files_of(site: Site) -> tuple[str, ...]:
    """The files that decide what a project holds. None of one with a binary lock: that one is never read,
    and speaks for the project all the same."""
    locks = [path for path in (site.lock, *site.others) if path is not None]
    if any(PurePosixPath(path).name in BINARY_LOCKS for path in locks):
        return ()
    return (*site.manifests, *locks, *site.settings)


def _kind(path: str) -> str | None:
    return PurePosixPath(path).name if is_manifest(path) else None


def _parse(path: str, text: str) -> None:
    """Raises RecipeError. A format that isn't read (yarn 2's, another lockfileVersion) is no damage."""
    name = PurePosixPath(path).name
    if name == MANIFEST:
        parse_manifest(path, text)
    try:
        why = nothing_in(path, text) if name in _LOCKS else ""
        if name == YARN_LOCK and not is_berry(text):
            parse_yarn_lock(text)
    except RecipeError as error:
        raise _broken(path, f"can't be read: {error.problem.rstrip('.')}") from error
    if why:
        raise _broken(path, f"{why}, so what is installed is unknown")


def _broken(path: str, why: str) -> RecipeError:
    return unreadable(path, why, "Make a new one with its client, or remove it.")
