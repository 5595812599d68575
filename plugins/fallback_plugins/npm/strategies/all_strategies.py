"""The npm ladder: its strategies, cheapest first (ADR-0016), for whichever client resolves the project.

A new step is also a ``LadderStep``, whose order is the ladder's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.npm.client import Files, WantedVersions
from fallback_plugins.npm.clients.registry import KnowsDeprecated
from fallback_plugins.npm.manifests.declaring import (
    blocked_by,
    declare,
    declared_in,
    forced,
    holding,
    no_fix,
    of_other_lines,
    raise_overrides,
)
from fallback_plugins.npm.manifests.manifest import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, compatible, excludes, foreign
from fallback_plugins.npm.strategies.bundles import refuse_bundled
from fallback_plugins.npm.strategies.parents import ParentBump, ParentWalk, why_moved
from fallback_plugins.npm.strategies.resolving import NpmPosition, NpmStep, Resolver, asked_by_root
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.bumping import no_override, unsupported, use_bump
from fallback_plugins.shared.ladder import (
    PROJECT,
    Reached,
    Strategy,
    admits_already,
    does_not_apply,
    does_not_serve,
    refused_for,
    worse,
)
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import compare_versions
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker


@dataclass(frozen=True)
class Strategies(NpmStep):
    """Strategies that may be tried in one resolution."""

    @property
    def all(self) -> list[Strategy[Files]]:
        """Return the whole ladder."""
        parents = ParentBump(self.resolver, self.targets, self.judge, self.refresh_or_bump)
        override = Override(self.resolver, self.targets, self.judge)
        return [
            *self.refresh_or_bump,
            Strategy(LadderStep.PARENT_BUMP, parents.attempt, weighed=True),
            Strategy(LadderStep.OVERRIDE, override.attempt, override.refusal, together=False),
        ]

    @property
    def refresh_or_bump(self) -> list[Strategy[Files]]:
        """Return in-range refresh and direct bump; a fresh lock has the highest of each range already."""
        near = RefreshOrBump(self.resolver, self.targets, self.judge)
        direct = Strategy(LadderStep.DIRECT_BUMP, near.direct, near.not_declared)
        if self.resolver.fresh:
            return [direct]
        return [Strategy(LadderStep.LOCK_REFRESH, near.refresh), direct]

    @property
    def lock_alone(self) -> Strategy[Files]:
        """Return the strategy for a lock whose manifest is elsewhere: changes within its ranges."""
        near = RefreshOrBump(self.resolver, self.targets, self.judge)
        return Strategy(LadderStep.LOCK_EDIT, near.refresh)

    def forced(self, version: str) -> Strategy[Files]:
        """Return an override to the version that a model chose."""
        forced = Forced(self.resolver, self.targets, self.judge, version)
        return Strategy(LadderStep.OVERRIDE, forced.attempt, together=False)

    def pruned(self, at: NpmPosition, originals: Mapping[str, str]) -> NpmPosition:
        """Return the position without unneeded changes of manifests: no further copy is affected then."""
        affected = {node.key for node in self.judge.affected(at.tree)}
        changed = [path for path, text in originals.items() if at.files.manifests[path] != text]
        for path in changed if len(changed) > 1 else ():
            try:
                less = self.resolver.resolve(at.files.with_manifest(path, originals[path]), {})
            except RecipeError:
                continue
            if {node.key for node in self.judge.affected(less.tree)} <= affected:
                at = less
        return at


@dataclass(frozen=True)
class _Changes:
    """A plan: changed files, new versions of copies, and the packages for which this step is declined.

    ``raised``: what has to move along, by package. ``along``: the packages among these.
    """

    files: Files
    wanted_versions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    raised: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declined: Mapping[str, RecipeError] = field(default_factory=dict)
    along: tuple[str, ...] = ()


#: Adds one affected copy to a plan. Raises RecipeError if this step can't fix it.
_Aim = Callable[[_Changes, NpmPosition, Node], _Changes]


@dataclass(frozen=True)
class RefreshOrBump(NpmStep):
    """One client run for all packages: each affected copy gets the lowest safe version that it can have."""

    def refresh(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """Change the lock only, to versions that all dependents of a copy admit. A dependent that requires
        it as a peer may move along within its own range."""
        return self._reached(at, packages, self._in_range)

    def direct(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """Raise the project's own declarations, and its existing overrides."""
        return self._reached(at, packages, self._declared)

    def not_declared(self, at: NpmPosition, package: str) -> RecipeError | None:
        """Return why a direct bump has nothing to raise; None if it has."""
        nodes = self.affected(at, package)
        if any(asked_by_root(at, node) for node in nodes):
            return None
        if any(holding(self.resolver.client, at.files, node) for node in nodes):
            return None
        dependents = (pair for node in nodes for pair in self.targets.dependents(at.tree, node.key))
        parent, ask = next(dependents, (None, None))
        if parent is None or ask is None:
            return unsupported(f"Nothing requires {package}.")
        where, spec = declared_in(at.tree, parent), ask.spec
        problem = f"{parent.label} requires {package} {spec}, not the project itself ({where})."
        return does_not_apply(problem, package, parent.label, spec, where)

    # --- planning -----------------------------------------------------------------------------------

    def _in_range(self, plan: _Changes, at: NpmPosition, node: Node) -> _Changes:
        places = holding(self.resolver.client, plan.files, node)
        target = self._fitting(at, node, [place.spec for place in places], overruled=bool(places))
        if target is None and places:
            raise forced(plan.files, places[0])
        target = target or self._beside_peers(plan, at, node)
        if target is None:
            raise _who_blocks(at.tree, node, self.targets.lowest(node, lambda _version: True))
        wanted_versions = {**plan.wanted_versions, (node.name, node.version): target}
        return self._with_peers(replace(plan, wanted_versions=wanted_versions), at, node)

    def _beside_peers(self, plan: _Changes, at: NpmPosition, node: Node) -> str | None:
        """Return the lowest safe version that all dependents that install a copy admit, if those that
        require it as a peer can move along within the ranges that require them; otherwise None."""
        asks = at.tree.dependents(node.key)
        firm = [ask.spec for holder, ask in asks if not ask.peer or at.tree.is_root(holder)]
        everyone, walk = self._all_admit(node, firm), ParentWalk(at.tree, self.targets, {})
        fixed_versions = self.targets.named(node.name, node.version)
        if len(firm) == len(asks) or (fixed_versions and not any(map(everyone, fixed_versions))):
            return None

        def fits(version: str) -> bool:
            if not everyone(version):
                return False
            moves = {**plan.wanted_versions, (node.name, node.version): version}
            return not any(walk.excluding({**moves, **walk.along(moves).wanted_versions}))

        target = self.targets.lowest(node, fits)
        if target is None and self.targets.only is None:
            # The peers may admit only a later version than the first safe one.
            target = next(filter(fits, self.targets.published(node.name, node.version)), None)
        return target

    def _declared(self, plan: _Changes, at: NpmPosition, node: Node) -> _Changes:
        client, files, root_asks = self.resolver.client, plan.files, asked_by_root(at, node)
        places = holding(client, files, node)
        target = self._fitting(at, node, (), overruled=bool(places))
        if target is None:
            if not root_asks:
                return plan  # another step raises the dependents of this copy
            target = self.targets.lowest(node, lambda _version: True)
            if target is None:
                raise no_fix(node)
            other_lines = of_other_lines(at.files, at.tree, node)
            keys = {ask.name for ask in root_asks}
            files = declare(files, node.name, keys, target, but_for=other_lines)
        files = raise_overrides(client, files, places, target)
        wanted_versions = {**plan.wanted_versions, (node.name, node.version): target}
        plan = replace(plan, files=files, wanted_versions=wanted_versions)
        return self._with_peers(plan, at, node, may_declare=True)

    def _with_peers(
        self, plan: _Changes, at: NpmPosition, node: Node, *, may_declare: bool = False
    ) -> _Changes:
        """Add to the plan the dependents that require a copy as a peer, in a range that excludes the new
        version. If they can't be raised, the client reports the conflict."""
        walk = ParentWalk(at.tree, self.targets, {})
        along = walk.along(plan.wanted_versions, may_declare=may_declare)
        if not along.versions:
            return plan
        return replace(
            plan,
            files=along.made_in(plan.files, at.tree, self.resolver.client),
            wanted_versions={**plan.wanted_versions, **along.moves(at.tree)},
            raised={**plan.raised, node.name: (*plan.raised.get(node.name, ()), *along.raised)},
            along=(*plan.along, *along.versions),
        )

    def _fitting(
        self, at: NpmPosition, node: Node, specs: Sequence[str], *, overruled: bool
    ) -> str | None:
        """Return the lowest safe version that all dependents of a copy and these specs admit, or None.

        ``overruled``: overrides determine its version. Dependents that exclude the installed version are
        then ignored, if a compatible version serves.
        """
        _check_source(at.tree, node)
        refuse_bundled(at.tree, node)
        required = [ask.spec for _, ask in at.tree.dependents(node.key)]
        everyone = self._all_admit(node, [*specs, *required])
        satisfied = [spec for spec in required if admits(spec, node.version)]
        target = None
        if overruled:
            current = node.version if len(satisfied) < len(required) else None
            near = self._all_admit(node, [*specs, *satisfied], current)
            target = self.targets.lowest(node, near, tree=at.tree)
        target = target or self.targets.lowest(node, everyone, tree=at.tree)
        if target is None and any(excludes(spec, node.version) for spec in required):
            # The installed version is outside of a required range: an unnamed version may serve.
            published = self.targets.published(node.name, node.version)
            target = next(filter(everyone, published), None)
        return target

    def _all_admit(
        self, node: Node, specs: Sequence[str], near: str | None = None
    ) -> Callable[[str], bool]:
        """Return a test of a version: do all specs admit it, and is it compatible with ``near``, if any?"""

        def fits(version: str) -> bool:
            is_near = near is None or compatible(near, version)
            return is_near and all(self.targets.admits(node.name, spec, version) for spec in specs)

        return fits

    def _planned(self, at: NpmPosition, packages: tuple[str, ...], aim: _Aim) -> _Changes:
        plan = _Changes(at.files)
        for node in self.affected(at, *packages):
            try:
                plan = aim(plan, at, node)
            except RecipeError as error:
                plan = replace(plan, declined={**plan.declined, node.name: error})
        return plan

    # --- the client's result ------------------------------------------------------------------------

    def _reached(self, at: NpmPosition, packages: tuple[str, ...], aim: _Aim) -> Reached[Files]:
        def planned() -> _Changes:
            return self._planned(at, packages, aim)

        plan = planned()
        if not plan.wanted_versions or (self.resolver.fresh and plan.files is at.files):
            return Reached(at, declined=plan.declined)
        # If the lock marks deprecated entries, query the registry only after a failed run.
        if self._marked(at.files) is None and self._learned(at.tree, plan.wanted_versions):
            plan = planned()
        try:
            after = self.resolver.resolve(plan.files, plan.wanted_versions)
        except RecipeError:
            if not self._learned(at.tree, plan.wanted_versions):
                _check_published(self.targets, plan.wanted_versions)
                raise
            plan = planned()
            after = self.resolver.resolve(plan.files, plan.wanted_versions)
        else:
            marked = self._marked(after.files) or ()
            old = {
                release: new
                for release, new in plan.wanted_versions.items()
                if (release[0], new) in marked
            }
            if self._learned(at.tree, old):
                plan = planned()
                after = self.resolver.resolve(plan.files, plan.wanted_versions)
        if plan.along and not self.resolver.fresh and self._problem(at, after) is not None:
            # What moved along now admits versions that it excluded before.
            after = self.resolver.resolve(after.files, plan.wanted_versions)
        after = self._accepted(at, after, plan.wanted_versions)
        notes = tuple(why_moved(at.tree, after.tree, plan.along))
        return Reached(after, self._raised(plan, after.tree), plan.declined, notes=notes)

    def _raised(self, plan: _Changes, after: DependencyTree) -> dict[str, tuple[str, ...]]:
        """Return what moved along with each package, at the lock's versions: clients may take a higher
        release. Without a lock, return what was declared."""
        locked_labels = {node.label for node in after.nodes.values()}

        def resolved(label: str) -> str:
            name = label.rpartition(" ")[0]
            highest = after.highest(ECOSYSTEM, name)
            return (
                label
                if self.resolver.fresh or label in locked_labels
                else f"{name} {highest or ''}".strip()
            )

        return {package: tuple(map(resolved, labels)) for package, labels in plan.raised.items()}

    def _accepted(
        self, at: NpmPosition, after: NpmPosition, wanted_versions: WantedVersions
    ) -> NpmPosition:
        """Return the result; if the exact versions don't serve, try the highest that the ranges allow."""
        problem = self._problem(at, after)
        if problem is None:
            return after
        if not self.resolver.fresh and self.targets.only is None:
            try:
                highest = self.resolver.update(
                    after.files, tuple({name: 0 for name, _ in wanted_versions})
                )
            except RecipeError as error:
                raise refused_for(problem, *error.blockers) from None
            if self._problem(at, highest) is None:
                return highest
        raise does_not_serve(problem)

    def _problem(self, at: NpmPosition, after: NpmPosition) -> Blocker | None:
        problem = self.judge.problem(at, after)
        if problem is None and not self.judge.is_nearer(at, after):
            node = next(iter(self.judge.affected(after.tree)))
            return worse(after.tree, node.label, f"is kept by {self.resolver.client.name}")
        return problem

    def _marked(self, files: Files) -> frozenset[tuple[str, str]] | None:
        """Return what a lock marks as deprecated; None if its client or its format does not."""
        client = self.resolver.client
        return client.deprecated(files) if isinstance(client, KnowsDeprecated) else None

    def _learned(self, tree: DependencyTree, wanted_versions: WantedVersions) -> bool:
        """Return whether the registry has better versions than these, which the targets then prefer."""
        learned = False
        new = [
            (name, wanted_version)
            for (name, _), wanted_version in wanted_versions.items()
            if all(node.version != wanted_version for node in tree.of(name))
        ]
        self.targets.look_up(name for name, _ in new)
        for name, wanted_version in new:
            better = self.targets.checked(name, wanted_version)
            if better is not None and better != wanted_version:
                self.targets.prefer(name, wanted_version, better)
                learned = True
        return learned


