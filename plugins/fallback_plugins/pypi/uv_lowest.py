"""What has to move along with a fix, and how little of it serves.

uv keeps a locked version where it can, and takes the highest where it can't: a parent raised to an old
release then stands beside a child of this year, a mix that nobody ever tested.
"""

from collections.abc import Iterable, Mapping, Sequence

import tomlkit
from packaging.version import Version

from fallback_plugins.pypi.lock_edit import highest_of
from fallback_plugins.pypi.uv_lock import read_tree
from fallback_plugins.tree import Tree

_CONSTRAINTS = "constraint-dependencies"


def moved_along(before: Tree, after: Tree, wanted: Iterable[str]) -> dict[str, str]:
    """The packages that went up without being asked to, with the version that they had.

    A package in several versions (by platform) is left out: it can't be pinned to one.
    """
    return {
        name: nodes[0].version
        for name, nodes in before.by_name.items()
        if name not in wanted
        and len(nodes) == 1
        and len(after.of(name)) == 1
        and _is_higher(after.of(name)[0].version, nodes[0].version)
    }


def constraints(after: Tree, floors: Mapping[str, str]) -> list[str]:
    """Every package of a tree held where it is, but those of ``floors``: they may go down to that."""
    return [
        f"{name}>={floors[name]}" if name in floors else f"{name}=={nodes[0].version}"
        for name, nodes in sorted(after.by_name.items())
        if len(nodes) == 1
    ]


def constrained(manifest: str, more: Sequence[str]) -> str:
    """A root manifest with further constraints, for a scratch folder: nobody reads its layout."""
    document = tomlkit.parse(manifest)
    uv = document.setdefault("tool", {}).setdefault("uv", {})
    uv[_CONSTRAINTS] = [*uv.get(_CONSTRAINTS, ()), *more]
    return tomlkit.dumps(document)


def lower_versions(lock: str, text: str, after: Tree, floors: Iterable[str]) -> dict[str, str]:
    """Of these packages, those that the lock ``text`` has lower than the tree, with its version."""
    lowest = read_tree(lock, text)
    found = {name: highest_of(lowest, name) for name in floors}
    return {
        name: version
        for name, version in found.items()
        if version is not None and _is_higher(after.of(name)[0].version, version)
    }


def _is_higher(version: str, than: str) -> bool:
    return Version(version) > Version(than)
