"""Which version an affected copy is to get: the lowest safe one that serves."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from fallback_plugins.npm.clients.archives import Bundled
from fallback_plugins.npm.clients.registry import NpmRegistry, Release
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, compatible, is_tag, split_alias
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import (
    Advisory,
    compare_versions,
    fixed_versions,
    is_affected,
    sort_key,
)
from fallback_tier.advisory.versions import is_orderable, is_prerelease
from fallback_tier.errors import RecipeError, ToolError


@dataclass
class Targets:
    """Chooses versions for one resolution. ``registry`` None: the files and the advisory alone (offline).

    ``only``: the version that somebody chose already; no other serves. ``ages``: the project's rules on the
    age of releases: what they do not admit is not chosen.
    """

    advisory: Advisory
    registry: NpmRegistry | None
    only: str | None = None
    ages: Ages = field(default_factory=lambda: Ages(ECOSYSTEM))
    #: Why the registry could not be asked, once.
    notes: list[str] = field(default_factory=list)
    _better: dict[tuple[str, str], str] = field(default_factory=dict)

    def prefer(self, package: str, version: str, better: str) -> None:
        """A version turned out to be deprecated or not published, and another serves in its place."""
        self._better[package, version] = better

    def is_safe(self, package: str, version: str) -> bool:
        """Not affected by anything in hand, and old enough."""
        affected = is_affected(self.advisory, ECOSYSTEM, package, version)
        return not affected and self.ages.admits(package, version)

    def named(
        self, package: str, above: str, tree: DependencyTree | None = None
    ) -> tuple[str, ...]:
        """Safe versions above one that files and advisory name, lowest first.

        Those that the tree has already come first: they bring no new code.
        """
        held = {node.version for node in tree.of(package)} if tree else set()
        return (
            *self._safe(package, held, above),
            *self._safe(package, self._named_fixed(package), above),
        )

    def published(self, package: str, above: str) -> tuple[str, ...]:
        """Safe published versions above one, lowest first, deprecated ones last.

        Empty where the registry may not or can't be asked.
        """
        releases = [
            release
            for release in self.releases(package)
            if not is_prerelease(ECOSYSTEM, release.version) or is_prerelease(ECOSYSTEM, above)
        ]
        good = [release.version for release in releases if not release.deprecated]
        old = [release.version for release in releases if release.deprecated]
        return (*self._safe(package, good, above), *self._safe(package, old, above))

    def releases(self, package: str) -> tuple[Release, ...]:
        """What the registry has of a package; nothing where it may not or can't be asked (noted)."""
        if self.registry is None:
            return ()
        try:
            return self.registry.releases(package)
        except (RecipeError, ToolError) as error:
            note = f"The registry was not asked about {package}: {error.problem}"
            if note not in self.notes:
                self.notes.append(note)
            return ()

    def admits(self, package: str, spec: str, version: str) -> bool:
        """As ``specs.admits``; a dist-tag admits what is not above the safe version that it names now."""
        tag = split_alias(spec)[1]
        if self.registry is None or not is_tag(tag):
            return admits(spec, version)
        try:
            named = self.registry.tags(package).get(tag)
        except (RecipeError, ToolError) as error:
            self.notes.append(error.problem)
            return False
        is_known = named is not None and is_orderable(ECOSYSTEM, named)
        return (
            is_known
            and self.is_safe(package, named or "")
            and compare_versions(ECOSYSTEM, named or "", version) >= 0
        )

    def dependents(self, tree: DependencyTree, key: str) -> tuple[tuple[Node, DependencyEdge], ...]:
        """As ``DependencyTree.dependents``, with the ranges that the lock doesn't keep (pnpm's): a
        published release asks for what it always asked for. Empty still where the registry may not or
        can't be asked."""
        return tuple(
            (
                dependent,
                ask
                if ask.spec or tree.is_root(dependent)
                else self._with_registry_range(dependent, ask),
            )
            for dependent, ask in tree.dependents(key)
        )

    def _with_registry_range(self, dependent: Node, ask: DependencyEdge) -> DependencyEdge:
        found = (it for it in self.releases(dependent.name) if it.version == dependent.version)
        release = next(found, None)
        reported = {**release.peers, **release.asks} if release else {}
        return ask._replace(spec=reported.get(ask.name, ask.spec))

    def bundled(self, package: str, version: str) -> tuple[Bundled, ...] | None:
        """What a release has in its archive; None where that may not, or can't, be read (noted)."""
        if self.registry is None:
            return None
        try:
            return self.registry.bundled(package, version)
        except (RecipeError, ToolError) as error:
            self.notes.append(error.problem)
            return None

    def prepare(self, package: str, version: str) -> None:
        """What a release needs beside its bundle is in the client's cache then, as far as it can be had."""
        if self.registry is not None:
            with suppress(RecipeError):  # the client that needs it says so
                self.registry.prepare(package, version)

    def lowest(
        self,
        node: Node,
        fits: Callable[[str], bool],
        *,
        tree: DependencyTree | None = None,
        ask: bool = True,
    ) -> str | None:
        """The lowest safe version for a copy that ``fits``. ``ask``: the registry too, where needed.

        A pre-release serves in the place of a release only where nothing else does.
        """
        if self.only is not None:
            return self.only if fits(self.only) else None
        named = list(filter(fits, self.named(node.name, node.version, tree)))
        for version in named:
            if not is_prerelease(ECOSYSTEM, version) or is_prerelease(ECOSYSTEM, node.version):
                return version
        if ask and (named or self._names_no_fix(node.name, node.version)):
            found = next(filter(fits, self.published(node.name, node.version)), None)
            if found is not None:
                return found
        return named[0] if named else None

    def checked(self, package: str, version: str) -> str | None:
        """The version if the registry has it undeprecated; else the lowest published safe one above what
        it replaces that is as good. None: nothing published serves."""
        if self.only is not None:
            return version
        known = {release.version: release for release in self.releases(package)}
        if not known or (version in known and not known[version].deprecated):
            return version
        higher = [
            other
            for other in known
            if compare_versions(ECOSYSTEM, other, version) > 0
            and not is_prerelease(ECOSYSTEM, other)
            and not known[other].deprecated
            and self.is_safe(package, other)
        ]
        near = [other for other in higher if compatible(other, version)]
        if near or version not in known:
            return next(iter(near or higher), None)
        return version  # deprecated, and no other of its range serves

    def _safe(self, package: str, versions: Iterable[str], above: str) -> list[str]:
        found = (
            version
            for version in set(versions)
            if is_orderable(ECOSYSTEM, version)
            and compare_versions(ECOSYSTEM, version, above) > 0
            and self.is_safe(package, version)
        )
        return sorted(found, key=lambda version: (sort_key(ECOSYSTEM, version), version))

    def _names_no_fix(self, package: str, above: str) -> bool:
        """Can a safe version be one that the record doesn't name? (``last_affected``, lists, limits.)"""
        entries = [e for e in self.advisory.affected if e.package and e.package.name == package]
        return not self.named(package, above) or any(
            event.last_affected is not None or event.limit is not None
            for entry in entries
            for a_range in entry.ranges
            for event in a_range.events
        )

    def _named_fixed(self, package: str) -> Iterator[str]:
        for version in fixed_versions(self.advisory, ECOSYSTEM, package):
            yield self._better.get((package, version), version)
