"""Choice of the new version of an affected copy: the lowest safe one that serves."""

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
    """Chooses versions for one resolution; without a ``registry``, by the files and the advisory (offline).

    ``only``: the version that was chosen already; no other serves. ``ages``: the project's rules on the age
    of releases: a version that they do not admit is not chosen.
    """

    advisory: Advisory
    registry: NpmRegistry | None
    only: str | None = None
    ages: Ages = field(default_factory=lambda: Ages(ECOSYSTEM))
    #: Why the registry could not be queried.
    notes: list[str] = field(default_factory=list)
    _better: dict[tuple[str, str], str] = field(default_factory=dict)

    def prefer(self, package: str, version: str, better: str) -> None:
        """Replace a version that turned out to be deprecated or not published by a better one."""
        self._better[package, version] = better

    def is_safe(self, package: str, version: str) -> bool:
        """Return whether a version is not affected by the advisory, and old enough."""
        affected = is_affected(self.advisory, ECOSYSTEM, package, version)
        return not affected and self.ages.admits(package, version)

    def named(
        self, package: str, above: str, tree: DependencyTree | None = None
    ) -> tuple[str, ...]:
        """Return the safe versions above one that the tree or the advisory names, lowest first.

        Those that the tree has come before the others: they bring no new code.
        """
        in_tree = {node.version for node in tree.of(package)} if tree else set()
        return (
            *self._safe(package, in_tree, above),
            *self._safe(package, self._named_fixed(package), above),
        )

    def published(self, package: str, above: str) -> tuple[str, ...]:
        """Return the safe published versions above one, lowest first, deprecated ones last.

        Empty if the registry may not or can't be queried.
        """
        releases = [
            release
            for release in self.releases(package)
            if not is_prerelease(ECOSYSTEM, release.version) or is_prerelease(ECOSYSTEM, above)
        ]
        good = [release.version for release in releases if not release.deprecated]
        old = [release.version for release in releases if release.deprecated]
        return (*self._safe(package, good, above), *self._safe(package, old, above))

    def _note(self, note: str) -> None:
        """Add a note, once."""
        if note not in self.notes:
            self.notes.append(note)

    def releases(self, package: str) -> tuple[Release, ...]:
        """Return the registry's releases of a package; none if it may not or can't be queried (noted)."""
        if self.registry is None:
            return ()
        try:
            return self.registry.releases(package)
        except (RecipeError, ToolError) as error:
            self._note(f"The registry was not asked about {package}: {error.problem}")
            return ()

    def look_up(self, packages: Iterable[str]) -> None:
        """Query the registry about several packages at once, if it may be queried: ``releases`` needs them
        next."""
        if self.registry is not None:
            with suppress(ToolError):  # the query about each of them notes it
                self.registry.look_up(packages)

    def admits(self, package: str, spec: str, version: str) -> bool:
        """Return whether a spec admits a version (``specs.admits``). A dist-tag admits versions up to the
        one that it names now, if that is safe."""
        tag = split_alias(spec)[1]
        if self.registry is None or not is_tag(tag):
            return admits(spec, version)
        try:
            tagged = self.registry.tags(package).get(tag)
        except (RecipeError, ToolError) as error:
            self._note(error.problem)
            return False
        is_known = tagged is not None and is_orderable(ECOSYSTEM, tagged)
        return (
            is_known
            and self.is_safe(package, tagged or "")
            and compare_versions(ECOSYSTEM, tagged or "", version) >= 0
        )

    def dependents(self, tree: DependencyTree, key: str) -> tuple[tuple[Node, DependencyEdge], ...]:
        """Return ``DependencyTree.dependents``, with the ranges that the lock doesn't record (pnpm's) from
        the registry: those of a published release never change. They stay empty if the registry may not or
        can't be queried."""
        self.look_up(
            dependent.name
            for dependent, ask in tree.dependents(key)
            if not (ask.spec or tree.is_root(dependent))
        )
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
        matching = (
            candidate
            for candidate in self.releases(dependent.name)
            if candidate.version == dependent.version
        )
        release = next(matching, None)
        ranges = {**release.peers, **release.asks} if release else {}
        return ask._replace(spec=ranges.get(ask.name, ask.spec))

    def bundled(self, package: str, version: str) -> tuple[Bundled, ...] | None:
        """Return what a release bundles in its archive; None if that may not or can't be read (noted)."""
        if self.registry is None:
            return None
        try:
            return self.registry.bundled(package, version)
        except (RecipeError, ToolError) as error:
            self._note(error.problem)
            return None

    def prepare(self, package: str, version: str) -> None:
        """Put what a release needs besides its bundle into the client's cache, if it is available."""
        if self.registry is not None:
            with suppress(RecipeError):  # the client that needs it reports that
                self.registry.prepare(package, version)

    def lowest(
        self,
        node: Node,
        fits: Callable[[str], bool],
        *,
        tree: DependencyTree | None = None,
        ask: bool = True,
    ) -> str | None:
        """Return the lowest safe version for a copy that ``fits``, or None. ``ask``: query the registry, if
        needed.

        A pre-release replaces a release only if nothing else serves.
        """
        if self.only is not None:
            return self.only if fits(self.only) else None
        named_versions = list(filter(fits, self.named(node.name, node.version, tree)))
        for version in named_versions:
            if not is_prerelease(ECOSYSTEM, version) or is_prerelease(ECOSYSTEM, node.version):
                return version
        if ask and (named_versions or self._names_no_fix(node.name, node.version)):
            published = next(filter(fits, self.published(node.name, node.version)), None)
            if published is not None:
                return published
        return named_versions[0] if named_versions else None

    def checked(self, package: str, version: str) -> str | None:
        """Return the version if the registry has it undeprecated, or knows no release; otherwise the lowest
        safe release above it that is compatible with it. If there is none, return a deprecated version as
        it is; instead of one that was never published, the lowest safe release above it, or None."""
        if self.only is not None:
            return version
        release_by_version = {release.version: release for release in self.releases(package)}
        if not release_by_version or (
            version in release_by_version and not release_by_version[version].deprecated
        ):
            return version
        higher = [
            candidate
            for candidate in release_by_version
            if compare_versions(ECOSYSTEM, candidate, version) > 0
            and not is_prerelease(ECOSYSTEM, candidate)
            and not release_by_version[candidate].deprecated
            and self.is_safe(package, candidate)
        ]
        near = [candidate for candidate in higher if compatible(candidate, version)]
        if near or version not in release_by_version:
            return next(iter(near or higher), None)
        return version  # deprecated, and no compatible release serves

    def _safe(self, package: str, versions: Iterable[str], above: str) -> list[str]:
        safe = (
            version
            for version in set(versions)
            if is_orderable(ECOSYSTEM, version)
            and compare_versions(ECOSYSTEM, version, above) > 0
            and self.is_safe(package, version)
        )
        return sorted(safe, key=lambda version: (sort_key(ECOSYSTEM, version), version))

    def _names_no_fix(self, package: str, above: str) -> bool:
        """Return whether an unnamed version may be safe (by ``last_affected``, lists or limits)."""
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
