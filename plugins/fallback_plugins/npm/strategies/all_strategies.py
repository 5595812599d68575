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
    """What may be tried in one resolution."""

    @property
    def all(self) -> list[Strategy[Files]]:
        """The whole ladder."""
        parents = ParentBump(self.resolver, self.targets, self.judge, self.refresh_or_bump)
        override = Override(self.resolver, self.targets, self.judge)
        return [
            *self.refresh_or_bump,
            Strategy(LadderStep.PARENT_BUMP, parents.attempt, weighed=True),
            Strategy(LadderStep.OVERRIDE, override.attempt, override.refusal, together=False),
        ]

    @property
    def refresh_or_bump(self) -> list[Strategy[Files]]:
        """In-range refresh and direct bump; a fresh lock has the highest of each range already."""
        near = RefreshOrBump(self.resolver, self.targets, self.judge)
        direct = Strategy(LadderStep.DIRECT_BUMP, near.direct, near.not_declared)
        if self.resolver.fresh:
            return [direct]
        return [Strategy(LadderStep.LOCK_REFRESH, near.refresh), direct]

    @property
    def lock_alone(self) -> Strategy[Files]:
        """Where the manifest is elsewhere: only what its ranges admit can be changed."""
        near = RefreshOrBump(self.resolver, self.targets, self.judge)
        return Strategy(LadderStep.LOCK_EDIT, near.refresh)

    def forced(self, version: str) -> Strategy[Files]:
        """An override to the version that a model chose."""
        forced = Forced(self.resolver, self.targets, self.judge, version)
        return Strategy(LadderStep.OVERRIDE, forced.attempt, together=False)

    def pruned(self, at: NpmPosition, originals: Mapping[str, str]) -> NpmPosition:
        """Without each changed manifest without which the tree is still as clear."""
        left = {node.key for node in self.judge.affected(at.tree)}
        changed = [path for path, text in originals.items() if at.files.manifests[path] != text]
        for path in changed if len(changed) > 1 else ():
            try:
                less = self.resolver.resolve(at.files.with_manifest(path, originals[path]), {})
            except RecipeError:
                continue
            if {node.key for node in self.judge.affected(less.tree)} <= left:
                at = less
        return at


@dataclass(frozen=True)
class _Changes:
    """What to change, which copies get which version, and which packages have no such plan.

    ``raised``: by package, what has to move along. ``along``: the packages among these.
    """

    files: Files
    wanted_versions: Mapping[tuple[str, str], str] = field(default_factory=dict)
    raised: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    declined: Mapping[str, RecipeError] = field(default_factory=dict)
    along: tuple[str, ...] = ()


#: Adds one affected copy to a plan. Raises RecipeError: this step is none for it.
_Aim = Callable[[_Changes, NpmPosition, Node], _Changes]


