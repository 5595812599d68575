"""Python projects that a patch touches, and PyPI's gates on what is installed in each: it resolves, has no
affected version, can be imported, and has no new type errors.

Names of dependencies' modules come from their metadata; nothing is imported outside the sandbox.

A failure in another setting than the base commit's, or with more packages than the base commit has, is left
to a person (ADR-0077). Requirements files that contradict each other are installed in part, and so are pins
without a wheel. If the patch moves a line that was not available at the base commit either, the new line is
not a new failure by itself.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from packaging.utils import canonicalize_name

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_plugins.pypi.installing.declared import ProjectFiles, declared
from fallback_plugins.pypi.installing.environment import Environment
from fallback_plugins.pypi.installing.plan import is_test
from fallback_plugins.pypi.locks.uv_lock import read_tree
from fallback_plugins.pypi.manifests.kinds import LOCKS, Kind, kind_of
from fallback_plugins.pypi.manifests.metadata import items, parsed
from fallback_plugins.pypi.manifests.pyproject import (
    parse_toml,
    pipfile_entries,
    poetry_entries,
    table_of,
)
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.probes.observed import source_of
from fallback_plugins.pypi.surveying.deciding import places_in_use, project_of
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    Place,
    left_out,
    only_affected,
    survey,
)
from fallback_plugins.pypi.surveying.unread_sources import unread_sources
from fallback_plugins.pypi.uv_words import one_line
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import (
    Check,
    Finding,
    Loading,
    NotVulnerable,
    ProjectGate,
    ResolvingGate,
    is_left_out,
    judge_check,
    judge_loading,
    left_aside,
    limits,
    may_stay,
    still_installed,
)
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.installation import Installed, NotInstalled
from fallback_plugins.shared.unread import surveyed
from fallback_tier.advisory import is_affected
from fallback_tier.errors import RecipeError, ToolFailedError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: Folders at a project's root whose Python files are not part of its packages.
_ASIDE = frozenset({"test", "tests", "testing", "doc", "docs", "example", "examples", "bench"})

#: Files that a tool runs, and that no code imports.
_RUN = frozenset({"setup.py", "conftest.py", "noxfile.py", "fabfile.py", "tasks.py", "__main__.py"})

#: Packages that a verdict's sentence names at most.
_NAMED = 3

#: uv's texts for a release that exists, but can't be installed on this machine without building it.
_NO_WHEEL = ("has no usable wheels", "has no wheels with a matching")


class PyPIGate(ProjectGate):
    """Gate on each Python project that the patch touches."""

    def _touched(self, context: GateContext) -> tuple[str, ...]:
        return touched_folders(context)


def touched_folders(context: GateContext) -> tuple[str, ...]:
    """Return the projects that the patch touched; a repository without any manifest is one project."""
    projects = {
        str(PurePosixPath(path).parent)
        for path in context.repo.tracked_files
        if kind_of(path) is not None and PurePosixPath(path).parent.name != "requirements"
    }
    return gating.project_folders(context, lambda folder: folder in projects or folder == ".")


def own_packages(repo: RepoContext, folder: str) -> tuple[str, ...]:
    """Return the paths of a project's top-level packages, flat or below ``src``."""
    paths = []
    for root in (folder, in_folder(folder, "src")):
        for path in repo.tracked_files:
            pure = PurePosixPath(path)
            if pure.name == "__init__.py" and pure.parent.parent == PurePosixPath(root):
                paths.append(str(pure.parent))
    return tuple(path for path in paths if PurePosixPath(path).name not in {*_ASIDE, "src"})


def modules(context: GateContext, folder: str) -> tuple[str, ...]:
    """Return the dotted names of the modules that the patch touched, then of the project's own packages.

    Modules that the patch removed are left out: those that still import one are in the list.
    """
    repo = gating.patched(context)
    names: dict[str, None] = {}
    inits = (f"{package}/__init__.py" for package in own_packages(repo, folder))
    for path in (*context.application.files, *inits):
        name = _module(repo, folder, path)
        if name is not None and repo.tree.find(path) is not None:
            names[name] = None
    return tuple(names)


