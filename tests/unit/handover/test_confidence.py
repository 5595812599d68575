"""The level follows from what gates saw; what a model says can only lower it."""

import pytest

from fallback_audit.vocabulary import GateStatus, ProofLevel, Tier
from fallback_tier.gates.result import Verified
from fallback_tier.handover.confidence import Level, confidence
from fallback_tier.outcome import LowConfidence
from tests.unit.handover.verified import PROOF, RESOLVED, TESTS, gate, verified

DOUBT = LowConfidence(reason="unsupported", attempts=2)


@pytest.mark.parametrize(
    ("result", "level"),
    [
        (verified(PROOF, TESTS), Level.HIGH),
        (verified(RESOLVED, TESTS), Level.HIGH),
        (verified(TESTS), Level.MEDIUM),
        (verified(RESOLVED), Level.MEDIUM),
        (verified(PROOF), Level.MEDIUM),
        (verified(gate("not_vulnerable", proof_level=ProofLevel.PINS), TESTS), Level.MEDIUM),
        (verified(gate("not_vulnerable", proof_level=ProofLevel.PINS)), Level.LOW),
        (verified(gate("proof", GateStatus.SKIPPED), gate("tests", GateStatus.SKIPPED)), Level.LOW),
        (verified(PROOF, TESTS, low_confidence=DOUBT, tier=Tier.LLM), Level.LOW),
        (verified(PROOF, TESTS, loose_edits=("a.txt: edit 1",)), Level.MEDIUM),
        (verified(PROOF, TESTS, grounded=False), Level.MEDIUM),
        (verified(PROOF, gate("tests", flaky=("t::b",))), Level.MEDIUM),
        (verified(PROOF, gate("tests", failing_before=("t::b",))), Level.MEDIUM),
        (verified(RESOLVED, gate("tests", failing_before=("t::b",))), Level.MEDIUM),
        (verified(gate("tests", failing_before=("t::b",))), Level.LOW),
    ],
)
def test_the_level(result: Verified, level: Level) -> None:
    assert confidence(result).level is level


def test_a_judges_praise_raises_nothing() -> None:
    plain = confidence(verified(TESTS))
    praised = confidence(verified(TESTS, grounded=True, faithfulness_score=1.0))
    assert plain == praised


def test_every_signal_says_what_it_is() -> None:
    signals = {s.name: s for s in confidence(verified(TESTS, loose_edits=("x",))).signals}
    assert signals["proof"].speaks_for is None
    assert signals["tests"].speaks_for is True
    assert signals["edits"].speaks_for is False
    assert all(signal.detail for signal in signals.values())
