"""npm's gates between installing and testing: dependencies load, types and the build are as they were.

A project configures TypeScript in its tracked files; the compiler is the one that npm installed for it.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests.layout import (
    ECOSYSTEM,
    FOREIGN_LOCKS,
    LOCKS,
    MANIFEST,
    in_folder,
)
from fallback_plugins.npm.manifests.manifest import SECTIONS, entries, parse_manifest
from fallback_plugins.npm.usage import is_source, mentions, requires
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import (
    Check,
    Finding,
    Loading,
    ProjectGate,
    Rewriting,
    judge_check,
    judge_loading,
    limits,
)
from fallback_plugins.shared.installed import LEFT_OUT, Installed, NotInstalled
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import CommandResult
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext

TSCONFIG = "tsconfig.json"

#: The compiler as npm installed it for the project.
COMPILER = "node_modules/typescript"
TSC = "node_modules/.bin/tsc"

#: One line a complaint, and nothing written: what a build makes is the build's to make.
_TSC_OPTIONS = ("--noEmit", "--pretty", "false")

#: Configurations that are checked in one project: the packages of a monorepo, not the cases of a
#: compiler's test suite.
MAX_CONFIGURATIONS = 12

#: Complaints after which others are not made: of the options (they name no file), and of a referenced
#: project without output, whose types are unknown then (TS6305,
#: https://www.typescriptlang.org/docs/handbook/project-references.html). A build tells more.
_BLOCKED = re.compile(r"^(?:error TS|.*: error TS6305:)", re.MULTILINE)

_COMPLAINT = re.compile(r"^(?:(?P<path>\S[^(]*)\(\d+,\d+\): )?(?P<what>error TS(?!6305:)\d+: .*)$")

#: A configuration is JSON with comments; strings are matched too, so that what is in them is none.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_REFERENCES = re.compile(r'"references"\s*:\s*\[(.*?)\]', re.DOTALL)
_TO_REQUIRE = re.compile(r'"module"\s*:\s*"commonjs"', re.IGNORECASE)
_REFERENCE = re.compile(r'"path"\s*:\s*"([^"\\]+)"')

#: Dependencies that are loaded in one project, the advisory's own first, then what it runs with.
MAX_DEPENDENCIES = 50

#: Types for a compiler: nothing to load.
_TYPES = "@types/"

#: The probe's word for what ``require`` does not load any more, and a bundler or a compiler may.
_ES_MODULE = "it is an ES module, which only import() loads"

_BROWSER = "window|document|navigator|self|location|localStorage|customElements|[A-Z]\\w*Element|Node|Event"

#: What can't be loaded here in either tree, however it says so: what an install script or a compiler would
#: have made (no script runs while installing), and what is written for a browser.
_VARYING: tuple[Rewriting, ...] = (
    (re.compile(r"without its install script: .*"), "not built"),
    (re.compile(r".*(?:\.node\b|bindings file|node-gyp).*"), "not built"),
    (re.compile(rf"ReferenceError: (?:{_BROWSER}) is not defined"), "not in a browser"),
)


class NpmGate(ProjectGate):
    """A gate on each touched project of npm. One with a lock stands for its workspaces."""

    def _touched(self, context: GateContext) -> tuple[str, ...]:
        return touched(context)

    def _judge(
        self, project: Installation, label: str, argv: Sequence[str], **check: Any
    ) -> GateVerdict:
        """The verdict on a command in a project; ``check``: what more ``Check`` is told."""
        return self._judge_by(project, label, lambda target, _: target.run(argv), **check)

    def _judge_by(
        self,
        project: Installation,
        label: str,
        run: Callable[[Installation, RepoContext], CommandResult],
        **check: Any,
    ) -> GateVerdict:
        """The same, by what runs the command in a tree whose dependencies are installed."""

        def run_in(tree: RepoContext) -> CommandResult | NotInstalled:
            target = project.in_tree(tree)
            return target.install().absent or run(target, tree)

        asked = Check(label, run_in, on=project.at_base.contents, **check)
        where = (self.name, project.context, project.folder)
        return beside_base(project, lambda: judge_check(*where, asked))


def touched(context: GateContext) -> tuple[str, ...]:
    """Return the folders of the projects that the patch touches: a member's is its workspace's."""
    has = context.repo.has

    def is_project(folder: str) -> bool:
        return has(in_folder(folder, MANIFEST))

    def is_locked(folder: str) -> bool:
        return is_project(folder) and any(
            has(in_folder(folder, lock)) for lock in (*LOCKS, *FOREIGN_LOCKS)
        )

    return gating.project_folders(context, is_locked, is_project)


def beside_base(project: Installation, judge: Callable[[], GateVerdict]) -> GateVerdict:
    """Return what ``judge`` says. If another step of the ladder installed the base commit, a failure is
    undecided (ADR-0077), and so is a pass whose failing tests had less there. Raises as ``judge`` and
    ``Installation.install`` do."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    here, there = project.install(), project.at_base.install()
    otherwise = here.otherwise_than(there)
    had_less = there.lacks_beside(here) or _left_out(there) != _left_out(here)
    if verdict.status is not GateStatus.FAILED and had_less:
        otherwise = otherwise or f"here {here.in_words}; at the base commit {there.in_words}"
    return gating.beside_another_setting(verdict, otherwise)


