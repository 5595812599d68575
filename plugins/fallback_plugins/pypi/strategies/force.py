"""The refusals of a model's override in a Python project."""

from collections.abc import Iterable, Mapping

from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.shared.bumping import no_override, use_bump
from fallback_plugins.shared.ladder import ProjectFix
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.advisory import Advisory


def refuse_direct(
    packages: Iterable[str], tree: DependencyTree, manifests: Mapping[str, str]
) -> None:
    """Raises RecipeError for a package that the project asks for, constrains or overrides itself."""
    asked = {ask.name for root in tree.roots for ask in root.asks}
    for package in packages:
        place = next(lock_edit.declared(manifests, package), None)
        if place is not None or package in asked:
            raise use_bump(package, f"declared in {place[0] if place else tree.source}")


def refuse_force(
    advisory: Advisory, tree: DependencyTree, manifests: Mapping[str, str], client: str
) -> ProjectFix | None:
    """The refusal of a client without overrides; None: nothing is affected."""
    affected = lock_edit.affected_versions(tree, advisory)
    if not affected:
        return None
    refuse_direct(affected, tree, manifests)
    raise no_override(f"{client}, which {tree.source} is locked by, has no overrides.")
