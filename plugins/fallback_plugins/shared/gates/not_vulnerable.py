"""The gate that sees a flaw gone by versions: what every ecosystem's has in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from fallback_audit.event_types import ProvedProject
from fallback_audit.vocabulary import FailureKind, ProofLevel
from fallback_plugins.shared.gates import gating
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.gate_ports import GateContext, GateVerdict
from fallback_tier.repo import RepoContext


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
