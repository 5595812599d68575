"""The override step: a version that a parent did not ask for, forced on it within its compatible range."""

from dataclasses import dataclass
from functools import partial

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.npm.client import Files
from fallback_plugins.npm.manifests.declaring import (
    blocked_by,
    holding,
    no_fix,
    raise_overrides,
)
from fallback_plugins.npm.manifests.layout import ECOSYSTEM
from fallback_plugins.npm.manifests.specs import admits, compatible
from fallback_plugins.npm.refusals import unsupported
from fallback_plugins.npm.strategies.bundles import refuse_bundled
from fallback_plugins.npm.strategies.parents import ParentWalk
from fallback_plugins.npm.strategies.resolving import NpmPosition, NpmStep, Resolver, asked_by_root
from fallback_plugins.shared.bumping import no_override, use_bump
from fallback_plugins.shared.ladder import PROJECT, Reached, does_not_apply, does_not_serve, worse
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.advisory import compare_versions
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError


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
            message = f"What depends on {package} admits a safe version already."
            return Reached(at, declined={package: unsupported(message)})
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