def _module(repo: RepoContext, folder: str, path: str) -> str | None:
    """Return the name by which a file is imported from the project's root, or from ``src``; None for a
    script in a folder that is not a package, for tests, and for what tools run."""
    pure = PurePosixPath(path)
    if not pure.is_relative_to(folder) or pure.suffix != ".py":
        return None
    if pure.name in _RUN or is_test(path, folder):
        return None
    parts = pure.relative_to(folder).with_suffix("").parts
    src = in_folder(folder, "src")
    if parts[0] == "src" and not repo.has(f"{src}/__init__.py"):
        folder, parts = src, parts[1:]
    packages = [in_folder(folder, "/".join(parts[:end])) for end in range(1, len(parts))]
    if not all(repo.tree.find(f"{package}/__init__.py") for package in packages):
        return None
    if parts[-1] == "__init__":
        parts = parts[:-1]
    if not parts or parts[0] in _ASIDE or not all(part.isidentifier() for part in parts):
        return None
    return ".".join(parts)


def beside_base(project: Environment, judge: Callable[[], GateVerdict]) -> GateVerdict:
    """Return the verdict of ``judge`` on a patched project. If the base commit is installed in another
    setting, a failure becomes undecided, and so does a pass with failing tests if the base commit lacks
    packages. Raises as ``judge`` and ``Environment.install`` do."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    otherwise = project.otherwise()
    if verdict.status is not GateStatus.FAILED:
        lacked = lacked_at_base(project, project.base)
        if lacked:
            otherwise = otherwise or f"that lacks {gating.some_of(lacked, _NAMED)}"
    return gating.beside_another_setting(verdict, otherwise)


def lacks_by_the_patch(patched: Environment, base: Environment) -> bool:
    """Return whether the patched tree lacks more than the base commit's, apart from a moved line that was
    not available at the base commit either.

    Such a line is compared with the base commit's again: its file is installed alone, so that no other file
    contradicts it. Raises as ``Environment.install`` does.
    """
    patched_installed, base_installed = patched.install(), base.install()
    if patched_installed.level is not base_installed.level:
        return patched_installed.lacks_beside(base_installed)
    before = {_package(line) for line, _ in base_installed.declined}
    files: dict[str, None] = {}
    for line in _new(patched_installed, base_installed):
        declaring_files = patched.declaring(line)
        if not declaring_files or _package(line) not in before:
            return True
        files |= dict.fromkeys(declaring_files)
    return any(_lacks(patched.alone(file).install(), base.alone(file).install()) for file in files)


def lacked_at_base(patched: Environment, base: Environment) -> list[str]:
    """Return packages that were not available at the base commit, but are with the patch, as required or in
    any version. Raises as ``Environment.install`` does."""
    patched_lacks, base_lacks = (
        {_package(line) for line, _ in tree.install().declined} for tree in (patched, base)
    )
    added = patched.distributions().keys() - base.distributions().keys()
    return sorted(base_lacks - (patched_lacks - added))


def _lacks(patched: Installed, base: Installed) -> bool:
    if patched.level is not base.level:
        return patched.lacks_beside(base)
    return bool(_new(patched, base))


def _new(patched: Installed, base: Installed) -> list[str]:
    """Return lines that fail only in the patched tree; none of a package without a wheel in both trees."""
    lines = {line for line, _ in base.declined}
    without_wheel = {_package(line) for line, why in base.declined if _is_without_wheel(line, why)}
    return [
        line
        for line, why in patched.declined
        if line not in lines
        and not (_package(line) in without_wheel and _is_without_wheel(line, why))
    ]


def _is_without_wheel(line: str, why: str) -> bool:
    requirement = requirement_in(line)
    if requirement is None:
        return False
    release = re.escape(f"{requirement.name}{requirement.specifier}")  # no end of a longer name
    return re.search(rf"(?<![\w.-]){release} (?:{'|'.join(_NO_WHEEL)})", one_line(why)) is not None


def _package(line: str) -> str:
    """Return the package that a line requires; the whole line if it is not a requirement (a step's
    name)."""
    requirement = requirement_in(line)
    return line if requirement is None else canonicalize_name(requirement.name)


#: Projects and files that the patch does not touch, but that are installed to look for one package. If
#: there are more, their proof is what they declare.
MAX_OTHERS = 8


class ResolvesGate(ResolvingGate, PyPIGate):
    """Gate: the real uv installs the patched requirements, and Python starts with them in the sandbox."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        if not project.declares:
            return gating.without_dependencies(self.name, repr(project.folder))
        installed = project.install()

        def lacks() -> bool:
            return lacks_by_the_patch(project, project.base)

        if (verdict := gating.of_installed(self.name, "uv", installed, lacks)) is not None:
            return verdict
        started = project.sandboxed(["-I", "-c", "import sys"])
        if started.timed_out:
            return gating.timed_out(self.name, started, context)
        if not started.ok:
            message = (
                f"Python does not start with these packages: {gating.in_short(started.output)}"
            )
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, message, started.output)
        what = f"uv installs {', '.join(project.sources)}"
        if otherwise := project.in_another_setting():
            return gating.undecided(
                self.name, f"{what}, and not as at the base commit: {otherwise}"
            )
        base = project.base.install()
        if installed.declined:
            what += f" {installed.in_words}"
            what += "; so it is at the base commit" if base.absent is None else ""
        elif installed.unusual:
            what += f", {', '.join(installed.unusual)}"
        if installed.beside:
            what += f"; beside it {', '.join(installed.beside)}, which its code imports"
        return gating.beside_base(
            gating.passed(self.name, what, installed.in_full), installed, base
        )


