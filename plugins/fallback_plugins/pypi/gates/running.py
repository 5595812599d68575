"""Runs a command of somebody's in the root of a tree, in the environment of its dependencies."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from fallback_plugins.pypi.gates.summaries import failures, pytest_summary, unittest_summary
from fallback_plugins.pypi.installing.environment import Environment, choose_python
from fallback_plugins.pypi.probes import observed, witness_probe
from fallback_plugins.shared.gates.gating import run_as_given
from fallback_plugins.shared.gates.reports import report_in
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, TargetRun
from fallback_tier.repo import RepoContext

#: A root that has one of these is installed itself.
_ROOT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile")


def runs_on(context: GateContext, tree: RepoContext, argv: Sequence[str]) -> str:
    """``EcosystemPlugin.runs_on``; empty where a manifest can't be read, so that nothing runs."""
    try:
        return Environment(context, tree, _folder(tree), _runner(argv)).contents()
    except (RecipeError, RepositoryError):
        return ""


def run(
    context: GateContext,
    tree: RepoContext,
    argv: Sequence[str],
    timeout_s: float | None = None,
) -> TargetRun:
    """``EcosystemPlugin.run``: ``python`` is the environment's, also where nothing is declared."""
    try:
        project = Environment(context, tree, _folder(tree), _runner(argv))
        found = project.install()
    except (RecipeError, RepositoryError) as error:
        return TargetRun(None, error.problem)
    project.write_versions()

    def run_with(env: Mapping[str, str]) -> CommandResult:
        result = run_as_given(
            context,
            tree,
            argv,
            programs=project.place / "bin",
            timeout_s=timeout_s,
            env={**project.variables(), **env},
            readable=project.readable,
        )
        return project.placeless(result)

    witnessed = None
    if context.is_proof:
        header = secrets.token_hex(16)
        with report_in(tree.tree) as record:
            record.begin(header)
            result = run_with({observed.VARIABLE: record.path, witness_probe.VARIABLE: "first"})
            told = record.read()
        output = result.output
        counted = pytest_summary(output) or unittest_summary(output)
        ran = 0 if counted is None else counted.ran
        witnessed = observed.read_witness(told, header, ran, failures(output))
    else:
        result = run_with({})
    return TargetRun(
        result,
        "" if found.is_as_declared else found.in_words,
        found.compared,
        witnessed,
    )


def run_on_another(
    context: GateContext, tree: RepoContext, argv: Sequence[str], number: int
) -> bool:
    """``EcosystemPlugin.run_on_another``: another Python."""
    if number == 0:
        choose_python(context, None)
        return True
    suited = Environment(context, tree, _folder(tree), _runner(argv)).suited
    if number >= len(suited):
        return False
    choose_python(context, suited[number])
    return True


def _folder(tree: RepoContext) -> str:
    """Whose dependencies: the root's; where it has no project, the affected package's own."""
    if any(tree.has(name) for name in _ROOT) or tree.affected is None:
        return "."
    folders = {str(PurePosixPath(own.manifest).parent) for own in tree.affected.own}
    return folders.pop() if len(folders) == 1 else "."


def _runner(argv: Sequence[str]) -> str | None:
    """A test runner that the command itself names."""
    return "pytest" if "pytest" in argv or "py.test" in argv else None
