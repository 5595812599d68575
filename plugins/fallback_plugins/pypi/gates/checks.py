"""The Python projects that a patch touches, and PyPI's gates on what is installed in each: it resolves,
holds no affected version, can be imported, and has the types that it had.

The modules of dependencies are read in their metadata; nothing is imported outside the sandbox.

A failure in another setting, or with more than the base commit has, is left to a person (ADR-0077).
Requirements files that contradict each other are installed in part, and so are pins without a wheel. If
the patch moves a line that was not available before either, the new line is another one that isn't.
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

#: Folders at a project's root whose Python files are no part of what it is.
_ASIDE = frozenset({"test", "tests", "testing", "doc", "docs", "example", "examples", "bench"})

#: Files that a tool runs; nobody imports them.
_RUN = frozenset({"setup.py", "conftest.py", "noxfile.py", "fabfile.py", "tasks.py", "__main__.py"})

#: Packages that a verdict's one sentence names.
_NAMED = 3

#: uv's words for a release that is there, and can't be installed here without building it.
_NO_WHEEL = ("has no usable wheels", "has no wheels with a matching")


class PyPIGate(ProjectGate):
    """A gate on each touched project of Python."""

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
    found = []
    for root in (folder, in_folder(folder, "src")):
        for path in repo.tracked_files:
            pure = PurePosixPath(path)
            if pure.name == "__init__.py" and pure.parent.parent == PurePosixPath(root):
                found.append(str(pure.parent))
    return tuple(path for path in found if PurePosixPath(path).name not in {*_ASIDE, "src"})


def modules(context: GateContext, folder: str) -> tuple[str, ...]:
    """Return dotted names of the modules that the patch touched, then of the project's own packages.

    Those that the patch removed are left out: what still imports one is among the rest.
    """
    repo = gating.patched(context)
    found: dict[str, None] = {}
    own = (f"{package}/__init__.py" for package in own_packages(repo, folder))
    for path in (*context.application.files, *own):
        name = _module(repo, folder, path)
        if name is not None and repo.tree.find(path) is not None:
            found[name] = None
    return tuple(found)


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
    """Return what ``judge`` says of a patched project. If the base commit is installed in another setting,
    a failure is undecided, and so is a pass whose failing tests had less there. Raises as ``judge`` and
    ``Environment.install`` do."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    otherwise = project.otherwise()
    if verdict.status is not GateStatus.FAILED:
        lacked = lacked_at_base(project, project.base)
        if lacked:
            otherwise = otherwise or f"that lacks {gating.some_of(lacked, _NAMED)}"
    return gating.beside_another_setting(verdict, otherwise)


def lacks_by_the_patch(ours: Environment, base: Environment) -> bool:
    """Return whether less is installed, other than by a moved line that was not available at the base
    commit either.

    Such a line is compared with the base commit's again: by its own file, installed by itself, so that no
    other file contradicts it. Raises as ``Environment.install`` does.
    """
    here, there = ours.install(), base.install()
    if here.level is not there.level:
        return here.lacks_beside(there)
    before = {_package(line) for line, _ in there.declined}
    files: dict[str, None] = {}
    for line in _new(here, there):
        where = ours.declaring(line)
        if not where or _package(line) not in before:
            return True
        files |= dict.fromkeys(where)
    return any(_lacks(ours.alone(file).install(), base.alone(file).install()) for file in files)


def lacked_at_base(ours: Environment, base: Environment) -> list[str]:
    """Return packages that were not available at the base commit, and are with the patch: as they are
    required, or at all. Raises as ``Environment.install`` does."""
    here, there = ({_package(line) for line, _ in tree.install().declined} for tree in (ours, base))
    come = ours.distributions().keys() - base.distributions().keys()
    return sorted(there - (here - come))


def _lacks(here: Installed, there: Installed) -> bool:
    if here.level is not there.level:
        return here.lacks_beside(there)
    return bool(_new(here, there))


def _new(here: Installed, there: Installed) -> list[str]:
    """Return lines that fail here alone; none of a package without a wheel in either tree."""
    lines = {line for line, _ in there.declined}
    without = {_package(line) for line, why in there.declined if _is_without_wheel(line, why)}
    return [
        line
        for line, why in here.declined
        if line not in lines and not (_package(line) in without and _is_without_wheel(line, why))
    ]


