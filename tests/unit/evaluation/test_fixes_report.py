"""What a real run's report says, from rows made by hand."""

from typing import Any

from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AuditEvent,
    FixEscalated,
    FixVerified,
    GateJudged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
    PlanRejected,
    RepeatedPatchRejected,
)
from fallback_audit.vocabulary import (
    CallType,
    EscalationReason,
    FailureKind,
    GateStatus,
    PromptShape,
    ProofLevel,
    Provenance,
    RefusalReason,
    Tier,
)
from fallback_eval.fixes.report import page
from fallback_eval.fixes.runs import FixFacts, FixRun, facts_of
from fallback_tier.repo import AnswerForm

DIGEST = "0" * 64


def called(attempt: int, call: int, shape: PromptShape = PromptShape.INITIAL) -> ModelCalled:
    return ModelCalled(
        attempt=attempt,
        call=call,
        call_type=CallType.AUTHOR,
        model="m",
        provenance=Provenance.LIVE,
        prompt_shape=shape,
        prompt_sha256=DIGEST,
        prompt_bytes=100,
    )


def answered(attempt: int, call: int) -> ModelAnswered:
    return ModelAnswered(
        attempt=attempt,
        call=call,
        call_type=CallType.AUTHOR,
        input_tokens=900,
        output_tokens=60,
        cache_read_tokens=100,
        stop_reason="end_turn",
        answer_sha256=DIGEST,
        duration_ms=4_000,
    )


def proposed(attempt: int, shape: PromptShape) -> PatchProposed:
    return PatchProposed(
        attempt=attempt,
        tier=Tier.LLM,
        prompt_shape=shape,
        patch_sha256=DIGEST,
        edit_digest=DIGEST,
        files=("a.py",),
    )


def judged(attempt: int, kind: FailureKind | None) -> GateJudged:
    return GateJudged(
        attempt=attempt,
        gate="proof",
        status=GateStatus.FAILED if kind else GateStatus.PASSED,
        failure_kind=kind,
        detail="the proof fails | here" if kind else "passes",
        duration_ms=1_500,
    )


def failed(attempt: int, kind: FailureKind, *gates: str) -> AttemptFailed:
    return AttemptFailed(
        attempt=attempt,
        tier=Tier.LLM,
        failure_kind=kind,
        failing_gates=gates,
        failure_signature=DIGEST,
        edit_digest=DIGEST,
        summary_sha256=DIGEST,
        summary_excerpt="x",
    )


FIXED: tuple[AuditEvent, ...] = (
    called(1, 1),
    answered(1, 1),
    PlanRejected(attempt=1, call=1, problems=("Edit 1: no such text.",)),
    called(1, 2),
    answered(1, 2),
    proposed(1, PromptShape.INITIAL),
    judged(1, FailureKind.PROOF_FAILED),
    failed(1, FailureKind.PROOF_FAILED, "proof"),
    called(2, 1, PromptShape.RETRY),
    answered(2, 1),
    proposed(2, PromptShape.RETRY),
    judged(2, None),
    FixVerified(
        attempt=2,
        tier=Tier.LLM,
        patch_sha256=DIGEST,
        proof_level=ProofLevel.SOURCE,
        gates_passed=("proof",),
    ),
)

NEVER: tuple[AuditEvent, ...] = (
    called(1, 1),
    ModelFailed(attempt=1, call=1, call_type=CallType.AUTHOR, reason="the stream broke"),
    called(1, 2),
    answered(1, 2),
    RepeatedPatchRejected(attempt=1, call=2, edit_digest=DIGEST, repeats_attempt=1),
    AttemptRefused(
        attempt=1,
        reason=RefusalReason.PLAN_INVALID,
        sentence="The model gave no usable plan.",
        prompt_shape=PromptShape.INITIAL,
    ),
    failed(1, FailureKind.PLAN_INVALID),
    FixEscalated(attempt=1, reason=EscalationReason.RETRY_CAP_REACHED, question="What now?"),
)


