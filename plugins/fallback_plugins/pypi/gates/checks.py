"""PyPI's gates on types, which are as they were, and on imports: the project's modules and those of its
direct dependencies can still be imported.

What dependencies are imported as is read in their own metadata; nothing is imported out here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.gates.touched import ASIDE, PyPIGate, beside_base, modules, own_packages
from fallback_plugins.pypi.installing.declared import ProjectFiles, declared
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.locks.uv_lock import read_tree
from fallback_plugins.pypi.manifests.poetry_tables import pipfile_entries, poetry_entries
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.setup_config import items, parsed
from fallback_plugins.pypi.probes.observed import source_of
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import (
    Check,
    Finding,
    Loading,
    judge_check,
    judge_loading,
    limits,
)
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.installed import NotInstalled
from fallback_tier.errors import RecipeError
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

#: Own modules imported in one project; those that the patch touched come first.
MAX_MODULES = 25

#: Dependencies that are asked for. Most projects declare fewer. A compiled requirements file has more,
#: since it names all that is installed: those that the patch can have broken come first.
MAX_DEPENDENCIES = 25

#: Modules of one dependency. Most have one; distributions of a namespace can have dozens.
MAX_MODULES_OF_ONE = 3

#: Top-level folders that releases bring by accident, and that nobody imports.
_ACCIDENTS = ASIDE | {"benchmarks", "scripts", "tools"}
_CODE = frozenset({".py", ".so"})
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)")

#: Distributions by canonical name.
_InstalledByName = Mapping[str, Distribution]


class ImportsGate(PyPIGate):
    """What the patch touched, the project's own packages and its direct dependencies can be imported.

    Dependencies are asked for where the patch changes what is installed.
    """

    name = "imports"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        own = modules(context, folder)[:MAX_MODULES]
        if not own and not project.declares:
            why = f"{folder!r} has no module of its own to import, and declares no dependencies"
            return gating.skipped(self.name, why)
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        names = tuple(dict.fromkeys((*own, *dependency_modules(project))))
        if not names:
            why = f"{folder!r} has no module of its own to import, and no dependency of it moves"
            return gating.skipped(self.name, why)

        def probe(some: Sequence[str]) -> PythonRun:
            return PythonRun(project, ["-c", source_of("import_probe"), *limits(context), *some])

        asked = Loading(names, lambda tree, some: probe(some)(tree), probe(names).at_base)
        return beside_base(project, lambda: judge_loading(self.name, context, folder, asked))


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


def dependency_modules(project: Environment) -> tuple[str, ...]:
    """Modules of what the patched manifests ask for themselves, as it is installed in either tree.

    A top-level module that only the base commit has is among them: who imports it would not find it any
    more. None where both trees have the same installed. Raises as ``Environment.install`` does.
    """
    trees = (project, project.base)
    here, there = (tree.distributions() for tree in trees)
    moved = moved_packages(project)
    if not moved:
        return ()
    near, changed = _needing(here, moved), project.context.application.files
    asked, before = (asked_for(it.repo, it.folder, changed) for it in trees)
    # What the base commit asks for too, and could not be installed there, has nothing to be compared with.
    names = [name for name in asked if name in there or (name in here and name not in before)]
    found: dict[str, None] = {}
    for name in sorted(names, key=lambda name: name not in near)[:MAX_DEPENDENCIES]:
        found |= dict.fromkeys(_first(here, name))
        found |= dict.fromkeys(module for module in _first(there, name) if "." not in module)
    return tuple(found)


def moved_packages(project: Environment) -> set[str]:
    """Return the canonical names of what another release is installed of than at the base commit. Raises as
    ``Environment.install`` does."""
    here, there = (tree.distributions() for tree in (project, project.base))
    return {it for it in {*here, *there} if _version(here, it) != _version(there, it)}


def modules_of(project: Environment, packages: set[str]) -> set[str]:
    """Return the modules of packages and of all that depends on them, as either tree has them installed.
    Raises as ``Environment.install`` does."""
    found = set[str]()
    for tree in (project, project.base):
        installed = tree.distributions()
        for name in _needing(installed, packages) & installed.keys():
            found |= {*import_names(installed[name])}
    return found


def asked_for(repo: RepoContext, folder: str, changed: Sequence[str] = ()) -> tuple[str, ...]:
    """Canonical names of what a folder's manifests and the roots of its uv.lock ask for.

    Where they name nothing, all that another client's lock has: it does not say what was asked for.
    ``changed``: as for ``declared``.
    """
    sources = declared(repo, folder, changed)
    own = [line for source in sources if not source.pinned for line in source.lines]
    project = ProjectFiles(repo, folder)
    found = [*_in_tables(project), *own, *_in_uv_lock(project)]
    lines = found or [line for source in sources for line in source.lines]
    named = (match[1] for line in lines if (match := _NAME.match(line)))
    return tuple(dict.fromkeys(map(canonicalize_name, named)))


def import_names(installed: Distribution) -> list[str]:
    """The shallowest packages and modules that a distribution brings, its namesake first.

    Of a namespace (``google``, which many share) what it has in it. Nothing private, and no module that
    mypyc names after a hash: it is called otherwise in each release.
    """
    shared = set((installed.read_text("namespace_packages.txt") or "").split())
    packages: set[tuple[str, ...]] = set()
    modules: set[tuple[str, ...]] = set()
    for file in installed.files or ():
        stem = file.name.partition(".")[0]
        parts = file.parts[:-1] if stem == "__init__" else (*file.parts[:-1], stem)
        if file.suffix not in _CODE or not _is_public(parts) or ".".join(parts) in shared:
            continue
        (packages if stem == "__init__" else modules).add(parts)
    shallow = [
        parts
        for parts in packages | modules
        if not any(parts[:end] in packages for end in range(1, len(parts)))
    ]
    name = canonicalize_name(installed.metadata["Name"])
    found = (".".join(parts) for parts in sorted(shallow, key=lambda parts: (len(parts), parts)))
    return sorted(found, key=lambda module: canonicalize_name(module) != name)


def _is_public(parts: Sequence[str]) -> bool:
    return (
        bool(parts)
        and parts[0] not in _ACCIDENTS
        and all(part.isidentifier() and not part.startswith("_") for part in parts)
        and not parts[-1].endswith("__mypyc")
    )


def _first(installed: _InstalledByName, name: str) -> list[str]:
    return import_names(installed[name])[:MAX_MODULES_OF_ONE] if name in installed else []


def _version(installed: _InstalledByName, name: str) -> str:
    return installed[name].version if name in installed else "none"


def _needing(installed: _InstalledByName, moved: set[str]) -> set[str]:
    """Return the moved packages and all that depend on them, ignoring environment markers."""
    edges = [
        (name, canonicalize_name(asked[1]))
        for name, one in installed.items()
        for line in one.requires or ()
        if (asked := _NAME.match(line)) is not None
    ]
    found = more = {*moved}
    while more:
        more = {name for name, required in edges if required in more} - found
        found |= more
    return found


def _in_tables(project: ProjectFiles) -> Iterator[str]:
    """Poetry's tables and a Pipfile's: beside a lock nobody installs from them."""
    for name, entries in (("pyproject.toml", poetry_entries), ("Pipfile", pipfile_entries)):
        with suppress(RecipeError):
            yield from [it.name for it in entries(parse_toml(name, project.text(name)))]


def _in_uv_lock(project: ProjectFiles) -> list[str]:
    """Return the dependencies of the project and its workspace's members."""
    with suppress(RecipeError):
        return sorted(read_tree("uv.lock", project.text("uv.lock")).asked)
    return []