class NotVulnerableGate(NotVulnerable):
    """Gate: no affected version is installed, locked or pinned."""

    ecosystem = ECOSYSTEM

    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        places, beside = surveyed(package, context.repo, repo, survey, left_out)
        if places is None:
            return gating.unread(self.name, beside)
        environments = _Installed(context, repo, package, places)
        copies = environments.held(repo, places, environments.versions)
        bad = environments.affected(copies)
        aside = left_aside(context.application, dict(bad))
        bad = [copy for copy in bad if copy[0] not in aside]
        copies = [copy for copy in copies if copy[0] not in aside]
        if aside and not bad:
            where = ", ".join(sorted(aside))
            what = f"{package} stays affected in {where}, which is left as it is"
            # A lock may be outdated; a declaration is deliberate.
            is_locked = all(kind_of(path) in LOCKS for path in aside)
            return (gating.unread if is_locked else gating.undecided)(self.name, what)
        if bad:
            messages = [f"{place} has {version}" for place, version in bad]
            if not environments.may_stay(bad):
                return self._still_affected(package, messages)
            beside += f"; stays affected, as was planned: {', '.join(messages)}"
            copies = [copy for copy in copies if copy not in bad]
            if not copies:
                return gating.skipped(self.name, f"{package} is not fixed{beside}")
        if copies:
            if unknown := environments.doubt(planned=[version for _, version in bad]):
                return gating.unread(self.name, f"{unknown}{beside}")
            versions = ", ".join(sorted({version for _, version in copies}))
            return self._proved(f"{package} {versions}{beside}", environments.projects)
        if places:
            where = ", ".join(sorted({place.path for place in places}))
            return gating.unread(self.name, f"{where} does not say which version of {package}")
        if survey(context.repo, package):
            if unknown := environments.doubt():
                return gating.unread(self.name, f"{unknown}{beside}")
            return self._proved(f"{package} is no longer declared{beside}", environments.without)
        return gating.skipped(
            self.name, f"{package} is not a dependency of this repository{beside}"
        )

    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> dict[str, str]:
        """Return where the base commit has an affected version from a registry, in addition to own
        code."""
        return {
            place.path: place.current
            for package in packages
            for place in places_in_use(context.repo, survey(context.repo, package))
            if place.current is not None
            and is_affected(context.advisory, ECOSYSTEM, package, place.current)
        }


