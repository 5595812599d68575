"""Mutants for the rules on model traffic: a valid trail without an action, or with a wrong one."""

from collections.abc import Callable

from fallback_audit.contract.model import MAX_CANDIDATE_CALLS
from fallback_audit.events import (
    AnswerReused,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    BudgetRaised,
    BudgetReached,
    FixEscalated,
    FixRefused,
    FixVerified,
    GateJudged,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    MoreCodeShown,
    PatchProposed,
    PlanRejected,
    RepeatedPatchRejected,
    RetrievalQueried,
    RetrieveDecided,
    SegmentScored,
)
from fallback_audit.vocabulary import (
    CallType,
    EscalationReason,
    PromptShape,
    RefusalReason,
    Retrieve,
    Tier,
)
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.altered import before, changed, swapped, without
from tests.unit.audit.trails import Events, digest


def many_candidates() -> Events:
    """One candidate over the bound, all asked at the same time."""
    calls = range(1, MAX_CANDIDATE_CALLS + 2)
    return [
        *m.begun(),
        m.decided(1, Retrieve.NO),
        *(m.asked(call, candidate=m.candidate(1, call)) for call in calls),
    ]


def not_scored(events: Events, number: int = 0) -> Events:
    """The last score of this candidate is missing."""
    lost = [e for e in events if isinstance(e, SegmentScored) and e.candidate.number == number][-1]
    return [event for event in events if event is not lost]


def not_fetched(events: Events) -> Events:
    """The chain's query is there, the later one is not."""
    lost = [event for event in events if isinstance(event, RetrievalQueried)][-1]
    return [event for event in events if event is not lost]


def asked_anew(events: Events) -> Events:
    """The answer of before the interruption is not looked up: the same request is sent again."""
    place = next(i for i, event in enumerate(events) if isinstance(event, AnswerReused))
    return [*events[:place], *m.exchange(1), *events[place + 1 :]]


def goes_on_without_raise() -> Events:
    return without(m.raised_and_verified(), BudgetRaised)


