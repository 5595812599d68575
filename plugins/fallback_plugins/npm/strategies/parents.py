"""The parent bump: which ancestors to raise, and to what, so that an affected copy is removed; and what
moves along because it requires a moved package as its peer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm.client import Client, Files, WantedVersions
from fallback_plugins.npm.clients.registry import Release
from fallback_plugins.npm.manifests.declaring import (
    blocked_by,
    declare,
    forced,
    holding,
    no_fix,
    raise_overrides,
)
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, excludes
from fallback_plugins.npm.strategies.bundles import Bundles, bundler_of
from fallback_plugins.npm.strategies.resolving import NpmPosition, NpmStep
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.ladder import (
    Reached,
    Resolution,
    Strategy,
    does_not_serve,
    worse,
)
from fallback_plugins.shared.tree import DependencyEdge, DependencyTree, Node
from fallback_tier.advisory import compare_versions
from fallback_tier.advisory.versions import is_major_step, is_prerelease
from fallback_tier.errors import RecipeError

#: Most client runs of one package's parent bump. The first prediction is right as a rule; with an old lock,
#: each run queries the registry about every package in it.
MAX_TRIALS = 4

#: Most ancestors above the affected copy that are looked up, each with a query of the registry; and most
#: results of the client from which a trial continues. Real chains of exact pins are shorter.
MAX_DEPTH = 6


@dataclass
class Changes:
    """Declared packages to raise, by (package, key declared under), and copies to refresh in range."""

    declares: dict[tuple[str, str], str] = field(default_factory=dict)
    wanted_versions: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, other: "Changes") -> None:
        """Add other changes; of two versions of one declaration, keep the higher."""
        for key, version in other.declares.items():
            current = self.declares.get(key)
            if current is None or compare_versions(ECOSYSTEM, version, current) > 0:
                self.declares[key] = version
        self.wanted_versions |= other.wanted_versions

    def moves(self, tree: DependencyTree) -> dict[tuple[str, str], str]:
        """Return the new version of each installed copy, by (package, version)."""
        new_versions = dict(self.wanted_versions)
        for (package, key), version in self.declares.items():
            for node in tree.of(package):
                asks = tree.dependents(node.key)
                if any(ask.name == key for dependent, ask in asks if tree.is_root(dependent)):
                    new_versions[package, node.version] = version
        return new_versions

    def made_in(self, files: Files, tree: DependencyTree, client: Client) -> Files:
        """Return the files with raised declarations, and with raised overrides of the copies that are to
        move. Raises RecipeError."""
        for (package, current), version in self.wanted_versions.items():
            for node in tree.of(package):
                if node.version == current:
                    files = raise_overrides(client, files, holding(client, files, node), version)
        for (package, key), version in self.declares.items():
            files = declare(files, package, {key}, version)
        return files

    @property
    def versions(self) -> dict[str, str]:
        """Return the new versions by package, declared or within a range."""
        every = (*self.declares.items(), *self.wanted_versions.items())
        return {package: version for (package, _), version in every}

    @property
    def raised(self) -> tuple[str, ...]:
        """Return the changes as a Move names them."""
        return tuple(f"{package} {version}" for package, version in self.versions.items())


@dataclass(frozen=True)
class ParentWalk:
    """Predicts changes by walking published ranges upwards; the client decides.

    ``failed``: versions, by package, that a client has tried without success: higher ones are proposed.
    """

    tree: DependencyTree
    targets: Targets
    failed: dict[str, str]

    def changes(self, node: Node) -> Changes:
        """Return the changes that remove a copy, only for some of its dependents if others block it.

        Raises RecipeError that names the constraint and the parent, if every dependent blocks it.
        """
        if node.bundled:
            bundler = bundler_of(self.tree, node)
            above = self.failed.get(bundler.name, bundler.version)
            clean = Bundles(self.targets).clean(node, bundler, above)
            return self._solve(bundler, clean, (node.name, bundler.name))
        return self._solve(node, self._safe(node), (node.name,))

    def look_up(self, nodes: Sequence[Node]) -> None:
        """Query the registry at once about what ``changes`` of each copy needs first."""
        single = [node for node in nodes if not node.bundled]
        self.targets.look_up(node.name for node in single)
        self.targets.look_up(
            dependent.name
            for node in single
            for dependent, _ in self._blocking(self._asks(node), self._safe(node))
            if not self.tree.is_root(dependent)
        )

    def _safe(self, node: Node) -> tuple[str, ...]:
        """Return the versions that may replace an affected copy, best first."""
        published = self.targets.published(node.name, node.version)
        return published or self.targets.named(node.name, node.version)

    def along(self, moves: WantedVersions, *, may_declare: bool = False) -> Changes:
        """Return what has to move with ``moves``, as it requires a moved package as its peer: each to the
        lowest release that admits them, within the ranges that require it.

        ``may_declare``: if no release is within these, the project's own declaration of it is raised. What
        can't move is left out: ``excluding`` yields it.
        """
        every, changes = dict(moves), Changes()
        for _ in range(MAX_DEPTH):
            more = Changes()
            for holder, ask, _version in self.excluding(every):
                fitting = self._going_with(holder, every)
                with suppress(RecipeError):  # nothing of it can move
                    peer_changes = self._solve(holder, fitting, (ask.name, holder.name))
                    raised = {name for name, _ in peer_changes.declares}
                    if fitting and raised <= ({holder.name} if may_declare else set()):
                        more.add(peer_changes)
            new = more.moves(self.tree)
            if new.items() <= every.items():
                break
            every |= new
            changes.add(more)
        return changes

    def excluding(self, moves: WantedVersions) -> Iterator[tuple[Node, DependencyEdge, str]]:
        """Yield each package with its peer requirement, and the version to which the peer moves, if the
        range admits the installed version but not the new one."""
        for (name, current), version in moves.items():
            for node in self.tree.of(name):
                if node.version != current:
                    continue
                for holder, ask in self.tree.dependents(node.key):
                    is_open = not ask.peer or self.tree.is_root(holder)
                    if is_open or not admits(ask.spec, current) or admits(ask.spec, version):
                        continue
                    release = self._release(holder.name, moves.get((holder.name, holder.version)))
                    if release is None or not admits(release.peers.get(name, version), version):
                        yield holder, ask, version

    def _release(self, package: str, version: str | None) -> Release | None:
        matching = (
            release for release in self.targets.releases(package) if release.version == version
        )
        return next(matching, None) if version is not None else None

    def _going_with(self, holder: Node, moves: WantedVersions) -> tuple[str, ...]:
        """Return the higher releases whose peers admit what moves, lowest first. If that is a major step,
        the newest of its line is first: a fresh install of the range takes it, and what the line's first
        release broke is fixed there."""
        above = self.failed.get(holder.name, holder.version)
        fitting = [
            release
            for release in self.targets.releases(holder.name)
            if compare_versions(ECOSYSTEM, release.version, above) > 0
            and self._admits_peers(release, self._peers_of(holder, moves))
            and self.targets.is_safe(holder.name, release.version)
            and not is_prerelease(ECOSYSTEM, release.version)
        ]
        good = [release for release in fitting if not release.deprecated] or fitting
        good = [
            release
            for release in good
            if self._admits_peers(release, self._held_beside(release, moves))
        ] or good
        versions = tuple(release.version for release in good)
        if not versions or not is_major_step(ECOSYSTEM, holder.version, versions[0]):
            return versions
        line = [
            version for version in versions if not is_major_step(ECOSYSTEM, versions[0], version)
        ]
        return (*reversed(line), *versions[len(line) :])

    def _peers_of(self, holder: Node, moves: WantedVersions) -> dict[str, set[str]]:
        """Return the versions to which a package's peers move, by the name under which it requires them."""
        peers = ((ask.name, self.tree.nodes.get(ask.to or "")) for ask in holder.asks if ask.peer)
        keys = ((name, (node.name, node.version)) for name, node in peers if node is not None)
        return {name: {moves[key]} for name, key in keys if key in moves}

    def _held_beside(self, release: Release, moves: WantedVersions) -> dict[str, set[str]]:
        """Return the tree's versions of a release's peers after ``moves``, by name."""
        return {
            name: {moves.get((name, node.version), node.version) for node in copies}
            for name in release.peers
            if (copies := self.tree.of(name))
        }

    def _admits_peers(self, release: Release, peer_versions: Mapping[str, Iterable[str]]) -> bool:
        return all(
            name not in release.peers
            or any(admits(release.peers[name], version) for version in versions)
            for name, versions in peer_versions.items()
        )

    def _solve(self, node: Node, ok: tuple[str, ...], dependency_path: tuple[str, ...]) -> Changes:
        asks = self._asks(node)
        if not asks:
            raise no_fix(node)
        for version in ok:
            if all(admits(ask.spec, version) for _, ask in asks):
                return Changes(wanted_versions={(node.name, node.version): version})
        changes, blocking, excluding = Changes(), list[RecipeError](), self._blocking(asks, ok)
        self.targets.look_up(
            dependent.name for dependent, _ in excluding if not self.tree.is_root(dependent)
        )
        for dependent, ask in excluding:
            try:
                changes.add(self._free(node, dependent, ask, ok, dependency_path))
            except RecipeError as error:
                blocking.append(error)
        if blocking and not changes.versions:
            raise blocking[0]
        return changes

    def _asks(self, node: Node) -> list[tuple[Node, DependencyEdge]]:
        """Return what requires a copy: its peers' dependents only if there are no others, as npm installs a
        peer that nothing else requires."""
        dependents = self.targets.dependents(self.tree, node.key)
        asks = [(dependent, ask) for dependent, ask in dependents if not ask.peer]
        return asks or [pair for pair in dependents if not self.tree.is_root(pair[0])]

    def _blocking(
        self, asks: Iterable[tuple[Node, DependencyEdge]], ok: tuple[str, ...]
    ) -> list[tuple[Node, DependencyEdge]]:
        """Return those that admit none of these versions."""
        return [pair for pair in asks if not any(admits(pair[1].spec, it) for it in ok)]

    def _free(
        self,
        node: Node,
        dependent: Node,
        ask: DependencyEdge,
        ok: tuple[str, ...],
        dependency_path: tuple[str, ...],
    ) -> Changes:
        if self.tree.is_root(dependent):
            if not ok:
                raise no_fix(node)
            return Changes(declares={(node.name, ask.name): ok[0]})
        clearing = tuple(self.clearing(dependent, ask.name, ok, peer=ask.peer))
        if not clearing or len(dependency_path) > MAX_DEPTH or dependent.name in dependency_path:
            if not ok:
                raise no_fix(node)
            raise blocked_by(self.tree, node, ok[0], dependent, ask.spec)
        return self._solve(dependent, clearing, (*dependency_path, dependent.name))

    def clearing(
        self, dependent: Node, name: str, ok: tuple[str, ...], *, peer: bool = False
    ) -> Iterator[str]:
        """Yield the versions of a dependent that don't require the affected copy, lowest first, deprecated
        ones last. ``peer``: the copy is the dependent's peer."""
        above = self.failed.get(dependent.name, dependent.version)

        @cache  # many releases have the same range
        def lets_go(spec: str | None) -> bool:
            return spec is None or any(admits(spec, version) for version in ok)

        fitting = [
            release
            for release in self.targets.releases(dependent.name)
            if compare_versions(ECOSYSTEM, release.version, above) > 0
            and not is_prerelease(ECOSYSTEM, release.version)
            and self.targets.is_safe(dependent.name, release.version)
            and lets_go(release.asks.get(name) or (release.peers.get(name) if peer else None))
        ]
        for deprecated in (False, True):
            yield from (r.version for r in fitting if r.deprecated is deprecated)