class _Installed:
    """Versions of a package in the environments of the projects that have it."""

    def __init__(
        self, context: GateContext, repo: RepoContext, package: str, places: Sequence[Place]
    ) -> None:
        self._context, self._repo, self._package, self._places = context, repo, package, places
        self._touched = {
            folder: Environment(context, repo, folder) for folder in touched_folders(context)
        }
        #: Versions by folder of a touched project, if its own client would install the same.
        self.versions = {
            folder: environment.resolved(package) for folder, environment in self._touched.items()
        }

    def held(
        self, repo: RepoContext, places: Sequence[Place], environments: Mapping[str, Sequence[str]]
    ) -> list[tuple[str, str]]:
        """Return (place, version) of each copy in use. For a range that only affected versions satisfy, the
        range is in the version's place."""
        in_use = places_in_use(repo, places, environments)
        copies = [(place.path, place.current) for place in in_use if place.current is not None]
        advisory = self._context.advisory
        for place in in_use:
            declaration = place.asked if place.current is None else None
            if (
                declaration
                and declaration.clauses
                and only_affected(advisory, self._package, declaration)
            ):
                copies.append((place.path, declaration.pep440))
        for folder, versions in environments.items():
            copies += [(f"the environment of {folder!r}", version) for version in versions]
        return copies

    def affected(self, copies: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return which of these copies are affected."""
        advisory = self._context.advisory
        return [copy for copy in copies if is_affected(advisory, ECOSYSTEM, self._package, copy[1])]

    def may_stay(self, bad: Sequence[tuple[str, str]]) -> bool:
        """Return whether the affected versions are only those that the files state, and may stay according
        to the base commit's files."""
        base_repo = self._context.repo
        in_files = self.held(self._repo, self._places, {})
        in_base = self.held(base_repo, survey(base_repo, self._package), {})
        now, before = (
            [copy[1] for copy in self.affected(copies)] for copies in (in_files, in_base)
        )
        are_in_files = {version for _, version in bad} <= {*now}
        application, advisory = self._context.application, self._context.advisory
        return are_in_files and may_stay(
            advisory, application, ECOSYSTEM, self._package, now, before
        )

    @property
    def projects(self) -> list[ProvedProject]:
        """Return each project that has the package, with the versions seen there or declared."""
        proved = []
        for environment in {**self._touched, **self._others}.values():
            if versions := environment.resolved(self._package):
                proved.append(
                    self._project(
                        ", ".join(environment.sources), ProofLevel.RESOLVED_TREE, versions
                    )
                )
        for place in self._unseen:
            specifier = place.asked.pep440 if place.asked is not None else ""
            declared = tuple(filter(None, (place.current or specifier,)))
            proved.append(self._project(place.path, ProofLevel.PINS, declared))
        return proved

    @property
    def without(self) -> list[ProvedProject]:
        """The projects that had the package, and whose files no longer name it."""
        proved = []
        for environment in self._touched.values():
            shown = environment.base.installed(self._package) and environment.is_whole
            level = ProofLevel.RESOLVED_TREE if shown else ProofLevel.PINS
            proved.append(
                self._project(", ".join(environment.sources) or environment.folder, level, ())
            )
        return proved

    def _project(self, project: str, level: ProofLevel, versions: Sequence[str]) -> ProvedProject:
        return ProvedProject(
            project=project, package=self._package, versions=tuple(versions), proof_level=level
        )

    def doubt(self, planned: Sequence[str] = ()) -> str:
        """Return why neither the declarations nor the installed packages show that no affected version is
        used, apart from versions planned to stay; empty if they show it."""
        for place in self._unseen:
            if place.current is None and (place.asked is None or place.asked.refusal):
                return f"{place.path} does not say which version of {self._package} it installs"
        for name, environment in {**self._touched, **self._others}.items():
            for version in (
                *environment.resolved(self._package),
                *environment.unproved(self._package),
            ):
                affected = is_affected(self._context.advisory, ECOSYSTEM, self._package, version)
                if affected and version not in planned:
                    return f"{self._package} {version} is in the environment of {name!r}"
        sources = unread_sources(self._repo, self._context.advisory, [self._package])
        counting = (
            source.error.problem
            for source in sources
            if source.names_it and not source.for_tests and not self._is_left_out(source.path)
        )
        staying = still_installed(self._context.application, self._package)
        return next(chain(counting, staying), "")

    @cached_property
    def _others(self) -> dict[str, Environment]:
        """Environments of untouched projects and single requirements files that install the package, by
        folder or file; empty if they could not cover everything."""
        environments: dict[str, Environment] = {}
        for place in self._unseen_by(self._touched):
            folder = project_of(place)
            if place.kind is Kind.REQUIREMENTS:
                alone = Environment(self._context, self._repo, folder, only=place.path)
                environments[place.path] = alone
            elif folder in self._touched:
                return {}
            else:
                environments[folder] = Environment(self._context, self._repo, folder)
        if not any(self.versions.values()) or len(environments) > MAX_OTHERS:
            return {}
        for environment in environments.values():
            with suppress(ToolFailedError):  # then it shows nothing
                environment.install()
        return environments

    @cached_property
    def _unseen(self) -> list[Place]:
        unseen = self._unseen_by({**self._touched, **self._others})
        return [place for place in unseen if not self._is_left_out(place.path)]

    def _is_left_out(self, path: str) -> bool:
        return is_left_out(self._repo, self._context.advisory, self._package, (path,))

    def _unseen_by(self, environments: Mapping[str, Environment]) -> list[Place]:
        """Return places in use that have the package, and that none of these environments installs."""
        seen = [
            environment
            for environment in environments.values()
            if environment.resolved(self._package)
        ]
        used = places_in_use(self._repo, self._places, self.versions)
        return [
            place
            for place in used
            if not any(environment.installs(place.path) for environment in seen)
        ]


#: One complaint per line, and no cache: earlier errors are known from the run at the base commit.
_MYPY_OPTIONS = (
    "--no-color-output",
    "--no-error-summary",
    "--no-pretty",
    "--hide-error-context",
    "--cache-dir=/dev/null",
)

#: Settings of mypy that name what is checked.
_MYPY_TARGETS = frozenset({"files", "packages", "modules"})

#: Error lines of mypy, and of pyright, which indents them.
_COMPLAINT = re.compile(r"^ *(?P<path>[^\s:][^:]*):\d+(?::\d+)?(?: -|:) error: (?P<what>.*)$")

#: Own modules that are imported in one project; those that the patch touched come first.
MAX_MODULES = 25

#: Dependencies that are imported. Most projects declare fewer. A compiled requirements file has more, since
#: it names all that is installed: those that the patch can have broken come first.
MAX_DEPENDENCIES = 25

#: Modules of one dependency. Most have one; distributions of a namespace can have dozens.
MAX_MODULES_OF_ONE = 3

#: Top-level folders that releases include by accident, and that no code imports.
_ACCIDENTS = _ASIDE | {"benchmarks", "scripts", "tools"}
_CODE = frozenset({".py", ".so"})
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)")

