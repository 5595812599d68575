"""npm's gates: the tree installs, holds no affected version, dependencies load, types and the build are as
they were, and the tests still pass.

A project configures TypeScript in its tracked files; the compiler is the one that npm installed for it.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from itertools import product
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_plugins.npm.gates.testing import (
    Suite,
    choose_suite,
    is_test,
    own_checks,
    reached_members,
    run_line,
    suites,
)
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.installing.modules_layer import MODULES, Package
from fallback_plugins.npm.manifests.manifest import (
    ECOSYSTEM,
    FOREIGN_LOCKS,
    LOCKS,
    MANIFEST,
    SECTIONS,
    entries,
    in_folder,
    may_name,
    parse_manifest,
    readable_manifest,
    readable_text,
)
from fallback_plugins.npm.manifests.specs import floor, plain_version
from fallback_plugins.npm.rules import is_source, mentions, requires
from fallback_plugins.npm.surveying.elsewhere import Elsewhere
from fallback_plugins.npm.surveying.projects import left_out, project_files
from fallback_plugins.npm.surveying.survey import Project, survey
from fallback_plugins.shared import identity
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import Choice
from fallback_plugins.shared.gates.comparing import (
    Check,
    Finding,
    Loading,
    NotVulnerable,
    ProjectGate,
    ResolvingGate,
    Rewriting,
    is_left_out,
    is_planned,
    judge_check,
    judge_loading,
    left_aside,
    limits,
    may_stay,
)
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_plugins.shared.gates.test_commands import TestCommand
from fallback_plugins.shared.installation import LEFT_OUT, Installed, Level, NotInstalled
from fallback_plugins.shared.unread import surveyed
from fallback_tier.advisory import is_affected
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.repo import RepoContext

TSCONFIG = "tsconfig.json"

#: The compiler as npm installed it for the project.
COMPILER = "node_modules/typescript"
TSC = "node_modules/.bin/tsc"

#: One line per complaint, and no output files: the build gate makes those.
_TSC_OPTIONS = ("--noEmit", "--pretty", "false")

#: Most configurations that are checked in one project: enough for the packages of a monorepo, not for the
#: cases of a compiler's test suite.
MAX_CONFIGURATIONS = 12

#: Complaints that keep the compiler from making others: about its options (they name no file), and about a
#: referenced project without output, whose types are then unknown (TS6305,
#: https://www.typescriptlang.org/docs/handbook/project-references.html). A build checks more.
_BLOCKED = re.compile(r"^(?:error TS|.*: error TS6305:)", re.MULTILINE)

_COMPLAINT = re.compile(r"^(?:(?P<path>\S[^(]*)\(\d+,\d+\): )?(?P<what>error TS(?!6305:)\d+: .*)$")

#: Folders whose configurations are not the project's.
_NOT_OWN = frozenset({"node_modules", "fixtures", "__fixtures__"})

#: A configuration is JSON with comments. Strings match too, so that no comment starts inside one.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_REFERENCES = re.compile(r'"references"\s*:\s*\[(.*?)\]', re.DOTALL)
_TO_REQUIRE = re.compile(r'"module"\s*:\s*"commonjs"', re.IGNORECASE)
_REFERENCE = re.compile(r'"path"\s*:\s*"([^"\\]+)"')

#: Most dependencies that are loaded in one project: the advisory's first, then the others by section.
MAX_DEPENDENCIES = 50

#: Types for a compiler: nothing to load.
_TYPES = "@types/"

#: The probe's error for a package that ``require`` can't load any more; a bundler or a compiler may.
_ES_MODULE = "it is an ES module, which only import() loads"

_BROWSER = "window|document|navigator|self|location|localStorage|customElements|[A-Z]\\w*Element|Node|Event"

#: Errors that are the same in both trees, whatever their text: an install script or a compiler would have
#: built the file (no script runs while installing), or the code is written for a browser.
_VARYING: tuple[Rewriting, ...] = (
    (re.compile(r"without its install script: .*"), "not built"),
    (re.compile(r".*(?:\.node\b|bindings file|node-gyp).*"), "not built"),
    (re.compile(rf"ReferenceError: (?:{_BROWSER}) is not defined"), "not in a browser"),
)


class NpmGate(ProjectGate):
    """A gate on each touched project of npm; one with a lock includes its workspaces."""

    def _touched(self, context: GateContext) -> tuple[str, ...]:
        return touched(context)

    def _judge(
        self, project: Installation, label: str, argv: Sequence[str], **check: Any
    ) -> GateVerdict:
        """Return the verdict on a command in a project. ``check``: further fields of ``Check``."""
        return self._judge_by(project, label, lambda target, _: target.run(argv), **check)

    def _judge_by(
        self,
        project: Installation,
        label: str,
        run: Callable[[Installation, RepoContext], CommandResult],
        **check: Any,
    ) -> GateVerdict:
        """Return the verdict on the command of ``run``, in a tree whose dependencies are installed."""

        def run_in(tree: RepoContext) -> CommandResult | NotInstalled:
            target = project.in_tree(tree)
            return target.install().absent or run(target, tree)

        comparison = Check(label, run_in, on=project.at_base.contents, **check)
        where = (self.name, project.context, project.folder)
        return beside_base(project, lambda: judge_check(*where, comparison))


def touched(context: GateContext) -> tuple[str, ...]:
    """Return the folders of the projects that the patch touches; for a member, its workspace's."""
    has = context.repo.has

    def is_project(folder: str) -> bool:
        return has(in_folder(folder, MANIFEST))

    def is_locked(folder: str) -> bool:
        return is_project(folder) and any(
            has(in_folder(folder, lock)) for lock in (*LOCKS, *FOREIGN_LOCKS)
        )

    return gating.project_folders(context, is_locked, is_project)