def _check_published(targets: Targets, wanted_versions: WantedVersions) -> None:
    """Raise RecipeError if the registry has neither a wanted version nor a later one."""
    targets.look_up(name for name, _ in wanted_versions)
    for (name, _), version in wanted_versions.items():
        if targets.checked(name, version) is None:
            raise RecipeError(
                RefusalReason.NO_FIXED_VERSION,
                f"{name} {version} was never published, and no later release could be found.",
                next_step="Replace the dependency, or take the advisory's workaround.",
                kind="never_published",
            )


def _check_source(tree: DependencyTree, node: Node) -> None:
    """Raise RecipeError if a copy is not from a registry: it has no version to raise."""
    if is_orderable(ECOSYSTEM, node.version):
        return
    dependents = ", ".join(
        f"{dependent.label} ({ask.spec})" for dependent, ask in tree.dependents(node.key)[:3]
    )
    raise unsupported(
        f"{node.name} is installed from {foreign(node.version) or 'another source'}"
        f" ({node.version}), required by {dependents or 'nothing'}: it has no version to raise."
    )


def _who_blocks(tree: DependencyTree, node: Node, target: str | None) -> RecipeError:
    if target is None:
        return no_fix(node)
    asks = tree.dependents(node.key)
    for dependent, ask in asks:
        if not admits(ask.spec, target):
            return blocked_by(tree, node, target, dependent, ask.spec)
    every = (blocked_by(tree, node, target, dependent, ask.spec) for dependent, ask in asks)
    blockers = [blocker for refusal in every for blocker in refusal.blockers]
    return refused_for(*blockers, head=f"No one release of {node.name} serves all that require it")


