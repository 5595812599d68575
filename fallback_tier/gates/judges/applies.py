"""The first gate: putting the patch on the base commit."""

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.errors import PatchError
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.steps import APPLIES
from fallback_tier.gates.trees.worktrees import Worktree
from fallback_tier.outcome import Applied
from fallback_tier.patch.parse import parse_patch


def judge_application(application: Applied, worktree: Worktree) -> GateVerdict:
    """Does git put it there?

    What isn't strictly of the kind that we make never reaches git; what git made of it, the gates
    that follow look at.
    """
    try:
        parse_patch(application.diff)
        worktree.apply(application.diff)
    except PatchError as error:
        return GateVerdict(
            gate=APPLIES,
            status=GateStatus.FAILED,
            failure_kind=FailureKind.PATCH_DOES_NOT_APPLY,
            detail=error.problem,
            log=str(error),
        )
    return GateVerdict(
        gate=APPLIES, status=GateStatus.PASSED, detail="git applied the patch to the base commit"
    )
