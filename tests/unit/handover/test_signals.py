"""The signals follow from what gates saw; nothing that a model says is for a fix."""

import pytest

from fallback_audit.vocabulary import GateStatus, ProofLevel, Tier
from fallback_tier.fix_result import Verified
from fallback_tier.handover.headline import signals
from fallback_tier.outcome import LowConfidence
from tests.unit.handover.verified import PROOF, RESOLVED, TESTS, gate, verified

DOUBT = LowConfidence(reason="unsupported", attempts=2)
PINS = gate("not_vulnerable", proof_level=ProofLevel.PINS)


@pytest.mark.parametrize(
    ("result", "shown", "against"),
    [
        (verified(PROOF, TESTS), {"proof", "tests"}, set()),
        (verified(RESOLVED, TESTS), {"versions", "tests"}, set()),
        (verified(TESTS), {"tests"}, set()),
        (verified(PINS, TESTS), {"tests"}, set()),
        (
            verified(gate("proof", GateStatus.SKIPPED), gate("tests", GateStatus.SKIPPED)),
            set(),
            set(),
        ),
        (verified(PROOF, low_confidence=DOUBT, tier=Tier.LLM), {"proof"}, {"support"}),
        (verified(PROOF, loose_edits=("a.txt: edit 1",)), {"proof"}, {"edits"}),
        (verified(PROOF, grounded=False), {"proof"}, {"support"}),
        (verified(gate("tests", flaky=("t::b",))), {"tests"}, {"flaky"}),
        (verified(gate("tests", failing_before=("t::b",))), {"tests"}, {"red"}),
    ],
)
def test_what_is_shown_and_what_is_against_it(
    result: Verified, shown: set[str], against: set[str]
) -> None:
    found = signals(result)
    assert {it.name for it in found if it.speaks_for} == shown
    assert {it.name for it in found if it.speaks_for is False} == against
    assert all(it.detail for it in found)


def test_a_judges_praise_adds_nothing() -> None:
    praised = verified(TESTS, grounded=True, faithfulness_score=1.0)
    assert signals(verified(TESTS)) == signals(praised)
