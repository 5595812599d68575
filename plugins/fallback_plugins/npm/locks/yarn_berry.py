"""Locks of clients that only read here: yarn from version 2 on, and bun (its text format). They state what
manifests and packages require as manifests do, and so does yarn classic's (``edges``, ``roots``).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.locks.pnpm_lock import parse_yaml
from fallback_plugins.npm.manifests.manifest import (
    MEMBER_SECTIONS,
    PEER_SECTION,
    entries,
    parse_manifest,
)
from fallback_plugins.npm.refusals import unsupported
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node

#: Yarn 2 and later write another format (YAML) under the same name; each of its locks has this key.
_BERRY = re.compile(r"^__metadata:\s*$", re.MULTILINE)

_COMPRESSION = re.compile(r"^  cacheKey: \"?\d+(?:c(\d))?", re.MULTILINE)
_METADATA = re.compile(r"^__metadata:\n  version: (\d+)", re.MULTILINE)

#: A comma that JSON does not have, before a closing bracket; strings are matched, so that they stay.
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])')

#: Before a range, yarn's lock names where it comes from; before a name, it is an alias.
_RANGE_PREFIX = re.compile(r"^npm:(?![@A-Za-z_])")

#: (name, range) → key of the package that answers.
_Find = Callable[[str, str], str | None]

#: One name in a key of bun's: ``a/@scope/b/c``.
_NAME = re.compile(r"@[^/]+/[^/]+|[^/]+")


def is_berry(text: str) -> bool:
    """Did yarn 2 or later write it?"""
    return _BERRY.search(text) is not None


def berry_format(lock_text: str) -> int | None:
    """The number of its format; None: it is yarn classic's."""
    found = _METADATA.search(lock_text)
    return int(found[1]) if found else 0 if is_berry(lock_text) else None


def berry_compression(lock_text: str) -> str:
    """How the project has archives compressed: the lock's checksums are of those."""
    found = _COMPRESSION.search(lock_text)
    return found[1] if found and found[1] else "mixed"


def berry_tree(files: Files) -> DependencyTree:
    """Return yarn's lock as a tree, keyed by its resolutions. Raises RecipeError if it is not YAML."""
    content = parse_yaml(files.lock_text)
    by_pattern: dict[str, str] = {}
    found: dict[str, Mapping[str, Any]] = {}
    for patterns, entry in content.items():
        resolution = str(entry.get("resolution", "")) if isinstance(entry, dict) else ""
        if "@" in resolution[1:]:
            found[resolution] = entry
            by_pattern |= dict.fromkeys((one.strip() for one in patterns.split(",")), resolution)
    root = parse_manifest(files.root_manifest, files.manifests.get(files.root_manifest, "{}"))
    forced = {key.rpartition("/")[2]: spec for key, spec in entries(root.get("resolutions"))}

    def find(name: str, spec: str) -> str | None:
        specs = [spec, *([forced[name]] if name in forced else [])]
        tried = (f"{name}@{kind}{one}" for one in specs for kind in ("", "npm:"))
        key = next((by_pattern[it] for it in tried if it in by_pattern), None)
        return None if key is not None and "@workspace:" in key else key

    nodes = {
        key: Node(key, key[: key.index("@", 1)], str(entry.get("version", "")), asks)
        for key, entry in found.items()
        if "@workspace:" not in key
        for asks in [tuple(edges(entry, ("dependencies",), find))]
    }
    return DependencyTree(files.lock or "yarn.lock", nodes, tuple(roots(files, find)))


def bun_tree(files: Files) -> DependencyTree:
    """Return bun.lock as a tree, keyed by its paths. Raises RecipeError if it is not what bun writes."""
    try:
        content = json.loads(_TRAILING.sub(lambda match: match[1] or "", files.lock_text))
        packages = {key: it for key, it in content["packages"].items() if "@" in str(it[0])[1:]}
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise unsupported(
            f"{files.lock} is not a lock as bun writes it.", "Make a new one with `bun install`."
        ) from error
    workspaces = {key for key, it in packages.items() if "@workspace:" in it[0]}

    def nearest(place: str, name: str) -> str | None:
        parts = _NAME.findall(place)
        keys = ("/".join([*parts[:end], name]) for end in range(len(parts), -1, -1))
        found = next((key for key in keys if key in packages), None)
        return None if found in workspaces else found

    nodes = {}
    for key, entry in packages.items():
        name, _, version = entry[0][1:].partition("@")
        facts = next((it for it in entry if isinstance(it, dict)), {})

        def find(name: str, _spec: str, place: str = key) -> str | None:
            return nearest(place, name)

        asks = tuple(edges(facts, ("dependencies", "optionalDependencies", PEER_SECTION), find))
        if key not in workspaces:
            nodes[key] = Node(key, entry[0][0] + name, version, asks)
    return DependencyTree(
        files.lock or "bun.lock", nodes, tuple(roots(files, lambda name, _: nearest("", name)))
    )


def edges(
    facts: Mapping[str, Any], sections: tuple[str, ...], find: _Find
) -> Iterator[DependencyEdge]:
    """Yield what these sections of a manifest, or of an entry like one, require."""
    for section in sections:
        for name, written in entries(facts.get(section)):
            spec = _RANGE_PREFIX.sub("", written)
            to, optional = find(name, spec), section == "optionalDependencies"
            yield DependencyEdge(name, spec, to, optional=optional, peer=section == PEER_SECTION)


def roots(files: Files, find: _Find, *, with_peers: bool = True) -> Iterator[Node]:
    """Yield the project and its members, keyed by their manifests' paths. ``with_peers``: their peers are
    installed, too."""
    for path, text in files.manifests.items():
        manifest = parse_manifest(path, text)
        asks = (
            ask if with_peers or not ask.peer else ask._replace(to=None)
            for ask in edges(manifest, MEMBER_SECTIONS, find)
        )
        version = str(manifest.get("version", ""))
        yield Node(path, str(manifest.get("name", path)), version, tuple(asks))
