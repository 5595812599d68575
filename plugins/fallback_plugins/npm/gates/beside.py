"""Is what fails with the patch known to be its doing? Not where the two trees were not installed alike."""

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.npm.installing.installation import Installation
from fallback_plugins.shared.gates import gating
from fallback_tier.gate_ports import GateContext, GateVerdict


def beside_base(context: GateContext, folder: str, verdict: GateVerdict) -> GateVerdict:
    """A failure in a tree that another step of the ladder installed than the base commit's is undecided
    (ADR-0077); any other verdict as it is. Raises as ``Installation.install`` does."""
    if verdict.status is not GateStatus.FAILED:
        return verdict
    here, there = (
        Installation(context, tree, folder).install()
        for tree in (gating.patched(context), context.repo)
    )
    return gating.beside_another_setting(verdict, here.otherwise_than(there))
