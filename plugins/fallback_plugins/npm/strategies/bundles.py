"""Copies in the archive of another package: only another version of that package brings another copy.

Archives show which version does (``archives``): the lowest one with a clean bundle is searched for, first
in the compatible range (ADR-0053).
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

#: Most archives that are read for one bundling package: a range of 500 releases is halved nine times.
MAX_ARCHIVES = 12

_INSTALLED = "/node_modules/"


def bundler_of(tree: DependencyTree, node: Node) -> Node:
    """Return the package whose archive has a bundled copy: the nearest around it that is not bundled."""
    key = node.key
    while _INSTALLED in key:
        key = key.rpartition(_INSTALLED)[0]
        around = tree.nodes.get(key)
        if around is not None and not around.bundled:
            return around
    return node


def bundled(tree: DependencyTree, node: Node) -> RecipeError:
    """Return the refusal of a copy whose version can't be chosen."""
    bundler = bundler_of(tree, node)
    return unsupported(
        f"{node.label} is bundled in {bundler.label}: only another version of {bundler.name} brings"
        " another."
    )


def refuse_bundled(tree: DependencyTree, node: Node) -> None:
    """Raise RecipeError for a copy whose version can't be chosen."""
    if node.bundled:
        raise bundled(tree, node)


@dataclass
class Bundles:
    """Finds releases of a bundling package without the vulnerability."""

    targets: Targets
    _read: int = 0

    def clean(self, node: Node, bundler: Node, above: str) -> tuple[str, ...]:
        """Return compatible versions, starting with the lowest whose archive has nothing affected; the
        client decides about those after it. Raises RecipeError that names the bundling package, if there
        are none."""
        published = self.targets.published(bundler.name, bundler.version)
        higher = [
            version for version in published if compare_versions(ECOSYSTEM, version, above) > 0
        ]
        self._read = 0
        for group in _compatible(higher):
            index = self._lowest(bundler.name, group)
            if index is not None:
                self.targets.prepare(bundler.name, group[index])
                return tuple(group[index:])
        none = "no higher release of that is known"
        if higher:
            none = "none of its higher releases that were read has a safe one in its archive"
        raise RecipeError(
            RefusalReason.BLOCKED_BY_CONSTRAINT,
            f"{node.label} is bundled in {bundler.label}, and {none}.",
            next_step=f"Replace {bundler.name}, or ask its maintainers for a release.",
        )

    def _lowest(self, package: str, versions: Sequence[str]) -> int | None:
        """Return the index of the first clean one of compatible releases, by binary search; None if the
        last one isn't clean, as then none is."""
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
        """Return whether an archive has nothing affected; False beyond ``MAX_ARCHIVES``."""
        self._read += 1
        if self._read > MAX_ARCHIVES:
            return False
        packages = self.targets.bundled(package, version)
        return packages is not None and all(
            self.targets.is_safe(copy.name, copy.version) for copy in packages
        )


def _compatible(versions: Sequence[str]) -> Iterator[list[str]]:
    """Yield runs of compatible versions, in order: what is fixed in one may not be in the next."""
    start = ""

    def key(version: str) -> str:
        nonlocal start
        if not start or not compatible(start, version):
            start = version
        return start

    for _, group in groupby(versions, key):
        yield list(group)