def _is_without_wheel(line: str, why: str) -> bool:
    asked = requirement_in(line)
    if asked is None:
        return False
    release = re.escape(f"{asked.name}{asked.specifier}")  # no end of a longer name
    return re.search(rf"(?<![\w.-]){release} (?:{'|'.join(_NO_WHEEL)})", one_line(why)) is not None


def _package(line: str) -> str:
    """Return the package that a line requires; of what is not a requirement (a step's name) the whole."""
    asked = requirement_in(line)
    return line if asked is None else canonicalize_name(asked.name)


#: Projects and files that the patch does not touch, and that are installed to see one package in them. If
#: there are more, they are proved by what they declare.
MAX_OTHERS = 8


class ResolvesGate(ResolvingGate, PyPIGate):
    """The real uv installs the patched requirements, and Python starts with them in the sandbox."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Environment(context, gating.patched(context), folder)
        if not project.declares:
            return gating.without_dependencies(self.name, repr(project.folder))
        found = project.install()

        def lacks() -> bool:
            return lacks_by_the_patch(project, project.base)

        if (verdict := gating.of_installed(self.name, "uv", found, lacks)) is not None:
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
        if found.declined:
            what += f" {found.in_words}"
            what += "; so it is at the base commit" if base.absent is None else ""
        elif found.unusual:
            what += f", {', '.join(found.unusual)}"
        if found.beside:
            what += f"; beside it {', '.join(found.beside)}, which its code imports"
        return gating.beside_base(gating.passed(self.name, what, found.in_full), found, base)


class NotVulnerableGate(NotVulnerable):
    """No affected version is installed, locked or pinned."""

    ecosystem = ECOSYSTEM

    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        places, beside = surveyed(package, context.repo, repo, survey, left_out)
        if places is None:
            return gating.unread(self.name, beside)
        installed = _Installed(context, repo, package, places)
        held = installed.held(repo, places, installed.versions)
        bad = installed.affected(held)
        aside = left_aside(context.application, dict(bad))
        bad = [one for one in bad if one[0] not in aside]
        held = [one for one in held if one[0] not in aside]
        if aside and not bad:
            where = ", ".join(sorted(aside))
            what = f"{package} stays affected in {where}, which is left as it is"
            # A lock may be old; a declaration is what someone wants.
            is_locked = all(kind_of(path) in LOCKS for path in aside)
            return (gating.unread if is_locked else gating.undecided)(self.name, what)
        if bad:
            messages = [f"{where} has {version}" for where, version in bad]
            if not installed.may_stay(bad):
                return self._still_affected(package, messages)
            beside += f"; stays affected, as was planned: {', '.join(messages)}"
            held = [one for one in held if one not in bad]
            if not held:
                return gating.skipped(self.name, f"{package} is not fixed{beside}")
        if held:
            if unknown := installed.doubt(planned=[version for _, version in bad]):
                return gating.unread(self.name, f"{unknown}{beside}")
            versions = ", ".join(sorted({version for _, version in held}))
            return self._proved(f"{package} {versions}{beside}", installed.projects)
        if places:
            where = ", ".join(sorted({place.path for place in places}))
            return gating.unread(self.name, f"{where} does not say which version of {package}")
        if survey(context.repo, package):
            if unknown := installed.doubt():
                return gating.unread(self.name, f"{unknown}{beside}")
            return self._proved(f"{package} is no longer declared{beside}", installed.without)
        return gating.skipped(
            self.name, f"{package} is not a dependency of this repository{beside}"
        )

    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> dict[str, str]:
        """Return where the base commit has an affected version from a registry, in addition to the
        source."""
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
        self._touched = {it: Environment(context, repo, it) for it in touched_folders(context)}
        #: Versions by folder of a touched project, if its environment is as its own client makes it.
        self.versions = {it: one.resolved(package) for it, one in self._touched.items()}

    def held(
        self, repo: RepoContext, places: Sequence[Place], environments: Mapping[str, Sequence[str]]
    ) -> list[tuple[str, str]]:
        """Return each version that is installed, with its place; of a range that leads to affected versions
        only, the range."""
        in_use = places_in_use(repo, places, environments)
        held = [(place.path, place.current) for place in in_use if place.current is not None]
        advisory = self._context.advisory
        for place in in_use:
            asked = place.asked if place.current is None else None
            if asked and asked.clauses and only_affected(advisory, self._package, asked):
                held.append((place.path, asked.pep440))
        for folder, versions in environments.items():
            held += [(f"the environment of {folder!r}", version) for version in versions]
        return held

    def affected(self, held: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return which of these versions, each with its place, are affected."""
        advisory = self._context.advisory
        return [it for it in held if is_affected(advisory, ECOSYSTEM, self._package, it[1])]

    def may_stay(self, bad: Sequence[tuple[str, str]]) -> bool:
        """Return whether what is installed stays only as the files state; those are compared with the base
        commit's."""
        base = self._context.repo
        in_files = self.held(self._repo, self._places, {})
        in_base = self.held(base, survey(base, self._package), {})
        now, before = ([it[1] for it in self.affected(held)] for held in (in_files, in_base))
        reported = {version for _, version in bad} <= {*now}
        made, advisory = self._context.application, self._context.advisory
        return reported and may_stay(advisory, made, ECOSYSTEM, self._package, now, before)

    @property
    def projects(self) -> list[ProvedProject]:
        """Return each project that has the package, with the versions seen there or declared."""
        found = []
        for one in {**self._touched, **self._others}.values():
            if versions := one.resolved(self._package):
                found.append(
                    self._project(", ".join(one.sources), ProofLevel.RESOLVED_TREE, versions)
                )
        for place in self._unseen:
            asked = place.asked.pep440 if place.asked is not None else ""
            declared = tuple(filter(None, (place.current or asked,)))
            found.append(self._project(place.path, ProofLevel.PINS, declared))
        return found

    @property
    def without(self) -> list[ProvedProject]:
        """The projects that had the package, of which no file names it any more."""
        found = []
        for one in self._touched.values():
            shown = one.base.installed(self._package) and one.is_whole
            level = ProofLevel.RESOLVED_TREE if shown else ProofLevel.PINS
            found.append(self._project(", ".join(one.sources) or one.folder, level, ()))
        return found

    def _project(self, project: str, level: ProofLevel, versions: Sequence[str]) -> ProvedProject:
        return ProvedProject(
            project=project, package=self._package, versions=tuple(versions), proof_level=level
        )

    def doubt(self, planned: Sequence[str] = ()) -> str:
        """Return why what is declared and what is installed do not show that no affected version is used,
        except those that were planned to stay; empty if they do."""
        for place in self._unseen:
            if place.current is None and (place.asked is None or place.asked.refusal):
                return f"{place.path} does not say which version of {self._package} it installs"
        for name, one in {**self._touched, **self._others}.items():
            for version in (*one.resolved(self._package), *one.unproved(self._package)):
                affected = is_affected(self._context.advisory, ECOSYSTEM, self._package, version)
                if affected and version not in planned:
                    return f"{self._package} {version} is in the environment of {name!r}"
        sources = unread_sources(self._repo, self._context.advisory, [self._package])
        counting = (
            one.error.problem
            for one in sources
            if one.names_it and not one.for_tests and not self._is_left_out(one.path)
        )
        staying = still_installed(self._context.application, self._package)
        return next(chain(counting, staying), "")

    @cached_property
    def _others(self) -> dict[str, Environment]:
        """Environments of what else installs the package, by the file or folder, made if they can make it
        whole: of a requirements file by itself, of the other projects."""
        found: dict[str, Environment] = {}
        for place in self._unseen_by(self._touched):
            folder = project_of(place)
            if place.kind is Kind.REQUIREMENTS:
                alone = Environment(self._context, self._repo, folder, only=place.path)
                found[place.path] = alone
            elif folder in self._touched:
                return {}
            else:
                found[folder] = Environment(self._context, self._repo, folder)
        if not any(self.versions.values()) or len(found) > MAX_OTHERS:
            return {}
        for one in found.values():
            with suppress(ToolFailedError):  # then nothing of it is seen
                one.install()
        return found

    @cached_property
    def _unseen(self) -> list[Place]:
        found = self._unseen_by({**self._touched, **self._others})
        return [place for place in found if not self._is_left_out(place.path)]

    def _is_left_out(self, path: str) -> bool:
        return is_left_out(self._repo, self._context.advisory, self._package, (path,))

    def _unseen_by(self, environments: Mapping[str, Environment]) -> list[Place]:
        """Places in use that none of these environments was made from, if they have the package."""
        seen = [one for one in environments.values() if one.resolved(self._package)]
        used = places_in_use(self._repo, self._places, self.versions)
        return [place for place in used if not any(one.installs(place.path) for one in seen)]


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
_ACCIDENTS = _ASIDE | {"benchmarks", "scripts", "tools"}
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
            what = f"{folder!r} has no module of its own to import, and"
            return gating.without_dependencies(self.name, what)
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        names = tuple(dict.fromkeys((*own, *_dependency_modules(project))))
        if not names:
            why = f"{folder!r} has no module of its own to import, and no dependency of it moves"
            return gating.skipped(self.name, why)

        def probe(some: Sequence[str]) -> _PythonRun:
            return _PythonRun(project, ["-c", source_of("import_probe"), *limits(context), *some])

        asked = Loading(names, lambda tree, some: probe(some)(tree), probe(names).at_base)
        return beside_base(project, lambda: judge_loading(self.name, context, folder, asked))


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
        return [self._check(project, *checker) for checker in checkers.items()]

    def _check(self, project: Environment, checker: str, arguments: Sequence[str]) -> GateVerdict:
        if not project.installed(checker):
            why = f"{checker} is configured, but not among the project's dependencies"
            return gating.skipped(self.name, why)
        run = _PythonRun(project, ["-m", checker, *arguments])
        check = Check(checker, run, findings, is_blocked, arguments, on=run.at_base)
        where = (project.context, project.folder)
        return beside_base(project, lambda: judge_check(self.name, *where, check))


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
    return [Finding(f"{it['path']}: {it['what']}", it[0].strip()) for it in matches if it]


