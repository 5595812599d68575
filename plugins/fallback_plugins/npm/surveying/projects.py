"""The npm projects of a repository: which files one client resolves together, and what can't be read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.npm_run import AGE_LINE
from fallback_plugins.npm.clients.scopes import SCOPE_LINE
from fallback_plugins.npm.locks.entries import nothing_in
from fallback_plugins.npm.locks.yarn_lock import is_berry, parse_yarn_lock
from fallback_plugins.npm.manifests.manifest import (
    BINARY_LOCKS,
    FOREIGN_LOCKS,
    LATER_YARN,
    LOCKS,
    MANIFEST,
    PNPM_LOCK,
    YARN_LOCK,
    in_folder,
    is_manifest,
    names_any,
    parse_manifest,
    readable_manifest,
    readable_text,
    texts_of,
)
from fallback_plugins.npm.manifests.pnpm_workspace import FILE as WORKSPACE
from fallback_plugins.npm.surveying.commands import Commands
from fallback_plugins.npm.surveying.origins import local_archives, local_folders
from fallback_plugins.shared.bumping import unreadable
from fallback_plugins.shared.unread import LeftOut, Reader
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

_NPMRC = ".npmrc"

#: Lines of a repository's .npmrc that are read. Rules on the age of releases (``AGE_LINE``) are read too,
#: and registries of scopes, which are compared with the user's own configuration (``scopes``). Any other
#: line is dropped: it can name a program, or redirect requests.
_HARMLESS = re.compile(r"^\s*(?:legacy-peer-deps|strict-peer-deps)\s*=\s*(?:true|false)\s*$")

#: The client of each lock.
_CLIENTS = {
    **dict.fromkeys(LOCKS, "npm"),
    YARN_LOCK: "yarn",
    PNPM_LOCK: "pnpm",
    "bun.lock": "bun",
    "bun.lockb": "bun",
}

#: The repair of a lock that can't be read, or that holds nothing.
_REMAKE = "Make a new one with its client, or remove it."

_LIST_ITEM = re.compile(r"^\s*-\s*[\"']?([^\"'#\s]+)[\"']?\s*(?:#.*)?$")


#: Characters that are special to fnmatch, but not to npm's clients.
_SPECIAL = re.compile(r"[?\[]")


@dataclass(frozen=True)
class Site:
    """One project: a root folder, the manifests of root and members, and its lock.

    ``others``: locks of further clients that install it as well. ``unused``: locks that no client reads:
    npm reads one of its two, and ``packageManager`` names the one client of a project. ``members_locks``:
    locks in members' folders, which are read if one is installed without the workspace.
    """

    folder: str
    manifests: tuple[str, ...]
    lock: str | None = None
    others: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    members_locks: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Return the path by which messages name the project: its lock, or its manifest."""
        return self.lock or in_folder(self.folder, MANIFEST)

    @property
    def each(self) -> tuple["Site", ...]:
        """Return one site for each install command: a client with its own lock, and one that ignores it."""
        locks = [lock for lock in (self.lock, *self.others) if lock is not None]
        without = (replace(self, lock=None, others=(), ignored=(lock,)) for lock in self.ignored)
        return (*without, *(replace(self, lock=lock, others=()) for lock in locks)) or (self,)

    def client_lock(self, files: Files) -> str:
        """Return the lock that names its client: its own, one that is ignored, or the one that the client
        would write; npm's if that is a yarn or a bun that no client of ours replaces."""
        if lock := self.lock or next(iter(self.ignored), ""):
            return lock
        manifest: Mapping[str, Any] = {}
        with suppress(RecipeError):  # reported for the manifest itself
            text = files.manifests.get(files.root_manifest, "{}")
            manifest = parse_manifest(files.root_manifest, text)
        client = manager(manifest)
        if client == "yarn" and not LATER_YARN.match(str(manifest.get("packageManager", ""))):
            return YARN_LOCK
        has_workspace = any(path.endswith(WORKSPACE) for path in files.settings or ())
        return PNPM_LOCK if client == "pnpm" or (has_workspace and not client) else LOCKS[1]

    def names_any(self, repo: RepoContext, packages: Sequence[str]) -> bool:
        """Return whether the lock or a manifest may name one of the packages. Cheap; False is certain."""
        for path in (*self.manifests, *self.settings, *filter(None, (self.lock, *self.others))):
            if path.endswith(".lockb"):
                return True
            try:
                text: str | None = repo.read_text(path)
            except RepositoryError:
                text = repo.glimpse(path)
            if text is None or names_any(text, packages):
                return True
        return False

    def files(self, repo: RepoContext) -> Files:
        """Read the texts. Raises RepositoryError, also for a lock with nothing in it."""
        lock_text = repo.read_text(self.lock) if self.lock else ""
        with suppress(RecipeError):  # one that can't be read is reported by its reader
            if self.lock and (why := nothing_in(self.lock, lock_text)):
                raise RepositoryError(
                    f"{self.lock!r} {why}, so what is installed is unknown.",
                    next_step=_REMAKE,
                )
        # An .npmrc may be unreadable, as few of its lines count; pnpm's settings decide the resolution.
        settings = {
            path: readable_text(repo, path) if path.endswith(_NPMRC) else repo.read_text(path)
            for path in self.settings
        }
        if self.lock is None:
            folders = local_folders(repo, self.manifests, self.folder)
            settings |= {path: repo.read_text(path) for path in folders}
        return Files(
            folder=self.folder,
            manifests={path: repo.read_text(path) for path in self.manifests},
            lock=self.lock,
            lock_text=lock_text,
            settings={path: _harmless(path, text) for path, text in settings.items()},
            archives=local_archives(
                repo, (*self.manifests, *filter(None, [self.lock])), self.folder
            ),
        )


