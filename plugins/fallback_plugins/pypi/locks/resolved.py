"""Questions about a resolved Python tree: one version a package, one root."""

from collections.abc import Iterable

from fallback_plugins.shared.tree import DependencyTree


def reaches(tree: DependencyTree, name: str, goals: Iterable[str]) -> bool:
    """Does a package lead to one of these, or is it one?"""
    goals, waiting, seen = set(goals), [name], {name}
    while waiting:
        here = waiting.pop()
        if here in goals:
            return True
        following = {ask.name for node in tree.of(here) for ask in node.asks} - seen
        seen |= following
        waiting += following
    return False


def declared_in(tree: DependencyTree) -> frozenset[str]:
    """What the manifests ask for themselves."""
    return frozenset(ask.name for root in tree.roots for ask in root.asks)


def version_of(tree: DependencyTree, name: str) -> str:
    """The version of a package that is in the tree."""
    return tree.of(name)[0].version
