"""A resolved tree, as any lock describes it: what is installed, what requires it, and by which range.

Ecosystem plugins read their locks into this one shape, which the ladder queries.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, TypeVar

from fallback_tier.advisory import Advisory, is_affected, sort_key
from fallback_tier.outcome import ClearedPath

#: Paths from a root to one affected package that a result names; a hoisted package can have thousands.
MAX_PATHS_NAMED = 20

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


def grouped(pairs: Iterable[tuple[KeyT, ValueT]]) -> dict[KeyT, tuple[ValueT, ...]]:
    """Return all values of each key, in their order."""
    values_by_key: defaultdict[KeyT, list[ValueT]] = defaultdict(list)
    for key, value in pairs:
        values_by_key[key].append(value)
    return {key: tuple(values) for key, values in values_by_key.items()}


class DependencyEdge(NamedTuple):
    """One package requires another. ``to``: key of the node that satisfies it; None if not installed.

    ``spec`` is the client's own text; empty if the lock doesn't keep it. ``peer``: the dependent doesn't
    install it, but requires that its own dependent does.
    """

    name: str
    spec: str
    to: str | None
    optional: bool = False
    peer: bool = False


class Node(NamedTuple):
    """One installed package, or a root (the project, a workspace member).

    ``key`` is unique in the tree and is the client's own (npm: ``node_modules/a``; Python: ``a 1.0``).
    ``bundled``: it lies in the archive of another package, so that no client chooses its version.
    """

    key: str
    name: str
    version: str
    asks: tuple[DependencyEdge, ...] = ()
    bundled: bool = False

    @property
    def label(self) -> str:
        """The name and the version, as paths show them."""
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True)
class DependencyTree:
    """Installed packages by key, and the roots that pull them in. ``source`` is the lock's path.

    ``unversioned``: names of packages that the lock has installed, and of which it states no version.
    """

    source: str
    nodes: Mapping[str, Node]
    roots: tuple[Node, ...] = ()
    unversioned: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, tuple[Node, ...]]:
        """Installed packages by canonical name (roots are not installed packages)."""
        return grouped((node.name, node) for node in self.nodes.values())

    @cached_property
    def _dependents(self) -> Mapping[str, tuple[tuple[Node, DependencyEdge], ...]]:
        nodes = (*self.roots, *self.nodes.values())
        pairs = ((node, ask) for node in nodes for ask in node.asks)
        return grouped((pair[1].to, pair) for pair in pairs if pair[1].to is not None)

    @cached_property
    def unlisted(self) -> frozenset[str]:
        """Return the names of packages that an installed one requires in every case, and of which the lock
        lists no version. Of an alias, it is the name of the alias."""
        root_names = {root.name for root in self.roots}
        return frozenset(
            ask.name
            for node in self.nodes.values()
            for ask in node.asks
            if ask.to is None
            and not (ask.optional or ask.peer or ask.name in self.by_name or ask.name in root_names)
        )

    @cached_property
    def asked(self) -> frozenset[str]:
        """Return the names of the roots' own dependencies."""
        return frozenset(ask.name for root in self.roots for ask in root.asks)

    def of(self, name: str) -> tuple[Node, ...]:
        """Return every installed copy of a package."""
        return self.by_name.get(name, ())

    def dependents(self, key: str) -> tuple[tuple[Node, DependencyEdge], ...]:
        """Return (dependent, dependency) pairs of the package at ``key``."""
        return self._dependents.get(key, ())

    def highest(self, ecosystem: str, name: str) -> str | None:
        """Return the highest version of a package; None if it isn't installed."""
        versions = (node.version for node in self.of(name))
        return max(versions, key=partial(sort_key, ecosystem), default=None)

    def is_root(self, node: Node) -> bool:
        """Return whether a node is the project itself, or a workspace member of it."""
        return any(node is root for root in self.roots)

    def affected(self, advisory: Advisory, ecosystem: str) -> Iterator[Node]:
        """Yield installed packages that the advisory (or bundle) covers, in the lock's order."""
        for name in advisory.packages(ecosystem):
            for node in self.of(name):
                if is_affected(advisory, ecosystem, name, node.version):
                    yield node

    def paths_to(self, key: str, limit: int = MAX_PATHS_NAMED) -> tuple[tuple[Node, ...], ...]:
        """Return paths from a root to ``key``, shortest first, each node at most once per path, at most
        ``limit``.

        An orphan, which nothing requires, has the one path that consists of itself.
        """
        dependency_paths: list[tuple[Node, ...]] = []
        start = self.nodes[key]
        waiting: deque[tuple[Node, ...]] = deque([(start,)])
        # A hoisted package has exponentially many paths: each of their nodes is visited once.
        seen = {key}
        while waiting and len(dependency_paths) < limit:
            dependency_path = waiting.popleft()
            for dependent, _ask in self.dependents(dependency_path[0].key):
                if self.is_root(dependent):
                    dependency_paths.append((dependent, *dependency_path))
                elif dependent.key not in seen:
                    seen.add(dependent.key)
                    waiting.append((dependent, *dependency_path))
        return tuple(dependency_paths[:limit]) or ((start,),)

    def listing(self) -> str:
        """Return the tree as evidence: one line per package, ``key version``, sorted."""
        lines = (f"{node.key} {node.name} {node.version}" for node in self.nodes.values())
        return "".join(f"{line}\n" for line in sorted(lines))


