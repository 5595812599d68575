"""npm's gates: the tree installs, holds no affected version, and the tests still pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fallback_audit.vocabulary import FailureKind, ProofLevel
from fallback_plugins import gating
from fallback_plugins.comparing import together
from fallback_plugins.gating import in_folder
from fallback_plugins.installed import NotInstalled
from fallback_plugins.npm.checks import BuildGate, TypecheckGate
from fallback_plugins.npm.installation import Installation
from fallback_plugins.npm.lockfile import installed_versions
from fallback_plugins.npm.specs import floor
from fallback_plugins.npm.survey import (
    ECOSYSTEM,
    Project,
    survey,
)
from fallback_plugins.npm.testing import run_tests
from fallback_plugins.npm.touched import touched_folders
from fallback_plugins.suite_run import SuiteRun
from fallback_plugins.suites import judge_tests
from fallback_plugins.versions import version_of
from fallback_tier.advisory import is_affected
from fallback_tier.errors import RecipeError, RepositoryError, ToolFailedError
from fallback_tier.ports import Gate, GateContext, GateVerdict
from fallback_tier.repo import RepoContext
from fallback_tier.tree import Tree

#: npm writes what it installed here, whether or not the project has a lock.
_HIDDEN_LOCK = "node_modules/.package-lock.json"


_LEVELS = {"pins": ProofLevel.PINS, "resolved tree": ProofLevel.RESOLVED_TREE}


def build_gates() -> tuple[Gate, ...]:
    """In order: a gate relies on what those before it installed."""
    return (ResolvesGate(), NotVulnerableGate(), TypecheckGate(), BuildGate(), TestsGate())


@dataclass(frozen=True)
class ResolvesGate:
    """The real npm installs the patched manifests, offline and without scripts."""

    name: str = "resolves"

    def judge(self, context: GateContext) -> GateVerdict:
        """Prefetch outside, install inside. Raises ToolError, SandboxError."""
        repo = gating.patched(context)
        try:
            projects = [Installation(context, repo, folder) for folder in touched_folders(context)]
            verdicts = [self._resolve(context, project) for project in projects]
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        return gating.combined(self.name, verdicts)

    def _resolve(self, context: GateContext, project: Installation) -> GateVerdict:
        if not project.has_dependencies:
            return gating.skipped(self.name, f"{project.manifest} declares no dependencies")
        if project.foreign_lock:
            why = f"{project.foreign_lock} decides what is installed, and npm does not read it"
            return gating.skipped(self.name, why)
        fetched = project.prefetch()
        if not fetched.ok:
            gating.check_reachable("npm", fetched)
            said = gating.in_short(fetched.output)
            if not Installation(context, context.repo, project.folder).prefetch().ok:
                why = f"npm can't install the base commit either, so this tells nothing: {said}"
                return gating.skipped(self.name, why, fetched.output)
            return gating.failed(
                self.name, FailureKind.RESOLUTION_FAILED, f"npm: {said}", fetched.output
            )
        installed = project.install()
        if installed.timed_out:
            return gating.timed_out(self.name, installed, context)
        log = gating.relative_log(installed, context.worktree.tree.root)
        if "ENOTCACHED" in log:
            project.forget()
            raise ToolFailedError(
                "npm's cache no longer holds what was fetched into it.",
                next_step="Run it again: the packages are fetched anew.",
                output=log,
            )
        if not installed.ok:
            said = f"npm, offline: {gating.in_short(log)}"
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, said, log)
        return gating.passed(self.name, f"npm {project.verb} installs {project.manifest}", log)


@dataclass(frozen=True)
class NotVulnerableGate:
    """No affected version is in the resolved tree (where there is none: in what is declared)."""

    name: str = "not_vulnerable"

    def judge(self, context: GateContext) -> GateVerdict:
        """Read the locks and what npm installed."""
        repo = gating.patched(context)
        packages = context.advisory.packages(ECOSYSTEM)
        affected = context.repo.affected
        own = gating.own_names(affected, packages)
        try:
            others = [self._package(context, repo, one) for one in packages if one not in own]
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        if affected is None or not affected.is_own:
            return gating.of_versions(self.name, others)
        return gating.of_own_code(
            self.name, affected, lambda: _affected_copies(context, own), others
        )

    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        held: dict[str, str] = {}
        levels = set()
        unknown = ""
        for project in survey(repo, package):
            if not (project.lock or project.unread):
                Installation(context, repo, project.folder).ready()  # a run that was taken up here
            level, versions = _held(context.worktree.tree, project, package)
            if level is None:
                unknown = unknown or f"{package}: {project.unread or 'not resolved'}"
                continue
            held |= {in_folder(project.folder, place): v for place, v in versions.items()}
            levels.add(level)
        bad = [
            f"{place} is {version}"
            for place, version in held.items()
            if is_affected(context.advisory, ECOSYSTEM, package, version)
        ]
        if bad:
            what = f"{package} is still affected: {', '.join(bad[:3])}"
            return gating.failed(self.name, FailureKind.STILL_VULNERABLE, what, "\n".join(bad))
        if unknown:
            return gating.unread(self.name, unknown)
        if held:
            level = "pins" if "pins" in levels else "resolved tree"
            return gating.passed(
                self.name,
                f"{level}: {package} {', '.join(sorted(set(held.values())))}",
                proof_level=_LEVELS[level],
            )
        if survey(context.repo, package):
            what = f"resolved tree: {package} is no longer in it"
            return gating.passed(self.name, what, proof_level=ProofLevel.RESOLVED_TREE)
        return gating.skipped(self.name, f"{package} is not a dependency of this repository")


def _affected_copies(context: GateContext, packages: Sequence[str]) -> dict[str, str]:
    """Where the base commit has, or asks for, an affected version from a registry beside the source."""
    return {
        place: version
        for package in packages
        for project in survey(context.repo, package)
        for place, version in _places(project)
        if is_affected(context.advisory, ECOSYSTEM, package, version)
    }


def _places(project: Project) -> Iterator[tuple[str, str]]:
    for place, version in project.installed.items():
        yield in_folder(project.folder, place), version
    for declared in project.declared:
        if (lowest := floor(declared.spec)) is not None:
            yield project.manifest, lowest


@dataclass(frozen=True)
class TestsGate:
    """``npm test`` of every project that the patch touched."""

    name: str = "tests"

    def judge(self, context: GateContext) -> GateVerdict:
        """Run the base commit's tests in the sandbox. Raises SandboxError, ToolError."""
        verdicts = [self._test(context, folder) for folder in touched_folders(context)]
        return together(self.name, verdicts)

    def _test(self, context: GateContext, folder: str) -> GateVerdict:
        project = Installation(context, gating.patched(context), folder)
        if not project.has_tests:
            return gating.skipped(self.name, f"{project.manifest} has no test script")

        def run(tree: RepoContext) -> SuiteRun | NotInstalled:
            target = Installation(context, tree, folder)
            if not target.ready():
                return NotInstalled("npm can't install what package.json declares")
            if tree.tree != context.worktree.tree and target.has_build:
                target.build()  # as the gate before did in the patched tree: tests may be of what it made
            return run_tests(context, target, tree)

        return judge_tests(self.name, context, folder, run, version_of("node", context.clients))


def _held(tree: Tree, project: Project, package: str) -> tuple[str | None, dict[str, str]]:
    """How well it is known what a project holds of the package, and what that is."""
    if project.lock:
        return "resolved tree", project.installed
    if project.unread:
        return None, {}
    hidden = tree.find(f"{project.folder}/{_HIDDEN_LOCK}")
    if hidden is not None and hidden.is_file():
        text = hidden.read_text(encoding="utf-8")
        return "resolved tree", installed_versions(text, package)
    floors = {f"{place.section}.{place.key}": floor(place.spec) for place in project.declared}
    if not floors or None in floors.values():
        return None, {}
    return "pins", {place: version for place, version in floors.items() if version is not None}