MODEL_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    # --- Model calls ---
    "calls-are-answered": [
        lambda: without(t.model_with_examples(), ModelAnswered),
        lambda: before(t.model_with_examples(), GroundingNotEvaluated, t.answered(1)),
        lambda: before(t.model_with_examples(), ModelAnswered, t.called(1, examples=("e1",))),
        lambda: before(m.self_rag(), SegmentScored, m.asked(9), which=0),
        lambda: without(m.withheld(), ModelFailed),
        lambda: changed(m.self_rag(), ModelCalled, call_type=CallType.CRITIQUE),
        lambda: before(m.died_and_resumed(), PatchProposed, m.reused(1)),
    ],
    "rejections-act": [
        lambda: before(t.model_with_examples(), GroundingNotEvaluated, t.rejected(1)),
        lambda: before(t.verified_on_retry(), GroundingNotEvaluated, t.repeated(2)),
        lambda: without(t.invalid_then_verified(), AttemptRefused),
        lambda: without(t.model_unavailable(), AttemptRefused),
        lambda: without(m.doubted_then_invalid(), LowConfidenceFlagged),
        lambda: without(m.withheld(), AttemptRefused),
        lambda: before(m.judge_failed(), PatchProposed, t.repeated(1, 1)),
        lambda: before(m.supported(), PatchProposed, t.rejected(1, 1)),
    ],
    "reasks-have-reasons": [
        lambda: without(t.verified_on_retry(), PlanRejected),
        lambda: without(m.doubted_then_supported(), GroundingJudged),
        lambda: changed(m.doubted_twice(), GroundingJudged, which=0, supported=True),
        lambda: without(m.raised_and_verified(), PlanRejected),
        lambda: without(m.self_rag_degraded(), PlanRejected),
        lambda: without(m.more_code_then_supported(), MoreCodeShown),
    ],
    "more-code-was-asked-for": [
        lambda: before(m.more_code_then_supported(), ModelCalled, m.more_code(1)),
        lambda: changed(m.more_code_then_supported(), MoreCodeShown, call=2),
        lambda: before(m.more_code_then_supported(), GroundingJudged, m.more_code(2)),
        lambda: before(m.supported(), PatchProposed, m.more_code(1)),
        lambda: before(m.supported(), GateJudged, m.more_code(1), which=0),
        lambda: before(m.doubted_then_invalid(), RepeatedPatchRejected, m.more_code(2)),
        lambda: before(m.doubted_then_supported(), GroundingJudged, m.more_code(2), which=1),
        lambda: before(m.withheld(), AttemptRefused, m.more_code(1)),
        lambda: before(m.self_rag_degraded(), GroundingJudged, m.more_code(1)),
    ],
    "author-calls-bounded": [
        lambda: before(
            t.verified_on_retry(),
            GroundingNotEvaluated,
            t.rejected(2, 3),
            t.called(2, 4),
            t.answered(2, 4),
        ),
        lambda: before(m.doubted_then_invalid(), LowConfidenceFlagged, *m.exchange(4, strict=True)),
        lambda: before(
            m.self_rag_degraded(),
            GroundingJudged,
            t.rejected(1, 4),
            *m.exchange(5),
            t.rejected(1, 5),
            *m.exchange(6),
        ),
        many_candidates,
    ],
    "answers-reused-were-paid": [
        lambda: before(m.supported(), GroundingJudged, m.reused(2)),
        lambda: changed(m.raised_and_verified(), AnswerReused, answer_evidence=digest("other")),
        lambda: changed(m.raised_and_verified(), AnswerReused, answer_sha256=digest("other")),
        lambda: changed(m.raised_and_verified(), AnswerReused, request_key=digest("other")),
        lambda: changed(m.raised_and_verified(), AnswerReused, model="another"),
        lambda: changed(m.died_and_resumed(), AnswerReused, call_type=CallType.AUTHOR),
        lambda: changed(m.raised_and_verified(), ModelCalled, which=0, request_key=None),
        lambda: before(m.raised_and_verified(), GateJudged, m.reused(3, of=2), which=0),
        lambda: before(m.died_and_resumed(), PatchProposed, m.reused(3, of=1)),
    ],
    "no-finished-call-paid-twice": [
        lambda: asked_anew(m.raised_and_verified()),
        lambda: asked_anew(m.died_and_resumed()),
        lambda: asked_anew(m.self_rag_resumed()),
    ],
    # --- Support ---
    "grounding-is-recorded": [
        lambda: without(t.model_with_examples(), GroundingNotEvaluated),
        lambda: swapped(t.model_with_examples(), GroundingNotEvaluated, PatchProposed),
        lambda: without(m.supported(), GroundingJudged),
        lambda: before(m.supported(), GroundingJudged, m.verdict(1, supported=False)),
        lambda: before(m.supported(), GroundingJudged, m.unjudged(1)),
        lambda: changed(m.supported(), PatchProposed, grounded=None),
        lambda: changed(m.doubted_twice(), PatchProposed, grounded=True),
        lambda: changed(m.judge_failed(), PatchProposed, grounded=True),
        lambda: changed(m.doubted_then_supported(), GroundingJudged, call=1),
        lambda: without(m.regenerated_not_judged(), GroundingNotEvaluated),
        lambda: without(m.doubted_then_invalid(), RepeatedPatchRejected),
        lambda: changed(m.doubted_then_the_same_not_judged(), PatchProposed, grounded=None),
        lambda: without(m.self_rag(), GroundingJudged),
        lambda: changed(m.more_code_then_supported(), GroundingJudged, call=1),
        lambda: before(
            m.more_code_then_supported(), ModelCalled, m.verdict(1, supported=True), which=1
        ),
        lambda: changed(t.recipe_verified(), PatchProposed, grounded=True),
    ],
    "grounding-acts": [
        lambda: changed(m.supported(), GroundingJudged, supported=False),
        lambda: before(m.supported(), GroundingJudged, m.verdict(1, supported=False)),
        lambda: without(m.doubted_at_the_ceiling(), LowConfidenceFlagged),
        lambda: without(m.doubted_twice(), LowConfidenceFlagged),
        lambda: changed(m.doubted_then_supported(), ModelCalled, which=2, strict=False),
        lambda: without(m.doubted_at_the_ceiling(), LowConfidenceFlagged, PatchProposed),
        lambda: without(m.doubted_twice(), LowConfidenceFlagged, PatchProposed, GateJudged),
    ],
    "low-confidence-has-grounds": [
        lambda: before(m.supported(), PatchProposed, m.flagged(1)),
        lambda: changed(m.doubted_twice(), LowConfidenceFlagged, attempts=1),
        lambda: before(m.doubted_twice(), PatchProposed, m.flagged(2)),
        lambda: changed(m.doubted_twice(), PatchProposed, low_confidence=False),
        lambda: changed(m.supported(), PatchProposed, low_confidence=True),
        lambda: changed(t.recipe_verified(), PatchProposed, low_confidence=True),
        lambda: before(m.doubted_twice(), PatchProposed, *m.exchange(3, strict=True)),
    ],
    "strict-only-after-doubt": [
        lambda: changed(m.supported(), ModelCalled, which=0, strict=True),
        lambda: changed(m.doubted_then_supported(), ModelCalled, strict=True),
        lambda: changed(m.doubted_then_invalid(), ModelCalled, strict=False),
        lambda: changed(m.raised_and_verified(), AnswerReused, strict=True),
        lambda: without(m.doubted_then_supported(), GroundingJudged),
        lambda: before(m.doubted_twice(), LowConfidenceFlagged, *m.exchange(3, strict=True)),
    ],
    # --- Budgets ---
    "budget-acts": [
        lambda: before(m.stopped_at_budget(), AttemptRefused, *m.exchange(2)),
        lambda: changed(
            m.stopped_at_budget(), AttemptRefused, reason=RefusalReason.MODEL_UNAVAILABLE
        ),
        lambda: before(m.stopped_at_budget(), AttemptRefused, m.at_budget()[-2]),
        lambda: before(
            without(m.stopped_at_budget(), AttemptRefused), FixEscalated, m.proposed(None)
        ),
    ],
    "budget-stops-are-real": [
        lambda: without(m.stopped_at_budget(), BudgetReached),
        lambda: changed(m.stopped_at_budget(), FixEscalated, reason=EscalationReason.RETRY_REFUSED),
        lambda: changed(t.cap_reached(), FixEscalated, reason=EscalationReason.BUDGET_EXHAUSTED),
    ],
    "budget-raises-are-signed": [
        lambda: changed(m.raised_and_verified(), BudgetRaised, by=" "),
        lambda: changed(m.raised_and_verified(), BudgetRaised, reason=""),
        lambda: before(m.supported(), FixVerified, m.raised()),
        lambda: before(m.supported(), AttemptStarted, m.raised()),
        lambda: [*t.cap_reached(), m.raised()],
        lambda: before(m.stopped_at_budget(), BudgetReached, m.raised()),
        lambda: before(m.raised_and_verified(), PatchProposed, m.raised()),
    ],
    "budget-raises-reopen": [
        lambda: [*m.stopped_at_budget(), m.raised(), *t.retry(2, 0)],
        lambda: [*m.stopped_at_budget(), m.raised(), *m.exchange(2)],
        lambda: before(m.stopped_at_budget(), AttemptRefused, m.raised()),
        lambda: [*m.at_budget(), m.raised(), *t.retry(2, 1)],
    ],
    # --- Self-RAG ---
    "retrieve-forced-on-retry": [
        lambda: changed(m.self_rag_on_retry(), RetrieveDecided, decision=Retrieve.YES),
        lambda: changed(m.self_rag_on_retry(), RetrieveDecided, forced=False),
    ],
    "retrieve-acts": [
        lambda: without(m.self_rag_on_retry(), RetrieveDecided),
        lambda: changed(m.self_rag(), RetrieveDecided, path=1),
        lambda: before(m.self_rag(), ModelCalled, m.decided(3, Retrieve.YES)),
        lambda: changed(m.self_rag(), RetrieveDecided, decision=Retrieve.NO),
    ],
    "retrieve-yes-fetches": [
        lambda: not_fetched(m.self_rag()),
        lambda: without(m.self_rag(), RetrievalQueried),
        lambda: changed(m.self_rag(), RetrieveDecided, which=1, decision=Retrieve.CONTINUE),
        lambda: changed(m.self_rag(), RetrieveDecided, decision=Retrieve.YES),
    ],
    "candidates-come-first": [
        lambda: before(
            m.self_rag_degraded(),
            GroundingJudged,
            m.decided(3, Retrieve.NO),
            *m.exchange(5, candidate=m.candidate(3, 0)),
            m.scored(m.candidate(3, 0), kept=True),
        ),
    ],
    "segments-are-scored": [
        lambda: without(m.self_rag(), SegmentScored),
        lambda: not_scored(m.self_rag(), number=1),
        lambda: not_scored(m.self_rag_degraded()),
        lambda: not_scored(m.self_rag_on_retry(), number=1),
        lambda: not_scored(m.self_rag_resumed()),
        lambda: changed(m.self_rag(), SegmentScored, score=None),
        lambda: changed(m.self_rag(), SegmentScored, problem="no such file"),
        lambda: before(m.self_rag(), SegmentScored, m.scored(m.candidate(1, 1)), which=0),
        lambda: before(m.self_rag(), SegmentScored, m.scored(m.candidate(9, 0))),
    ],
}