def cleared_paths(
    before: DependencyTree, after: DependencyTree, advisory: Advisory, ecosystem: str, manifest: str
) -> tuple[ClearedPath, ...]:
    """Return each path to an affected version of the old tree, with its replacement in the new tree.

    What a bundle leaves affected isn't cleared, and isn't named.
    """
    cleared = []
    for node in before.affected(advisory, ecosystem):
        # The package at the same key; if the key is gone, all its copies.
        same = after.nodes.get(node.key)
        now = (same,) if same is not None and same.name == node.name else after.of(node.name)
        if any(is_affected(advisory, ecosystem, node.name, copy.version) for copy in now):
            continue
        versions = sorted({copy.version for copy in now}, key=partial(sort_key, ecosystem))
        outcome = f"now {node.name} {', '.join(versions)}" if versions else "no longer installed"
        ids = advisory.ids_affecting(ecosystem, node.name, node.version)
        cleared += [
            ClearedPath(
                manifest=manifest,
                advisory_ids=ids,
                path=tuple(part.label for part in dependency_path),
                outcome=outcome,
            )
            for dependency_path in before.paths_to(node.key)
        ]
    return tuple(cleared)


def downgraded(
    before: DependencyTree, after: DependencyTree, ecosystem: str
) -> tuple[str, str, str] | None:
    """Return a package whose highest version went down, or of which a dependent that stays has a lower
    version in some environment, with the version before and the new one; or None. Lost copies are not a
    downgrade."""
    stays = {
        (node.key, node.name, node.version): node for node in (*after.roots, *after.nodes.values())
    }
    for dependent in (*before.roots, *before.nodes.values()):
        same = stays.get((dependent.key, dependent.name, dependent.version))
        if same is None:
            continue
        now = _lowest(after, same, ecosystem)
        for name, version in _lowest(before, dependent, ecosystem).items():
            if sort_key(ecosystem, now.get(name, version)) < sort_key(ecosystem, version):
                return name, version, now[name]
    for name, nodes in before.by_name.items():
        highest, current = (tree.highest(ecosystem, name) for tree in (before, after))
        if (
            not highest
            or not current
            or sort_key(ecosystem, current) >= sort_key(ecosystem, highest)
        ):
            continue
        # A copy that was there before and is the highest now: the higher one went with its dependent.
        if current in {node.version for node in nodes} and not _let_down(
            before, after, nodes, ecosystem
        ):
            continue
        return name, highest, current
    return None


def _lowest(tree: DependencyTree, dependent: Node, ecosystem: str) -> dict[str, str]:
    """Return the lowest version of each package that a dependent requires. If it requires several, each is
    for other environments."""
    lowest: dict[str, str] = {}
    for ask in dependent.asks:
        if (answer := tree.nodes.get(ask.to or "")) is not None:
            version = lowest.setdefault(answer.name, answer.version)
            if sort_key(ecosystem, answer.version) < sort_key(ecosystem, version):
                lowest[answer.name] = answer.version
    return lowest


def _let_down(
    before: DependencyTree, after: DependencyTree, nodes: tuple[Node, ...], ecosystem: str
) -> bool:
    """Return whether a dependent of one of these, which still requires it, has a lower version now."""
    for node in nodes:
        for dependent, ask in before.dependents(node.key):
            same = after.nodes.get(dependent.key)
            if same is None or same.name != dependent.name:
                continue
            now = (after.nodes.get(edge.to or "") for edge in same.asks if edge.name == ask.name)
            for copy in now:
                if copy and sort_key(ecosystem, copy.version) < sort_key(ecosystem, node.version):
                    return True
    return False
