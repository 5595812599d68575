"""PyPI's gate on types: they are as they were. And a command of any tree's Python, for every such check."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from fallback_plugins.pypi.gates.lacking import beside_base
from fallback_plugins.pypi.gates.touched import PyPIGate, own_packages
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.setup_config import items, parsed
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import Check, Finding, judge_check
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: One complaint a line, and nothing kept: what the checker found before is the base commit's to say.
_MYPY_OPTIONS = (
    "--no-color-output",
    "--no-error-summary",
    "--no-pretty",
    "--hide-error-context",
    "--cache-dir=/dev/null",
)

#: Settings of mypy that name what is checked.
_MYPY_TARGETS = frozenset({"files", "packages", "modules"})

#: mypy's lines, and pyright's, which it indents.
_COMPLAINT = re.compile(r"^ *(?P<path>[^\s:][^:]*):\d+(?::\d+)?(?: -|:) error: (?P<what>.*)$")


@dataclass(frozen=True)
class TypeChecker:
    """A checker (a module to run, of the distribution's name) and its arguments."""

    name: str
    arguments: tuple[str, ...]

    @staticmethod
    def findings(output: str) -> list[Finding]:
        """The complaints in its output; notes explain those and are none."""
        found = (_COMPLAINT.fullmatch(line) for line in output.splitlines())
        return [Finding(f"{one['path']}: {one['what']}", one[0].strip()) for one in found if one]

    @staticmethod
    def is_blocked(result: CommandResult) -> bool:
        """Did it stop at something that it could not read, or could not start? Both checkers exit with 1
        where all they have to say is said."""
        return result.exit_code != 1


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


def configured(repo: RepoContext, folder: str) -> tuple[TypeChecker, ...]:
    """The checkers that a project configures: in pyproject.toml, or in a file of their own.

    Raises RecipeError, RepositoryError for a pyproject.toml that can't be read.
    """
    tools = _tools(repo, folder)
    found = []
    mypy = _mypy(repo, folder, tools)
    if mypy is not None:
        named = () if _MYPY_TARGETS.intersection(mypy) else _targets(repo, folder)
        found.append(TypeChecker("mypy", (*_MYPY_OPTIONS, *named)))
    if "pyright" in tools or repo.has(in_folder(folder, "pyrightconfig.json")):
        found.append(TypeChecker("pyright", ()))
    return tuple(found)


def _tools(repo: RepoContext, folder: str) -> dict[str, Any]:
    path = in_folder(folder, "pyproject.toml")
    tools = parse_toml(path, repo.read_text(path)).get("tool") if repo.has(path) else None
    return tools if isinstance(tools, dict) else {}


def _mypy(repo: RepoContext, folder: str, tools: dict[str, Any]) -> dict[str, Any] | None:
    """mypy's settings, from the first place that has any, in its own order."""
    for name in ("mypy.ini", ".mypy.ini"):
        if (settings := _ini(repo, in_folder(folder, name))) is not None:
            return settings
    table = tools.get("mypy")
    return table if isinstance(table, dict) else _ini(repo, in_folder(folder, "setup.cfg"))


def _ini(repo: RepoContext, path: str) -> dict[str, Any] | None:
    """The section ``[mypy]`` of a file; None where there is no such file or section."""
    parser = parsed(repo.read_text(path) if repo.has(path) else "")
    return dict(items(parser, "mypy")) if parser.has_section("mypy") else None


def _targets(repo: RepoContext, folder: str) -> tuple[str, ...]:
    """The project's own packages, relative to its folder; the folder where it has none."""
    packages = own_packages(repo, folder)
    return tuple(str(PurePosixPath(path).relative_to(folder)) for path in packages) or (".",)
