"""A model's override: one version forced on everybody who brings in a package, by that rung alone."""

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.bumping import no_override, use_bump
from fallback_plugins.npm.climb import Climb
from fallback_plugins.npm.layout import ECOSYSTEM
from fallback_plugins.npm.near import raise_override
from fallback_plugins.npm.specs import admits, compatible
from fallback_plugins.npm.standing import Mended
from fallback_plugins.tree import Node
from fallback_tier.advisory import compare_versions
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError


def force(climb: Climb, package: str, version: str) -> None:
    """Every affected copy at the version, within its major as the ladder's own override is.

    An override that is there already is raised; else each parent that asks for an affected copy gets
    one. Raises RecipeError: a direct dependency, another major, a downgrade, or it didn't serve.
    """
    nodes = climb.affected()
    for node in nodes:
        _check(climb, node, version)
    files = climb.files
    for place in climb.client.overrides(files, package):
        if not admits(place.spec, version):
            files = raise_override(files, place, version)
    if files is climb.files:
        for asker, ask in (pair for node in nodes for pair in climb.tree.askers(node.key)):
            files = climb.client.with_override(files, climb.parent_key(asker), ask.name, version)
    how = {(node.name, node.version): Mended(LadderStep.OVERRIDE) for node in nodes}
    problem = climb.accept(climb.resolve(files, {}), how)
    left = climb.affected()
    if problem is None and left:
        problem = f"{left[0].label} would still be installed."
    if problem is not None:
        raise no_override(f"An override of {package} to {version} does not serve. {problem}")


def _check(climb: Climb, node: Node, version: str) -> None:
    source = climb.tree.source
    if any(climb.tree.is_root(asker) for asker, _ in climb.tree.askers(node.key)):
        raise use_bump(node.name, f"asked for in {source} by the project itself")
    if not is_orderable(ECOSYSTEM, node.version):
        raise no_override(f"{source} takes {node.name} from {node.version}, which has no version.")
    if not compatible(node.version, version):
        raise RecipeError(
            RefusalReason.BLOCKED_BY_CONSTRAINT,
            f"{source} holds {node.label}; {version} is not compatible with it, and is not forced on who"
            " asks for that.",
            next_step="Use dependency_bump for the package that brings it in, or refuse.",
        )
    if compare_versions(ECOSYSTEM, version, node.version) <= 0:
        raise no_override(f"{node.name} {version} would be a downgrade from {node.version}.")