#: More mutants for rules whose first ones are in ``test_contract``.
ALSO: dict[str, list[Callable[[], Events]]] = {
    "rag-skip-recorded": [
        lambda: [
            *t.first_by_recipe(),
            *t.failing_gates(1, tier=Tier.RECIPE),
            t.started(2, 1),
            m.reused(1, attempt=2),
        ],
    ],
    "chain-ends-where-it-answers": [
        lambda: before(t.replayed(), PatchProposed, m.reused(1)),
    ],
    "patches-have-a-source": [
        lambda: without(m.self_rag_resumed(), AnswerReused, ModelAnswered),
    ],
    "prompt-shapes-agree": [
        lambda: changed(m.raised_and_verified(), AnswerReused, prompt_shape=PromptShape.RETRY),
    ],
    "examples-come-from-retrieval": [
        lambda: changed(m.self_rag_resumed(), AnswerReused, example_ids=("e9",)),
    ],
    "retrieval-acts": [
        lambda: [_bare(event) for event in m.self_rag()],
        lambda: [_bare(event) for event in m.self_rag_resumed()],
    ],
    "attempts-in-order": [
        lambda: [*m.supported()[:-4], t.started(1, 0)],
    ],
    "refusals-act": [
        lambda: [
            *m.stopped_at_budget()[:-1],
            FixRefused(attempt=1, reason=RefusalReason.BUDGET_EXHAUSTED, sentence="No."),
        ],
        lambda: [*m.stopped_at_budget()[:-1], *t.retry(2, 1)],
    ],
    "one-terminal-event": [
        goes_on_without_raise,
        lambda: changed(
            m.raised_and_verified(), FixEscalated, reason=EscalationReason.MODEL_UNAVAILABLE
        ),
        lambda: before(m.raised_and_verified(), BudgetRaised, t.recipe(selected=False)),
    ],
}


def _bare(event: AuditEvent) -> AuditEvent:
    """Its prompt without examples."""
    if isinstance(event, ModelCalled | AnswerReused):
        return event.model_copy(update={"example_ids": ()})
    return event