def beside_base(project: Installation, judge: Callable[[], GateVerdict]) -> GateVerdict:
    """Return the verdict of ``judge``, or undecided if it depends on what is installed and another step of
    the ladder installed the base commit (ADR-0077). A failure depends on it, and so does a pass in which
    tests fail, if they failed at the base commit with fewer packages. Raises as ``judge`` and
    ``Installation.install``."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    patched, base = project.install(), project.at_base.install()
    otherwise = patched.otherwise_than(base)
    had_less = base.lacks_beside(patched) or _left_out(base) != _left_out(patched)
    if verdict.status is not GateStatus.FAILED and had_less:
        otherwise = otherwise or f"here {patched.in_words}; at the base commit {base.in_words}"
    return gating.beside_another_setting(verdict, otherwise)


def _left_out(installed: Installed) -> set[tuple[str, str]]:
    return {entry for entry in installed.declined if entry[1].startswith(LEFT_OUT)}


class BuildGate(NpmGate):
    """``npm run build``. Its output stays for the tests."""

    name = "build"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.scripts.get("build", "").strip():
            return gating.skipped(self.name, f"{project.manifest} has no build script")
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        argv = gating.command_in(folder, ("npm", "run", "build"))
        return self._judge(project, "npm run build", argv)


class TypecheckGate(NpmGate):
    """The project's own ``tsc``, for each of its TypeScript configurations."""

    name = "typecheck"

    def _checks(self, context: GateContext, folder: str) -> Iterator[GateVerdict]:
        repo = gating.patched(context)
        configs = configurations(repo, folder)
        if not configs:
            yield gating.skipped(self.name, f"{folder!r} has no {TSCONFIG}")
        elif not declares_typescript(repo, folder):
            yield gating.skipped(self.name, f"{folder!r} does not declare typescript")
        elif (
            absent := (project := Installation(context, repo, folder)).install().absent
        ) is not None:
            yield gating.skipped(self.name, absent.sentence)
        elif not project.tree.has_folder(in_folder(folder, COMPILER)):
            yield gating.skipped(self.name, "typescript is declared, and could not be installed")
        else:
            readers = {"findings": findings, "blocked": is_blocked}
            for config in configs[:MAX_CONFIGURATIONS]:
                argv = [in_folder(folder, TSC), *_TSC_OPTIONS, "-p", config]
                yield self._judge(project, f"tsc -p {config}", argv, **readers)
            if (more := len(configs) - MAX_CONFIGURATIONS) > 0:
                yield gating.skipped(self.name, f"{more} more configuration(s)")


