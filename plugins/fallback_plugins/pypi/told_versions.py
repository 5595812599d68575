"""Which of the places that hold a package tell a version that somebody gets.

A lock does, and an exact pin. A range tells what may be installed at least, and that counts only where
nobody has chosen: a lock that is made from its manifest, or an environment of its folder.
"""

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.survey import Place
from fallback_plugins.pypi.uv_files import manifest_paths
from fallback_tier.errors import RecipeError
from fallback_tier.repo import RepoContext

_METADATA = frozenset({Kind.PYPROJECT, Kind.SETUP_CFG, Kind.SETUP_PY})

#: What each lock is made from. uv and pdm ask a project's build for what pyproject.toml leaves to it. A
#: pylock.toml is an export, of anything.
_MADE_FROM = {
    Kind.UV_LOCK: _METADATA,
    Kind.PDM_LOCK: _METADATA,
    Kind.POETRY_LOCK: frozenset({Kind.PYPROJECT}),
    Kind.PIPFILE_LOCK: frozenset({Kind.PIPFILE}),
}

#: Folders of requirements files, which belong to the project in the folder above.
_REQUIREMENTS = frozenset({"requirements", "reqs", "constraints"})

#: What an environment holds of the package, by the folder that it is of.
Installed = Mapping[str, Sequence[str]]


def telling(
    repo: RepoContext, places: Sequence[Place], installed: Installed | None = None
) -> tuple[Place, ...]:
    """Those of one package's places whose version counts, in their order.

    A choice counts for a range that admits it; any other was made for other Pythons, or before the manifest
    was changed. Raises RepositoryError (a lock can't be read).
    """
    locks = [place for place in places if kind_of(place.path) in _MADE_FROM]
    folders = {lock.path: _folders(repo, lock) for lock in locks}

    def is_chosen(place: Place) -> bool:
        chosen = [
            lock.current
            for lock in locks
            if place.kind in _MADE_FROM[lock.kind]
            and posixpath.dirname(place.path) in folders[lock.path]
        ]
        chosen += (installed or {}).get(_project(place), ())
        return any(place.asked is not None and place.asked.admits(it) for it in chosen if it)

    return tuple(place for place in places if not place.is_range or not is_chosen(place))


def _folders(repo: RepoContext, lock: Place) -> set[str]:
    """Folders of the manifests that a lock is made from: its own, and a workspace's members'."""
    found = {posixpath.dirname(lock.path)}
    if lock.kind is Kind.UV_LOCK:
        with suppress(RecipeError):
            members = manifest_paths(lock.path, repo.read_text(lock.path))
            found |= {posixpath.dirname(path) for path in members}
    return found


def _project(place: Place) -> str:
    """The folder whose environment is made from a manifest."""
    folder = PurePosixPath(place.path).parent
    inside = place.kind is Kind.REQUIREMENTS and folder.name in _REQUIREMENTS
    return str(folder.parent if inside else folder)
