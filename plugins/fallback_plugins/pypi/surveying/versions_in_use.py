"""Which of the places that hold a package tell a version that somebody gets.

A lock does, and an exact pin. A range tells what may be installed at least, and that counts only where
nobody has chosen: a lock of its project, what was compiled from it, or an environment of its folder.
"""

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from fallback_plugins.pypi.locks.uv_files import manifest_paths
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.surveying.compiled import compiled_for, decided_by
from fallback_plugins.pypi.surveying.survey import Place
from fallback_tier.errors import RecipeError
from fallback_tier.repo import RepoContext

METADATA = frozenset({Kind.PYPROJECT, Kind.SETUP_CFG, Kind.SETUP_PY})

#: Whose ranges each lock chooses for: its own manifest's, and those of the project's metadata beside it,
#: which is the same project's, whatever its build reads. A pylock.toml is an export, of anything.
_CHOOSES_FOR = {
    Kind.UV_LOCK: METADATA,
    Kind.PDM_LOCK: METADATA,
    Kind.POETRY_LOCK: METADATA,
    Kind.PIPFILE_LOCK: METADATA | {Kind.PIPFILE},
}

DECIDING_LOCKS = frozenset(_CHOOSES_FOR)

#: Folders of requirements files, which belong to the project in the folder above.
_REQUIREMENTS = frozenset({"requirements", "reqs", "constraints"})

#: What an environment holds of the package, by the folder that it is of.
Installed = Mapping[str, Sequence[str]]


def places_in_use(
    repo: RepoContext, places: Sequence[Place], installed: Installed | None = None
) -> tuple[Place, ...]:
    """Those of one package's places whose version counts, in their order.

    A choice counts for a range that admits it; any other was made for other Pythons, or before the manifest
    was changed. Raises RepositoryError (a lock can't be read).
    """
    locks = [place for place in places if kind_of(place.path) in _CHOOSES_FOR]
    folders = {lock.path: _folders(repo, lock) for lock in locks}

    def is_chosen(place: Place) -> bool:
        chosen = [
            lock.current
            for lock in locks
            if place.kind in _CHOOSES_FOR[lock.kind]
            and posixpath.dirname(place.path) in folders[lock.path]
        ]
        chosen += (installed or {}).get(project_of(place), ())
        chosen += _compiled(repo, place, places)
        return any(place.admits(it) for it in chosen if it)

    return tuple(place for place in places if not place.is_range or not is_chosen(place))


def _compiled(repo: RepoContext, place: Place, places: Sequence[Place]) -> list[str | None]:
    """What has been compiled from an ``.in`` file, or from a project's own metadata."""
    if place.kind in METADATA:
        pinned = [one for one in places if one.kind is Kind.REQUIREMENTS and not one.is_range]
        files = compiled_for(repo, place.path) if pinned else {}
        return [one.current for one in pinned if one.path in files]
    target = str(PurePosixPath(place.path).with_suffix(".txt"))
    if not place.path.endswith(".in") or not repo.has(target):
        return []
    texts = {place.path: "", target: repo.read_text(target)}
    pins = [one.current for one in places if one.path == target and not one.is_range]
    return pins if decided_by(texts) else []


def _folders(repo: RepoContext, lock: Place) -> set[str]:
    """Folders of the manifests that a lock is made from: its own, and a workspace's members'."""
    found = {posixpath.dirname(lock.path)}
    if lock.kind is Kind.UV_LOCK:
        with suppress(RecipeError):
            members = manifest_paths(lock.path, repo.read_text(lock.path))
            found |= {posixpath.dirname(path) for path in members}
    return found


def project_of(place: Place) -> str:
    """The folder whose environment is made from a manifest."""
    folder = PurePosixPath(place.path).parent
    inside = place.kind is Kind.REQUIREMENTS and folder.name in _REQUIREMENTS
    return str(folder.parent if inside else folder)