def configurations(repo: RepoContext, folder: str) -> tuple[str, ...]:
    """Return the tracked configurations of a project, nearest its root first, and those they refer to."""
    configs = [
        path
        for path, pure in ((tracked, PurePosixPath(tracked)) for tracked in repo.tracked_files)
        if pure.name == TSCONFIG and pure.is_relative_to(folder) and _NOT_OWN.isdisjoint(pure.parts)
    ]
    configs.sort(key=lambda path: (path.count("/"), path))
    for path in configs:  # references are appended and followed too
        configs += [reference for reference in _references(repo, path) if reference not in configs]
    return tuple(configs)


def declares_typescript(repo: RepoContext, folder: str) -> bool:
    """Return whether the project, or one of its workspaces, depends on the compiler."""
    manifests = (
        path
        for path in repo.manifests
        if PurePosixPath(path).name == MANIFEST and PurePosixPath(path).is_relative_to(folder)
    )
    # A fixture's manifest may be broken: it counts as empty.
    facts = (readable_manifest(repo, path) for path in {in_folder(folder, MANIFEST), *manifests})
    return any(
        "typescript" in dict(entries(manifest.get(section)))
        for manifest in facts
        for section in SECTIONS
    )


def findings(output: str) -> list[Finding]:
    """Return the compiler's complaints, without the lines that explain them."""
    matches = (_COMPLAINT.fullmatch(line) for line in output.splitlines())
    return [
        Finding(f"{match['path'] or ''}: {match['what']}", match[0]) for match in matches if match
    ]


def is_blocked(result: CommandResult) -> bool:
    """Return whether the compiler stopped before it had checked every type."""
    return _BLOCKED.search(result.output) is not None


def _references(repo: RepoContext, path: str) -> list[str]:
    table = _REFERENCES.search(_plain(repo.read_text(path)))
    configs = []
    for reference in _REFERENCE.findall(table[1]) if table else ():
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), reference))
        configs.append(target if target.endswith(".json") else in_folder(target, TSCONFIG))
    return [config for config in configs if repo.has(config)]


def _plain(text: str) -> str:
    return _COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else "", text)


class _Asked(NamedTuple):
    """A dependency as one manifest requires it; its fields are in the order that the probe reads."""

    label: str
    name: str
    folder: str
    way: str


class ImportsGate(NpmGate):
    """Checks that the project's own dependencies load, if the patch changes what is installed."""

    name = "imports"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        base = project.at_base
        if not project.inputs.declares:
            return gating.without_dependencies(self.name, project.manifest)
        if project.inputs.identity == base.inputs.identity:
            return gating.skipped(self.name, f"no dependency of {project.manifest} moves")
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        every = {dependency.label: dependency for dependency in _asked(context, project)}
        if not every:
            return gating.skipped(self.name, f"{project.manifest} requires nothing that is loaded")

        def run(tree: RepoContext, labels: Sequence[str]) -> CommandResult | NotInstalled:
            target = project.in_tree(tree)
            return target.install().absent or _load(target, [every[label] for label in labels])

        def excused(label: str, message: str) -> bool:
            return message == _ES_MODULE and not _is_required(gating.patched(context), every[label])

        loading = Loading(tuple(every), run, base.contents, _VARYING, excused)
        return beside_base(project, lambda: judge_loading(self.name, context, folder, loading))


def _asked(context: GateContext, project: Installation) -> Sequence[_Asked]:
    """Return at most ``MAX_DEPENDENCIES`` dependencies of the root and its members: the advisory's first,
    then by section, and in each section those of manifests that the patch changed first."""
    changed, packages = context.application.files, context.advisory.packages(ECOSYSTEM)
    paths = sorted(project.inputs.own, key=lambda path: path not in changed)
    facts = {path: parse_manifest(path, project.inputs.files.manifests[path]) for path in paths}
    dependencies: dict[tuple[str, ...], _Asked] = {}
    for section, path in product(SECTIONS, paths):
        folder = str(PurePosixPath(path).parent)
        way = "import" if facts[path].get("type") == "module" else "require"
        for name, spec in entries(facts[path].get(section)):
            if not name.startswith(_TYPES):
                label = name if folder == project.folder else f"{name} (in {folder})"
                dependencies.setdefault((name, spec, way), _Asked(label, name, folder, way))
    first = sorted(dependencies.values(), key=lambda dependency: dependency.name not in packages)
    return first[:MAX_DEPENDENCIES]


