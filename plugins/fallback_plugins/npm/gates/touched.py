"""Which npm projects of a repository a patch touches."""

from fallback_plugins.npm.manifests.layout import FOREIGN_LOCKS, LOCKS, MANIFEST
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.gating import in_folder
from fallback_plugins.shared.gates.project_gates import ProjectGate
from fallback_tier.gate_ports import GateContext


class NpmGate(ProjectGate):
    """A gate on each touched project of npm."""

    def _touched(self, context: GateContext) -> tuple[str, ...]:
        return touched_folders(context)


def touched_folders(context: GateContext) -> tuple[str, ...]:
    """Projects that the patch touched. One with a lock stands for its workspaces."""
    has = context.repo.has

    def is_project(folder: str) -> bool:
        return has(in_folder(folder, MANIFEST))

    def is_locked(folder: str) -> bool:
        return is_project(folder) and any(
            has(in_folder(folder, lock)) for lock in (*LOCKS, *FOREIGN_LOCKS)
        )

    return gating.project_folders(context, is_locked, is_project)
