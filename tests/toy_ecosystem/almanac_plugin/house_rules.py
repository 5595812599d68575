"""A gate of nobody's ecosystem, from an entry point of its own: no patch may grow beyond a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.gate_ports import Gate, GateContext, GateVerdict
from fallback_tier.ports import EcosystemPlugin

MAX_LINES = 60


@dataclass(frozen=True)
class ShortGate:
    name: str = "house_rules"

    def judge(self, context: GateContext) -> GateVerdict:
        lines = len(context.application.diff.splitlines())
        fits = lines <= MAX_LINES
        return GateVerdict(
            gate=self.name,
            status=GateStatus.PASSED if fits else GateStatus.FAILED,
            failure_kind=None if fits else FailureKind.CUSTOM_GATE_FAILED,
            detail=f"the patch has {lines} lines, {MAX_LINES} may be",
        )


def build_gates(plugin: EcosystemPlugin) -> Sequence[Gate]:
    return (ShortGate(),)