def _load(target: Installation, dependencies: Sequence[_Asked]) -> CommandResult:
    source = files("fallback_plugins.npm.gates").joinpath("import_probe.js").read_text("utf-8")
    return target.run(["node", "-e", source, *limits(target.context), json.dumps(dependencies)])


def _is_required(repo: RepoContext, dependency: _Asked) -> bool:
    """Return whether a source file calls ``require`` for the dependency, or is compiled to such a call.
    Other imports are left to a bundler."""
    compiled = True
    with suppress(RepositoryError):
        configs = configurations(repo, dependency.folder)
        compiled = any(_TO_REQUIRE.search(_plain(repo.read_text(config))) for config in configs)
    for path in repo.tracked_files:
        if is_source(path) and PurePosixPath(path).is_relative_to(dependency.folder):
            text = readable_text(repo, path)
            if requires(dependency.name, text) or (
                compiled and mentions(dependency.name, path, text)
            ):
                return True
    return False


#: Most projects that one verdict installs in addition to those that the patch touches: a repository can
#: have hundreds.
MAX_INSTALLS = 20

#: Most places that one sentence of a verdict names.
_NAMED = 5


def build_gates() -> tuple[Gate, ...]:
    """Return npm's gates, in order: each relies on what the earlier ones installed."""
    before = (ResolvesGate(), NotVulnerableGate(), ImportsGate())
    return (*before, TypecheckGate(), BuildGate(), ChecksGate(), TestsGate())


