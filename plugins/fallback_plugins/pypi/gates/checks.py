"""PyPI's gate on types: they are as they were. And a command of any tree's Python, for every such check."""

from collections.abc import Sequence
from dataclasses import dataclass

from fallback_plugins.pypi.gates.lacking import beside_base
from fallback_plugins.pypi.gates.touched import PyPIGate
from fallback_plugins.pypi.gates.type_checkers import TypeChecker, configured
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import Check, judge_check
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext


class TypecheckGate(PyPIGate):
    """mypy or pyright, where the project both configures and installs it."""

    name = "typecheck"

    def _checks(self, context: GateContext, folder: str) -> Sequence[GateVerdict]:
        repo = gating.patched(context)
        checkers = configured(repo, folder)
        if not checkers:
            return [gating.skipped(self.name, f"{folder!r} configures neither mypy nor pyright")]
        project = Environment(context, repo, folder)
        if (absent := project.install().absent) is not None:
            return [gating.skipped(self.name, absent.sentence)]
        return [self._check(project, checker) for checker in checkers]

    def _check(self, project: Environment, checker: TypeChecker) -> GateVerdict:
        if not project.installed(checker.name):
            why = f"{checker.name} is configured, but not among the project's dependencies"
            return gating.skipped(self.name, why)
        run = PythonRun(project, ["-m", checker.name, *checker.arguments])
        reported = (checker.findings, checker.is_blocked, checker.arguments)
        check = Check(checker.name, run, *reported, on=run.at_base)
        where = (project.context, project.folder)
        return beside_base(project, lambda: judge_check(self.name, *where, check))


@dataclass(frozen=True)
class PythonRun:
    """Runs the same arguments with the Python of a project's environment, in any tree."""

    project: Environment
    arguments: Sequence[str]

    def at_base(self) -> str:
        """What it runs on at the base commit."""
        return self.project.base.contents()

    def __call__(self, tree: RepoContext) -> CommandResult | NotInstalled:
        """Their output has relative paths. Raises what installing and running raise."""
        target = self.project.in_tree(tree)
        return target.install().absent or target.sandboxed(self.arguments)
