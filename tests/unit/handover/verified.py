"""A verified fix to hand over, with what a test wants different."""

import json
from hashlib import sha256

from fallback_audit.vocabulary import (
    CallType,
    FailureKind,
    GateStatus,
    LadderStep,
    PromptShape,
    ProofLevel,
    Tier,
)
from fallback_tier.advisory import Advisory, parse_advisory
from fallback_tier.fix_result import Verified
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import (
    Applied,
    AttemptSummary,
    CallUsage,
    Move,
    Remediation,
)

DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n"
BASE = "a" * 40


def gate(
    name: str, status: GateStatus = GateStatus.PASSED, detail: str = "well", **facts: object
) -> GateVerdict:
    return GateVerdict(gate=name, status=status, detail=detail, **facts)  # type: ignore[arg-type]


RESOLVED = gate("not_vulnerable", proof_level=ProofLevel.RESOLVED_TREE)
TESTS = gate("tests", detail="3 test(s) pass")
PROOF = gate("proof", detail="fails before, passes after")


def verified(
    *verdicts: GateVerdict, result: dict[str, object] | None = None, **applied: object
) -> Verified:
    facts: dict[str, object] = {
        "attempt": 1,
        "prompt_shape": PromptShape.NONE,
        "tier": Tier.RECIPE,
        "diff": DIFF,
        "patch_sha256": sha256(DIFF.encode()).hexdigest(),
        "edit_digest": "0" * 64,
        "files": ("a.txt",),
        "proof_level": ProofLevel.SOURCE,
        **applied,
    }
    whole: dict[str, object] = {
        "fix_id": "fix-1",
        "gate_transition_id": "gate-1",
        "advisory_id": "GHSA-test-0000-0000",
        "attempts": 1,
        "verdicts": (gate("applies"), *verdicts),
        "application": Applied.model_validate(facts),
        **(result or {}),
    }
    return Verified.model_validate(whole)


def remediation(package: str = "@scope/left", after: str | None = "2.0.0") -> Remediation:
    move = Move(
        package=package,
        manifest="package.json",
        step=LadderStep.DIRECT_BUMP,
        before=("1.0.0",),
        after=after,
    )
    return Remediation(moves=(move,), evidence_sha256="0" * 64)


FAILED = AttemptSummary(
    attempt=1,
    tier=Tier.RECIPE,
    failing_gates=("tests",),
    failure_kind=FailureKind.TESTS_FAILED,
    prior_failure_summary="Failing tests:\n- test_a",
)

USAGE = CallUsage(
    call_type=CallType.AUTHOR,
    calls=2,
    input_tokens=900,
    output_tokens=90,
    cost_usd_estimate="0.0123",
)


def advisory(summary: str = "left lets in", aliases: tuple[str, ...] = ("CVE-2026-1",)) -> Advisory:
    record = {
        "id": "GHSA-test-0000-0000",
        "aliases": aliases,
        "summary": summary,
        "affected": [{"package": {"ecosystem": "npm", "name": "left"}, "versions": ["1.0.0"]}],
    }
    return parse_advisory(json.dumps(record).encode(), "test")