class ResolvesGate(ResolvingGate, NpmGate):
    """The real clients install the patched manifests, without scripts: no less than at the base commit."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.inputs.declares:
            return gating.without_dependencies(self.name, project.manifest)
        installed, client = project.install(), project.resolution.command.client

        def lacks() -> bool:
            base = Installation(context, context.repo, folder)
            return installed.lacks_beside(base.install())

        if (verdict := gating.of_installed(self.name, client, installed, lacks)) is not None:
            return verdict
        what = f"{client} installs {project.manifest}"
        base = project.base.install()
        if installed.declined:
            what += f" {installed.in_words}"
            what += "; not more at the base commit" if base.absent is None else ""
        return gating.beside_base(
            gating.passed(self.name, what, installed.in_full), installed, base
        )


class NotVulnerableGate(NotVulnerable):
    """No affected version is installed, or listed by a lock, or declared.

    The installed files decide (ADR-0095). A patch fails if it makes a lock contradict them.
    """

    ecosystem = ECOSYSTEM

    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        if (committed := _committed(repo, package)) is not None:
            why = f"{package} is committed as {committed}, which hides what the lock installs"
            return gating.unread(self.name, why)
        projects, remarks = surveyed(package, context.repo, repo, survey, left_out)
        if projects is None:
            return gating.unread(self.name, remarks)
        now = _Holding.of(context, repo, package, projects)
        bad = _affected(context, package, now.copies)
        aside = left_aside(context.application, bad)
        bad = {place: version for place, version in bad.items() if place not in aside}
        if aside and not bad:
            where = gating.some_of(sorted(aside), _NAMED)
            what = f"{package} stays affected in {where}, which is left as it is"
            # A lock may be outdated; a declaration is intended.
            is_locked = all("node_modules" in PurePosixPath(place).parts for place in aside)
            return (gating.unread if is_locked else gating.undecided)(self.name, what)
        messages = [
            f"{place}{now.contradictions.get(place, f' is {version}')}"
            for place, version in bad.items()
        ]
        about = context.advisory, context.application, ECOSYSTEM, package
        if bad and not is_planned(*about, bad.values()):
            return self._still_affected(package, messages)
        before = _Holding(context, context.repo, package)
        if bad or now.contradictions:
            before = _Holding.of(context, context.repo, package, survey(context.repo, package))
        if bad:
            earlier = _affected(context, package, before.copies)
            if not may_stay(*about, [*bad.values()], [*earlier.values()]):
                return self._still_affected(package, messages)
            remarks += f"; stays affected, as was planned: {', '.join(messages)}"
        new_contradictions = sorted(now.contradictions.items() - before.contradictions.items())
        if new_contradictions:
            messages = [f"{place}{clause}" for place, clause in new_contradictions]
            what = f"the patched lock is not what it installs: {gating.some_of(messages, _NAMED)}"
            if before.by_text:
                what += "; the base commit is not installed, so that it may be the same there"
                return gating.undecided(self.name, what)
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, what)
        if now.unknown:
            return gating.unread(self.name, now.unknown)
        elsewhere = Elsewhere(repo, context.advisory, context.clients, context.repo)
        for _, problem in (*elsewhere.affected, *elsewhere.resolved([])):
            return gating.unread(self.name, problem.problem.rstrip("."))
        remarks += now.clauses
        unaffected = {version for place, version in now.copies.items() if place not in bad}
        if unaffected:
            what = f"{package} {', '.join(sorted(unaffected))}{remarks}"
            return self._proved(what, now.projects)
        if bad:
            return gating.skipped(self.name, f"{package} is not fixed{remarks}")
        if _folders_at_base(context, package):
            return self._proved(f"{package} is no longer in it{remarks}", now.projects)
        return gating.skipped(
            self.name, f"{package} is not a dependency of this repository{remarks}"
        )

    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> dict[str, str]:
        return {
            place: version
            for package in packages
            for project in survey(context.repo, package)
            for place, version in _places(project)
            if is_affected(context.advisory, ECOSYSTEM, package, version)
        }


@dataclass
class _Holding:
    """The copies of a package in one tree, and how they are known.

    ``copies``: place → version of what is installed, and of what a lock lists or a manifest declares, if no
    installed file shows it. ``contradictions``: place → clause on how the lock differs. ``unknown``: why
    the copies of a project can't be known; empty if they can. ``by_text``: locks of which only the text is
    known.
    """

    context: GateContext
    repo: RepoContext
    package: str
    copies: dict[str, str] = field(default_factory=dict)
    contradictions: dict[str, str] = field(default_factory=dict)
    unknown: str = ""
    by_text: set[str] = field(default_factory=set)
    _proved: list[ProvedProject] = field(default_factory=list)
    _aside: list[ProvedProject] = field(default_factory=list)
    _samples: set[str] = field(default_factory=set)
    _installs: int = 0

    @classmethod
    def of(
        cls, context: GateContext, repo: RepoContext, package: str, projects: Sequence[Project]
    ) -> "_Holding":
        """Return the copies in ``projects``, whose files name the package; in those whose files named it at
        the base commit; and in those that the patch touches. Raises OSError, ToolFailedError: what was
        installed can't be read."""
        holding = cls(context, repo, package)
        for project in projects:
            holding._add(project)
        named_folders = {project.folder for project in projects}
        gone = _folders_at_base(context, package) - named_folders
        for folder in sorted(gone | {*touched(context)} - named_folders):
            if repo.has(in_folder(folder, MANIFEST)):
                holding._add_unnamed(folder, counts=folder in gone)
        return holding

    @property
    def projects(self) -> list[ProvedProject]:
        """Return the package's versions in each project; test data that is not installed counts only if
        there is nothing else."""
        return self._proved or self._aside

    @property
    def clauses(self) -> str:
        """Return what a verdict's sentence adds: contradictions, and what was not read."""
        clauses = [f"; {place}{clause}" for place, clause in sorted(self.contradictions.items())]
        for what, names in (
            ("known by its text alone, for it is not installed here", self.by_text),
            ("not counted, for it lies among a package's tests or examples", self._samples),
        ):
            if names:
                clauses.append(f"; {what}: {gating.some_of(sorted(names), _NAMED)}")
        return "".join(clauses)

    def _add(self, project: Project) -> None:
        """Add a project whose files name the package, or a copy of it."""
        files = project_files(self.repo, project.folder)
        stays = is_left_out(self.repo, self.context.advisory, self.package, files)
        copies, is_whole = self._installed(project.folder)
        before = {*self.copies}
        self.copies |= project.local
        is_seen = False
        if project.lock is not None:
            unseen = self._held_against(project, copies)
            is_seen = copies is not None and not unseen
            if not (is_seen or stays):
                self.by_text.add(project.lock)
            doubt = project.unread or (project.doubt if copies is None else "")
            if doubt and not stays:
                self.unknown = self.unknown or f"{self.package}: {doubt}"
        elif copies is not None and is_whole and not project.unread:
            self._take(copies)
            is_seen = True
        else:
            # A partial install may have another version than users get, so it can't prove one safe.
            self._take(
                copy
                for copy in copies or ()
                if is_affected(self.context.advisory, ECOSYSTEM, self.package, copy.version)
            )
            self._declared(project, stays=stays)
        versions = {version for place, version in self.copies.items() if place not in before}
        is_aside = copies is None and identity.is_aside(project.manifest)
        rated = self._aside if is_aside and project.lock is not None else self._proved
        if not stays:
            rated.append(self._project(project.lock or project.manifest, versions, is_seen=is_seen))

    def _project(self, path: str, versions: Iterable[str], *, is_seen: bool) -> ProvedProject:
        return ProvedProject(
            project=path,
            package=self.package,
            versions=tuple(sorted(versions)),
            proof_level=ProofLevel.RESOLVED_TREE if is_seen else ProofLevel.PINS,
        )

    def _add_unnamed(self, folder: str, *, counts: bool) -> None:
        """Add a project whose files do not name the package. ``counts``: record it even without a copy, as
        its files named the package at the base commit."""
        copies, _ = self._installed(folder)
        before = {*self.copies}
        if self._take(copies or ()) or counts:
            versions = {version for place, version in self.copies.items() if place not in before}
            path = in_folder(folder, MANIFEST)
            self._proved.append(self._project(path, versions, is_seen=copies is not None))

    def _declared(self, project: Project, *, stays: bool) -> None:
        if project.local and not project.declared:
            return
        floors = {
            f"{declaration.section}.{declaration.key}": floor(declaration.spec)
            for declaration in project.declared
        }
        versions = {place: version for place, version in floors.items() if version is not None}
        if project.unread or not floors or len(versions) < len(floors):
            if not stays:
                self.unknown = self.unknown or f"{self.package}: {project.unread or 'not resolved'}"
            return
        self.copies |= {
            in_folder(project.folder, place): version for place, version in versions.items()
        }

    def _held_against(
        self, project: Project, copies: Sequence[Package] | None
    ) -> Mapping[str, str]:
        """Record what is installed, what the lock lists, and where they contradict each other. Return what
        the lock lists but is not installed, as place → version."""
        claims = {
            in_folder(project.folder, key): version for key, version in project.installed.items()
        }
        listed = {plain_version(version) for version in claims.values()}
        loaded = [copy for copy in copies or () if not copy.is_sample]
        seen = {plain_version(copy.version) for copy in loaded}
        unseen = {
            place: version
            for place, version in claims.items()
            if plain_version(version) not in seen
        }
        # npm's locks list versions by place. For another lock, compare with the first version that it lists
        # and no copy has.
        by_place = PurePosixPath(project.lock or "").name in LOCKS
        missing = None if by_place else next(iter(unseen.values()), None)
        for copy in loaded:
            version = plain_version(copy.version)
            claimed = claims.get(copy.place, None if version in listed else missing)
            if copy.own_name != self.package and claimed is None:
                continue  # an alias: the lock lists it under its real name
            self.copies[copy.place] = copy.version
            if claimed is not None and plain_version(claimed) != version:
                name = "" if copy.own_name == self.package else f"{copy.own_name} "
                what = f" is {name}{copy.version}, and {project.lock} says {claimed}"
                self.contradictions[copy.place] = what
                unseen[f"{copy.place} of {project.lock}"] = claimed
        self._take([copy for copy in copies or () if copy.is_sample])
        self.copies |= {
            place: version for place, version in unseen.items() if place not in self.copies
        }
        return unseen

    def _take(self, copies: Iterable[Package]) -> bool:
        """Record the copies whose own manifest names the package. Return whether any is not a sample."""
        own_copies = [copy for copy in copies if copy.own_name == self.package]
        self._samples |= {f"{copy.place} {copy.version}" for copy in own_copies if copy.is_sample}
        loaded = {copy.place: copy.version for copy in own_copies if not copy.is_sample}
        self.copies |= loaded
        return bool(loaded)

    def _installed(self, folder: str) -> tuple[tuple[Package, ...] | None, bool]:
        """Install a project, if it is not installed yet. Return the copies of the package, or None if no
        installed file shows what users get, and whether everything is installed. Not installed are
        test data, further projects beyond ``MAX_INSTALLS``, and projects whose client fails."""
        manifest = in_folder(folder, MANIFEST)
        if not self.repo.has(manifest):
            return None, False
        try:
            target = Installation(self.context, self.repo, folder)
            installed = target.found()
            if (
                installed is None
                and not identity.is_aside(manifest)
                and self._installs < MAX_INSTALLS
            ):
                self._installs += 1
                with suppress(ToolError):
                    installed = target.install()
            is_whole = installed is not None and installed.level is Level.EVERYTHING
            return target.copies(self.package), is_whole
        except (RecipeError, RepositoryError):
            return None, False


