"""What has to move along with a fix, and how little of it serves.

uv keeps a locked version where it can, and takes the highest where it can't: a parent raised to an old
release then stands beside a child of this year, a mix that nobody ever tested.
"""

from collections.abc import Iterable

import tomlkit
from packaging.version import Version

from fallback_plugins.pypi.locks.uv_lock import read_tree
from fallback_plugins.pypi.strategies.lock_edit import highest_of
from fallback_plugins.shared.tree import DependencyTree


def moved_along(
    before: DependencyTree, after: DependencyTree, wanted: Iterable[str]
) -> dict[str, str]:
    """The packages that went up without being asked to, with the version that they had.

    A package that was there in several versions (by platform) is left out: it can't be pinned to one. One
    that uv splits now is not: a lower version of it may do everywhere.
    """
    return {
        name: nodes[0].version
        for name, nodes in before.by_name.items()
        if name not in wanted
        and len(nodes) == 1
        and after.of(name)
        and all(_is_higher(one.version, nodes[0].version) for one in after.of(name))
    }


def in_lowest_mode(text: str) -> str:
    """A lock as uv would have written it with ``--resolution=lowest``, for a scratch folder.

    uv drops a lock that was made in another mode; this one it keeps, but for what it is told to move.
    """
    document = tomlkit.parse(text)
    document.setdefault("options", {})["resolution-mode"] = "lowest"
    return tomlkit.dumps(document)


def lower_versions(
    lock: str, text: str, after: DependencyTree, floors: Iterable[str]
) -> dict[str, str]:
    """Of these packages, those that the lock ``text`` has lower than the tree, with its version."""
    lowest = read_tree(lock, text)
    found = {name: highest_of(lowest, name) for name in floors}
    return {
        name: version
        for name, version in found.items()
        if version is not None and _is_lower(version, [one.version for one in after.of(name)])
    }


def _is_lower(version: str, than: Iterable[str]) -> bool:
    """Lower than one of these, and higher than none."""
    others = [Version(one) for one in than]
    return Version(version) <= min(others) and Version(version) < max(others)


def _is_higher(version: str, than: str) -> bool:
    return Version(version) > Version(than)
