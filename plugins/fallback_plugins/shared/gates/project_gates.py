"""Gates that judge each project that a patch touched, and the one that sees a flaw gone by versions: what
every ecosystem's have in common."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import ClassVar

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import TESTS_GATE, FailureKind, ProofLevel
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.base_runs import patient
from fallback_plugins.shared.gates.comparing import together
from fallback_plugins.shared.identity import is_aside
from fallback_plugins.shared.resolution import STILL_INSTALLED
from fallback_tier.advisory import Advisory, canonical_name, lets_stay
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.outcome import Applied
from fallback_tier.repo import RepoContext


class ProjectGate(ABC):
    """One verdict over every touched project; a pass says which of them were not checked."""

    name: str

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge one project after the other. Raises SandboxError, ToolError."""
        return together(self.name, self._verdicts(context))

    def _verdicts(self, context: GateContext) -> list[GateVerdict]:
        is_of_tests = self.name == TESTS_GATE
        context = patient(context) if is_of_tests else context
        found = []
        for folder in self._touched(context):
            for verdict in self._checks(context, folder):
                is_silent = is_of_tests and verdict.tests_level is None
                found.append(gating.unjudged(verdict, folder) if is_silent else verdict)
        return found

    def _checks(self, context: GateContext, folder: str) -> Iterable[GateVerdict]:
        """The verdict of each check of a project, where there are several."""
        return [self._project(context, folder)]

    @abstractmethod
    def _touched(self, context: GateContext) -> Iterable[str]:
        """Folders of the projects that the patch touched."""

    def _project(self, context: GateContext, folder: str) -> GateVerdict:
        """The verdict on one project."""
        raise NotImplementedError


class ResolvingGate(ProjectGate):
    """The real client installs each touched project, outside the sandbox."""

    name = "resolves"

    def judge(self, context: GateContext) -> GateVerdict:
        """As every gate on projects; one that can't be read or resolved fails. Raises ToolError,
        SandboxError."""
        try:
            verdicts = self._verdicts(context)
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        return gating.combined(self.name, verdicts)


class NotVulnerable(ABC):
    """One verdict over the packages of an advisory; of a repository's own packages no version tells.

    ``ecosystem``: OSV's name of it.
    """

    ecosystem: ClassVar[str]
    name: str = "not_vulnerable"

    def judge(self, context: GateContext) -> GateVerdict:
        """Read manifests, locks, and what a client says that it installed; nothing runs."""
        repo = gating.patched(context)
        packages = context.advisory.packages(self.ecosystem)
        affected = context.repo.affected
        own = gating.own_names(affected, packages)
        try:
            others = [self._package(context, repo, one) for one in packages if one not in own]
        except (RecipeError, RepositoryError) as error:
            return gating.failed(self.name, FailureKind.RESOLUTION_FAILED, error.problem)
        if affected is None or not affected.is_own:
            return gating.of_versions(self.name, others)
        return gating.of_own_code(
            self.name, affected, lambda: self._affected_copies(context, own), others
        )

    @abstractmethod
    def _package(self, context: GateContext, repo: RepoContext, package: str) -> GateVerdict:
        """The verdict on one package in the patched tree."""

    @abstractmethod
    def _affected_copies(self, context: GateContext, packages: Sequence[str]) -> Mapping[str, str]:
        """What the base commit has from a registry that is affected, beside the source: place → version."""

    def _proved(self, what: str, projects: Sequence[ProvedProject]) -> GateVerdict:
        """A pass with the lowest of the projects' levels."""
        levels = {one.proof_level for one in projects}
        level = (
            ProofLevel.RESOLVED_TREE if levels == {ProofLevel.RESOLVED_TREE} else ProofLevel.PINS
        )
        what = f"{level.replace('_', ' ')}: {what}"
        verdict = gating.passed(self.name, what, proof_level=level)
        return verdict.model_copy(update={"projects": tuple(projects)})

    def _still_affected(self, package: str, messages: Sequence[str]) -> GateVerdict:
        what = f"{package} is still affected: {', '.join(messages[:3])}"
        return gating.failed(self.name, FailureKind.STILL_VULNERABLE, what, "\n".join(messages))


def may_stay(
    advisory: Advisory,
    made: Applied,
    ecosystem: str,
    package: str,
    now: Sequence[str],
    before: Sequence[str],
) -> bool:
    """May these affected versions of a package stay, one entry a copy?

    ``before``: those of the base commit, found in the same way. Only where every advisory that covers one
    lets it stay, where there is no more of any version than before, and less of each that the recipe says
    it raised.
    """
    remediation = made.remediation
    if remediation is None or not is_planned(advisory, made, ecosystem, package, now):
        return False
    raised = {
        version
        for move in remediation.moves
        if canonical_name(ecosystem, move.package) == package
        for version in move.before
    }
    copies, earlier = Counter(now), Counter(before)
    return all(copies[version] < earlier[version] + (version not in raised) for version in copies)


def is_planned(
    advisory: Advisory, made: Applied, ecosystem: str, package: str, now: Iterable[str]
) -> bool:
    """Return whether every advisory that covers one of these versions lets it stay."""
    covering = [advisory.ids_affecting(ecosystem, package, version) for version in now]
    return made.remediation is not None and all(
        lets_stay(advisory, ecosystem, package, ids) for ids in covering
    )


def still_installed(made: Applied, package: str) -> Iterator[str]:
    """Yield what the recipe found of commands that install an affected version and that no fix changes."""
    for item in made.remediation.unread if made.remediation else ():
        if STILL_INSTALLED in item.reason and f" {package} " in item.reason:
            yield item.reason.rstrip(".")


def left_aside(made: Applied, bad: Mapping[str, str]) -> dict[str, str]:
    """Those of the affected places (with their versions) that are of projects among tests and examples
    which the recipe could not fix, and which the patch does not touch."""
    items = made.remediation.unread if made.remediation else ()
    folders = {str(PurePosixPath(item.path).parent) for item in items if is_aside(item.path)}
    touched = {str(PurePosixPath(path).parent) for path in made.files}
    left = tuple(f"{folder}/" for folder in folders - touched)
    return {place: version for place, version in bad.items() if place.startswith(left)}