@dataclass(frozen=True)
class RefreshOrBump(NpmStep):
    """One client run for all packages: each affected copy to the lowest safe version that it can have."""

    def refresh(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """Only the lock changes: versions that everyone who asks for a copy admits. What requires it as a
        peer may move along within its own range."""
        return self._reached(at, packages, self._in_range)

    def direct(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """The project's own declarations, and the overrides that it has, are raised."""
        return self._reached(at, packages, self._declared)

    def not_declared(self, at: NpmPosition, package: str) -> RecipeError | None:
        """Why there is nothing that a direct bump could raise; None: there is."""
        nodes = self.affected(at, package)
        if any(asked_by_root(at, node) for node in nodes):
            return None
        if any(holding(self.resolver.client, at.files, node) for node in nodes):
            return None
        asking = (pair for node in nodes for pair in self.targets.dependents(at.tree, node.key))
        parent, ask = next(asking, (None, None))
        if parent is None or ask is None:
            return unsupported(f"Nothing requires {package}.")
        where, spec = declared_in(at.tree, parent), ask.spec
        problem = f"{parent.label} requires {package} {spec}, not the project itself ({where})."
        return does_not_apply(problem, package, parent.label, spec, where)

    # --- what is planned ----------------------------------------------------------------------------

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
        """Return the lowest safe version that all admit that install a copy, if what requires it as a peer
        can move with it within the ranges that require that; None: there is none."""
        asks = at.tree.dependents(node.key)
        firm = [ask.spec for holder, ask in asks if not ask.peer or at.tree.is_root(holder)]
        everyone, walk = self._all_admit(node, firm), ParentWalk(at.tree, self.targets, {})
        named = self.targets.named(node.name, node.version)
        if len(firm) == len(asks) or (named and not any(map(everyone, named))):
            return None

        def fits(version: str) -> bool:
            if not everyone(version):
                return False
            moves = {**plan.wanted_versions, (node.name, node.version): version}
            return not any(walk.excluding({**moves, **walk.along(moves).wanted_versions}))

        found = self.targets.lowest(node, fits)
        if found is None and self.targets.only is None:
            # The peers may admit only a later version than the first safe one.
            found = next(filter(fits, self.targets.published(node.name, node.version)), None)
        return found

    def _declared(self, plan: _Changes, at: NpmPosition, node: Node) -> _Changes:
        client, files, own = self.resolver.client, plan.files, asked_by_root(at, node)
        places = holding(client, files, node)
        target = self._fitting(at, node, (), overruled=bool(places))
        if target is None:
            if not own:
                return plan  # who asks for this copy is raised by another step
            target = self.targets.lowest(node, lambda _version: True)
            if target is None:
                raise no_fix(node)
            others = of_other_lines(at.files, at.tree, node)
            keys = {ask.name for ask in own}
            files = declare(files, node.name, keys, target, but_for=others)
        files = raise_overrides(client, files, places, target)
        wanted_versions = {**plan.wanted_versions, (node.name, node.version): target}
        plan = replace(plan, files=files, wanted_versions=wanted_versions)
        return self._with_peers(plan, at, node, may_declare=True)

    def _with_peers(
        self, plan: _Changes, at: NpmPosition, node: Node, *, may_declare: bool = False
    ) -> _Changes:
        """What requires a copy as its peer, in a range that excludes the new version, moves along. If that
        can't be, the client says what is in the way."""
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
        """The lowest safe version that everyone who asks for a copy admits, and these specs do.

        ``overruled``: overrides hold it. Who asks for something else than what is installed has no say
        then, as long as a compatible version serves.
        """
        _check_source(at.tree, node)
        refuse_bundled(at.tree, node)
        asked = [ask.spec for _, ask in at.tree.dependents(node.key)]
        everyone = self._all_admit(node, [*specs, *asked])
        heard = [spec for spec in asked if admits(spec, node.version)]
        found = None
        if overruled:
            held = node.version if len(heard) < len(asked) else None
            near = self._all_admit(node, [*specs, *heard], held)
            found = self.targets.lowest(node, near, tree=at.tree)
        found = found or self.targets.lowest(node, everyone, tree=at.tree)
        if found is None and any(excludes(spec, node.version) for spec in asked):
            # The version that is held back from what is asked for tells nothing of what serves.
            published = self.targets.published(node.name, node.version)
            found = next(filter(everyone, published), None)
        return found

    def _all_admit(
        self, node: Node, specs: Sequence[str], near: str | None = None
    ) -> Callable[[str], bool]:
        """Does a version fit all of these? ``near``: and is it compatible with this one?"""

        def fits(version: str) -> bool:
            is_near = near is None or compatible(near, version)
            return is_near and all(self.targets.admits(node.name, it, version) for it in specs)

        return fits

    def _planned(self, at: NpmPosition, packages: tuple[str, ...], aim: _Aim) -> _Changes:
        plan = _Changes(at.files)
        for node in self.affected(at, *packages):
            try:
                plan = aim(plan, at, node)
            except RecipeError as error:
                plan = replace(plan, declined={**plan.declined, node.name: error})
        return plan

    # --- what the client makes of it ----------------------------------------------------------------

    def _reached(self, at: NpmPosition, packages: tuple[str, ...], aim: _Aim) -> Reached[Files]:
        def planned() -> _Changes:
            return self._planned(at, packages, aim)

        plan = planned()
        if not plan.wanted_versions or (self.resolver.fresh and plan.files is at.files):
            return Reached(at, declined=plan.declined)
        # A lock that marks deprecated entries tells by itself: only a failed run is worth the question.
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
            old = {it: new for it, new in plan.wanted_versions.items() if (it[0], new) in marked}
            if self._learned(at.tree, old):
                plan = planned()
                after = self.resolver.resolve(plan.files, plan.wanted_versions)
        if plan.along and not self.resolver.fresh and self._problem(at, after) is not None:
            # What moved along admits now what it excluded before.
            after = self.resolver.resolve(after.files, plan.wanted_versions)
        after = self._accepted(at, after, plan.wanted_versions)
        notes = tuple(why_moved(at.tree, after.tree, plan.along))
        return Reached(after, self._raised(plan, after.tree), plan.declined, notes=notes)

    def _raised(self, plan: _Changes, after: DependencyTree) -> dict[str, tuple[str, ...]]:
        """Return what moved along with each package, as the lock has it: clients may take a higher release.
        Without a lock, it is what was declared."""
        held = {node.label for node in after.nodes.values()}

        def resolved(label: str) -> str:
            name = label.rpartition(" ")[0]
            highest = after.highest(ECOSYSTEM, name)
            return (
                label if self.resolver.fresh or label in held else f"{name} {highest or ''}".strip()
            )

        return {package: tuple(map(resolved, labels)) for package, labels in plan.raised.items()}

    def _accepted(
        self, at: NpmPosition, after: NpmPosition, wanted_versions: WantedVersions
    ) -> NpmPosition:
        """The result; where the exact versions can't be had, the highest that the ranges allow may do."""
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
        """What a lock marks as deprecated, where its client and its format do."""
        client = self.resolver.client
        return client.deprecated(files) if isinstance(client, KnowsDeprecated) else None

    def _learned(self, tree: DependencyTree, wanted_versions: WantedVersions) -> bool:
        """Does the registry have better versions than these? Then targets know them."""
        learned = False
        for (name, _), wanted_version in wanted_versions.items():
            if any(node.version == wanted_version for node in tree.of(name)):
                continue  # it is installed already
            better = self.targets.checked(name, wanted_version)
            if better is not None and better != wanted_version:
                self.targets.prefer(name, wanted_version, better)
                learned = True
        return learned


def _check_published(targets: Targets, wanted_versions: WantedVersions) -> None:
    """Raise RecipeError if the registry has neither a wanted version nor a later one."""
    for (name, _), version in wanted_versions.items():
        if targets.checked(name, version) is None:
            raise RecipeError(
                RefusalReason.NO_FIXED_VERSION,
                f"{name} {version} was never published, and no later release could be found.",
                next_step="Replace the dependency, or take the advisory's workaround.",
                kind="never_published",
            )


def _check_source(tree: DependencyTree, node: Node) -> None:
    """A copy that comes from elsewhere than a registry has no version to raise."""
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
    blockers = [it for refusal in every for it in refusal.blockers]
    return refused_for(*blockers, head=f"No one release of {node.name} serves all that require it")


@dataclass(frozen=True)
class Override(NpmStep):
    """Each affected copy of one package at the lowest safe version compatible with it, below each parent
    whose ask excludes that; where there is none, a parent at a compatible version that lets go of it."""

    def refusal(self, at: NpmPosition, package: str) -> RecipeError | None:
        """What the project asks for itself is raised, never overridden."""
        found = [ask for node in self.affected(at, package) for ask in asked_by_root(at, node)]
        if not found:
            return None
        where = at.files.root_manifest
        problem = f"{where} requires {package} {found[0].spec} itself."
        return does_not_apply(problem, package, PROJECT, found[0].spec, where)

    def attempt(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """One client run, or three. Raises RecipeError: no version serves, or the client says no."""
        (package,) = packages
        client, nodes = self.resolver.client, self.affected(at, package)
        forced = [pair for node in nodes for pair in self._forced(at.tree, node)]
        others = {f"{it.name} {version}": None for it, version in forced if it.name != package}
        files, held = at.files, False
        for copy, version in forced:
            places = holding(client, at.files, copy)
            files, held = raise_overrides(client, files, places, version), held or bool(places)
        wanted_versions = {(copy.name, copy.version): version for copy, version in forced}
        if held:  # what the project forces already may be enough
            after = self.resolver.resolve(files, wanted_versions)
            if not self.affected(after, package):
                step = LadderStep.LOCK_REFRESH if files is at.files else None
                return Reached(after, {package: tuple(others)}, step=step)
        for copy, version in forced:
            for dependent, ask in self.targets.dependents(at.tree, copy.key):
                if not admits(ask.spec, version):
                    parent = _parent_key(self.resolver, at.tree, dependent)
                    files = client.with_override(files, parent, ask.name, version)
        if files is at.files:
            _check_published(self.targets, {(it.name, it.version): new for it, new in forced})
            return Reached(at, declined={package: admits_already(package)})
        after = self.resolver.resolve(files, {})
        # Who admits the version gets no override, and keeps a copy that isn't shared.
        if self.affected(after, package):
            after = self.resolver.resolve(after.files, wanted_versions)
        return Reached(after, {package: tuple(others)})

    def _forced(self, tree: DependencyTree, node: Node) -> list[tuple[Node, str]]:
        """The copy and its version, or what brings it in and theirs. Raises RecipeError."""
        refuse_bundled(tree, node)
        target = self.targets.lowest(node, partial(compatible, node.version))
        if target is not None:
            return [(node, target)]
        safe = self.targets.published(node.name, node.version)
        walk, found = ParentWalk(tree, self.targets, {}), []
        for dependent, ask in tree.dependents(node.key):
            fits = partial(compatible, dependent.version)
            version = next(filter(fits, walk.clearing(dependent, ask.name, safe)), None)
            if version is None or any(
                tree.is_root(above) for above, _ in tree.dependents(dependent.key)
            ):
                raise self._no_target(tree, node)
            found.append((dependent, version))
        return found

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

    An override that is there already is raised; else each parent that asks for an affected copy gets one.
    """

    version: str

    def attempt(self, at: NpmPosition, packages: tuple[str, ...]) -> Reached[Files]:
        """One client run. Raises RecipeError: a direct dependency, another major, a downgrade, or it did
        not serve."""
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
        if problem is None and (left := self.judge.affected(after.tree)):
            problem = worse(after.tree, left[0].label, "would still be installed")
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
    """The parent as an override names it: with its version where it isn't the only one."""
    alone = len({node.version for node in tree.of(dependent.name)}) == 1
    takes = resolver.client.name != "yarn"  # its resolutions know names only
    return dependent.name if alone or not takes else f"{dependent.name}@{dependent.version}"
