"""The two nearest rungs: an in-range refresh of the lock, and the bump of what is declared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.ladder import Tried, blocked
from fallback_plugins.npm.client import Client, Files, OverridePlace
from fallback_plugins.npm.layout import ECOSYSTEM
from fallback_plugins.npm.manifest import (
    PEER_SECTION,
    Declared,
    declared,
    parse_manifest,
    replace_spec,
    with_value,
)
from fallback_plugins.npm.specs import admits, floor, foreign, raised
from fallback_plugins.npm.targets import Targets
from fallback_plugins.tree import Ask, Node, Tree
from fallback_tier.advisory import compare_versions
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError


@dataclass(frozen=True)
class Plan:
    """What to change, and which copies that is for: (package, version) → the rung."""

    files: Files
    wishes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    steps: Mapping[tuple[str, str], LadderStep] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Nothing to do."""
        return not self.steps


@dataclass(frozen=True)
class Near:
    """Plans in-range refreshes and direct bumps for affected copies of a tree."""

    client: Client
    targets: Targets
    tried: dict[str, Tried]
    #: A model's choice: this version, and nothing else.
    only: str | None = None
    #: Whether the manifests may be changed at all.
    may_declare: bool = True

    def plan(self, files: Files, tree: Tree, nodes: tuple[Node, ...]) -> Plan:
        """One plan for all these copies; what has no near rung is left out, and ``tried`` says why."""
        plan = Plan(files)
        for node in nodes:
            try:
                plan = self._for(plan, tree, node)
            except RecipeError as error:
                self.tried.setdefault(node.name, Tried()).no(LadderStep.DIRECT_BUMP, error)
        return plan

    def _for(self, plan: Plan, tree: Tree, node: Node) -> Plan:
        _check_source(tree, node)
        asks = tree.askers(node.key)
        places = self.client.overrides(plan.files, node.name) if self.may_declare else ()
        wished = self._wish(tree, node, asks)
        if wished is not None:
            return self._with(plan, node, wished, LadderStep.LOCK_REFRESH, places)
        target = self._target(node)
        tried = self.tried.setdefault(node.name, Tried())
        tried.no(LadderStep.LOCK_REFRESH, _who_blocks(tree, asks, node, target))
        own = [ask for asker, ask in asks if tree.is_root(asker)]
        if not own or not self.may_declare:
            return plan
        if target is None:
            raise no_fix(node)
        files = declare(plan.files, node.name, {ask.name for ask in own}, target)
        return self._with(replace(plan, files=files), node, target, LadderStep.DIRECT_BUMP, places)

    def _with(
        self,
        plan: Plan,
        node: Node,
        target: str,
        step: LadderStep,
        places: tuple[OverridePlace, ...],
    ) -> Plan:
        files = plan.files
        for place in places:
            if not admits(place.spec, target) and not place.spec.startswith("$"):
                files = raise_override(files, place, target)
                step = LadderStep.DIRECT_BUMP
                self.tried.setdefault(node.name, Tried()).no(
                    LadderStep.LOCK_REFRESH,
                    f"{'.'.join(place.keys)} in {files.root_manifest} forces {node.name}"
                    f" {place.spec}.",
                )
        key = (node.name, node.version)
        return Plan(files, {**plan.wishes, key: target}, {**plan.steps, key: step})

    def _wish(self, tree: Tree, node: Node, asks: tuple[tuple[Node, Ask], ...]) -> str | None:
        def fits(version: str) -> bool:
            return all(admits(ask.spec, version) for _, ask in asks)

        if self.only is not None:
            return self.only if fits(self.only) else None
        return self.targets.lowest(node, fits, tree=tree)

    def _target(self, node: Node) -> str | None:
        if self.only is not None:
            return self.only
        return self.targets.lowest(node, lambda _version: True)


def declare(files: Files, package: str, keys: set[str], version: str) -> Files:
    """Every declaration of the package under these keys made to admit the version, operators kept.

    One that admits it stays: a lock says which version it is. Raises RecipeError: a spec that can't be
    raised, or a peer declaration that doesn't admit it.
    """
    for path, text in files.manifests.items():
        for place in declared(parse_manifest(path, text), package):
            if place.key in keys and not admits(place.spec, version):
                files = raise_place(files, path, package, place, version)
    return files


def raise_place(files: Files, path: str, package: str, place: Declared, version: str) -> Files:
    """One declaration raised to the version; one that starts above it stays. Raises RecipeError."""
    start = floor(place.spec)
    if start is not None and compare_versions(ECOSYSTEM, start, version) > 0:
        return files
    if place.section == PEER_SECTION:
        raise unsupported(
            f"{PEER_SECTION} of {path} asks for {package} {place.spec!r}, which does not admit"
            f" {version}; what its users install is their decision."
        )
    what = foreign(place.spec)
    if what is not None:
        raise unsupported(f"{path} takes {package} from {what} ({place.spec!r}).")
    new = raised(place.spec, version)
    if new is None:
        raise unsupported(
            f"{path} asks for {package} {place.spec!r}, a range that does not admit {version}"
            " and is not one version to raise."
        )
    return files.with_manifest(path, replace_spec(path, files.manifests[path], place, new))


def no_fix(node: Node) -> RecipeError:
    """The typed refusal where nothing safe is named or published above a version."""
    return RecipeError(
        RefusalReason.NO_FIXED_VERSION,
        f"No safe version of {node.name} above {node.version} is known.",
        next_step="Replace the dependency, or take the advisory's workaround.",
    )


def _check_source(tree: Tree, node: Node) -> None:
    """A copy that comes from elsewhere than a registry has no version to raise."""
    if is_orderable(ECOSYSTEM, node.version):
        return
    askers = ", ".join(f"{asker.label} ({ask.spec})" for asker, ask in tree.askers(node.key)[:3])
    raise unsupported(
        f"{node.name} is installed from {foreign(node.version) or 'another source'}"
        f" ({node.version}), asked for by {askers or 'nobody'}: it has no version to raise."
    )


def _who_blocks(
    tree: Tree, asks: tuple[tuple[Node, Ask], ...], node: Node, target: str | None
) -> RecipeError:
    if target is None:
        return no_fix(node)
    for asker, ask in asks:
        if not admits(ask.spec, target):
            return blocked(
                node.name,
                target,
                parent=asker.label,
                spec=ask.spec or "(unsaid)",
                where=tree.source,
            )
    return blocked(node.name, target, parent="several parents", spec="together", where=tree.source)


def raise_override(files: Files, place: OverridePlace, target: str) -> Files:
    """An override that the root manifest has, made to admit the version."""
    path = files.root_manifest
    new = raised(place.spec, target) if floor(place.spec) is not None else target
    text = with_value(path, files.manifests[path], place.keys, new or target)
    return files.with_manifest(path, text)


def unsupported(problem: str) -> RecipeError:
    """The typed refusal for a declaration that no recipe changes."""
    return RecipeError(
        RefusalReason.RECIPE_UNSUPPORTED,
        problem,
        next_step="Change it by hand, or let a model propose the change.",
    )
