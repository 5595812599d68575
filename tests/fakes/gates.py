"""Gates whose verdict follows a rule of the test's."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fallback_audit.vocabulary import FailureKind, GateStatus, ProofLevel
from fallback_tier.gate_ports import GateContext, GateVerdict


@dataclass
class RuleGate:
    """Passes where ``accepts`` says so of the patched worktree's files."""

    accepts: Callable[[GateContext], bool]
    #: A gate whose pass shows the flaw gone, whosever code is affected.
    name: str = "proof"
    kind: FailureKind = FailureKind.TESTS_FAILED
    log: str = "FAILED tests/test_app.py::test_escape - AssertionError: escaped"
    judged: list[int] = field(default_factory=list)

    def judge(self, context: GateContext) -> GateVerdict:
        self.judged.append(context.application.attempt)
        if self.accepts(context):
            level = ProofLevel.PROOF_TEST if self.name == "proof" else None
            return GateVerdict(
                gate=self.name, status=GateStatus.PASSED, detail="ok", proof_level=level
            )
        return GateVerdict(
            gate=self.name,
            status=GateStatus.FAILED,
            failure_kind=self.kind,
            detail="tests failed",
            log=f"{self.log}\nThis was attempt {context.application.attempt}",
        )


@dataclass
class SkippedGate:
    """A gate that has nothing to judge."""

    name: str = "proof"

    def judge(self, context: GateContext) -> GateVerdict:
        return GateVerdict(gate=self.name, status=GateStatus.SKIPPED, detail="there are no tests")
