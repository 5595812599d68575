"""The trace contract: valid trails pass at every crash point; each rule catches its mutants."""

from collections.abc import Callable

import pytest

from fallback_audit.contract import attempt, fix, model, parts
from fallback_audit.contract.table import RULES, violations
from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import (
    TERMINAL_KINDS,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    ConsumerLeft,
    ExampleReplayed,
    FixEscalated,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
)
from fallback_audit.vocabulary import (
    EscalationReason,
    FailureKind,
    GateStatus,
    PromptShape,
    RefusalReason,
    RetrievalVerdict,
    Tier,
)
from fallback_tier import limits
from fallback_tier.gates import decision
from fallback_tier.llm.selfrag import affordable
from tests.unit.audit import trails as t
from tests.unit.audit.again_trails import AGAIN_ALSO, AGAIN_MUTANTS
from tests.unit.audit.altered import before, changed, swapped, without
from tests.unit.audit.batch_trails import BATCH_MUTANTS
from tests.unit.audit.candidate_trails import CANDIDATE_MUTANTS
from tests.unit.audit.human_mutants import HUMAN_ALSO, HUMAN_MUTANTS
from tests.unit.audit.human_trails import VALID
from tests.unit.audit.model_mutants import ALSO, MODEL_MUTANTS
from tests.unit.audit.proof_trails import PROOF_ALSO, PROOF_MUTANTS
from tests.unit.audit.trails import Events