def _committed(repo: RepoContext, package: str) -> str | None:
    """Return the path of a tracked manifest of the package below node_modules, or None."""
    suffix = f"/{MODULES}/{package}/{MANIFEST}"
    for path in repo.tracked_files:
        if f"/{MODULES}/" not in f"/{path}" or PurePosixPath(path).name != MANIFEST:
            continue
        if f"/{path}".endswith(suffix) or (
            may_name(readable_text(repo, path), package)
            and readable_manifest(repo, path).get("name") == package
        ):
            return path
    return None


def _folders_at_base(context: GateContext, package: str) -> set[str]:
    """Return the projects of the base commit that hold the package; none if its files can't be read."""
    with suppress(RecipeError, RepositoryError):
        return {project.folder for project in survey(context.repo, package)}
    return set()


def _affected(context: GateContext, package: str, copies: Mapping[str, str]) -> dict[str, str]:
    return {
        place: version
        for place, version in copies.items()
        if is_affected(context.advisory, ECOSYSTEM, package, version)
    }


def _places(project: Project) -> Iterator[tuple[str, str]]:
    for place, version in project.installed.items():
        yield in_folder(project.folder, place), version
    for declared in project.declared:
        if (lowest := floor(declared.spec)) is not None:
            yield project.manifest, lowest