#: Distributions by canonical name.
_InstalledByName = Mapping[str, Distribution]


class ImportsGate(PyPIGate):
    """Gate that imports the modules that the patch touched, the project's own packages and its direct
    dependencies.

    Dependencies are imported only if the patch changes what is installed.
    """

    name = "imports"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        own_modules = modules(context, folder)[:MAX_MODULES]
        if not own_modules and not project.declares:
            what = f"{folder!r} has no module of its own to import, and"
            return gating.without_dependencies(self.name, what)
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        names = tuple(dict.fromkeys((*own_modules, *_dependency_modules(project))))
        if not names:
            why = f"{folder!r} has no module of its own to import, and no dependency of it moves"
            return gating.skipped(self.name, why)

        def probe(subset: Sequence[str]) -> _PythonRun:
            return _PythonRun(project, ["-c", source_of("import_probe"), *limits(context), *subset])

        loading = Loading(names, lambda tree, subset: probe(subset)(tree), probe(names).at_base)
        return beside_base(project, lambda: judge_loading(self.name, context, folder, loading))


class TypecheckGate(PyPIGate):
    """Gate that runs mypy or pyright, if the project both configures and installs it."""

    name = "typecheck"

    def _checks(self, context: GateContext, folder: str) -> Sequence[GateVerdict]:
        repo = gating.patched(context)
        checkers = configured(repo, folder)
        if not checkers:
            return [gating.skipped(self.name, f"{folder!r} configures neither mypy nor pyright")]
        project = Environment(context, repo, folder)
        if (absent := project.install().absent) is not None:
            return [gating.skipped(self.name, absent.sentence)]
        return [self._check(project, *checker) for checker in checkers.items()]

    def _check(self, project: Environment, checker: str, arguments: Sequence[str]) -> GateVerdict:
        if not project.installed(checker):
            why = f"{checker} is configured, but not among the project's dependencies"
            return gating.skipped(self.name, why)
        run = _PythonRun(project, ["-m", checker, *arguments])
        check = Check(checker, run, findings, is_blocked, arguments, on=run.at_base)
        project_arguments = (project.context, project.folder)
        return beside_base(project, lambda: judge_check(self.name, *project_arguments, check))