def discover(repo: RepoContext) -> tuple[Site, ...]:
    """Return every project, by folder. A workspace's members belong to its root. Unreadable files raise
    nothing here."""
    folders = manifest_folders(repo)
    member_of = {member: folder for folder in folders for member in members(repo, folder, folders)}
    return tuple(
        _site(repo, folder, [member for member in folders if member_of.get(member) == folder])
        for folder in folders
        if member_of.get(folder) is None
    )


def manifest_folders(repo: RepoContext) -> list[str]:
    """Return the folders with a manifest or a lock."""
    return sorted(
        {str(PurePosixPath(path).parent) for path in repo.tracked_files if is_manifest(path)}
    )


def site_of(repo: RepoContext, folder: str) -> Site:
    """Return the project to which a folder belongs; if there is none, a new one."""
    manifest = in_folder(folder, MANIFEST)
    site = next((site for site in discover(repo) if manifest in site.manifests), None)
    return site or Site(folder, (manifest,))


def _site(repo: RepoContext, folder: str, member_folders: Sequence[str]) -> Site:
    manifests = (
        in_folder(project_folder, MANIFEST) for project_folder in (folder, *member_folders)
    )
    locks = [path for name in (*LOCKS, *FOREIGN_LOCKS) if repo.has(path := in_folder(folder, name))]
    npms = [path for path in locks if PurePosixPath(path).name in LOCKS]
    used = [path for path in locks if path not in npms[1:]]
    root = readable_manifest(repo, in_folder(folder, MANIFEST))
    commands = Commands.of(repo)
    installers = commands.installers(folder)
    if len(used) > 1 and manager(root):
        readers = {manager(root), *installers}
        used = [path for path in used if _client_of(path) in readers] or used
    return Site(
        folder=folder,
        manifests=tuple(path for path in manifests if repo.has(path)),
        lock=used[0] if used else None,
        others=tuple(used[1:]),
        unused=tuple(path for path in locks if path not in used),
        settings=tuple(
            path for name in (_NPMRC, WORKSPACE) if repo.has(path := in_folder(folder, name))
        ),
        members_locks=tuple(_members_locks(repo, member_folders, root)),
        ignored=tuple(lock for lock in used if commands.ignore_lock(repo, lock, _client_of(lock))),
    )


