"""PyPI's gates between installing and testing: modules import, and the types are as they were."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fallback_plugins import gating
from fallback_plugins.comparing import Check, Finding, judge_check, together
from fallback_plugins.installed import Level, NotInstalled
from fallback_plugins.pypi.environment import Environment
from fallback_plugins.pypi.touched import modules, touched_folders
from fallback_plugins.pypi.type_checkers import TypeChecker, configured
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Modules imported in one project; those that the patch touched come first.
MAX_MODULES = 25

#: Wall clock of one import. What needs longer starts something, and no check should wait for that.
IMPORT_TIMEOUT_S = 30.0

_CANNOT_IMPORT = re.compile(r"^cannot import (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class ImportsGate:
    """The modules that the patch touched, and the project's own packages, can be imported."""

    name: str = "imports"

    def judge(self, context: GateContext) -> GateVerdict:
        """Import each by itself, in the sandbox. Raises SandboxError, ToolError."""
        folders = touched_folders(context)
        return together(self.name, [self._project(context, folder) for folder in folders])

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        names = modules(context, folder)[:MAX_MODULES]
        if not names:
            return gating.skipped(self.name, f"{folder!r} has no module of its own to import")
        if (
            why := _not_installed(Environment(context, gating.patched(context), folder))
        ) is not None:
            return gating.skipped(self.name, why)
        source = files("fallback_plugins.pypi").joinpath("import_probe.py").read_text("utf-8")
        arguments = ["-c", source, str(IMPORT_TIMEOUT_S), *names]
        label = f"import of {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        run = _PythonRun(context, folder, arguments)
        check = Check(label, run, _failed, inputs=names, on=run.at_base)
        return judge_check(self.name, context, folder, check)


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
        if (why := _not_installed(project)) is not None:
            return [gating.skipped(self.name, why)]
        return [self._check(project, checker) for checker in checkers]

    def _check(self, project: Environment, checker: TypeChecker) -> GateVerdict:
        if not project.installed(checker.name):
            why = f"{checker.name} is configured, but not among the project's dependencies"
            return gating.skipped(self.name, why)
        run = _PythonRun(project.context, project.folder, ["-m", checker.name, *checker.arguments])
        told = (checker.findings, checker.is_blocked, checker.arguments)
        check = Check(checker.name, run, *told, on=run.at_base)
        return judge_check(self.name, project.context, project.folder, check)


@dataclass(frozen=True)
class _PythonRun:
    """Runs the same arguments with the environment's Python of any tree."""

    context: GateContext
    folder: str
    arguments: Sequence[str]

    def at_base(self) -> str:
        """What it runs on at the base commit."""
        return Environment(self.context, self.context.repo, self.folder).contents()

    def __call__(self, tree: RepoContext) -> CommandResult | NotInstalled:
        target = Environment(self.context, tree, self.folder)
        found = target.install()
        if found.level is Level.METADATA:
            return NotInstalled(found.in_words)
        result = target.sandboxed(self.arguments)
        return result.model_copy(update={"output": gating.relative_log(result, tree.root)})


def _not_installed(project: Environment) -> str | None:
    """Why nothing can be run with a project's dependencies, in a sentence; None where it can."""
    found = project.install()
    if found.level is not Level.METADATA:
        return None
    return f"the project's dependencies could not be installed: {found.in_words}"


def _failed(output: str) -> list[Finding]:
    return [Finding(found[1], found[0]) for found in _CANNOT_IMPORT.finditer(output)]