def why_moved(
    before: DependencyTree,
    after: DependencyTree,
    names: Iterable[str],
    *,
    peers_alone: bool = False,
) -> Iterator[str]:
    """Yield why packages moved: for each, its first former requirement that excludes what its new release
    gets. ``peers_alone``: only a peer is a reason."""
    for name in dict.fromkeys(names):
        former_versions = {node.version for node in before.of(name)}
        new = [node for node in after.of(name) if node.version not in former_versions]
        resolved = {
            (ask.name, after.nodes[ask.to].version)
            for node in new
            for ask in node.asks
            if ask.to is not None and ask.to in after.nodes
        }
        asks = ((node, ask) for node in before.of(name) for ask in node.asks)
        for node, ask in (pair for pair in asks if pair[1].peer or not peers_alone):
            against = sorted(
                version
                for dependency, version in resolved
                if dependency == ask.name and excludes(ask.spec, version)
            )
            if against:
                what = f"{ask.name} {ask.spec}{' as its peer' if ask.peer else ''}"
                now = ", ".join(sorted({moved.version for moved in new}))
                yield (
                    f"{node.label} requires {what}, which does not admit {', '.join(against)}: it goes to"
                    f" {now}."
                )
                break


def _together(wanted: Mapping[str, Changes]) -> Changes:
    """Return the changes for several packages as one."""
    every = Changes()
    for changes in wanted.values():
        every.add(changes)
    return every


