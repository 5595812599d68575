"""PyPI's gate on types: they are as they were. And a command of any tree's Python, for every such check."""

from collections.abc import Sequence
from dataclasses import dataclass

from fallback_plugins import gating
from fallback_plugins.comparing import Check, judge_check, together
from fallback_plugins.installed import Level, NotInstalled
from fallback_plugins.pypi.drift import beside_drift
from fallback_plugins.pypi.environment import Environment
from fallback_plugins.pypi.touched import touched_folders
from fallback_plugins.pypi.type_checkers import TypeChecker, configured
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext


@dataclass(frozen=True)
class TypecheckGate:
    """mypy or pyright, where the project both configures and installs it."""

    name: str = "typecheck"

    def judge(self, context: GateContext) -> GateVerdict:
        """Compare the complaints with the base commit's. Raises SandboxError, ToolError."""
        folders = touched_folders(context)
        return together(
            self.name, [told for folder in folders for told in self._project(context, folder)]
        )

    def _project(self, context: GateContext, folder: str) -> Sequence[GateVerdict]:
        repo = gating.patched(context)
        checkers = configured(repo, folder)
        if not checkers:
            return [gating.skipped(self.name, f"{folder!r} configures neither mypy nor pyright")]
        project = Environment(context, repo, folder)
        if (why := not_installed(project)) is not None:
            return [gating.skipped(self.name, why)]
        return [self._check(project, checker) for checker in checkers]

    def _check(self, project: Environment, checker: TypeChecker) -> GateVerdict:
        if not project.installed(checker.name):
            why = f"{checker.name} is configured, but not among the project's dependencies"
            return gating.skipped(self.name, why)
        run = PythonRun(project.context, project.folder, ["-m", checker.name, *checker.arguments])
        told = (checker.findings, checker.is_blocked, checker.arguments)
        check = Check(checker.name, run, *told, on=run.at_base)
        verdict = judge_check(self.name, project.context, project.folder, check)
        return beside_drift(project.context, project.folder, verdict)


@dataclass(frozen=True)
class PythonRun:
    """Runs the same arguments with the environment's Python of any tree."""

    context: GateContext
    folder: str
    arguments: Sequence[str]

    def at_base(self) -> str:
        """What it runs on at the base commit."""
        return Environment(self.context, self.context.repo, self.folder).contents()

    def __call__(self, tree: RepoContext) -> CommandResult | NotInstalled:
        """Their output has relative paths. Raises what installing and running raise."""
        target = Environment(self.context, tree, self.folder)
        found = target.install()
        if found.level is Level.METADATA:
            return NotInstalled(found.in_words)
        return target.sandboxed(self.arguments)


def not_installed(project: Environment) -> str | None:
    """Why nothing can be run with a project's dependencies, in a sentence; None where it can."""
    found = project.install()
    if found.level is not Level.METADATA:
        return None
    return f"the project's dependencies could not be installed: {found.in_words}"