def is_blocked(result: CommandResult) -> bool:
    """Return whether a failing checker stopped early: otherwise mypy and pyright exit with 1."""
    return result.exit_code != 1


def configured(repo: RepoContext, folder: str) -> dict[str, tuple[str, ...]]:
    """Return the arguments of each checker (a module to run, of the distribution's name) that a project
    configures: in pyproject.toml, or in the checker's own file.

    Raises RecipeError, RepositoryError for a pyproject.toml that can't be read.
    """
    path = in_folder(folder, "pyproject.toml")
    tools = table_of(parse_toml(path, repo.read_text(path)), "tool") if repo.has(path) else {}
    checkers: dict[str, tuple[str, ...]] = {}
    mypy = _mypy(repo, folder, tools)
    if mypy is not None:
        own = [str(PurePosixPath(it).relative_to(folder)) for it in own_packages(repo, folder)]
        named = () if _MYPY_TARGETS.intersection(mypy) else own or (".",)
        checkers["mypy"] = (*_MYPY_OPTIONS, *named)
    if "pyright" in tools or repo.has(in_folder(folder, "pyrightconfig.json")):
        checkers["pyright"] = ()
    return checkers


def _mypy(repo: RepoContext, folder: str, tools: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return mypy's settings, from the first place that has any, in its own order."""
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
    """Return modules of what the patched manifests require themselves, as installed in either tree.

    A top-level module that only the base commit has is among them: an import of it would fail now. None if
    both trees have the same installed. Raises as ``Environment.install`` does.
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
    """Return canonical names of what a folder's manifests and the roots of its uv.lock require.

    If they name nothing, all that another client's lock has: it does not record what was required.
    ``changed``: as for ``declared``.
    """
    sources = declared(repo, folder, changed)
    own = [line for source in sources if not source.pinned for line in source.lines]
    project = ProjectFiles(repo, folder)
    found = [*_in_tables(project), *own]
    with suppress(RecipeError):  # the dependencies of the project and its workspace's members
        found += sorted(read_tree("uv.lock", project.text("uv.lock")).asked)
    lines = found or [line for source in sources for line in source.lines]
    named = (match[1] for line in lines if (match := _NAME.match(line)))
    return tuple(dict.fromkeys(map(canonicalize_name, named)))


def import_names(installed: Distribution) -> list[str]:
    """Return the shallowest packages and modules of a distribution, its namesake first.

    Of a namespace (``google``, which many share) what it has in it. Nothing private, and no module that
    mypyc names after a hash: it has another name in each release.
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
    """Yield names in Poetry's tables and a Pipfile's: with a lock nothing is installed from them."""
    for name, entries in (("pyproject.toml", poetry_entries), ("Pipfile", pipfile_entries)):
        with suppress(RecipeError):
            yield from [it.name for it in entries(parse_toml(name, project.text(name)))]
