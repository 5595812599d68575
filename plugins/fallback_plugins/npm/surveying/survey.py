"""npm projects that hold a package, for the gates: its declarations, and what is installed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.entries import contradiction
from fallback_plugins.npm.locks.lockfile import (
    entries_of,
    identity,
    installed_versions,
    parse_lock,
)
from fallback_plugins.npm.locks.pnpm_lock import pnpm_tree
from fallback_plugins.npm.locks.yarn_lock import bun_tree, yarn_tree
from fallback_plugins.npm.manifests.manifest import (
    BINARY_LOCKS,
    FOREIGN_LOCKS,
    LOCKS,
    MANIFEST,
    PEER_SECTION,
    PNPM_LOCK,
    YARN_LOCK,
    Declared,
    declared,
    in_folder,
    may_name,
    parse_manifest,
)
from fallback_plugins.npm.manifests.specs import admits, foreign, is_tag
from fallback_plugins.npm.surveying.origins import local_copies, running_bundle
from fallback_plugins.npm.surveying.projects import (
    Site,
    discover,
    files_of,
    left_out,
    manifest_folders,
)
from fallback_plugins.npm.surveying.resolutions import ANSWERED
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.unread import LeftOut
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

#: Readers of other clients' locks.
_TREES = {YARN_LOCK: yarn_tree, PNPM_LOCK: pnpm_tree, "bun.lock": bun_tree}


@dataclass(frozen=True)
class Project:
    """A folder with a package.json or a lock, in which the package is declared or installed.

    ``installed``: by its locks, from the lock's own key (npm: the path) to the version. ``unread``, a
    clause: a lock says more, and can't be read. ``doubt``, a sentence: a lock contradicts itself on the
    package. ``local``: path → version of copies in folders and archives of the repository.
    """

    folder: str
    lock: str | None
    declared: tuple[Declared, ...]
    installed: dict[str, str]
    unread: str | None = None
    doubt: str | None = None
    local: Mapping[str, str] = field(default_factory=dict)

    @property
    def manifest(self) -> str:
        """Return the path of the package.json."""
        return in_folder(self.folder, MANIFEST)


def survey(repo: RepoContext, package: str, unread: LeftOut | None = None) -> tuple[Project, ...]:
    """Return every project of the repository that holds the package, by folder. Only files that name it are
    parsed.

    Raises RecipeError, RepositoryError if files of an affected project can't be read; another such project
    is left out, and noted in ``unread``.
    """
    unread = unread or left_out((package,), repo)
    sites = {site.folder: site for site in discover(repo)}
    # A member's dependencies are in the lock of its workspace.
    members = {
        str(PurePosixPath(path).parent)
        for site in sites.values()
        for path in site.manifests
        if site.lock is not None and path != in_folder(site.folder, MANIFEST)
    }
    projects = []
    for folder in (candidate for candidate in manifest_folders(repo) if candidate not in members):
        site = sites.get(folder)
        try:
            projects.append(_project(repo, folder, package, site))
        except (RecipeError, RepositoryError) as error:
            files = files_of(site) if site else (in_folder(folder, MANIFEST),)
            if (refusal := unread.refusal(files, error)) is not None:
                raise refusal from error
    return tuple(project for project in projects if project is not None)


def _project(repo: RepoContext, folder: str, package: str, site: Site | None) -> Project | None:
    manifest = in_folder(folder, MANIFEST)
    text = _naming(repo, manifest, package)
    places = declared(parse_manifest(manifest, text), package) if text else ()
    unused = site.unused if site else ()
    locks = [
        path for name in LOCKS if repo.has(path := in_folder(folder, name)) and path not in unused
    ]
    installed: dict[str, str] = {}
    for lock in locks:
        lock_text = _naming(repo, lock, package)
        installed |= installed_versions(lock_text, package, lock) if lock_text else {}
    required = [place for place in places if place.section in ANSWERED]
    local = _local(repo, manifest, package, site)
    if locks and required and not installed and not local and not is_aside(manifest):
        # Users get a version that no file here states.
        missing = f"{locks[0]} holds none of {required[0].key}, which {manifest} requires"
        return Project(folder, None, places, {}, missing)
    unread: str | None = None
    for lock in _foreign_locks(repo, folder, package, declared=bool(places)):
        if lock in unused:
            continue
        try:
            if site is None or PurePosixPath(lock).name not in _TREES:
                raise unsupported(f"{lock} says what is installed, and can't be read.")
            files = replace(site, lock=lock, others=()).files(repo)
            installed |= _listed(files, package)
            locks.append(lock)
        except RecipeError as error:
            unread = unread or error.problem.rstrip(".")
    if not (places or installed or unread or local):
        return None
    if unread is None and _is_run(repo, locks, package):
        bundle = running_bundle(repo, folder, package)
        unread = (
            bundle and f"users run {bundle}, a committed bundle that may contain it: rebuild it"
        )
    texts = ((lock, _naming(repo, lock, package)) for lock in locks)
    errors = (contradiction(lock, text, (package,)) for lock, text in texts if text)
    doubt = next((error.problem for error in errors if error is not None), None)
    return Project(folder, next(iter(locks), None), places, installed, unread, doubt, local)


def _listed(files: Files, package: str) -> dict[str, str]:
    """Return the versions of a package by the lock's own keys. Raises RecipeError if the lock can't be
    read, or doesn't answer what the manifests require, so that its client would resolve the package
    again."""
    name = PurePosixPath(files.lock or "").name
    tree = _TREES[name](files)
    asks = {(root.key, ask.name): ask for root in tree.roots for ask in root.asks if not ask.peer}
    for path, text in files.manifests.items():
        for place in declared(parse_manifest(path, text), package):
            ask = asks.get((path, place.key))
            node = tree.nodes.get(ask.to or "") if ask is not None else None
            # yarn's lock is keyed by the requirement itself; pnpm's names what answered an older one, too.
            is_any = name == YARN_LOCK or foreign(place.spec) or is_tag(place.spec)
            is_answer = node is not None and (is_any or admits(place.spec, node.version))
            if place.section != PEER_SECTION and not is_answer:
                raise unsupported(
                    f"{files.lock} does not answer {place.key} {place.spec} of {path}",
                    "Bring the lock up to date with its own client.",
                )
    return {node.key: node.version for node in tree.of(package)}


def _is_run(repo: RepoContext, locks: Iterable[str], package: str) -> bool:
    """Return whether a package is installed for more than development, or the lock does not say."""
    dev = [
        entry.get("dev") is True
        for lock in locks
        if PurePosixPath(lock).name in LOCKS
        for key, entry in entries_of(parse_lock(repo.read_text(lock), lock))
        if identity(key, entry)[0] == package
    ]
    return not dev or not all(dev)


def _local(repo: RepoContext, manifest: str, package: str, site: Site | None) -> Mapping[str, str]:
    manifests = site.manifests if site else (manifest,) if repo.has(manifest) else ()
    locks = [path for path in (site.lock, *site.others) if path] if site else []
    copies = local_copies(repo, manifests, locks, (package,))
    return {copy.path: copy.version or "no version" for copy in copies}


def _naming(repo: RepoContext, path: str, package: str) -> str | None:
    """Return a file's text if it exists and names the package."""
    text = repo.read_text(path) if repo.has(path) else ""
    return text if may_name(text, package) else None


def _foreign_locks(
    repo: RepoContext, folder: str, package: str, *, declared: bool
) -> Iterator[str]:
    for name in FOREIGN_LOCKS:
        path = in_folder(folder, name)
        if repo.has(path) and (declared or name in BINARY_LOCKS or _naming(repo, path, package)):
            yield path
