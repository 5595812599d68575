"""The first gate: putting the patch on the base commit."""

from fallback_audit.vocabulary import FailureKind
from fallback_tier.errors import PatchError
from fallback_tier.gate_ports import GateVerdict, failed, passed
from fallback_tier.gates.steps import APPLIES
from fallback_tier.gates.trees.worktrees import RunnerWorktree
from fallback_tier.outcome import Applied
from fallback_tier.patch.parse import parse_patch


def judge_application(application: Applied, worktree: RunnerWorktree) -> GateVerdict:
    """Does git put it there?

    What isn't strictly of the kind that we make never reaches git; what git made of it, the gates
    that follow look at.
    """
    try:
        parse_patch(application.diff)
        worktree.apply(application.diff)
    except PatchError as error:
        return failed(APPLIES, FailureKind.PATCH_DOES_NOT_APPLY, error.problem, str(error))
    return passed(APPLIES, "git applied the patch to the base commit")
