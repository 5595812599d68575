"""Inventory of a resolved tree: each package with a path from a root, and whether it is for development."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import FallbackError
from fallback_tier.inventory import InstalledPackage, Inventory
from fallback_tier.outcome import UnreadItem

#: Keys (npm: names in package.json) of a root's dependencies that are installed for development alone.
DevelopmentOf = Callable[[Node], Collection[str]]


class FoundProject(NamedTuple):
    """A project of the repository. ``is_outside``: it is outside of the folders that a scan is limited to,
    so that it was not read."""

    path: str
    is_outside: bool


def inventory_of(items: Iterable[InstalledPackage | UnreadItem | FoundProject]) -> Inventory:
    """Return what was found as one value, without repetitions."""
    unique = [*dict.fromkeys(items)]
    return Inventory(
        packages=tuple(item for item in unique if isinstance(item, InstalledPackage)),
        unread=tuple(item for item in unique if isinstance(item, UnreadItem)),
        inside=tuple(
            item.path for item in unique if isinstance(item, FoundProject) and not item.is_outside
        ),
        outside=tuple(
            item.path for item in unique if isinstance(item, FoundProject) and item.is_outside
        ),
    )


def installed(
    tree: DependencyTree, ecosystem: str, source: str, development_of: DevelopmentOf
) -> Iterator[InstalledPackage | UnreadItem]:
    """Yield each installed package. For one without a registry's version (a URL, a folder), yield an unread
    item: no database has an answer on it."""
    production = _production(tree, development_of)
    yield from (_not_asked(source, name, name) for name in tree.unversioned)
    for node in tree.nodes.values():
        if not is_orderable(ecosystem, node.version):
            yield _not_asked(source, node.name, node.label)
            continue
        dependents = [dependent for dependent, _ in tree.dependents(node.key)]
        yield InstalledPackage(
            name=node.name,
            version=node.version,
            source=source,
            path=tuple(part.label for part in tree.paths_to(node.key, 1)[0]),
            direct=any(map(tree.is_root, dependents)),
            development=bool(dependents) and node.key not in production,
        )


def _not_asked(source: str, name: str, label: str) -> UnreadItem:
    return UnreadItem(
        path=source,
        reason=f"{label} has no version of a registry, so no database has an answer on it.",
        next_step=f"Look up advisories about {name}, and compare them with what {source} installs.",
    )


def not_read(path: str, error: FallbackError) -> UnreadItem:
    """Return a project of which an error says that what it installs is unknown."""
    return UnreadItem(path=path, reason=error.problem, next_step=error.next_step)


def _production(tree: DependencyTree, development_of: DevelopmentOf) -> set[str]:
    """Return the keys of packages that are not only installed for development."""
    waiting: deque[str] = deque()
    for root in tree.roots:
        development = development_of(root)
        waiting += (
            ask.to for ask in root.asks if ask.to is not None and ask.name not in development
        )
    # What nothing requires is not known to be for development.
    waiting += (key for key in tree.nodes if not tree.dependents(key))
    production: set[str] = set()
    while waiting:
        key = waiting.popleft()
        if key not in production and (node := tree.nodes.get(key)) is not None:
            production.add(key)
            waiting += (ask.to for ask in node.asks if ask.to is not None)
    return production