@dataclass(frozen=True)
class ParentBump(NpmStep):
    """Raises parents as ``ParentWalk`` predicts, with the client; ``refresh_or_bump`` then takes what the
    new ranges admit."""

    refresh_or_bump: Sequence[Strategy[Files]]

    def attempt(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """Try once for several packages: a parent often clears them all. Raises RecipeError."""
        for node in self.affected(at, *packages):
            self._refuse_overruled(at, node)
        failed: dict[str, str] = {}
        error: RecipeError | None = None
        for _ in range(MAX_TRIALS if len(packages) == 1 else 1):
            try:
                wanted = self._wanted(at, packages, failed)
            except RecipeError as blocking:
                raise error or blocking from None
            proposed = _together(wanted)
            try:
                after = self._pursued(at, packages, wanted)
            except RecipeError as problem:
                error = problem
            else:
                raised = {name: changes.raised for name, changes in wanted.items()}
                is_lock_alone = replace(after.files, lock_text=at.files.lock_text) == at.files
                step = LadderStep.LOCK_REFRESH if is_lock_alone else None
                moved = (
                    package
                    for changes in wanted.values()
                    for package in changes.versions
                    if package not in packages
                )
                why = why_moved(at.tree, after.tree, moved, peers_alone=not is_lock_alone)
                return Reached(after, raised, step=step, notes=tuple(why))
            above = {
                package: version
                for package, version in proposed.versions.items()
                if package not in packages
            }
            if above.items() <= failed.items():
                break
            failed |= above
        names = ", ".join(packages)
        raise error or does_not_serve(worse(at.tree, names, "has no parent that can be raised"))

    def _refuse_overruled(self, at: NpmPosition, node: Node) -> None:
        """Raise RecipeError if an override visibly gives a dependent another version than it requires: the
        copy stays, whatever its parents require."""
        places = holding(self.resolver.client, at.files, node)
        asks = (ask for _, ask in self.targets.dependents(at.tree, node.key) if not ask.peer)
        if places and not all(admits(ask.spec, node.version) for ask in asks):
            raise forced(at.files, places[0])

    def _wanted(
        self, at: NpmPosition, packages: tuple[str, ...], failed: dict[str, str]
    ) -> dict[str, Changes]:
        walk = ParentWalk(at.tree, self.targets, failed)
        wanted = {name: Changes() for name in packages}
        nodes = self.affected(at, *packages)
        walk.look_up(nodes)
        for node in nodes:
            wanted[node.name].add(walk.changes(node))
        for changes in wanted.values():
            changes.add(walk.along(changes.moves(at.tree)))
        return wanted

    def _pursued(
        self, at: NpmPosition, packages: tuple[str, ...], wanted: dict[str, Changes]
    ) -> NpmPosition:
        """Return the client's result for the changes, and for those that they make possible: a widened
        range may admit another release of what is still locked below it. Add the latter to ``wanted``.

        Raises RecipeError if the result is not nearer to a fix than before."""
        aimed = {(node.name, node.version) for node in self.affected(at, *packages)}
        changes, after = _together(wanted), at
        for _ in range(MAX_DEPTH):
            after = self._changed(after, changes)
            if not aimed & {(node.name, node.version) for node in self.judge.affected(after.tree)}:
                break
            try:
                more = self._wanted(after, packages, {})
            except RecipeError:
                break
            if _together(more).versions.items() <= _together(wanted).versions.items():
                break
            changes = _together(more)
            for name, added in more.items():
                wanted[name].add(added)
        reached = self._lowered(at, after, packages)
        problem = self.judge.problem(at, reached)
        if problem is None and not self.judge.is_nearer(at, reached):
            node = self.affected(reached, *packages)[0]
            problem = worse(reached.tree, node.label, "would still be installed")
        if problem is not None:
            raise does_not_serve(problem)
        return reached

    def _changed(self, at: NpmPosition, changes: Changes) -> NpmPosition:
        """Return the position that the client, and then the nearer steps, reach from changes; overrides of
        the copies that are to move are raised. Raises RecipeError."""
        files = changes.made_in(at.files, at.tree, self.resolver.client)
        reached = self.resolver.resolve(files, changes.moves(at.tree))
        after = Resolution(self.judge, reached)
        after.climb(self.refresh_or_bump)
        return after.at

    def _lowered(
        self, at: NpmPosition, after: NpmPosition, packages: tuple[str, ...]
    ) -> NpmPosition:
        """Lower new copies to what serves: a client takes the highest version that a range admits."""
        former_labels = {node.label for node in at.tree.nodes.values()}
        wanted_versions: dict[tuple[str, str], str] = {}
        for floor in self.affected(at, *packages):
            for node in after.tree.of(floor.name):
                if node.label not in former_labels and not node.bundled:
                    version = self._lowest(after, node, floor)
                    if version is not None:
                        wanted_versions[node.name, node.version] = version
        if not wanted_versions or self.resolver.fresh:
            return after
        try:
            lower = self.resolver.resolve(after.files, wanted_versions)
        except RecipeError:
            return after  # this result serves; a lower version was worth one try
        is_worse = self.judge.problem(at, lower) or self.judge.is_nearer(lower, after)
        return after if is_worse else lower

    def _lowest(self, after: NpmPosition, node: Node, floor: Node) -> str | None:
        """Return a version below a new copy's that would serve instead, or None."""
        specs = [ask.spec for _, ask in self.targets.dependents(after.tree, node.key)]

        def fits(version: str) -> bool:
            return all(admits(spec, version) for spec in specs)

        lowest = self.targets.lowest(floor, fits)
        lowest = self.targets.checked(node.name, lowest) if lowest is not None else None
        is_lower = lowest is not None and compare_versions(ECOSYSTEM, lowest, node.version) < 0
        return lowest if is_lower and lowest is not None and fits(lowest) else None