def _left_out(found: Installed) -> set[tuple[str, str]]:
    """Return what was not tried, by name."""
    return {one for one in found.declined if one[1].startswith(LEFT_OUT)}


class BuildGate(NpmGate):
    """``npm run build``. What it makes stays for the tests, which may need it."""

    name = "build"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.has_build:
            return gating.skipped(self.name, f"{project.manifest} has no build script")
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        return self._judge(project, "npm run build", project.in_it("npm", "run", "build"))


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
            reported = {"findings": findings, "blocked": is_blocked}
            for config in configs[:MAX_CONFIGURATIONS]:
                argv = [in_folder(folder, TSC), *_TSC_OPTIONS, "-p", config]
                yield self._judge(project, f"tsc -p {config}", argv, **reported)
            if (more := len(configs) - MAX_CONFIGURATIONS) > 0:
                yield gating.skipped(self.name, f"{more} more configuration(s)")


def configurations(repo: RepoContext, folder: str) -> tuple[str, ...]:
    """The tracked configurations of a project, nearest its root first, and those they refer to."""
    found = [path for path in repo.tracked_files if _is_configuration(path, folder)]
    found.sort(key=lambda path: (path.count("/"), path))
    for path in found:  # which grows
        found += [other for other in _references(repo, path) if other not in found]
    return tuple(found)


def compiles_to_require(repo: RepoContext, folder: str) -> bool:
    """Does a configuration say that imports become calls of ``require``?"""
    return any(
        _TO_REQUIRE.search(_plain(repo.read_text(it))) for it in configurations(repo, folder)
    )


def declares_typescript(repo: RepoContext, folder: str) -> bool:
    """Does the project, or one of its workspaces, depend on the compiler?"""
    manifests = (
        path
        for path in repo.manifests
        if PurePosixPath(path).name == MANIFEST and PurePosixPath(path).is_relative_to(folder)
    )
    for path in {in_folder(folder, MANIFEST), *manifests}:
        with suppress(RecipeError, RepositoryError):  # a fixture's may be as broken as it likes
            facts = parse_manifest(path, repo.read_text(path))
            if any("typescript" in dict(entries(facts.get(section))) for section in SECTIONS):
                return True
    return False


def findings(output: str) -> list[Finding]:
    """The compiler's complaints, without the lines that explain one."""
    found = (_COMPLAINT.fullmatch(line) for line in output.splitlines())
    return [Finding(f"{one['path'] or ''}: {one['what']}", one[0]) for one in found if one]


def is_blocked(result: CommandResult) -> bool:
    """Did the compiler stop short of checking every type?"""
    return _BLOCKED.search(result.output) is not None


