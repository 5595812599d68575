"""npm's locks (versions 1, 2, 3) as the resolved tree that the ladder works in."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.locks.lockfile import (
    MAX_DEPTH,
    identity,
    objects,
    parse_lock,
    version_of,
)
from fallback_plugins.npm.manifests.manifest import MEMBER_SECTIONS, PEER_SECTION, parse_manifest
from fallback_plugins.npm.manifests.manifest import entries as strings
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory.versions import is_orderable

_INSTALLED = "node_modules/"
_OPTIONAL = "optionalDependencies"

#: What an installed package asks for; its devDependencies aren't installed.
_ASKED = ("dependencies", _OPTIONAL, PEER_SECTION)

#: What a manifest says of it.
_DECLARING = (*MEMBER_SECTIONS, "peerDependenciesMeta")

#: What an entry of version 1 has as one of version 3 has it.
_KEPT_IN_3 = ("resolved", "integrity", "dev", "optional")

_Entry = Mapping[str, Any]
#: (key of the dependent, name) → key of what answers.
_Find = Callable[[str, str], str | None]


def lock_tree(
    source: str,
    lock_text: str,
    manifests: Mapping[str, str],
    root: str,
    names: Collection[str] | None = None,
) -> DependencyTree:
    """The tree that a lock describes. Raises RecipeError where it can't be read.

    ``manifests``: texts by path, ``root`` the path of the root's own. They say what the project's own
    packages ask for, as far as they are there: a lock may be older. ``names``: only the asks for these
    packages are of interest, which spares most of the work on a large lock of version 2 or 3.
    """
    lock = parse_lock(lock_text, source)
    version_of(lock, source)
    packages = lock.get("packages")
    if isinstance(packages, dict):
        return _flat(source, _as_declared(packages, manifests, root), names)
    manifest = parse_manifest(root, manifests[root]) if root in manifests else {}
    return _nested(source, lock, manifest)


def modern(lock_text: str, manifest_text: str) -> str:
    """Return a version 1 lock as version 3 has it, so that npm does not ask the registry what each entry
    requires: of 1,600 packages that takes half a minute at each run.

    Any other lock is returned as it is, and one of version 1 that does not say enough: entries that are no
    releases of a registry, and peers, whose dependents only the registry knows.
    """
    lock = parse_lock(lock_text)
    if "packages" in lock or lock.get("lockfileVersion") != 1:
        return lock_text
    entries = dict(_walk(lock, "", 0))
    packages: dict[str, Any] = {"": {**_declares(manifest_text), "name": _text(lock.get("name"))}}
    for key, entry in entries.items():
        name, version = identity(key, entry)
        if entry.get("peer") or version is None or not is_orderable("npm", version):
            return lock_text
        kept = {field: entry[field] for field in _KEPT_IN_3 if field in entry}
        alias = {"name": name} if name != _tail(key) else {}
        asks = _typed_asks(entries, key, entry)
        packages[key] = {**alias, "version": version, **kept, **_bundling(entry), **asks}
    head = {field: value for field, value in lock.items() if field != "dependencies"}
    return json.dumps({**head, "lockfileVersion": 3, "packages": packages})


def _bundling(entry: _Entry) -> dict[str, Any]:
    """How versions 2 and 3 say that an entry lies in an archive, or has others in its own."""
    if entry.get("bundled"):
        return {"inBundle": True}
    inside = {name for name, child in objects(entry.get("dependencies")) if child.get("bundled")}
    asked = [name for name, _ in strings(entry.get("requires")) if name in inside]
    return {"bundleDependencies": asked} if asked else {}


def _typed_asks(
    entries: Mapping[str, _Entry], key: str, entry: _Entry
) -> dict[str, dict[str, str]]:
    """What an entry of version 1 requires, by section. It has no sections: what is marked as optional, or
    missing, is required by a package that is always installed as optional only."""
    found: dict[str, dict[str, str]] = {}
    for name, spec in strings(entry.get("requires")):
        target = entries.get(_nearest(entries, key, name) or "")
        optional = target is None or (target.get("optional") and not entry.get("optional"))
        found.setdefault(_OPTIONAL if optional else "dependencies", {})[name] = spec
    return found


def _declares(manifest_text: str) -> dict[str, Any]:
    manifest = parse_manifest("package.json", manifest_text)
    return {name: manifest[name] for name in _DECLARING if name in manifest}


def deprecated(lock_text: str) -> frozenset[tuple[str, str]]:
    """(package, version) of the entries that versions 2 and 3 mark as deprecated."""
    return frozenset(
        (_name(key, entry), _text(entry.get("version")))
        for key, entry in objects(parse_lock(lock_text).get("packages"))
        if entry.get("deprecated")
    )


def _as_declared(
    packages: Mapping[str, Any], manifests: Mapping[str, str], root: str
) -> dict[str, Any]:
    """The lock's entries, those of the project's own packages with what their manifests say."""
    found = dict(packages)
    for path, text in manifests.items():
        folder = PurePosixPath(path).parent.relative_to(PurePosixPath(root).parent)
        key = "" if folder == PurePosixPath() else str(folder)
        if isinstance(entry := packages.get(key), dict):
            manifest = parse_manifest(path, text)
            own = {name: manifest[name] for name in _DECLARING if name in manifest}
            kept = {name: value for name, value in entry.items() if name not in _DECLARING}
            found[key] = kept | own
    return found


def _flat(
    source: str, packages: Mapping[str, Any], names: Collection[str] | None
) -> DependencyTree:
    entries = dict(objects(packages))
    names = None if names is None else frozenset(names)
    wanted = None if names is None else _asked_as(entries, names)
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
    for key, entry in entries.items():
        if key in links:
            continue
        inside = _INSTALLED in key
        sections = _ASKED if inside else MEMBER_SECTIONS
        name, version = identity(key, entry) if inside else (_name(key, entry), None)
        asks: tuple[DependencyEdge, ...] = ()
        if wanted is None or _asks_any(entry, sections, wanted):
            asks = tuple(_asks(key, entry, sections, find, wanted))
        if inside and names is not None and not asks and name not in names:
            continue
        version = version or _text(entry.get("version"))
        bundled = entry.get("inBundle") is True
        node = Node(key=key, name=name, version=version, asks=asks, bundled=bundled)
        if not inside:
            roots.append(node)
        elif node.version:
            nodes[key] = node
    return DependencyTree(source=source, nodes=nodes, roots=tuple(roots))


def _nested(source: str, lock: _Entry, manifest: _Entry) -> DependencyTree:
    entries = dict(_walk(lock, "", 0))

    def find(dependent: str, name: str) -> str | None:
        return _nearest(entries, dependent, name)

    nodes = {}
    for key, entry in entries.items():
        name, version = identity(key, entry)
        if version:
            requires = _typed_asks(entries, key, entry)
            asks = tuple(_asks(key, requires, ("dependencies", _OPTIONAL), find))
            bundled = entry.get("bundled") is True
            nodes[key] = Node(key=key, name=name, version=version, asks=asks, bundled=bundled)
    root = Node(
        key="",
        name=_text(manifest.get("name")) or _text(lock.get("name")) or "the project",
        version=_text(manifest.get("version")),
        asks=tuple(_asks("", manifest, MEMBER_SECTIONS, find)),
    )
    return DependencyTree(source=source, nodes=nodes, roots=(root,))


def _asked_as(entries: Mapping[str, _Entry], names: frozenset[str]) -> frozenset[str]:
    """The names under which these packages are asked for: their own, and their aliases."""
    inside = (item for item in entries.items() if _INSTALLED in item[0])
    return names.union(_tail(key) for key, entry in inside if identity(key, entry)[0] in names)


def _asks(
    key: str,
    entry: _Entry,
    sections: tuple[str, ...],
    find: _Find,
    wanted: frozenset[str] | None = None,
) -> Iterator[DependencyEdge]:
    reported = entry.get("peerDependenciesMeta")
    seen = set()
    for section in sections:
        asked = entry.get(section)
        if not isinstance(asked, dict) or (wanted is not None and wanted.isdisjoint(asked)):
            continue
        for name, spec in asked.items():
            if wanted is not None and name not in wanted:
                continue
            peer = section == PEER_SECTION
            # A peer that is also a dependency is installed as a dependency.
            if not isinstance(spec, str) or (peer and name in seen):
                continue
            seen.add(name)
            about = reported.get(name) if peer and isinstance(reported, dict) else None
            optional = section == _OPTIONAL or (
                isinstance(about, dict) and bool(about.get("optional"))
            )
            to = find(key, name)
            if to is not None or not optional:
                yield DependencyEdge(name=name, spec=spec, to=to, optional=optional, peer=peer)


def _asks_any(entry: _Entry, sections: tuple[str, ...], wanted: frozenset[str]) -> bool:
    """Most entries of a large lock ask for nothing of interest: they are passed over quickly."""
    for section in sections:
        asked = entry.get(section)
        if isinstance(asked, dict) and not wanted.isdisjoint(asked):
            return True
    return False


def _nearest(entries: Mapping[str, Any], dependent: str, name: str) -> str | None:
    """Node's own look-up: the folder's node_modules, then those above."""
    folder = dependent
    while True:
        key = f"{folder}/{_INSTALLED}{name}" if folder else f"{_INSTALLED}{name}"
        if key in entries:
            return key
        if not folder:
            return None
        above = folder.rfind(f"/{_INSTALLED}")
        # Out of the innermost node_modules; a workspace member lies below the root itself.
        folder = folder[:above] if above >= 0 else ""


def _walk(parent: _Entry, place: str, depth: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, entry in objects(parent.get("dependencies")) if depth <= MAX_DEPTH else ():
        key = f"{place}{_INSTALLED}{name}"
        yield key, entry
        yield from _walk(entry, f"{key}/", depth + 1)


def _name(key: str, entry: _Entry) -> str:
    if not key:
        return _text(entry.get("name")) or "the project"
    # An alias or a workspace member carries its real name; else the path ends with it.
    return _text(entry.get("name")) or (_tail(key) if _INSTALLED in key else key)


def _tail(key: str) -> str:
    return key.rpartition(_INSTALLED)[2]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
