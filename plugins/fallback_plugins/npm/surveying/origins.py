"""Copies of packages in the repository itself: in folders and archives that manifests and locks name, and
in files that no install command writes. Their own manifests identify them.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from posixpath import normpath
from urllib.parse import unquote

from fallback_plugins.npm.clients.archives import MAX_ARCHIVE_BYTES, packed_in
from fallback_plugins.npm.locks.addresses import origin_of
from fallback_plugins.npm.locks.lockfile import (
    MODULES,
    address_of,
    entries_of,
    parse_lock,
)
from fallback_plugins.npm.manifests.manifest import (
    LOCKS,
    MANIFEST,
    in_folder,
    readable_manifest,
    readable_text,
)
from fallback_plugins.npm.manifests.specs import LOCAL
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.repo import RepoContext

#: A path on this machine in a manifest or a lock: after a prefix, or one that a client recognises without a
#: prefix. For the latter, npm's own locks are parsed: they have thousands of quoted texts.
_PREFIXED = re.compile(r"(?:file|link|portal):([^\s\"',)}#]+)")
_PLAIN = re.compile(r"[\"'](\.{1,2}/[^\"'\s]*|[^\"':\s]+\.(?:tgz|tar\.gz|tar))[\"']")

_ARCHIVES = (".tgz", ".tar.gz", ".tar")

#: Folders of code that other people wrote, that a build wrote, and of samples that nothing installs.
_INSTALLED = frozenset({"node_modules", "bower_components", "jspm_packages"})
_VENDORED = frozenset(
    {"vendor", "vendors", "vendored", "third_party", "third-party", "thirdparty", "external"}
)
_BUILT = frozenset({"dist", "build", "out", "bundle", "bundles", "public", "static", "assets"})
_SAMPLES = frozenset(
    {"test", "tests", "__tests__", "fixtures", "__fixtures__", "examples", "example", "docs"}
)

#: Files that state a package's name and version, and suffixes of scripts.
_FACTS = frozenset({MANIFEST, "bower.json", ".bower.json"})
_SCRIPTS = frozenset({".js", ".cjs", ".mjs"})

#: A vendored script by its name, and the version in its first comment.
_SCRIPT = re.compile(
    r"(?P<stem>[\w.-]+?)(?:[-.@_]v?(?P<version>\d+\.\d+\.\d+(?:-[\w.]+?)?))?"
    r"(?:[.-](?:min|slim|umd|esm|cjs|prod|production|bundle|global|iife))*\.[cm]?js"
)
_BANNER = re.compile(r"\bv?(?P<version>\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)\b")
_BANNER_CHARS = 400

#: The script that an action runs.
_RUNS = re.compile(r"^\s+(?:main|pre|post):\s*[\"']?(?P<path>[^\"'#\s]+)", re.MULTILINE)

#: Characters of a line that no person wrote.
_LONG_LINE = 5_000

#: Most built files that are searched for bundled code; a site can have thousands.
MAX_BUNDLES = 300


@dataclass(frozen=True)
class LocalCopy:
    """A package in a folder or an archive of the repository. ``version``: None if it states none."""

    path: str
    name: str
    version: str | None


def local_copies(
    repo: RepoContext, manifests: Iterable[str], locks: Iterable[str], packages: Collection[str]
) -> Iterator[LocalCopy]:
    """Yield the advisory's packages that manifests and locks take from the repository's own archives and
    folders. Members of a workspace are among ``manifests``, and are not copies. Raises RecipeError for an
    archive that can't be read and may hold one."""
    project_manifests = {*manifests}
    seen = set()
    for source in (*project_manifests, *locks):
        for path in _local_paths(repo, source):
            if path in seen:
                continue
            seen.add(path)
            manifest = in_folder(path, MANIFEST)
            if path.endswith(_ARCHIVES) and repo.has(path):
                yield from _in_archive(repo, path, packages)
            elif repo.has(manifest) and manifest not in project_manifests:
                yield from _in_folder(repo, path, manifest, packages)


def local_folders(repo: RepoContext, manifests: Iterable[str], below: str) -> Iterator[str]:
    """Yield the package.json of each folder in ``below`` that the manifests, or those of such folders, name
    as a package. Members of a workspace are among ``manifests``."""
    seen = dict.fromkeys(manifests)
    waiting = [*seen]
    while waiting:
        for path in _local_paths(repo, waiting.pop()):
            manifest = in_folder(path, MANIFEST)
            is_below = below == "." or path.startswith(f"{below}/")
            if manifest not in seen and is_below and repo.has(manifest):
                seen[manifest] = None
                waiting.append(manifest)
                yield manifest


