"""Contents of package-lock.json or npm-shrinkwrap.json (versions 1, 2, 3): its entries, and the resolved
tree that the ladder works in.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.npm.locks.addresses import is_registrys, origin_of
from fallback_plugins.npm.manifests.manifest import (
    MEMBER_SECTIONS,
    PEER_SECTION,
    mapping,
    parse_manifest,
)
from fallback_plugins.npm.manifests.manifest import entries as strings
from fallback_plugins.npm.manifests.specs import split_alias
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: Versions that are read (npm 11 writes 3 by default).
KNOWN_VERSIONS = (1, 2, 3)

#: The name of a lock without a known path.
_UNNAMED = "The npm lockfile"

_ANEW = "npm install --package-lock-only"

#: npm writes an alias of lockfile version 1 as ``"version": "npm:real-name@1.2.3"``.
_ALIAS = "npm:"

#: An address in the repository that is not an archive.
_FOLDER = re.compile(r"file:(?!.*\.(?:tgz|tar|tar\.gz)$).*")

#: Comes before an installed package's name in a path.
MODULES = "node_modules/"

#: Deeper than any real tree; a nested version 1 tree is walked recursively.
MAX_DEPTH = 200

_OPTIONAL = "optionalDependencies"

#: Sections of an installed package that are installed too; its devDependencies aren't.
_ASKED = ("dependencies", _OPTIONAL, PEER_SECTION)

#: Keys of a manifest that declare what is required.
_DECLARING = (*MEMBER_SECTIONS, "peerDependenciesMeta")

#: Fields that are the same in entries of versions 1 and 3.
_KEPT_IN_3 = ("resolved", "integrity", "dev", "optional")

_Entry = Mapping[str, Any]
#: (key of the dependent, name) → key of what answers.
_Find = Callable[[str, str], str | None]


def installed_versions(lock_text: str, package: str, source: str = _UNNAMED) -> dict[str, str]:
    """Return where a package is installed, and in which version: ``{"node_modules/a": "1.0.0"}``.

    If the two trees of version 2 disagree, the second one's entry is at ``dependencies:`` and its path, so
    that no version that an older npm installs is missed. Links are not installed packages. Raises
    RecipeError, naming ``source``, if the text can't be read.
    """
    version_by_path: dict[str, str] = {}
    for path, entry in entries_of(parse_lock(lock_text, source)):
        name, version = identity(path, entry)
        if name == package and version is not None and version_by_path.get(path) != version:
            version_by_path[path if path not in version_by_path else f"dependencies:{path}"] = (
                version
            )
    return version_by_path


def lockfile_version(lock_text: str, source: str = _UNNAMED) -> int:
    """Return 1, 2 or 3. Raises RecipeError for any other."""
    version = parse_lock(lock_text, source).get("lockfileVersion")
    if type(version) is not int or version not in KNOWN_VERSIONS:
        known = ", ".join(map(str, KNOWN_VERSIONS))
        raise unsupported(
            f"{source} has lockfileVersion {version!r}, and read are {known}.",
            f"Run `{_ANEW} --lockfile-version={KNOWN_VERSIONS[-1]}` and commit the lock.",
            kind="lockfile_version",
        )
    return version


@lru_cache(maxsize=2)  # the lock before and after a change; each reader of a plan uses the same one
def _parsed(lock_text: str) -> Any:
    return json.loads(lock_text.removeprefix("\ufeff"))


def parse_lock(lock_text: str, source: str = _UNNAMED) -> Mapping[str, Any]:
    """Return the lock, which no caller may change. Raises RecipeError, naming ``source``."""
    try:
        lock = _parsed(lock_text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"is not JSON ({error})", source, kind="unreadable") from error
    if not isinstance(lock, dict):
        raise _unreadable("is not a JSON object", source, kind="unreadable")
    return lock


def entries_of(lock: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (npm's path, entry) of all packages except the project's; version 2 has both forms of each."""
    for path, entry in objects(lock.get("packages")):
        if path:
            yield path, entry
    yield from _nested(lock, "", 0)


def identity(path: str, entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return an entry's package (of an alias: by its own name, or its archive's) and version; None for a
    folder of the repository."""
    name, version = stated_identity(entry)
    if name:
        return name, version
    name = tail_of(path)
    if MODULES in path and not entry.get("link"):
        address = address_of(entry)
        if not is_registrys(address, name):
            name = origin_of(address).name or name
    return name, version


def stated_identity(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the name that an entry itself states, as an alias does (empty: none), and its version; None
    for a folder of the repository."""
    name, version = entry.get("name"), entry.get("version")
    name = name if isinstance(name, str) else ""
    if not isinstance(version, str) or version.startswith("file:"):
        return name, None
    if version.startswith(_ALIAS):
        real, number = split_alias(version)
        return real.removeprefix(_ALIAS).removesuffix("@"), number
    return name, version