@dataclass(frozen=True)
class _PythonRun:
    """Runs the same arguments with the Python of a project's environment, in any tree."""

    project: Environment
    arguments: Sequence[str]

    def at_base(self) -> str:
        """Return the content of the environment at the base commit."""
        return self.project.base.contents()

    def __call__(self, tree: RepoContext) -> CommandResult | NotInstalled:
        """Run the arguments; the output has relative paths. Raises what installing and running raise."""
        target = self.project.in_tree(tree)
        return target.install().absent or target.sandboxed(self.arguments)


def findings(output: str) -> list[Finding]:
    """Return the errors in a type checker's output, without its notes."""
    matches = (_COMPLAINT.fullmatch(line) for line in output.splitlines())
    return [
        Finding(f"{match['path']}: {match['what']}", match[0].strip()) for match in matches if match
    ]


def is_blocked(result: CommandResult) -> bool:
    """Return whether a failing checker stopped early: after type errors mypy and pyright exit with 1."""
    return result.exit_code != 1


def configured(repo: RepoContext, folder: str) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each checker that a project configures in pyproject.toml, or in the checker's
    own file. The key is the checker's module, which has its distribution's name.

    Raises RecipeError, RepositoryError for a pyproject.toml that can't be read.
    """
    path = in_folder(folder, "pyproject.toml")
    tools = table_of(parse_toml(path, repo.read_text(path)), "tool") if repo.has(path) else {}
    checkers: dict[str, tuple[str, ...]] = {}
    mypy = _mypy(repo, folder, tools)
    if mypy is not None:
        packages = [
            str(PurePosixPath(package).relative_to(folder))
            for package in own_packages(repo, folder)
        ]
        targets = () if _MYPY_TARGETS.intersection(mypy) else packages or (".",)
        checkers["mypy"] = (*_MYPY_OPTIONS, *targets)
    if "pyright" in tools or repo.has(in_folder(folder, "pyrightconfig.json")):
        checkers["pyright"] = ()
    return checkers


def _mypy(repo: RepoContext, folder: str, tools: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return mypy's settings from the first file that has any, in mypy's own order."""
    for name in ("mypy.ini", ".mypy.ini"):
        if (settings := _ini(repo, in_folder(folder, name))) is not None:
            return settings
    table = tools.get("mypy")
    return table if isinstance(table, dict) else _ini(repo, in_folder(folder, "setup.cfg"))


def _ini(repo: RepoContext, path: str) -> dict[str, Any] | None:
    """Return the section ``[mypy]`` of a file; None if there is no such file or section."""
    parser = parsed(repo.read_text(path) if repo.has(path) else "")
    return dict(items(parser, "mypy")) if parser.has_section("mypy") else None


