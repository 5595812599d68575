"""What npm's gates have in common: which projects a patch touches, and when a failure is its doing."""

from collections.abc import Callable

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.npm.manifests.layout import FOREIGN_LOCKS, LOCKS, MANIFEST, in_folder
from fallback_plugins.shared.gates import gating
from fallback_plugins.shared.gates.project_gates import ProjectGate
from fallback_plugins.shared.installed import LEFT_OUT, Installed
from fallback_tier.gate_ports import GateContext, GateVerdict


class NpmGate(ProjectGate):
    """A gate on each touched project of npm. One with a lock stands for its workspaces."""

    def _touched(self, context: GateContext) -> tuple[str, ...]:
        return touched(context)


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


def beside_base(
    ours: Installation, base: Installation, judge: Callable[[], GateVerdict]
) -> GateVerdict:
    """Return what ``judge`` says. If another step of the ladder installed the base commit, a failure is
    undecided (ADR-0077), and so is a pass whose failing tests had less there. Raises as ``judge`` and
    ``Installation.install`` do."""
    verdict = judge()
    if not gating.depends_on_setting(verdict):
        return verdict
    here, there = ours.install(), base.install()
    otherwise = here.otherwise_than(there)
    had_less = there.lacks_beside(here) or _left_out(there) != _left_out(here)
    if verdict.status is not GateStatus.FAILED and had_less:
        otherwise = otherwise or f"here {here.in_words}; at the base commit {there.in_words}"
    return gating.beside_another_setting(verdict, otherwise)


def _left_out(found: Installed) -> set[tuple[str, str]]:
    """What was not even tried, by name."""
    return {one for one in found.declined if one[1].startswith(LEFT_OUT)}