def tail_of(path: str) -> str:
    """Return the last package name of an npm path."""
    return path.rpartition(MODULES)[2].strip("/")


def address_of(entry: Mapping[str, Any]) -> str:
    """Return the address of an entry's package; empty if it has none. A lock of version 1 has one that is
    not a registry's as the version."""
    for key in ("resolved", "version"):
        address = entry.get(key)
        if (
            isinstance(address, str)
            and ("/" in address or ":" in address)
            and not address.startswith(_ALIAS)
        ):
            return address
    return ""


def _nested(parent: _Entry, prefix: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    if depth > MAX_DEPTH:
        raise _unreadable(f"is nested deeper than {MAX_DEPTH}")
    for name, entry in objects(parent.get("dependencies")):
        path = f"{prefix}{MODULES}{name}"
        yield path, entry
        yield from _nested(entry, f"{path}/", depth + 1)


def objects(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the entries of an object of a lock that are objects."""
    return [(key, entry) for key, entry in mapping(value).items() if isinstance(entry, dict)]


def _unreadable(why: str, source: str = _UNNAMED, *, kind: str = "") -> RecipeError:
    blocker = Blocker(kind=BlockerKind.UNREADABLE, constraint=why, file=source)
    return unsupported(f"{source} {why}.", f"Make a new one with `{_ANEW}`.", blocker, kind=kind)


def lock_tree(
    source: str, lock_text: str, manifests: Mapping[str, str], root: str
) -> DependencyTree:
    """Return the tree that a lock describes; the project's own packages require what their manifests say,
    as a lock may be older. ``manifests``: texts by path, ``root``: the root's. Raises RecipeError."""
    lock = parse_lock(lock_text, source)
    lockfile_version(lock_text, source)
    packages = lock.get("packages")
    if not isinstance(packages, dict):
        manifest = parse_manifest(root, manifests.get(root, "{}"))
        packages = _packages(lock, manifest)
        packages[""] |= {
            key: value for key in ("name", "version") if (value := _text(manifest.get(key)))
        }
    return _flat(source, _as_declared(packages, manifests, root))


def modern(lock_text: str, manifest_text: str) -> str:
    """Return a version 1 lock as version 3 has it, so that npm does not query the registry for what each
    entry requires: for 1,600 packages that takes half a minute at each run.

    Any other lock is returned as it is, and one of version 1 that does not say enough: entries that are not
    releases of a registry, and peers, whose dependents only the registry knows.
    """
    lock = parse_lock(lock_text)
    if "packages" in lock or lock.get("lockfileVersion") != 1:
        return lock_text
    for key, entry in entries_of(lock):
        version = identity(key, entry)[1]
        if entry.get("peer") or version is None or not is_orderable("npm", version):
            return lock_text
    head = {field: value for field, value in lock.items() if field != "dependencies"}
    packages = _packages(lock, parse_manifest("package.json", manifest_text))
    return json.dumps({**head, "lockfileVersion": 3, "packages": packages})


def _packages(lock: _Entry, manifest: _Entry) -> dict[str, dict[str, Any]]:
    """Return a version 1 lock's entries as version 3 has them. One that is not a release has no version."""
    entries = dict(entries_of(lock))
    declared = {name: manifest[name] for name in _DECLARING if name in manifest}
    packages: dict[str, dict[str, Any]] = {"": {**declared, "name": _text(lock.get("name"))}}
    for key, entry in entries.items():
        name, version = identity(key, entry)
        copied = {field: entry[field] for field in _KEPT_IN_3 if field in entry}
        alias = {"name": name} if name != tail_of(key) else {}
        stated: dict[str, Any] = {} if version is None else {"version": version}
        if version is None and _FOLDER.fullmatch(address_of(entry)):
            stated = {"link": True}  # as version 3 has a folder of the repository
        asks = _typed_asks(entries, key, entry)
        packages[key] = {**alias, **stated, **copied, **_bundling(entry), **asks}
    return packages


def _bundling(entry: _Entry) -> dict[str, Any]:
    """Return how versions 2 and 3 mark that an entry is bundled, or bundles others."""
    if entry.get("bundled"):
        return {"inBundle": True}
    inside = {name for name, child in objects(entry.get("dependencies")) if child.get("bundled")}
    required = [name for name, _ in strings(entry.get("requires")) if name in inside]
    return {"bundleDependencies": required} if required else {}


def _typed_asks(
    entries: Mapping[str, _Entry], key: str, entry: _Entry
) -> dict[str, dict[str, str]]:
    """Return what an entry of version 1 requires, by section. It has no sections: a package counts as
    optional if it is missing, or if it is marked as optional and its dependent is not."""
    sections: dict[str, dict[str, str]] = {}
    for name, spec in strings(entry.get("requires")):
        target = entries.get(_nearest(entries, key, name) or "")
        optional = target is None or (target.get("optional") and not entry.get("optional"))
        sections.setdefault(_OPTIONAL if optional else "dependencies", {})[name] = spec
    return sections


def deprecated(lock_text: str) -> frozenset[tuple[str, str]]:
    """Return (package, version) of the entries that versions 2 and 3 mark as deprecated."""
    return frozenset(
        (_name(key, entry), _text(entry.get("version")))
        for key, entry in objects(parse_lock(lock_text).get("packages"))
        if entry.get("deprecated")
    )


def _as_declared(
    packages: Mapping[str, Any], manifests: Mapping[str, str], root: str
) -> dict[str, Any]:
    """Return the lock's entries; those of the project's own packages as their manifests declare."""
    merged = dict(packages)
    for path, text in manifests.items():
        folder = PurePosixPath(path).parent.relative_to(PurePosixPath(root).parent)
        key = "" if folder == PurePosixPath() else str(folder)
        if isinstance(entry := packages.get(key), dict):
            manifest = parse_manifest(path, text)
            declared = {name: manifest[name] for name in _DECLARING if name in manifest}
            undeclared = {name: value for name, value in entry.items() if name not in _DECLARING}
            merged[key] = undeclared | declared
    return merged


def _flat(source: str, packages: Mapping[str, Any]) -> DependencyTree:
    entries = dict(objects(packages))
    links = {
        key: target
        for key, entry in entries.items()
        if entry.get("link") and isinstance(target := entry.get("resolved"), str)
    }

    def find(dependent: str, name: str) -> str | None:
        key = _nearest(entries, dependent, name)
        return links.get(key, key) if key is not None else None

    nodes: dict[str, Node] = {}
    roots = []
    unversioned = []
    for key, entry in entries.items():
        if key in links:
            continue
        inside = MODULES in key
        sections = _ASKED if inside else MEMBER_SECTIONS
        name, version = identity(key, entry) if inside else (_name(key, entry), None)
        asks = tuple(_asks(key, entry, sections, find))
        version = version or _text(entry.get("version"))
        bundled = entry.get("inBundle") is True
        node = Node(key=key, name=name, version=version, asks=asks, bundled=bundled)
        if not inside:
            roots.append(node)
        elif node.version:
            nodes[key] = node
        elif not entry.get("link"):
            unversioned.append(node.name)
    return DependencyTree(source, nodes, tuple(roots), tuple(unversioned))


def _asks(
    key: str, entry: _Entry, sections: tuple[str, ...], find: _Find
) -> Iterator[DependencyEdge]:
    seen = set()
    for section in sections:
        peer = section == PEER_SECTION
        about = mapping(entry.get("peerDependenciesMeta")) if peer else {}
        for name, spec in strings(entry.get(section)):
            # A peer that is also a dependency is installed as a dependency.
            if peer and name in seen:
                continue
            seen.add(name)
            optional = section == _OPTIONAL or bool(mapping(about.get(name)).get("optional"))
            to = find(key, name)
            if to is not None or not optional:
                yield DependencyEdge(name=name, spec=spec, to=to, optional=optional, peer=peer)


def _nearest(entries: Mapping[str, Any], dependent: str, name: str) -> str | None:
    """Return the key that Node's look-up finds: in the folder's node_modules, then in those above; or
    None."""
    folder = dependent
    while True:
        key = f"{folder}/{MODULES}{name}" if folder else f"{MODULES}{name}"
        if key in entries:
            return key
        if not folder:
            return None
        above = folder.rfind(f"/{MODULES}")
        # Leave the innermost node_modules; a workspace member is below the root itself.
        folder = folder[:above] if above >= 0 else ""


def _name(key: str, entry: _Entry) -> str:
    if not key:
        return _text(entry.get("name")) or "the project"
    # An alias or a workspace member has its real name; otherwise the path ends with it.
    return _text(entry.get("name")) or (tail_of(key) if MODULES in key else key)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
