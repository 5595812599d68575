"""The one line on how a fix ended: what was seen stands beside "fixed", and nothing seen is not fixed."""

import pytest

from fallback_audit.showing.headline import UNSHOWN
from fallback_audit.vocabulary import GateStatus, ProofLevel
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_tier.fix_result import Patched, Verified
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.handover.headline import headline
from tests.unit.fix.test_ends import PATCH

PASSED, SKIPPED = GateStatus.PASSED, GateStatus.SKIPPED
VERSIONS = GateVerdict(
    gate="not_vulnerable", status=PASSED, detail="", proof_level=ProofLevel.RESOLVED_TREE
)
PINS = VERSIONS.model_copy(update={"proof_level": ProofLevel.PINS})
PROOF = GateVerdict(gate="proof", status=PASSED, detail="", proof_level=ProofLevel.PROOF_TEST)
TESTS = GateVerdict(gate="tests", status=PASSED, detail="")
NOT_RUN = TESTS.model_copy(update={"status": SKIPPED})
RED = NOT_RUN.model_copy(update={"evidence_sha256": "0" * 64})
RAN = TESTS.model_copy(update={"tests_level": Level.RAN})
IN_TIME = NOT_RUN.model_copy(update={"tests_level": Level.RAN, "log": "1 passed"})
HALF = TESTS.model_copy(update={"tests_level": Level.NOT_JUDGED})
SOME_RED = TESTS.model_copy(update={"failing_before": ("a", "b")})

ENDED = {
    "fix_id": "fix-1",
    "gate_transition_id": "gate-1",
    "advisory_id": "A",
    "attempts": 1,
    "application": PATCH,
}


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        ((VERSIONS, TESTS), "fixed; versions proved, tests pass"),
        ((VERSIONS, NOT_RUN), "fixed; versions proved, tests not run"),
        ((VERSIONS, RED), "fixed; versions proved, tests could not be judged"),
        (
            (VERSIONS, SOME_RED),
            "fixed; versions proved, tests pass, but for 2 that failed before",
        ),
        (
            (VERSIONS, RAN),
            "fixed; versions proved, tests pass, not compared with the base commit's",
        ),
        (
            (VERSIONS, IN_TIME),
            "fixed; versions proved, tests ran, not compared with the base commit's",
        ),
        ((VERSIONS, HALF), "fixed; versions proved, tests pass, not judged in every project"),
        ((VERSIONS,), "fixed; versions proved, tests not run"),
        ((PINS, TESTS), "fixed; only declared versions proved, tests pass"),
        ((PROOF, TESTS), "fixed; the proof passes, tests pass"),
        ((VERSIONS, PROOF, TESTS), "fixed; the proof passes, versions proved, tests pass"),
    ],
)
def test_what_was_seen_stands_in_the_headline(verdicts: tuple[GateVerdict, ...], line: str) -> None:
    assert headline(Verified.model_validate({**ENDED, "verdicts": verdicts})) == line


def test_a_patch_whose_flaw_nobody_saw_gone_is_not_called_fixed() -> None:
    patched = Patched.model_validate({**ENDED, "verdicts": (TESTS,)})
    assert headline(patched) == UNSHOWN
    assert "fixed" not in UNSHOWN
    assert patched.proof_level is ProofLevel.TESTS_ONLY


def test_tests_that_failed_before_are_named_beside_those_that_pass() -> None:
    """One of them may be the test that shows the flaw."""
    patched = Patched.model_validate({**ENDED, "verdicts": (SOME_RED,)})
    message = "patched; tests pass, but for 2 that failed before; nothing shows the flaw gone"
    assert headline(patched) == message
