"""Runs a command of somebody's in the root of a tree, in the environment of its dependencies."""

from collections.abc import Sequence

from fallback_plugins.commands import run_as_given
from fallback_plugins.pypi.environment import Environment
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.ports import GateContext, TargetRun
from fallback_tier.repo import RepoContext


def runs_on(context: GateContext, tree: RepoContext) -> str:
    """``EcosystemPlugin.runs_on``; empty where a manifest can't be read, so that nothing runs."""
    try:
        return Environment(context, tree, ".").key
    except (RecipeError, RepositoryError):
        return ""


def run(
    context: GateContext, tree: RepoContext, argv: Sequence[str], timeout_s: float | None = None
) -> TargetRun:
    """``EcosystemPlugin.run``: ``python`` is the environment's, also where nothing is declared."""
    try:
        project = Environment(context, tree, ".")
        found = project.install()
    except (RecipeError, RepositoryError) as error:
        return TargetRun(None, error.problem)
    told = found.in_words if found.declined else ""
    result = run_as_given(
        context,
        tree,
        argv,
        programs=project.place / "bin",
        timeout_s=timeout_s,
        env={"VIRTUAL_ENV": str(project.place), **project.variables()},
        readable=[project.place],
    )
    return TargetRun(result, told)