@dataclass(frozen=True)
class Override(NpmStep):
    """Forces each affected copy of one package to the lowest safe version compatible with it, below each
    parent whose range excludes that; if there is none, forces a parent to a compatible version that does
    not require the affected one."""

    def refusal(self, at: NpmPosition, package: str) -> RecipeError | None:
        """Return a refusal if the project itself requires the package: that is raised, never overridden."""
        root_asks = [ask for node in self.affected(at, package) for ask in asked_by_root(at, node)]
        if not root_asks:
            return None
        where = at.files.root_manifest
        problem = f"{where} requires {package} {root_asks[0].spec} itself."
        return does_not_apply(problem, package, PROJECT, root_asks[0].spec, where)

    def attempt(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """Run the client up to three times. Raises RecipeError if no version serves or the client fails."""
        (package,) = packages
        client, nodes = self.resolver.client, self.affected(at, package)
        forced = [pair for node in nodes for pair in self._forced(at.tree, node)]
        moved_parents = {
            f"{copy.name} {version}": None for copy, version in forced if copy.name != package
        }
        files, has_overrides = at.files, False
        for copy, version in forced:
            places = holding(client, at.files, copy)
            files, has_overrides = (
                raise_overrides(client, files, places, version),
                has_overrides or bool(places),
            )
        wanted_versions = {(copy.name, copy.version): version for copy, version in forced}
        if has_overrides:  # raising the project's own overrides may be enough
            after = self.resolver.resolve(files, wanted_versions)
            if not self.affected(after, package):
                step = LadderStep.LOCK_REFRESH if files is at.files else None
                return Reached(after, {package: tuple(moved_parents)}, step=step)
        for copy, version in forced:
            for dependent, ask in self.targets.dependents(at.tree, copy.key):
                if not admits(ask.spec, version):
                    parent = _parent_key(self.resolver, at.tree, dependent)
                    files = client.with_override(files, parent, ask.name, version)
        if files is at.files:
            _check_published(self.targets, {(copy.name, copy.version): new for copy, new in forced})
            return Reached(at, declined={package: admits_already(package)})
        after = self.resolver.resolve(files, {})
        # A dependent that admits the version gets no override, and keeps a copy that isn't shared.
        if self.affected(after, package):
            after = self.resolver.resolve(after.files, wanted_versions)
        return Reached(after, {package: tuple(moved_parents)})

    def _forced(self, tree: DependencyTree, node: Node) -> list[tuple[Node, str]]:
        """Return the copy and its new version, or its dependents and theirs. Raises RecipeError."""
        refuse_bundled(tree, node)
        target = self.targets.lowest(node, partial(compatible, node.version))
        if target is not None:
            return [(node, target)]
        safe = self.targets.published(node.name, node.version)
        walk, parents = ParentWalk(tree, self.targets, {}), []
        for dependent, ask in tree.dependents(node.key):
            fits = partial(compatible, dependent.version)
            version = next(filter(fits, walk.clearing(dependent, ask.name, safe)), None)
            if version is None or any(
                tree.is_root(above) for above, _ in tree.dependents(dependent.key)
            ):
                raise self._no_target(tree, node)
            parents.append((dependent, version))
        return parents

    def _no_target(self, tree: DependencyTree, node: Node) -> RecipeError:
        lowest = self.targets.lowest(node, lambda _version: True)
        if lowest is None:
            return no_fix(node)
        for dependent, ask in self.targets.dependents(tree, node.key):
            if not admits(ask.spec, lowest):
                return blocked_by(tree, node, lowest, dependent, ask.spec)
        return unsupported(
            f"No safe version is compatible with {node.label}; an override would force another one."
        )


@dataclass(frozen=True)
class Forced(NpmStep):
    """A model's override: one version for all affected copies of a package, within their major.

    Existing overrides are raised; if there are none, each parent that requires an affected copy gets one.
    """

    version: str

    def attempt(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """Run the client once. Raises RecipeError for a direct dependency, another major or a downgrade, or
        if the result does not serve."""
        (package,) = packages
        nodes = self.affected(at, package)
        for node in nodes:
            refuse_bundled(at.tree, node)
            self._check(at, node)
        files, client = at.files, self.resolver.client
        for node in nodes:
            places = holding(client, at.files, node)
            files = raise_overrides(client, files, places, self.version)
        if files is at.files:
            for dependent, ask in (pair for node in nodes for pair in at.tree.dependents(node.key)):
                parent = _parent_key(self.resolver, at.tree, dependent)
                files = client.with_override(files, parent, ask.name, self.version)
        after = self.resolver.resolve(files, {})
        problem = self.judge.problem(at, after)
        if problem is None and (remaining := self.judge.affected(after.tree)):
            problem = worse(after.tree, remaining[0].label, "would still be installed")
        if problem is not None:
            message = f"An override of {package} to {self.version} does not work."
            raise no_override(f"{message} {does_not_serve(problem).problem}")
        return Reached(after)

    def _check(self, at: NpmPosition, node: Node) -> None:
        source = at.tree.source
        if asked_by_root(at, node):
            raise use_bump(node.name, f"asked for in {source} by the project itself")
        if not is_orderable(ECOSYSTEM, node.version):
            message = f"{source} takes {node.name} from {node.version}, which has no version."
            raise no_override(message)
        if not compatible(node.version, self.version):
            raise RecipeError(
                RefusalReason.BLOCKED_BY_CONSTRAINT,
                f"{source} holds {node.label}; {self.version} is not compatible with it, and is not "
                "forced on what depends on that.",
                next_step="Use dependency_bump for the package that brings it in, or refuse.",
                kind="another_major",
            )
        if compare_versions(ECOSYSTEM, self.version, node.version) <= 0:
            raise no_override(
                f"{node.name} {self.version} would be a downgrade from {node.version}."
            )


def _parent_key(resolver: Resolver, tree: DependencyTree, dependent: Node) -> str:
    """Return a parent as an override names it: with its version if there are several, except for yarn."""
    alone = len({node.version for node in tree.of(dependent.name)}) == 1
    takes = resolver.client.name != "yarn"  # its resolutions know names only
    return dependent.name if alone or not takes else f"{dependent.name}@{dependent.version}"