def run(project: str, events: tuple[AuditEvent, ...], **other: Any) -> FixRun:
    about: dict[str, Any] = {
        "project": project,
        "weakness": "zip slip",
        "cwe": "CWE-22",
        "ecosystem": "PyPI",
        "seed": 1,
        "date": "2026-02-03",
        "model": "small",
        "provenance": Provenance.LIVE,
        "setup": "a server",
        "tool_version": "0.1.0",
        "facts": facts_of(events),
        "transcript_sha256": DIGEST,
    }
    return FixRun(**{**about, **other})


def test_facts_follow_from_the_trail() -> None:
    facts = facts_of(FIXED)
    assert facts.verified_at == 2
    assert facts.tokens() == (3_000, 180)
    assert facts.tokens(CallType.JUDGE) == (0, 0)
    assert facts.gates_ms == 3_000
    first, second = facts.attempts
    assert first.failing_gates == ("proof",)
    assert first.rejected == ("Edit 1: no such text.",)
    assert (second.failure_kind, second.why, second.shape) == (None, "", PromptShape.RETRY)
    assert FixFacts.model_validate_json(facts.model_dump_json()) == facts


def test_a_trail_from_failure_to_proof_is_told() -> None:
    report = page([run("mended", FIXED), run("never", NEVER)])
    assert "1 of 2 runs over 2 projects ended in a verified patch (1 at attempt 2)." in report
    assert (
        "`mended` (seed 1): attempt 1 (initial LLM run) failed at gate proof: proof_failed; then "
        "attempt 2 passed every gate." in report
    )
    assert "each verified fix, failures included | - | 4,000 | 240 |" in report
    assert "Model `small` (live): a server" in report


def test_a_ceiling_is_told() -> None:
    report = page([run("never", NEVER)])
    assert "0 of 1 runs over 1 projects" in report
    assert "No run failed first and was verified on a retry" in report
    assert "1 of 1 attempts failed: 1 plan_invalid." in report
    assert "each verified fix" not in report
    assert "1 of 2 answers were rejected before any gate" in report


def test_a_call_without_an_answer_is_a_call() -> None:
    first, second = facts_of(NEVER).calls
    assert first.failure == "the stream broke"
    assert second.output_tokens == 60


def test_valid_first_answers_are_counted() -> None:
    """A first call that failed has no answer; what call 2 says is not one; a repetition is valid."""
    assert facts_of(FIXED).first_answers == (1, 2)
    assert facts_of(FIXED).attempts[0].invalid_calls == (1,)
    assert facts_of(NEVER).first_answers == (0, 0)
    later = (*FIXED[:2], PlanRejected(attempt=1, call=2, problems=("x",)), *FIXED[3:])
    assert facts_of(later).first_answers == (2, 2)
    again = RepeatedPatchRejected(attempt=1, call=1, edit_digest=DIGEST, repeats_attempt=1)
    assert facts_of((*FIXED[:2], again, *FIXED[3:])).first_answers == (2, 2)
    message = "attempts began with a first answer that was a valid plan"
    assert f"1 of 2 {message} (50%)." in page([run("mended", FIXED), run("never", NEVER)])
    assert f"0 of 0 {message} (-)." in page([run("never", NEVER)])


def test_the_form_that_was_asked_for_is_told() -> None:
    assert "Model `small` (live): a server" in page([run("mended", FIXED)])
    blocks = run("mended", FIXED, answer_form=AnswerForm.BLOCKS)
    assert "Model `small` (live, asked for blocks): a server" in page([blocks])
    assert run("mended", FIXED).model_dump(exclude_defaults=True).get("answer_form") is None


def test_what_a_gate_said_cannot_break_the_table() -> None:
    assert "the proof fails \\| here" in page([run("mended", FIXED)])


def test_hints_are_told_where_they_apply() -> None:
    assert "`unboxer` does" in page([run("unboxer", NEVER)])
    assert "worked example" not in page([run("mended", NEVER)])


def test_no_run_at_all() -> None:
    assert "Nothing was run yet." in page([])