#: Most checks of one project: a test script names one to three.
MAX_CHECKS = 6


class ChecksGate(NpmGate):
    """The lint and type checks that a project's test script runs as well as tests (``xo && ava && tsd``).

    New complaints fail a patch of sources. Those after a recipe's bump, which can't be written differently,
    become notes for the reviewer.
    """

    name = "checks"

    def _checks(self, context: GateContext, folder: str) -> Iterator[GateVerdict]:
        commands = own_checks(context, folder)
        if not commands:
            what = f"the test script of {in_folder(folder, MANIFEST)} has no check beside tests"
            yield gating.skipped(self.name, what)
            return
        project = Installation(context, gating.patched(context), folder)
        if (absent := project.install().absent) is not None:
            yield gating.skipped(self.name, absent.sentence)
            return
        for command in commands[:MAX_CHECKS]:
            yield self._check(project, command)
        if rest := commands[MAX_CHECKS:]:
            names = gating.some_of([f"`{check.line}`" for check in rest], _NAMED)
            yield gating.skipped(self.name, f"more checks than {MAX_CHECKS}: {names}")

    def _check(self, project: Installation, command: TestCommand) -> GateVerdict:
        inputs = (command.folder, *(f"{key}={value}" for key, value in command.env.items()))
        verdict = self._judge_by(
            project,
            f"`{command.line}`",
            lambda target, tree: run_line(target, tree, command),
            inputs=inputs,
        )
        is_bump = project.context.application.remediation is not None
        if verdict.status is not GateStatus.FAILED or not is_bump:
            return verdict
        what = f"{verdict.detail}, and not at the base commit ({command.source})"
        skipped = gating.skipped(self.name, what, verdict.log)
        return skipped.model_copy(update={"notes": (*verdict.notes, what)})


