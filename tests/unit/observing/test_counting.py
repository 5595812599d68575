"""Each event of the record moves the metrics that it should, and no other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_audit.events import (
    AnswerReused,
    AppendFlagged,
    AuditEvent,
    BudgetReached,
    FixPatched,
    FixRefused,
    GateJudged,
    GroundingJudged,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelFailed,
    PatchProposed,
)
from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    FailureKind,
    GateStatus,
    ModelFailureKind,
    PromptShape,
    ProofLevel,
    RefusalReason,
    RetrievalVerdict,
    Tier,
)
from tests.unit.audit import trails
from tests.unit.observing.observed import ObservedTrail


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[ObservedTrail]:
    built = ObservedTrail(tmp_path)
    yield built
    built.close()


def test_a_fix_whose_recipe_failed_and_whose_retry_was_proved(observed: ObservedTrail) -> None:
    observed.record(trails.verified_on_retry())
    reported = {
        ("fallback_tier_fixes_started_total", "npm"): 1,
        ("fallback_tier_fixes_ended_total", "verified", "none"): 1,
        ("fallback_tier_attempts_total",): 2,
        ("fallback_tier_retries_total",): 1,
        ("fallback_tier_rag_skipped_total", "tests_failed"): 1,
        ("fallback_tier_tier_outcomes_total", "recipe", "proposed"): 1,
        ("fallback_tier_tier_outcomes_total", "recipe", "failed"): 1,
        ("fallback_tier_tier_outcomes_total", "llm", "proposed"): 1,
        ("fallback_tier_tier_outcomes_total", "llm", "verified"): 1,
        ("fallback_tier_attempt_failures_total", "tests_failed"): 1,
        ("fallback_tier_gate_verdicts_total", "applies", "passed"): 2,
        ("fallback_tier_gate_verdicts_total", "tests", "failed"): 1,
        ("fallback_tier_gate_verdicts_total", "tests", "passed"): 1,
        ("fallback_tier_gate_verdicts_total", "proof", "skipped"): 1,
        ("fallback_tier_gate_failures_total", "tests", "tests_failed"): 1,
        ("fallback_tier_sandbox_disabled_total",): 1,
        ("llm_calls_total", "author", "answered"): 3,
        ("llm_tokens_total", "author", "input"): 2_700,
        ("llm_tokens_total", "author", "output"): 300,
        ("llm_cost_usd_estimate_total", "author"): 0.03,
        ("fallback_tier_build_info", "*"): 1,
    }
    assert moved(observed) == pytest.approx(reported)


def moved(observed: ObservedTrail) -> dict[tuple[str, ...], float]:
    """Every counter that is not zero, by name and label values."""
    observed.figures.refresh()
    found = {}
    for family in observed.families.registry.collect():
        for sample in family.samples:
            if sample.value and (sample.name.endswith("_total") or sample.name.endswith("_info")):
                labels = ["*"] if "version" in sample.labels else list(sample.labels.values())
                found[sample.name, *labels] = sample.value
    return found


@pytest.mark.parametrize(
    ("events", "sample", "labels"),
    [
        (
            trails.cap_reached(),
            "fallback_tier_fixes_ended_total",
            ("escalated", "retry_cap_reached"),
        ),
        (trails.cap_reached(), "fallback_tier_tier_outcomes_total", ("llm", "failed")),
        (trails.replayed(), "fallback_tier_tier_outcomes_total", ("rag", "verified")),
        (
            trails.invalid_then_verified(),
            "fallback_tier_attempt_refusals_total",
            ("plan_invalid",),
        ),
        (
            [
                FixRefused(
                    attempt=1, reason=RefusalReason.NO_FIXED_VERSION, sentence="There is none."
                )
            ],
            "fallback_tier_fixes_ended_total",
            ("refused", "no_fixed_version"),
        ),
        (
            [
                FixPatched(
                    attempt=1,
                    tier=Tier.LLM,
                    patch_sha256="0" * 64,
                    proof_level=ProofLevel.TESTS_ONLY,
                    gates_passed=("tests",),
                )
            ],
            "fallback_tier_fixes_ended_total",
            ("patched", "none"),
        ),
        (
            [LowConfidenceFlagged(attempt=1, reason="a claim", attempts=2)],
            "fallback_tier_low_confidence_total",
            (),
        ),
        (
            [
                BudgetReached(
                    attempt=1, limit=BudgetLimit.USD_PER_DAY, cap="1", used="1", wanted="1"
                )
            ],
            "fallback_tier_budget_refusals_total",
            ("usd_per_day",),
        ),
        (
            [AppendFlagged(at=1, rule="a-rule", detail="broken")],
            "fallback_tier_contract_breaches_total",
            (),
        ),
        (
            [
                AnswerReused(
                    attempt=1,
                    call=1,
                    call_type=CallType.AUTHOR,
                    model="m",
                    prompt_shape=PromptShape.INITIAL,
                    request_key="0" * 64,
                    answer_sha256="0" * 64,
                    answer_evidence="0" * 64,
                )
            ],
            "llm_calls_total",
            ("author", "reused"),
        ),
        (
            [
                ModelFailed(
                    attempt=1,
                    call=1,
                    call_type=CallType.AUTHOR,
                    reason="late",
                    failure=ModelFailureKind.TIMEOUT,
                )
            ],
            "llm_call_failures_total",
            ("author", "timeout"),
        ),
    ],
)
def test_an_event_moves_its_metric(
    observed: ObservedTrail, events: list[AuditEvent], sample: str, labels: tuple[str, ...]
) -> None:
    assert (sample, *labels) not in moved(observed)
    observed.record(events)
    assert moved(observed)[sample, *labels] >= 1


def test_every_kind_of_token_is_told_apart_by_what_the_call_was_for(
    observed: ObservedTrail,
) -> None:
    observed.record(
        [
            ModelAnswered(
                attempt=1,
                call=1,
                call_type=CallType.JUDGE,
                input_tokens=1,
                output_tokens=2,
                cache_read_tokens=3,
                cache_write_tokens=4,
                stop_reason="end_turn",
                answer_sha256="0" * 64,
                duration_ms=1_500,
            )
        ]
    )
    for direction, count in {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4}.items():
        assert observed.value("llm_tokens_total", call_type="judge", direction=direction) == count
        assert observed.value("llm_tokens_total", call_type="author", direction=direction) == 0
    assert observed.value("llm_call_duration_seconds_sum", call_type="judge") == 1.5


def test_a_judge_that_keeps_failing_is_seen_until_it_judges(observed: ObservedTrail) -> None:
    late = ModelFailed(attempt=1, call=2, call_type=CallType.JUDGE, reason="late")
    author = late.model_copy(update={"call_type": CallType.AUTHOR})
    observed.record([late, author, late])
    assert observed.value("fallback_tier_judge_failing") == 2
    verdict = GroundingJudged(
        attempt=1,
        call=1,
        supported=False,
        faithfulness_score=0.5,
        claims=2,
        judge_model="m",
        judgement_sha256="0" * 64,
    )
    observed.record([verdict])
    assert observed.value("fallback_tier_judge_failing") == 0
    assert observed.value("fallback_tier_judgements_total", supported="false") == 1


def test_retrieval_is_timed_by_the_record(observed: ObservedTrail) -> None:
    observed.record(trails.model_with_examples(), fix="fix-1")
    observed.record(trails.invalid_then_verified(), fix="fix-2")
    count = "rag_phase_duration_seconds_count"
    assert observed.value(count, verdict=RetrievalVerdict.HIT) == 1
    assert observed.value(count, verdict=RetrievalVerdict.MISS) == 1
    took = observed.value("rag_phase_duration_seconds_sum", verdict=RetrievalVerdict.HIT)
    assert took is not None
    assert 0 < took < 60


def test_a_patch_that_is_judged_again_is_proposed_once(observed: ObservedTrail) -> None:
    first = trails.proposed(1)
    assert isinstance(first, PatchProposed)
    observed.record([first, first.model_copy(update={"taken_from": "gate-0"})])
    assert observed.value("fallback_tier_tier_outcomes_total", tier="llm", outcome="proposed") == 1


def test_names_that_others_choose_can_not_make_endless_series(observed: ObservedTrail) -> None:
    """A repository's own gates are named by the repository."""
    judged = GateJudged(
        attempt=1,
        gate="g",
        status=GateStatus.FAILED,
        failure_kind=FailureKind.CUSTOM_GATE_FAILED,
        detail="no",
        duration_ms=1,
    )
    observed.record(
        judged.model_copy(update={"gate": f"gate {number} " + "x" * 500}) for number in range(80)
    )
    observed.figures.refresh()
    gates = {
        sample.labels["gate"]
        for family in observed.families.registry.collect()
        for sample in family.samples
        if "gate" in sample.labels
    }
    assert len(gates) == 51
    assert max(map(len, gates)) == 60
    assert observed.value("fallback_tier_gate_verdicts_total", gate="other", status="failed") == 30