def _is_configuration(path: str, folder: str) -> bool:
    pure = PurePosixPath(path)
    return (
        pure.name == TSCONFIG
        and pure.is_relative_to(folder)
        and not {"node_modules", "fixtures", "__fixtures__"}.intersection(pure.parts)
    )


def _references(repo: RepoContext, path: str) -> list[str]:
    table = _REFERENCES.search(_plain(repo.read_text(path)))
    found = []
    for named in _REFERENCE.findall(table[1]) if table else ():
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), named))
        found.append(place if place.endswith(".json") else in_folder(place, TSCONFIG))
    return [other for other in found if repo.has(other)]


def _plain(text: str) -> str:
    return _COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else "", text)


@dataclass(frozen=True)
class _Asked:
    """One dependency as one manifest asks for it."""

    name: str
    spec: str
    folder: str
    way: str
    label: str


class ImportsGate(NpmGate):
    """Checks that the project's own dependencies load, if the patch changes what is installed."""

    name = "imports"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        base = project.at_base
        if not project.inputs.declares:
            return gating.skipped(self.name, f"{project.manifest} declares no dependencies")
        if project.inputs.identity == base.inputs.identity:
            return gating.skipped(self.name, f"no dependency of {project.manifest} moves")
        if (absent := project.install().absent) is not None:
            return gating.skipped(self.name, absent.sentence)
        every = {one.label: one for one in _asked(context, project)}
        if not every:
            return gating.skipped(self.name, f"{project.manifest} requires nothing that is loaded")

        def run(tree: RepoContext, labels: Sequence[str]) -> CommandResult | NotInstalled:
            target = project.in_tree(tree)
            return target.install().absent or _load(target, [every[label] for label in labels])

        def excused(label: str, message: str) -> bool:
            return message == _ES_MODULE and not _is_required(gating.patched(context), every[label])

        asked = Loading(tuple(every), run, base.contents, _VARYING, excused)
        return beside_base(project, lambda: judge_loading(self.name, context, folder, asked))


def _asked(context: GateContext, project: Installation) -> Sequence[_Asked]:
    """Of the root and its members, each name and spec once; manifests that the patch changed first."""
    changed, packages = context.application.files, context.advisory.packages(ECOSYSTEM)
    paths = sorted(project.inputs.own, key=lambda path: path not in changed)
    facts = {path: parse_manifest(path, project.inputs.files.manifests[path]) for path in paths}
    found: dict[tuple[str, ...], _Asked] = {}
    for section in SECTIONS:
        for path in paths:
            for one in _in_section(project.folder, path, facts[path], section):
                found.setdefault((one.name, one.spec, one.way), one)
    first = sorted(found.values(), key=lambda one: one.name not in packages)
    return first[:MAX_DEPENDENCIES]


def _in_section(root: str, path: str, facts: Mapping[str, Any], section: str) -> Iterator[_Asked]:
    folder = str(PurePosixPath(path).parent)
    way = "import" if facts.get("type") == "module" else "require"
    for name, spec in entries(facts.get(section)):
        if not name.startswith(_TYPES):
            label = name if folder == root else f"{name} (in {folder})"
            yield _Asked(name, spec, folder, way, label)


def _load(target: Installation, asked: Sequence[_Asked]) -> CommandResult:
    source = files("fallback_plugins.npm.gates").joinpath("import_probe.js").read_text("utf-8")
    names = json.dumps([(one.label, one.name, one.folder, one.way) for one in asked])
    return target.run(["node", "-e", source, *limits(target.context), names])


def _is_required(repo: RepoContext, asked: _Asked) -> bool:
    """Does a file of the project call ``require`` for it, or is compiled to do so? What only imports it
    otherwise is bundled."""
    compiled = True
    with suppress(RepositoryError):
        compiled = compiles_to_require(repo, asked.folder)
    for path in repo.tracked_files:
        if is_source(path) and PurePosixPath(path).is_relative_to(asked.folder):
            with suppress(RepositoryError):
                text = repo.read_text(path)
                if requires(asked.name, text) or (compiled and mentions(asked.name, path, text)):
                    return True
    return False