def local_archives(repo: RepoContext, sources: Iterable[str], folder: str) -> dict[str, bytes]:
    """Return the archives below a folder that manifests or locks name, by path relative to it.

    A client reads them to resolve. Those beyond MAX_ARCHIVE_BYTES in all are left out: their client then
    reports which one it misses.
    """
    archives: dict[str, bytes] = {}
    size = 0
    prefix = "" if folder == "." else f"{folder}/"
    for path in dict.fromkeys(path for source in sources for path in _local_paths(repo, source)):
        is_archive = path.endswith(_ARCHIVES) and path.startswith(prefix) and repo.has(path)
        file = repo.tree.find(path) if is_archive else None
        if file is None:
            continue
        size += file.stat().st_size
        if size > MAX_ARCHIVE_BYTES:
            break
        archives[path.removeprefix(prefix)] = file.read_bytes()
    return archives


def unreached(repo: RepoContext, packages: Collection[str]) -> tuple[LocalCopy, ...]:
    """Return the copies of these packages in files that no install command writes: committed
    ``node_modules``, vendored packages and scripts, and bundles, of unknown version (None). Samples are
    left out."""
    key = ("unreached npm packages", *sorted(packages))
    return repo.once(key, lambda: tuple(_unreached(repo, packages)))


def _unreached(repo: RepoContext, packages: Collection[str]) -> Iterator[LocalCopy]:
    read = 0
    for path in repo.tracked_files:
        pure = PurePosixPath(path)
        folders = {part.lower() for part in pure.parts[:-1]}
        if folders & _SAMPLES and not folders & _INSTALLED:
            continue
        if pure.name in _FACTS and folders & (_VENDORED | _INSTALLED):
            yield from _in_folder(repo, str(pure.parent), path, packages)
        elif pure.suffix in _SCRIPTS and not folders & _INSTALLED:
            yield from _in_name(repo, path, packages)
            if folders & (_BUILT | _VENDORED) and read < MAX_BUNDLES:
                read += 1
                text = readable_text(repo, path)
                bundled = (package for package in packages if f"{MODULES}{package}/" in text)
                yield from (LocalCopy(path, package, None) for package in bundled)


def running_bundle(repo: RepoContext, folder: str, package: str) -> str | None:
    """Return the file that an action in a folder runs, if it is a committed bundle that may contain the
    package: its users run that file, whatever is installed."""
    for action in ("action.yml", "action.yaml"):
        for match in _RUNS.finditer(readable_text(repo, in_folder(folder, action))):
            path = normpath(PurePosixPath(folder, match["path"]))
            if not repo.has(path):
                continue
            text = readable_text(repo, path)
            if f"{MODULES}{package}/" in text or f"\n{package}\n" in readable_text(
                repo, normpath(PurePosixPath(path).parent / "licenses.txt")
            ):
                return path
            # Written by a bundler, or unread for its size: what it contains is unknown.
            if not text or max(map(len, text.splitlines())) > _LONG_LINE:
                return path
    return None


def _in_name(repo: RepoContext, path: str, packages: Collection[str]) -> Iterator[LocalCopy]:
    match = _SCRIPT.fullmatch(PurePosixPath(path).name)
    if match is None:
        return
    for package in packages:
        if package.rpartition("/")[2].removesuffix(".js") == match["stem"].removesuffix(".js"):
            banner = _BANNER.search(readable_text(repo, path)[:_BANNER_CHARS])
            version = match["version"] or (banner["version"] if banner else None)
            if version is not None:
                yield LocalCopy(path, package, version)


def _in_archive(repo: RepoContext, path: str, packages: Collection[str]) -> Iterator[LocalCopy]:
    archive = repo.tree.find(path)
    try:
        contents = packed_in(archive, path) if archive is not None else None
    except RecipeError:
        origin = origin_of(path)
        if origin.version is None or any(map(origin.may_be, packages)):
            raise
        return
    for packed in contents or ():
        if packed.name in packages:
            yield LocalCopy(path, packed.name, packed.version)


def _in_folder(
    repo: RepoContext, path: str, manifest: str, packages: Collection[str]
) -> Iterator[LocalCopy]:
    facts = readable_manifest(repo, manifest)
    name, version = facts.get("name"), facts.get("version")
    if isinstance(name, str) and name in packages:
        yield LocalCopy(path, name, version if isinstance(version, str) else None)


def _local_paths(repo: RepoContext, source: str) -> tuple[str, ...]:
    """Return the paths in the repository from which a manifest or a lock takes packages. Each file is
    searched once: packages and archives are looked up many times."""
    return repo.once(("npm local paths", source), lambda: tuple(_paths_named_in(repo, source)))


def _paths_named_in(repo: RepoContext, source: str) -> Iterator[str]:
    try:
        text = repo.read_text(source)
    except RepositoryError:
        return  # reported for the file itself
    paths = _PREFIXED.findall(text) if any(prefix in text for prefix in LOCAL) else []
    if PurePosixPath(source).name in LOCKS:
        with suppress(RecipeError):  # reported for the lock itself
            addresses = (address_of(entry) for _, entry in entries_of(parse_lock(text, source)))
            paths += [address for address in addresses if address and ":" not in address]
    else:
        paths += _PLAIN.findall(text)
    folder = PurePosixPath(source).parent
    for path in dict.fromkeys(paths):
        yield normpath(folder / unquote(path.replace("\\/", "/")))
