"""Gates that judge each project that a patch touched: what every ecosystem's have in common."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from fallback_audit.vocabulary import FailureKind
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.comparing import together
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.gate_ports import GateContext, GateVerdict


class ProjectGate(ABC):
    """One verdict over every touched project; a pass says which of them were not checked."""

    name: str

    def judge(self, context: GateContext) -> GateVerdict:
        """Judge one project after the other. Raises SandboxError, ToolError."""
        return together(self.name, self._verdicts(context))

    def _verdicts(self, context: GateContext) -> list[GateVerdict]:
        folders = self._touched(context)
        return [verdict for folder in folders for verdict in self._checks(context, folder)]

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