def _dependency_modules(project: Environment) -> tuple[str, ...]:
    """Return modules of the patched manifests' direct dependencies, as installed in either tree.

    Top-level modules that only the base commit has are included: an import of one would fail now. Empty if
    both trees have the same packages installed. Raises as ``Environment.install`` does.
    """
    trees = (project, project.base)
    patched, base = (tree.distributions() for tree in trees)
    moved = moved_packages(project)
    if not moved:
        return ()
    near, changed = _needing(patched, moved), project.context.application.files
    required, required_before = (asked_for(tree.repo, tree.folder, changed) for tree in trees)
    # A package that the base commit requires too, but could not install, has nothing to compare with.
    names = [
        name
        for name in required
        if name in base or (name in patched and name not in required_before)
    ]
    modules: dict[str, None] = {}
    for name in sorted(names, key=lambda name: name not in near)[:MAX_DEPENDENCIES]:
        modules |= dict.fromkeys(_first(patched, name))
        modules |= dict.fromkeys(module for module in _first(base, name) if "." not in module)
    return tuple(modules)


def moved_packages(project: Environment) -> set[str]:
    """Return the canonical names of packages whose installed version differs from the base commit's. Raises
    as ``Environment.install`` does."""
    patched, base = (tree.distributions() for tree in (project, project.base))
    return {name for name in {*patched, *base} if _version(patched, name) != _version(base, name)}


def modules_of(project: Environment, packages: set[str]) -> set[str]:
    """Return the modules of packages and of all that depends on them, as installed in either tree. Raises
    as ``Environment.install`` does."""
    modules = set[str]()
    for tree in (project, project.base):
        installed = tree.distributions()
        for name in _needing(installed, packages) & installed.keys():
            modules |= {*import_names(installed[name])}
    return modules


def asked_for(repo: RepoContext, folder: str, changed: Sequence[str] = ()) -> tuple[str, ...]:
    """Return canonical names of what a folder's manifests and the roots of its uv.lock require.

    If they name nothing, return all packages of another client's lock: it does not record direct
    requirements. ``changed``: as for ``declared``.
    """
    sources = declared(repo, folder, changed)
    own_lines = [line for source in sources if not source.pinned for line in source.lines]
    project = ProjectFiles(repo, folder)
    required = [*_in_tables(project), *own_lines]
    with suppress(RecipeError):  # the dependencies of the project and its workspace's members
        required += sorted(read_tree("uv.lock", project.text("uv.lock")).asked)
    lines = required or [line for source in sources for line in source.lines]
    names = (match[1] for line in lines if (match := _NAME.match(line)))
    return tuple(dict.fromkeys(map(canonicalize_name, names)))


def import_names(installed: Distribution) -> list[str]:
    """Return the shallowest packages and modules of a distribution, its namesake first.

    Of a namespace package (``google``, which many distributions share), return what is in it. Private
    modules are left out, and so are modules that mypyc names by a hash: the name differs in each release.
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
    names = (".".join(parts) for parts in sorted(shallow, key=lambda parts: (len(parts), parts)))
    return sorted(names, key=lambda module: canonicalize_name(module) != name)


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
        (name, canonicalize_name(match[1]))
        for name, distribution in installed.items()
        for line in distribution.requires or ()
        if (match := _NAME.match(line)) is not None
    ]
    dependents = added = {*moved}
    while added:
        added = {name for name, required in edges if required in added} - dependents
        dependents |= added
    return dependents


def _in_tables(project: ProjectFiles) -> Iterator[str]:
    """Yield names in the tables of Poetry and of a Pipfile: if there is a lock, they are not among the
    installed sources."""
    for name, entries in (("pyproject.toml", poetry_entries), ("Pipfile", pipfile_entries)):
        with suppress(RecipeError):
            yield from [entry.name for entry in entries(parse_toml(name, project.text(name)))]
