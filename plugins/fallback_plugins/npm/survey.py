"""Where an npm project holds a package: what can be bumped, and what stands in the way."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from fallback_plugins.npm.lockfile import installed_versions
from fallback_plugins.npm.manifest import Declared, declared, parse_manifest
from fallback_tier.repo import RepoContext

ECOSYSTEM = "npm"
MANIFEST = "package.json"

#: npm reads the first of these that exists.
LOCKS = ("npm-shrinkwrap.json", "package-lock.json")

#: Locks and workspaces of other clients; one of them beside a manifest decides what is installed.
FOREIGN_LOCKS = ("yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb")
BINARY_LOCKS = frozenset({"bun.lockb"})
FOREIGN_WORKSPACES = ("pnpm-workspace.yaml", "lerna.json")

_INSTALLED = "node_modules"


@dataclass(frozen=True)
class Project:
    """One folder with a package.json or a lock, where the package is declared or installed.

    ``installed`` is the lock's word: npm path → version. ``unread``: another client's lock, which
    says more. ``blocker``: why this recipe can't bump here. Both are clauses.
    """

    folder: str
    lock: str | None
    declared: tuple[Declared, ...]
    installed: dict[str, str]
    unread: str | None = None
    blocker: str | None = None

    @property
    def manifest(self) -> str:
        """Path of the package.json."""
        return in_folder(self.folder, MANIFEST)

    @property
    def root_version(self) -> str | None:
        """The version that the project itself gets, as the lock has it."""
        keys = {place.key for place in self.declared}
        found = (self.installed.get(f"{_INSTALLED}/{key}") for key in keys)
        return next((version for version in found if version), None)


def is_manifest(path: str) -> bool:
    """Does this file declare or lock dependencies (and isn't part of an installed package)?"""
    pure = PurePosixPath(path)
    return pure.name in {MANIFEST, *LOCKS, *FOREIGN_LOCKS} and _INSTALLED not in pure.parts


def survey(repo: RepoContext, package: str) -> tuple[Project, ...]:
    """Every project of the repository that holds the package, by folder.

    Raises RecipeError (a manifest can't be parsed) or RepositoryError (one can't be read).
    Files that don't name the package are not parsed: a broken one elsewhere blocks nothing.
    """
    manifests = [path for path in repo.tracked_files if is_manifest(path)]
    folders = sorted({str(PurePosixPath(path).parent) for path in manifests})
    projects = (_project(repo, folder, package) for folder in folders)
    return tuple(project for project in projects if project is not None)


def is_the_package(repo: RepoContext, package: str) -> bool:
    """Is this repository the source of the package itself?"""
    if not repo.has(MANIFEST):
        return False
    return parse_manifest(MANIFEST, repo.read_text(MANIFEST)).get("name") == package


def in_folder(folder: str, name: str) -> str:
    """The path of a file in a folder; "." is the root."""
    return name if folder == "." else f"{folder}/{name}"


def _project(repo: RepoContext, folder: str, package: str) -> Project | None:
    manifest = in_folder(folder, MANIFEST)
    text = _naming(repo, manifest, package)
    places = declared(parse_manifest(manifest, text), package) if text else ()
    locks = [path for name in LOCKS if repo.has(path := in_folder(folder, name))]
    installed: dict[str, str] = {}
    for lock in locks:
        lock_text = _naming(repo, lock, package)
        installed |= installed_versions(lock_text, package) if lock_text else {}
    unread = _unread_lock(repo, folder, package, declared=bool(places))
    if not (places or installed or unread):
        return None
    blocker = _workspace(repo, folder)
    if len(locks) > 1:
        blocker = f"{locks[0]} and {locks[1]} stand side by side"
    return Project(folder, locks[0] if locks else None, places, installed, unread, blocker)


def _naming(repo: RepoContext, path: str, package: str) -> str | None:
    """The file's text, where it exists and names the package."""
    text = repo.read_text(path) if repo.has(path) else ""
    return text if package in text else None


def _unread_lock(repo: RepoContext, folder: str, package: str, *, declared: bool) -> str | None:
    for name in FOREIGN_LOCKS:
        path = in_folder(folder, name)
        if repo.has(path) and (declared or name in BINARY_LOCKS or _naming(repo, path, package)):
            return f"{path} decides what is installed, and this recipe doesn't drive its client"
    return None


def _workspace(repo: RepoContext, folder: str) -> str | None:
    """Workspaces share one lock at the top: a member can't be bumped by itself."""
    pure = PurePosixPath(folder)
    for above in (pure, *pure.parents):
        for name in FOREIGN_WORKSPACES:
            if repo.has(path := in_folder(str(above), name)):
                return f"{path} makes it part of a workspace"
        path = in_folder(str(above), MANIFEST)
        if repo.has(path) and "workspaces" in parse_manifest(path, repo.read_text(path)):
            return f"{path} declares workspaces, which this recipe doesn't bump"
    return None