def _members_locks(
    repo: RepoContext, member_folders: Sequence[str], root: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the locks in members' folders: clients read them that do not know the workspace, or that
    install one folder alone. If a manifest names a client, another counts only if a command runs it."""
    client_name = manager(root)
    for member in member_folders:
        installers = Commands.of(repo).installers(member)
        for name in (*LOCKS, YARN_LOCK, PNPM_LOCK):
            path, client = in_folder(member, name), _CLIENTS[name]
            if repo.has(path) and (client_name in {"", client} or client in installers):
                yield path


def _client_of(lock: str) -> str:
    return _CLIENTS[PurePosixPath(lock).name]


def manager(manifest: Mapping[str, Any]) -> str:
    """Return the client that a manifest names; empty if it names none."""
    engines = manifest.get("devEngines")
    declared = engines.get("packageManager") if isinstance(engines, dict) else None
    declared = (
        declared.get("name") if isinstance(declared, dict) else manifest.get("packageManager")
    )
    return declared.partition("@")[0] if isinstance(declared, str) else ""


def members(repo: RepoContext, root: str, folders: Sequence[str]) -> Iterator[str]:
    """Yield those of the folders that are members of a workspace at ``root``."""
    path, globs = in_folder(root, MANIFEST), list[str]()
    if '"workspaces"' in readable_text(repo, path):
        globs += texts_of(readable_manifest(repo, path), "workspaces")
    globs += _pnpm_globs(repo, root)
    if globs:
        yield from matching(root, globs, folders)


def matching(root: str, globs: Sequence[str], folders: Sequence[str]) -> Iterator[str]:
    """Yield those of the folders, below ``root``, that workspace globs name."""
    for folder in folders:
        inside = folder if root == "." else folder.removeprefix(f"{root}/")
        if folder == root or (root != "." and inside == folder):
            continue
        wanted = any(_matches(inside, glob) for glob in globs if not glob.startswith("!"))
        if wanted and not any(_matches(inside, g[1:]) for g in globs if g.startswith("!")):
            yield folder


def _pnpm_globs(repo: RepoContext, folder: str) -> list[str]:
    path = in_folder(folder, WORKSPACE)
    globs, inside = [], False
    for line in readable_text(repo, path).splitlines():
        if line[:1].strip() and not line.startswith("-"):
            inside = line.startswith("packages:")
        elif inside and (item := _LIST_ITEM.match(line)):
            globs.append(item.group(1))
    return globs


def _matches(folder: str, glob: str) -> bool:
    """Return whether a workspace glob names a folder: ``*`` is within one name, ``**`` any depth."""
    parts, patterns = folder.split("/"), glob.removeprefix("./").rstrip("/").split("/")
    # Indexes at which a pattern may end: no backtracking, whatever the glob.
    ends = {0}
    for pattern in patterns:
        if pattern == "**":
            ends = set(range(min(ends, default=len(parts) + 1), len(parts) + 1))
        else:
            ends = {at + 1 for at in ends if at < len(parts) and _is_like(parts[at], pattern)}
    return len(parts) in ends


def _is_like(name: str, pattern: str) -> bool:
    """Return whether one folder's name matches; only ``*`` is special. A longer pattern never does."""
    letters = len(pattern) - pattern.count("*")
    return letters <= len(name) and fnmatchcase(name, _SPECIAL.sub(r"[\g<0>]", pattern))


def _harmless(path: str, text: str) -> str:
    if not path.endswith(_NPMRC):
        return text
    patterns = (_HARMLESS, AGE_LINE, SCOPE_LINE)
    harmless = (
        line for line in text.splitlines() if any(pattern.fullmatch(line) for pattern in patterns)
    )
    return "".join(f"{line}\n" for line in harmless)


def left_out(packages: Sequence[str], repo: RepoContext) -> LeftOut:
    """Return a collector of what is left out in a search for these packages."""

    def kind(path: str) -> str | None:
        return PurePosixPath(path).name if is_manifest(path) else None

    return LeftOut(Reader(repo, packages, kind, names_any, _parse))


def files_of(site: Site) -> tuple[str, ...]:
    """Return the files that decide what a project holds; none if its lock is binary: it is not read."""
    locks = [path for path in (site.lock, *site.others) if path is not None]
    if any(PurePosixPath(path).name in BINARY_LOCKS for path in locks):
        return ()
    return (*site.manifests, *locks, *site.settings)


def scope_of(site: Site) -> tuple[str, ...]:
    """Return the files that decide whether a project is in a folder: ``files_of``, and a binary lock."""
    return tuple(dict.fromkeys((site.path, *site.manifests, *files_of(site))))


def project_files(repo: RepoContext, folder: str) -> Iterator[str]:
    """Yield the files of the projects that a folder is the root or a member of."""
    yield (manifest := in_folder(folder, MANIFEST))
    for each in (each for site in discover(repo) for each in site.each):
        if each.folder == folder or manifest in each.manifests:
            yield from scope_of(each)


def _parse(path: str, text: str) -> None:
    """Raise RecipeError if a file is damaged. A format that isn't read (yarn 2's, another lockfileVersion)
    is not damage."""
    name = PurePosixPath(path).name
    if name == MANIFEST:
        parse_manifest(path, text)
    try:
        why = nothing_in(path, text) if name in _CLIENTS else ""
        if name == YARN_LOCK and not is_berry(text):
            parse_yarn_lock(text)
    except RecipeError as error:
        why = f"can't be read: {error.problem.rstrip('.')}"
        raise unreadable(path, why, _REMAKE) from error
    if why:
        raise unreadable(path, f"{why}, so what is installed is unknown", _REMAKE)
