"""Copies that lie in the archive of another package: only another version of that brings another one.

Which version does, its archive tells (``archives``): the lowest whose bundle is clean is looked for, in the
range that is compatible first (ADR-0053).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import compatible
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import compare_versions
from fallback_tier.errors import RecipeError

#: Archives that are read for one bundling package: a range of 500 releases is halved nine times.
MAX_ARCHIVES = 12

_INSTALLED = "/node_modules/"


def bundler_of(tree: DependencyTree, node: Node) -> Node:
    """Whose archive a bundled copy lies in: the nearest package around it that lies in none itself."""
    key = node.key
    while _INSTALLED in key:
        key = key.rpartition(_INSTALLED)[0]
        around = tree.nodes.get(key)
        if around is not None and not around.bundled:
            return around
    return node


def bundled(tree: DependencyTree, node: Node) -> RecipeError:
    """The refusal of a copy whose version is not to be chosen."""
    bundler = bundler_of(tree, node)
    return unsupported(
        f"{node.label} is bundled in {bundler.label}: only another version of {bundler.name} brings"
        " another."
    )


def refuse_bundled(tree: DependencyTree, node: Node) -> None:
    """Raises RecipeError for a copy whose version is not to be chosen."""
    if node.bundled:
        raise bundled(tree, node)


@dataclass
class Bundles:
    """Looks for releases of a bundling package without the flaw."""

    targets: Targets
    _read: int = 0

    def clean(self, node: Node, bundler: Node, above: str) -> tuple[str, ...]:
        """Compatible versions, from the lowest on whose archive holds nothing affected; of those behind it
        the client has the last word. Raises RecipeError, naming the bundling package: none was found."""
        published = self.targets.published(bundler.name, bundler.version)
        higher = [it for it in published if compare_versions(ECOSYSTEM, it, above) > 0]
        self._read = 0
        for group in _compatible(higher):
            found = self._lowest(bundler.name, group)
            if found is not None:
                self.targets.prepare(bundler.name, group[found])
                return tuple(group[found:])
        none = "no higher release of that is known"
        if higher:
            none = "none of its higher releases that were read has a safe one in its archive"
        raise RecipeError(
            RefusalReason.BLOCKED_BY_CONSTRAINT,
            f"{node.label} is bundled in {bundler.label}, and {none}.",
            next_step=f"Replace {bundler.name}, or ask its maintainers for a release.",
        )

    def _lowest(self, package: str, versions: Sequence[str]) -> int | None:
        """The first of compatible releases that is clean, by halves: where the last one isn't, none is."""
        low, high = 0, len(versions) - 1
        if not self._is_clean(package, versions[high]):
            return None
        while low < high:
            middle = (low + high) // 2
            if self._is_clean(package, versions[middle]):
                high = middle
            else:
                low = middle + 1
        return high

    def _is_clean(self, package: str, version: str) -> bool:
        """Past the bound nothing is known to be."""
        self._read += 1
        if self._read > MAX_ARCHIVES:
            return False
        found = self.targets.bundled(package, version)
        return found is not None and all(self.targets.is_safe(it.name, it.version) for it in found)


def _compatible(versions: Sequence[str]) -> Iterator[list[str]]:
    """Runs of compatible versions, in their order: what is fixed in one may not be in the next."""
    start = ""

    def key(version: str) -> str:
        nonlocal start
        if not start or not compatible(start, version):
            start = version
        return start

    for _, group in groupby(versions, key):
        yield list(group)
