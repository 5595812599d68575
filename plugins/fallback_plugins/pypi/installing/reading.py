"""Reads a project's manifests: those that uv comes across, and which of what is there can't be read."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from fallback_plugins.pypi.installing.declared import is_wanted
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.local_places import local_places
from fallback_plugins.pypi.manifests.requirements_files import includes
from fallback_plugins.pypi.surveying.survey import metadata_files
from fallback_plugins.shared.gates.gating import in_folder
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

#: Says what tox installs beside a project; read, though it declares nothing that is shipped.
TOX = "tox.ini"


def _metadata_in(folder: str) -> list[str]:
    return [in_folder(folder, name) for name in ("pyproject.toml", "setup.cfg")]


class ManifestReader:
    """Of one tree. ``unread``: paths of what was asked for, and can't be read (UTF-16, a link)."""

    def __init__(self, repo: RepoContext) -> None:
        self._repo = repo
        self.unread: set[str] = set()

    def read_by_uv(self, folder: str, changed: Sequence[str]) -> dict[str, str]:
        """Manifests that uv comes across: this folder's, those above it, those of folders that they name,
        and requirements files with those that they include."""
        tracked = self._repo.tracked_files
        found: dict[str, str] = {}
        wanted = [path for path in tracked if is_wanted(path, folder, changed)]
        for path, text in self.texts(filter(self._repo.has, _metadata_in(folder))).items():
            with suppress(RecipeError):
                wanted += [other for _, other in metadata_files(path, text)]
        while wanted:
            path = wanted.pop()
            if path not in found and self._repo.has(path):
                found |= self.texts([path])
                wanted += [other for other, _ in includes(path, found.get(path, ""))]
        found |= self._manifests_at([folder, *map(str, PurePosixPath(folder).parents)])
        found |= self._manifests_at(local_places(self._repo, folder, found))
        if self._repo.has(tox := in_folder(folder, TOX)):
            found |= self.texts([tox])
        return found

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """By path. A file that can't be read declares nothing that could be had."""
        found = {}
        for path in paths:
            try:
                found[path] = self._repo.read_text(path)
            except RepositoryError:
                self.unread.add(path)
        return found

    def _manifests_at(self, folders: Collection[str]) -> dict[str, str]:
        others = {None, Kind.REQUIREMENTS}
        found = [path for path in self._repo.tracked_files if kind_of(path) not in others]
        return self.texts(path for path in found if str(PurePosixPath(path).parent) in folders)
