"""Where npm projects hold a package, as the gates see it: declared, and installed."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_plugins.npm.locks.lockfile import installed_versions
from fallback_plugins.npm.manifests.layout import (
    BINARY_LOCKS,
    FOREIGN_LOCKS,
    LOCKS,
    MANIFEST,
    in_folder,
    may_name,
)
from fallback_plugins.npm.manifests.manifest import Declared, declared, parse_manifest
from fallback_plugins.npm.surveying.foreign_lock import READABLE, foreign_versions
from fallback_plugins.npm.surveying.out_of_step import ANSWERED
from fallback_plugins.npm.surveying.projects import Site, discover, locked_members, manifest_folders
from fallback_plugins.npm.surveying.reading import files_of, left_out
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.unread import LeftOut
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class Project:
    """One folder with a package.json or a lock, where the package is declared or installed.

    ``installed`` is the lock's word: its own key (npm: the path) → version. ``unread``, a clause: another
    client's lock says more, and can't be read.
    """

    folder: str
    lock: str | None
    declared: tuple[Declared, ...]
    installed: dict[str, str]
    unread: str | None = None

    @property
    def manifest(self) -> str:
        """Path of the package.json."""
        return in_folder(self.folder, MANIFEST)


def survey(repo: RepoContext, package: str, unread: LeftOut | None = None) -> tuple[Project, ...]:
    """Every project of the repository that holds the package, by folder.

    Raises RecipeError (a manifest can't be parsed) or RepositoryError (one can't be read) of a project that
    is affected as far as can be seen; another one that can't be read is left out, and noted in ``unread``.
    Files that don't name the package are not parsed: a broken one elsewhere blocks nothing.
    """
    unread = unread or left_out((package,), repo)
    sites = {site.folder: site for site in discover(repo)}
    # A member's dependencies stand in the lock of its workspace.
    members = locked_members(sites.values())
    projects = (
        _project_or_none(repo, folder, package, sites.get(folder), unread)
        for folder in manifest_folders(repo)
        if folder not in members
    )
    return tuple(project for project in projects if project is not None)


def _project_or_none(
    repo: RepoContext, folder: str, package: str, site: Site | None, unread: LeftOut
) -> Project | None:
    try:
        return _project(repo, folder, package, site)
    except (RecipeError, RepositoryError) as error:
        own = files_of(site) if site else (in_folder(folder, MANIFEST),)
        if (refusal := unread.refusal(own, error)) is not None:
            raise refusal from error
        return None


def _project(repo: RepoContext, folder: str, package: str, site: Site | None) -> Project | None:
    manifest = in_folder(folder, MANIFEST)
    text = _naming(repo, manifest, package)
    places = declared(parse_manifest(manifest, text), package) if text else ()
    locks = [path for name in LOCKS if repo.has(path := in_folder(folder, name))]
    installed: dict[str, str] = {}
    for lock in locks:
        lock_text = _naming(repo, lock, package)
        installed |= installed_versions(lock_text, package, lock) if lock_text else {}
    unread = _unread_lock(repo, folder, package, declared=bool(places))
    asked = [place for place in places if place.section in ANSWERED]
    if locks and asked and not installed and not is_aside(manifest):
        # Whoever installs it gets a version that no file here tells.
        unread = f"{locks[0]} holds none of {asked[0].key}, which {manifest} asks for"
        return Project(folder, None, places, {}, unread)
    foreign = site.lock if site and unread and not locks and not site.others else None
    if site and foreign and PurePosixPath(foreign).name in READABLE:
        try:
            installed, unread = foreign_versions(site.files(repo), package), None
            locks = [foreign]
        except RecipeError as error:
            unread = error.problem.rstrip(".")
    if not (places or installed or unread):
        return None
    return Project(folder, locks[0] if locks else None, places, installed, unread)


def _naming(repo: RepoContext, path: str, package: str) -> str | None:
    """The file's text, where it exists and names the package."""
    text = repo.read_text(path) if repo.has(path) else ""
    return text if may_name(text, package) else None


def _unread_lock(repo: RepoContext, folder: str, package: str, *, declared: bool) -> str | None:
    for name in FOREIGN_LOCKS:
        path = in_folder(folder, name)
        if repo.has(path) and (declared or name in BINARY_LOCKS or _naming(repo, path, package)):
            return f"{path} says what is installed, and can't be read"
    return None
