"""A yarn project's manifests: as a scratch project that yarn resolves, and as the roots of a tree."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.yarn_draft import asked, asked_by, unseen_asks
from fallback_plugins.npm.locks.yarn_lock import Block, YarnLock, split_pattern
from fallback_plugins.npm.manifests.manifest import PEER_SECTION, SECTIONS, entries, parse_manifest
from fallback_plugins.npm.refusals import own_client, unsupported
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node

#: Where the members stand that ask for what unseen ones must ask for.
_MEMBERS = ".members"

_BERRY = re.compile(r"yarn@(?:[2-9]|\d\d)")


@dataclass(frozen=True)
class YarnProject:
    """Texts of a scratch project by relative path, and what the known manifests ask for."""

    texts: Mapping[str, str]
    asks: tuple[str, ...]


def yarn_project(files: Files, lock: YarnLock) -> YarnProject:
    """Raises RecipeError: a manifest can't be parsed, or it wants yarn 2 or later.

    Where nobody known asks for a part of the lock, members that do stand in, or yarn would drop it. Where
    the lock has a package from a folder, a manifest made of its block stands there.
    """
    manifests = _manifests(files)
    root = manifests[files.root_manifest]
    _refuse_berry(root)
    prefix = "" if files.folder == "." else f"{files.folder}/"
    known = files.folders | dict(files.manifests)
    texts = {path.removeprefix(prefix): text for path, text in known.items()}
    for path, manifest in _folders(lock):
        texts.setdefault(path, json.dumps(manifest))
    unseen = [ask for ask in unseen_asks(lock, manifests.values()) if lock.by_pattern[ask].resolved]
    if members := _stand_ins(unseen):
        texts |= {f"{_MEMBERS}/{n}/package.json": json.dumps(m) for n, m in enumerate(members)}
        workspaces = [*_workspaces(root), f"{_MEMBERS}/*"]
        texts["package.json"] = json.dumps({**root, "private": True, "workspaces": workspaces})
    asks = tuple(pattern for manifest in manifests.values() for pattern in asked(manifest))
    return YarnProject(texts, asks)


def yarn_tree(files: Files, lock: YarnLock) -> DependencyTree:
    """The lock as a tree. Two blocks of one version are one package; a workspace member is a root."""
    manifests = _manifests(files)
    forced = _forced(manifests.get(files.root_manifest, {}), lock)

    def ask(name: str, spec: str, **how: bool) -> DependencyEdge:
        block = lock.by_pattern.get(f"{name}@{spec}") or forced.get(name)
        return DependencyEdge(name, spec, key_of(block) if block else None, **how)

    nodes: dict[str, Node] = {}
    for block in lock.blocks:
        asks = [ask(name, spec) for name, spec in block.dependencies.items()]
        asks += [ask(name, spec, optional=True) for name, spec in block.optional.items()]
        nodes.setdefault(key_of(block), Node(key_of(block), block.name, block.version, tuple(asks)))
    roots = []
    for path, manifest in manifests.items():
        asks = []
        for section in SECTIONS:
            optional = section == "optionalDependencies"
            asks += [ask(n, spec, optional=optional) for n, spec in entries(manifest.get(section))]
        asks += [
            DependencyEdge(n, spec, None, peer=True)
            for n, spec in entries(manifest.get(PEER_SECTION))
        ]
        name, version = manifest.get("name"), manifest.get("version")
        label = name if isinstance(name, str) else path
        roots.append(Node(path, label, version if isinstance(version, str) else "", tuple(asks)))
    return DependencyTree(files.lock or "yarn.lock", nodes, tuple(roots))


def unanswered(files: Files, lock: YarnLock, asks: Iterable[str]) -> Iterator[str]:
    """What yarn would have to look up: asked for, or put in an ask's place, and not in the lock."""
    root = parse_manifest(files.root_manifest, files.manifests[files.root_manifest])
    forced = (f"{resolution_target(k)}@{spec}" for k, spec in entries(root.get("resolutions")))
    known = (pattern for block in lock.blocks for pattern in asked_by(block))
    return (ask for ask in (*asks, *forced, *known) if ask not in lock.by_pattern)


def key_of(block: Block) -> str:
    """``name@version``, by the package's real name."""
    return f"{block.name}@{block.version}"


def _manifests(files: Files) -> dict[str, Mapping[str, Any]]:
    return {path: parse_manifest(path, text) for path, text in files.manifests.items()}


def _refuse_berry(root: Mapping[str, Any]) -> None:
    wanted = root.get("packageManager")
    if isinstance(wanted, str) and _BERRY.match(wanted):
        raise unsupported(
            f"package.json wants {wanted.partition('+')[0]}, and only yarn classic (1) is driven.",
            own_client("yarn", "yarn up -R"),
        )


def resolution_target(key: str) -> str:
    """The package that a key of ``resolutions`` is about: ``**/a/@s/b`` is about @s/b."""
    *before, last = key.split("/")
    return f"{before[-1]}/{last}" if before and before[-1].startswith("@") else last


def _forced(root: Mapping[str, Any], lock: YarnLock) -> dict[str, Block]:
    """What ``resolutions`` put in the place of ranges that no block answers."""
    found = {}
    for key, spec in entries(root.get("resolutions")):
        name = resolution_target(key)
        if block := lock.by_pattern.get(f"{name}@{spec}"):
            found[name] = block
    return found


def _folders(lock: YarnLock) -> Iterator[tuple[str, dict[str, Any]]]:
    for block in lock.blocks:
        for pattern in block.patterns if block.from_folder else ():
            name, spec = split_pattern(pattern)
            place = PurePosixPath(spec.partition(":")[2])
            if place.is_absolute() or ".." in place.parts or block.fields.get("uid") == "":
                continue  # outside, or yarn found no manifest there
            yield (
                str(place / "package.json"),
                {
                    "name": name,
                    "version": block.version,
                    "dependencies": dict(block.dependencies),
                    "optionalDependencies": dict(block.optional),
                },
            )


def _stand_ins(patterns: Iterable[str]) -> list[dict[str, Any]]:
    """As few members as it takes: one asks for each package at most once."""
    members: list[dict[str, str]] = []
    for pattern in patterns:
        name, spec = split_pattern(pattern)
        free = next((asks for asks in members if name not in asks), None)
        if free is None:
            members.append(free := {})
        free[name] = spec
    return [
        {"name": f"member-{number}", "version": "0.0.0", "dependencies": asks}
        for number, asks in enumerate(members)
    ]


def _workspaces(root: Mapping[str, Any]) -> list[str]:
    declared = root.get("workspaces")
    listed = declared.get("packages") if isinstance(declared, dict) else declared
    return [place for place in listed if isinstance(place, str)] if isinstance(listed, list) else []
