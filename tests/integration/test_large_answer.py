"""An answer larger than the evidence takes is a rejected plan, not the end of the fix."""

from pathlib import Path

from fallback_audit.events import ModelAnswered, PlanRejected
from fallback_audit.evidence.store import FileEvidenceStore
from fallback_tier.answers.reading import MAX_ANSWER_CHARS
from fallback_tier.outcome import Applied
from fallback_tier.ports import ModelAnswer
from tests.fixtures.fallback_tier_callable import PLAN, FallbackTierCallable


def test_what_the_evidence_can_not_hold_is_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    # Less than a real store's limit, more than the longest text that is read as a plan.
    evidence = FileEvidenceStore(tmp_path / "evidence", max_bytes=1_000_000)
    tier = FallbackTierCallable(
        tmp_path / "repository", answers=["{" + "a " * 750_000, PLAN], evidence=evidence
    )
    attempted = tier()
    assert isinstance(attempted.application, Applied)
    (rejected,) = attempted.audit.of(PlanRejected)
    assert f"longer than {MAX_ANSWER_CHARS:,} characters" in " ".join(rejected.problems)
    answered = attempted.audit.of(ModelAnswered)[0]
    assert answered.answer_evidence is not None
    kept = ModelAnswer.model_validate_json(evidence.get(answered.answer_evidence))
    assert len(kept.text) == MAX_ANSWER_CHARS + 1