#: Rule → mutants: a valid trail, with an action removed or changed.
MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "rag-skip-recorded": [
        lambda: without(t.verified_on_retry(), RagSkippedOnRetry),
        lambda: swapped(t.verified_on_retry(), RagSkippedOnRetry, ModelCalled),
        lambda: before(t.verified_on_retry(), ModelCalled, t.skipped(2, 1)),
        lambda: before(t.model_with_examples(), ModelCalled, t.skipped(1, 0)),
    ],
    "retrieval-untouched-on-retry": [
        lambda: before(
            t.verified_on_retry(),
            RagSkippedOnRetry,
            t.retrieved().model_copy(update={"attempt": 2}),
        ),
        lambda: before(
            t.verified_on_retry(), PatchProposed, ExampleReplayed(attempt=2, example_id="e1")
        ),
        lambda: before(
            t.verified_on_retry(), PatchProposed, RecipeEvaluated(attempt=2, selected=True)
        ),
    ],
    "skip-counts-priors": [lambda: changed(t.cap_reached(), RagSkippedOnRetry, attempt_count=2)],
    "retry-carries-last-failure": [
        lambda: changed(t.cap_reached(), RagSkippedOnRetry, summary_sha256=t.digest("summary 1")),
        lambda: changed(
            t.cap_reached(), RagSkippedOnRetry, last_failure_kind=FailureKind.BUILD_FAILED
        ),
    ],
    "history-grows": [
        lambda: changed(t.verified_on_retry(), AttemptStarted, prior_attempt_count=0),
        lambda: changed(t.cap_reached(), AttemptStarted, prior_attempt_count=2),
        lambda: changed(t.recipe_verified(), FixStarted, linked_transition="transition-0"),
    ],
    "attempts-in-order": [
        lambda: changed(t.cap_reached(), AttemptStarted, attempt=2),
        lambda: changed(t.foreign_orchestrator(), AttemptStarted, attempt=3),
        lambda: [*t.first_by_recipe(), *t.retry(3, 1), *t.retry(2, 2)],
    ],
    "retry-cap-holds": [
        lambda: [*t.cap_reached()[:-1], *t.retry(5, 4)],
        lambda: [*t.foreign_orchestrator()[:-1], *t.retry(5, 3)],
    ],
    "edits-are-new": [
        lambda: changed(t.verified_on_retry(), PatchProposed, edit_digest=t.digest("edit 1"))
    ],
    "chain-ends-where-it-answers": [
        lambda: before(t.recipe_verified(), PatchProposed, t.retrieved("e1")),
        lambda: before(t.replayed(), PatchProposed, t.called(1), t.answered(1)),
    ],
    "patches-have-a-source": [
        lambda: changed(t.recipe_verified(), RecipeEvaluated, selected=False),
        lambda: without(t.replayed(), ExampleReplayed),
        lambda: without(t.verified_on_retry(), ModelAnswered),
        lambda: changed(t.verified_on_retry(), PatchProposed, tier=Tier.RECIPE),
    ],
    "examples-come-from-retrieval": [
        lambda: changed(t.model_with_examples(), ModelCalled, example_ids=("e1", "e9")),
        lambda: changed(t.verified_on_retry(), ModelCalled, example_ids=("e1",)),
        lambda: [*t.first_by_model(*"abcde")],
    ],
    "retrieval-means-what-it-says": [
        lambda: changed(t.model_with_examples(), RetrievalQueried, verdict=RetrievalVerdict.MISS),
        lambda: changed(t.replayed(), ExampleReplayed, example_id="e2"),
        lambda: without(t.replayed(), RetrievalQueried),
    ],
    "retrieval-acts": [lambda: changed(t.model_with_examples(), ModelCalled, example_ids=())],
    "prompt-shapes-agree": [
        lambda: changed(t.verified_on_retry(), AttemptStarted, prompt_shape=PromptShape.INITIAL),
        lambda: changed(t.verified_on_retry(), ModelCalled, prompt_shape=PromptShape.INITIAL),
        lambda: changed(t.recipe_verified(), PatchProposed, prompt_shape=PromptShape.INITIAL),
        lambda: changed(t.not_affected(), AttemptRefused, prompt_shape=PromptShape.INITIAL),
    ],
    "events-stand-in-their-attempt": [
        lambda: without(t.recipe_verified(), AttemptStarted),
        lambda: changed(t.verified_on_retry(), GateJudged, attempt=1),
    ],
    "attempts-have-one-outcome": [
        lambda: without(t.not_affected(), AttemptRefused),
        lambda: without(t.foreign_orchestrator(), PatchProposed, attempt=2),
        lambda: before(
            t.recipe_verified(),
            GateJudged,
            t.refused(1, RefusalReason.NOTHING_CHANGED, asked=False),
        ),
        lambda: before(t.recipe_verified(), PatchProposed, ConsumerLeft(attempt=1, resume_rule="")),
    ],
    "proposals-are-judged": [
        lambda: without(t.recipe_verified(), GateJudged),
        lambda: without(t.verified_on_retry(), GateJudged, attempt=1),
        lambda: without(t.verified_on_retry(), GateJudged, AttemptFailed, attempt=1),
        lambda: [
            t.fix_started(),
            *t.first_by_recipe(),
            FixRefused(attempt=1, reason=RefusalReason.NOTHING_CHANGED, sentence="No."),
        ],
    ],
    "gates-judge-proposals": [
        lambda: swapped(t.recipe_verified(), PatchProposed, GateJudged),
        lambda: changed(t.recipe_verified(), GateJudged, failure_kind=FailureKind.TESTS_FAILED),
        lambda: changed(t.verified_on_retry(), GateJudged, status=GateStatus.FAILED),
        lambda: before(t.recipe_verified(), FixVerified, t.judged(1, "tests")),
    ],
    "failed-gates-act": [
        lambda: without(t.verified_on_retry(), AttemptFailed),
        lambda: [
            t.fix_started(),
            *t.first_by_recipe(),
            *t.failing_gates(1)[:2],
            t.escalated(1, EscalationReason.GATE_INFRASTRUCTURE),
        ],
    ],
    "failures-have-grounds": [
        lambda: without(t.cap_reached(), GateJudged, attempt=4),
        lambda: changed(t.cap_reached(), AttemptFailed, failing_gates=("build",)),
        lambda: changed(t.cap_reached(), AttemptFailed, failure_kind=FailureKind.BUILD_FAILED),
        lambda: changed(
            t.invalid_then_verified(), AttemptFailed, failure_kind=FailureKind.REPEATED_PATCH
        ),
    ],
    "failed-attempts-act": [
        lambda: before(t.recipe_verified(), FixVerified, t.failed(1, "tests")),
        lambda: before(t.cap_reached(), FixEscalated, t.judged(4, "proof")),
    ],
    "refusals-act": [
        lambda: without(t.invalid_then_verified(), AttemptFailed),
        lambda: [*t.not_affected()[:-1], *t.retry(2)],
        lambda: changed(t.invalid_then_verified(), AttemptRefused, reason=RefusalReason.OWN_CODE),
    ],
    "retries-follow-failures": [lambda: [*t.recipe_verified()[:-1], *t.retry(2)]],
    "same-failure-stops": [lambda: [*t.same_failure_three_times()[:-1], *t.retry(4)]],
    "same-failure-is-real": [
        lambda: changed(
            t.cap_reached(), FixEscalated, reason=EscalationReason.SAME_FAILURE_REPEATED
        )
    ],
    "fix-starts-first": [
        lambda: without(t.recipe_verified(), FixStarted),
        lambda: before(t.recipe_verified(), GateJudged, t.fix_started()),
        lambda: swapped(t.recipe_verified(), FixStarted, AttemptStarted),
    ],
    "one-terminal-event": [
        lambda: [*t.recipe_verified(), t.verified(1, Tier.RECIPE)],
        lambda: [*t.cap_reached(), *t.retry(5)],
    ],
    "verified-is-proved": [
        lambda: changed(t.recipe_verified(), FixVerified, patch_sha256=t.digest("another")),
        lambda: changed(t.recipe_verified(), FixVerified, tier=Tier.LLM),
        lambda: changed(t.recipe_verified(), FixVerified, gates_passed=("applies",)),
        lambda: changed(t.recipe_verified(), FixVerified, gates_skipped=()),
        lambda: changed(t.verified_on_retry(), FixVerified, attempt=1),
        lambda: [*t.cap_reached()[:-2], t.verified(4)],
        lambda: changed(
            without(t.recipe_verified(), GateJudged), FixVerified, gates_passed=(), gates_skipped=()
        ),
    ],
}

