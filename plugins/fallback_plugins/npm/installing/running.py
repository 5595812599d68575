"""Runs a command of somebody's in the root of a tree, with what is installed there."""

from collections.abc import Callable, Sequence

from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests.layout import MANIFEST
from fallback_plugins.shared.gates.commands import run_as_given
from fallback_plugins.shared.gates.drifting import in_words
from fallback_plugins.shared.versions import interpreters
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.gate_ports import GateContext, TargetRun
from fallback_tier.repo import RepoContext

#: Where clients put the programs of what they install.
_PROGRAMS = "node_modules/.bin"


def runs_on(context: GateContext, tree: RepoContext) -> str:
    """``EcosystemPlugin.runs_on``; empty where a manifest can't be read, so that nothing runs."""
    if not tree.has(MANIFEST):
        return interpreters(context.clients)
    try:
        return Installation(context, tree, ".").contents()
    except (RecipeError, RepositoryError):
        return ""


def run(
    context: GateContext,
    tree: RepoContext,
    argv: Sequence[str],
    timeout_s: float | None = None,
    drifted: Callable[[Installation, Installation], Sequence[str]] = lambda *_: (),
) -> TargetRun:
    """``EcosystemPlugin.run``: workspaces are installed with their root. ``drifted``: which releases differ
    from the base commit's though the patch does not move them."""
    message = compared = ""
    project = None
    if tree.has(MANIFEST):
        try:
            project = Installation(context, tree, ".")
            found = project.install()
        except (RecipeError, RepositoryError) as error:
            return TargetRun(None, error.problem)
        message, compared = found.in_words if found.declined else "", found.compared
        tree = tree.laid_out(project.tree)
    programs = tree.root / _PROGRAMS
    result = run_as_given(context, tree, argv, programs=programs, timeout_s=timeout_s)
    if project is None or not context.repo.has(MANIFEST):
        return TargetRun(result, message, compared)
    ours = project

    def drift() -> str:
        return in_words(drifted(ours, Installation(context, context.repo, ".")))

    return TargetRun(result, message, compared, drift)