#: Most workspace members whose tests one verdict runs in addition to the root's.
MAX_MEMBERS = 10

#: A command that runs the scripts of members too.
_OF_ALL = re.compile(
    r"--workspaces?\b|--filter\b|--recursive\b|\bforeach\b|\b(?:turbo|lerna|nx|wsrun|ultra)\b|\s-(?:r|ws|w)\b"
)


#: What the path of a test contains, in any folder of a member.
_LIKE_A_TEST = re.compile(r"(?i)test|spec|check|e2e|feature|stories|/t/|\bci\b")


class TestsGate(NpmGate):
    """The tests of each project that the patch touches, and of members that depend on what it moves."""

    name = "tests"

    def _checks(self, context: GateContext, folder: str) -> Iterator[GateVerdict]:
        project = Installation(context, gating.patched(context), folder)
        of_root = choose_suite(context, project, folder, self.name)
        members, note = self._members(context, project, of_root)
        judged = [] if of_root is None else [self._judged(context, project, folder, *of_root)]
        for member in members[:MAX_MEMBERS]:
            if (of_member := choose_suite(context, project, member, self.name)) is not None:
                judged.append(self._judged(context, project, member, *of_member))
        yield from (
            verdict.model_copy(update={"notes": (*verdict.notes, *note)}) for verdict in judged
        )
        if not judged:
            yield gating.untested(self.name, f"{project.manifest} has no test script")
        if rest := members[MAX_MEMBERS:]:
            names = gating.some_of(rest, _NAMED)
            yield gating.skipped(self.name, f"more members depend on what the patch moves: {names}")

    def _members(
        self,
        context: GateContext,
        project: Installation,
        of_root: tuple[Suite, Choice] | None,
    ) -> tuple[list[str], list[str]]:
        """Return the members whose tests the root's suite does not run, and a note on those that have a
        test script and no test."""
        if of_root is not None and self._runs_members(project, of_root[0]):
            return [], []
        stated = [
            member
            for member in reached_members(project)
            if (of_root is None or not _tests_in(of_root[1], context.repo, member))
            and any(suites(context, project, member))
        ]
        members = [
            member
            for member in stated
            if any(
                path.startswith(f"{member}/") and _LIKE_A_TEST.search(path.removeprefix(member))
                for path in context.repo.tracked_files
            )
        ]
        empty = gating.some_of([member for member in stated if member not in members], _NAMED)
        note = f"test scripts were not run, as no file is a test by its name: {empty}"
        return members, [note] if empty else []

    def _judged(
        self,
        context: GateContext,
        project: Installation,
        folder: str,
        suite: Suite,
        choice: Choice,
    ) -> GateVerdict:
        judge = partial(
            judge_tests,
            *(self.name, context, folder, choice.way.run, choice.on),
            within=partial(suite.run_in, project),
            base=choice.base,
            part=partial(suite.part, project, folder),
        )
        verdict = beside_base(project, judge)
        where = "" if folder == project.folder else f"{folder}: "
        explained = choice.explain(verdict) if choice.passed_over or choice.untried else verdict
        return explained.model_copy(update={"detail": f"{where}{explained.detail}"})

    def _runs_members(self, project: Installation, suite: Suite) -> bool:
        """Return whether a suite of the root runs its members' tests, by its commands and scripts."""
        if any(command.folder != project.folder for command in suite.commands):
            return True
        texts = [command.line for command in suite.commands]
        return _OF_ALL.search(" ".join([*texts, *project.scripts.values()])) is not None


def _tests_in(choice: Choice, repo: RepoContext, folder: str) -> bool:
    """Return whether the root's suite ran each test file of a folder at the base commit."""
    reports = [run.report for run in choice.base.made if run.report is not None]
    files = {
        test.partition(" > ")[0] for report in reports for test in (*report.passed, *report.failed)
    }
    tests = {path for path in repo.tracked_files if is_test(path, folder)}
    return bool(tests) and tests <= files