PARTS = (
    MUTANTS,
    MODEL_MUTANTS,
    HUMAN_MUTANTS,
    PROOF_MUTANTS,
    AGAIN_MUTANTS,
    CANDIDATE_MUTANTS,
    BATCH_MUTANTS,
)
MORE = (ALSO, HUMAN_ALSO, PROOF_ALSO, AGAIN_ALSO)

ALL_MUTANTS = {rule: mutants for part in PARTS for rule, mutants in part.items()}

EVERY = {
    rule: [*mutants, *(mutant for more in MORE for mutant in more.get(rule, ()))]
    for rule, mutants in ALL_MUTANTS.items()
}

CASES = [
    pytest.param(rule, mutant, id=f"{rule}-{number}")
    for rule, mutants in EVERY.items()
    for number, mutant in enumerate(mutants, start=1)
]


def broken_rules(events: Events) -> set[str]:
    return {violation.rule for violation in violations(t.trail_of(events))}


@pytest.mark.parametrize("valid", VALID, ids=lambda valid: valid.__name__)
def test_valid_trails_break_no_rule_wherever_the_process_died(valid: Callable[[], Events]) -> None:
    events = valid()
    for length in range(len(events) + 1):
        found = list(violations(t.trail_of(events[:length])))
        assert not found, f"after {length} events"


@pytest.mark.parametrize(("rule", "mutant"), CASES)
def test_each_mutant_is_caught_by_its_rule(rule: str, mutant: Callable[[], Events]) -> None:
    assert rule in broken_rules(mutant())


def test_each_rule_has_a_mutant_and_each_mutant_a_rule() -> None:
    identifiers = [
        rule.id for rule in RULES if not rule.of_maintenance
    ]  # see test_generated_mutants
    assert len(set(identifiers)) == len(identifiers)
    assert len(ALL_MUTANTS) == sum(map(len, PARTS))
    assert set(ALL_MUTANTS) == set(identifiers)
    assert all(ALL_MUTANTS.values())
    assert set().union(*MORE) <= set(identifiers)


@pytest.mark.parametrize("rule", EVERY)
def test_without_this_rule_a_mutant_would_pass(rule: str) -> None:
    """Each rule is needed: it alone catches one of its mutants."""
    assert any(broken_rules(mutant()) == {rule} for mutant in EVERY[rule])


def test_each_rule_is_one_sentence_with_a_source() -> None:
    for rule in RULES:
        assert rule.sentence.endswith(".")
        assert rule.source.startswith("ADR-")


def test_violations_name_the_event() -> None:
    events = without(t.verified_on_retry(), RagSkippedOnRetry)
    found = [v for v in violations(t.trail_of(events)) if v.rule == "rag-skip-recorded"]
    first_call = next(i for i, e in enumerate(events, start=1) if isinstance(e, ModelCalled))
    assert [violation.seq for violation in found] == [first_call]
    assert found[0].fix_id == t.SCOPE.fix_id


def test_retrieval_on_a_first_attempt_is_no_violation() -> None:
    events = t.model_with_examples()
    assert any(isinstance(event, RetrievalQueried) for event in events)
    assert not broken_rules(events)


def test_limits_are_those_of_the_tier() -> None:
    assert attempt.MAX_RETRIES == limits.MAX_RETRIES
    assert parts.MAX_RECIPE_CANDIDATES == limits.MAX_RECIPE_CANDIDATES
    assert model.MAX_AUTHOR_CALLS == limits.MAX_AUTHOR_CALLS
    assert attempt.MAX_EXAMPLES == limits.MAX_EXAMPLES
    assert model.MAX_CANDIDATE_CALLS == affordable.MAX_CANDIDATE_CALLS


def test_same_failure_limit_is_that_of_the_gate_runner() -> None:
    assert fix.SAME_FAILURE_LIMIT == decision.SAME_FAILURE_LIMIT


def test_terminal_types_are_those_of_the_vocabulary() -> None:
    assert {kind.__name__ for kind in TERMINALS} == TERMINAL_KINDS
