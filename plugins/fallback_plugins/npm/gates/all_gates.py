"""npm's gates: the tree installs, holds no affected version, and the tests still pass."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fallback_audit.vocabulary import ProofLevel
from fallback_plugins.npm.gates.checks import BuildGate, TypecheckGate
from fallback_plugins.npm.gates.imports import ImportsGate
from fallback_plugins.npm.gates.npm_gate import NpmGate, beside_base
from fallback_plugins.npm.gates.testing import run_tests
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.locks.lockfile import installed_versions
from fallback_plugins.npm.manifests.layout import ECOSYSTEM, in_folder
from fallback_plugins.npm.manifests.specs import floor
from fallback_plugins.npm.surveying.reading import left_out
from fallback_plugins.npm.surveying.survey import Project, survey
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import Run
from fallback_plugins.shared.gates.not_vulnerable import NotVulnerable
from fallback_plugins.shared.gates.project_gates import ResolvingGate
from fallback_plugins.shared.gates.staying import may_stay
from fallback_plugins.shared.gates.suite_run import SuiteRun
from fallback_plugins.shared.gates.suites import judge_tests
from fallback_plugins.shared.installed import Level, NotInstalled
from fallback_plugins.shared.unread import surveyed
from fallback_tier.advisory import is_affected
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.repo import RepoContext

#: npm writes what it installed here, whether or not the project has a lock.
_HIDDEN_LOCK = "node_modules/.package-lock.json"


_LEVELS = {"pins": ProofLevel.PINS, "resolved tree": ProofLevel.RESOLVED_TREE}


def build_gates() -> tuple[Gate, ...]:
    """In order: a gate relies on what those before it installed."""
    before = (ResolvesGate(), NotVulnerableGate(), ImportsGate())
    return (*before, TypecheckGate(), BuildGate(), TestsGate())


class ResolvesGate(ResolvingGate, NpmGate):
    """The real clients install the patched manifests, without scripts: no less than of the base commit."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.inputs.declares:
            return gating.skipped(self.name, f"{project.manifest} declares no dependencies")
        found = project.install()

        def lacks() -> bool:
            base = Installation(context, context.repo, folder)
            return found.lacks_beside(base.install())

        if (
            verdict := gating.of_installed(self.name, project.inputs.client, found, lacks)
        ) is not None:
            return verdict
        what = f"{project.inputs.client} installs {project.manifest}"
        if found.declined:
            what += f" {found.in_words}; not more at the base commit"
        return gating.passed(self.name, what, found.in_full)


class NotVulnerableGate(NotVulnerable):
    """No affected version is in the resolved tree (where there is none: in what is declared)."""

    ecosystem = ECOSYSTEM

    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        committed = f"node_modules/{package}/package.json"
        if any(path == committed or path.endswith(f"/{committed}") for path in repo.tracked_files):
            why = f"{package} is committed below node_modules, which hides what the lock installs"
            return gating.unread(self.name, why)
        here, beside = surveyed(package, context.repo, repo, survey, left_out)
        if here is None:
            return gating.unread(self.name, beside)
        held, levels, unknown = _all_held(context, repo, here, package)
        bad = _affected(context, package, held)
        if bad:
            messages = [f"{place} is {version}" for place, version in bad.items()]
            before, _, _ = _all_held(context, context.repo, survey(context.repo, package), package)
            copies = [*bad.values()], [*_affected(context, package, before).values()]
            if not may_stay(context.advisory, context.application, ECOSYSTEM, package, *copies):
                return self._still_affected(package, messages)
            beside += f"; stays affected, as was planned: {', '.join(messages)}"
            held = {place: version for place, version in held.items() if place not in bad}
            if not held:
                return gating.skipped(self.name, f"{package} is not fixed{beside}")
        if unknown:
            return gating.unread(self.name, unknown)
        if held:
            level = "pins" if "pins" in levels else "resolved tree"
            return gating.passed(
                self.name,
                f"{level}: {package} {', '.join(sorted(set(held.values())))}{beside}",
                proof_level=_LEVELS[level],
            )
        if survey(context.repo, package):
            what = f"resolved tree: {package} is no longer in it{beside}"
            return gating.passed(self.name, what, proof_level=ProofLevel.RESOLVED_TREE)
        return gating.skipped(
            self.name, f"{package} is not a dependency of this repository{beside}"
        )

    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> dict[str, str]:
        """Where the base commit has, or asks for, an affected version from a registry beside the source."""
        return {
            place: version
            for package in packages
            for project in survey(context.repo, package)
            for place, version in _places(project)
            if is_affected(context.advisory, ECOSYSTEM, package, version)
        }


def _all_held(
    context: GateContext, repo: RepoContext, projects: Iterable[Project], package: str
) -> tuple[dict[str, str], set[str], str]:
    """What is held of a package, by place; how well that is known; and what could not be told."""
    held: dict[str, str] = {}
    levels = set()
    unknown = ""
    for project in projects:
        level, versions = _held(context, repo, project, package)
        if level is None:
            unknown = unknown or f"{package}: {project.unread or 'not resolved'}"
            continue
        held |= {in_folder(project.folder, place): v for place, v in versions.items()}
        levels.add(level)
    return held, levels, unknown


def _affected(context: GateContext, package: str, held: Mapping[str, str]) -> dict[str, str]:
    return {
        place: version
        for place, version in held.items()
        if is_affected(context.advisory, ECOSYSTEM, package, version)
    }


def _places(project: Project) -> Iterator[tuple[str, str]]:
    for place, version in project.installed.items():
        yield in_folder(project.folder, place), version
    for declared in project.declared:
        if (lowest := floor(declared.spec)) is not None:
            yield project.manifest, lowest


class TestsGate(NpmGate):
    """``npm test`` of every project that the patch touched."""

    name = "tests"

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.has_tests:
            return gating.skipped(self.name, f"{project.manifest} has no test script")

        def run(limits: GateContext, tree: RepoContext) -> SuiteRun | NotInstalled:
            target = Installation(limits, tree, folder)
            found = target.install()
            if found.absent is not None:
                return found.absent
            if target.has_build:
                target.build()  # tests may be of what it makes
            message = f"installed {found.in_words}" if found.declined else ""
            return run_tests(limits, target, tree, message)

        def within(limits: GateContext) -> Run:
            return lambda tree: run(limits, tree)

        base = Installation(context, context.repo, folder)
        ran = (self.name, context, folder, within(context), base.contents)
        return beside_base(project, base, lambda: judge_tests(*ran, within=within))


def _held(
    context: GateContext, repo: RepoContext, project: Project, package: str
) -> tuple[str | None, dict[str, str]]:
    """How well it is known what a project holds of the package, and what that is."""
    if project.lock:
        return "resolved tree", project.installed
    if project.unread:
        return None, {}
    if (text := _resolved(context, repo, project)) is not None:
        return "resolved tree", installed_versions(text, package)
    floors = {f"{place.section}.{place.key}": floor(place.spec) for place in project.declared}
    if not floors or None in floors.values():
        return None, {}
    return "pins", {place: version for place, version in floors.items() if version is not None}


def _resolved(context: GateContext, repo: RepoContext, project: Project) -> str | None:
    """npm's own word on what it installed, where that is all that is declared: what is installed in part
    may be another version than users get."""
    if not repo.has(project.manifest):
        return None
    target = Installation(context, repo, project.folder)
    found = target.found()
    if found is None or found.level is not Level.EVERYTHING:
        return None
    hidden = target.tree.find(in_folder(project.folder, _HIDDEN_LOCK))
    return hidden.read_text(encoding="utf-8") if hidden and hidden.is_file() else None
