"""Runs a command of somebody's in the root of a tree, with what npm installs there."""

from collections.abc import Sequence

from fallback_plugins.commands import run_as_given
from fallback_plugins.npm.installation import Installation
from fallback_plugins.npm.layout import MANIFEST
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.ports import GateContext, TargetRun
from fallback_tier.repo import RepoContext

#: Where npm puts the programs of what it installs.
_PROGRAMS = "node_modules/.bin"


def run(
    context: GateContext, tree: RepoContext, argv: Sequence[str], timeout_s: float | None = None
) -> TargetRun:
    """``EcosystemPlugin.run``: workspaces are installed with their root."""
    if tree.has(MANIFEST):
        try:
            installed = Installation(context, tree, ".").installed()
        except (RecipeError, RepositoryError) as error:
            return TargetRun(None, error.problem)
        if not installed:
            return TargetRun(None, "npm can't install what package.json declares")
    programs = tree.root / _PROGRAMS
    return TargetRun(run_as_given(context, tree, argv, programs=programs, timeout_s=timeout_s))
