"""Valid trails of the LLM leaf, as it writes them: verdicts, budgets, resumed attempts, self-RAG."""

from collections.abc import Callable

from fallback_audit.contract.model import MAX_CANDIDATE_CALLS
from fallback_audit.events import (
    AnswerReused,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    BudgetRaised,
    BudgetReached,
    Candidate,
    Charge,
    ConsumerLeft,
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
    StrategyDegraded,
)
from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    EscalationReason,
    ModelFailureKind,
    PromptShape,
    Provenance,
    RefusalReason,
    Retrieve,
    Support,
    Tier,
)
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events, before, changed, digest, swapped, without

AUTHOR, JUDGE, CRITIQUE = CallType.AUTHOR, CallType.JUDGE, CallType.CRITIQUE


def asked(
    call: int,
    *,
    kind: CallType = AUTHOR,
    attempt: int = 1,
    strict: bool = False,
    candidate: Candidate | None = None,
    examples: tuple[str, ...] = (),
) -> AuditEvent:
    return ModelCalled(
        attempt=attempt,
        call=call,
        call_type=kind,
        model=f"{kind}-model",
        provenance=Provenance.SCRIPTED,
        prompt_shape=PromptShape.INITIAL if attempt == 1 else PromptShape.RETRY,
        prompt_sha256=digest("prompt"),
        prompt_bytes=1_000,
        example_ids=examples,
        strict=strict,
        request_key=digest(f"request {kind} {call}"),
        reserved=Charge(tokens=5_000, cost_usd_estimate="0.05"),
        candidate=candidate,
    )


def answer(call: int, *, kind: CallType = AUTHOR, attempt: int = 1) -> AuditEvent:
    return ModelAnswered(
        attempt=attempt,
        call=call,
        call_type=kind,
        input_tokens=900,
        output_tokens=100,
        cost_usd_estimate="0.01",
        stop_reason="end_turn",
        answer_sha256=digest(f"answer {kind} {call}"),
        answer_evidence=digest(f"whole answer {kind} {call}"),
        duration_ms=7,
    )


def exchange(
    call: int,
    *,
    kind: CallType = AUTHOR,
    attempt: int = 1,
    strict: bool = False,
    candidate: Candidate | None = None,
    examples: tuple[str, ...] = (),
) -> Events:
    request = asked(
        call, kind=kind, attempt=attempt, strict=strict, candidate=candidate, examples=examples
    )
    return [request, answer(call, kind=kind, attempt=attempt)]


def reused(
    call: int, *, kind: CallType = AUTHOR, of: int | None = None, **more: object
) -> AuditEvent:
    of = of or call
    return AnswerReused.model_validate(
        {
            "attempt": 1,
            "call": call,
            "call_type": kind,
            "model": f"{kind}-model",
            "prompt_shape": PromptShape.INITIAL,
            "request_key": digest(f"request {kind} {of}"),
            "answer_sha256": digest(f"answer {kind} {of}"),
            "answer_evidence": digest(f"whole answer {kind} {of}"),
            **more,
        }
    )


def failed(call: int, kind: CallType, failure: ModelFailureKind) -> AuditEvent:
    return ModelFailed(attempt=1, call=call, call_type=kind, reason=failure.value, failure=failure)


def verdict(call: int, *, supported: bool, attempt: int = 1) -> AuditEvent:
    return GroundingJudged(
        attempt=attempt,
        call=call,
        supported=supported,
        faithfulness_score=1.0 if supported else 0.5,
        claims=2,
        unsupported=() if supported else ("it says that 1.2.4 is fixed",),
        judge_model="judge-model",
        judgement_sha256=digest(f"judgement of {call}"),
    )


def judged(call: int, *, supported: bool, nth: int = 1, attempt: int = 1) -> Events:
    """The judge's call and its verdict on author call ``call``."""
    judge = exchange(nth, kind=JUDGE, attempt=attempt)
    return [*judge, verdict(call, supported=supported, attempt=attempt)]


def unjudged(call: int) -> AuditEvent:
    return GroundingNotEvaluated(attempt=1, call=call, reason="the judge gave no answer")


def flagged(attempts: int) -> AuditEvent:
    return LowConfidenceFlagged(attempt=1, reason="1 of 2 claims unsupported", attempts=attempts)


def proposed(grounded: bool | None, *, low: bool = False, attempt: int = 1) -> AuditEvent:
    return t.proposed(attempt).model_copy(update={"grounded": grounded, "low_confidence": low})


def begun(*examples: str) -> Events:
    return [t.started(1, 0), t.recipe(selected=False), t.retrieved(*examples)]


def proved(*events: AuditEvent) -> Events:
    """A fix whose first attempt is ``events``."""
    return [t.fix_started(), *begun(), *events, *t.passing_gates(1), t.verified(1)]


def supported() -> Events:
    return proved(*exchange(1), *judged(1, supported=True), proposed(True))


def more_code(call: int) -> AuditEvent:
    return MoreCodeShown(attempt=1, call=call, files=("lib/guards.js",), byte_count=2_000)


def more_code_then_supported() -> Events:
    return proved(
        *exchange(1), more_code(1), *exchange(2), *judged(2, supported=True), proposed(True)
    )


def more_code_in_vain() -> Events:
    """It declines again."""
    reason = RefusalReason.MODEL_REFUSED
    refused = t.refused(1, reason)
    end = FixRefused(attempt=1, reason=reason, sentence="It declined.")
    return [t.fix_started(), *begun(), *exchange(1), more_code(1), *exchange(2), refused, end]


def doubted_then_supported() -> Events:
    return proved(
        *exchange(1),
        *judged(1, supported=False),
        *exchange(2, strict=True),
        *judged(2, supported=True, nth=2),
        proposed(True),
    )


def doubted_twice() -> Events:
    return proved(
        *exchange(1),
        *judged(1, supported=False),
        *exchange(2, strict=True),
        *judged(2, supported=False, nth=2),
        flagged(2),
        proposed(False, low=True),
    )


def doubted_then_invalid() -> Events:
    """Nothing valid came of the regeneration: the doubted plan is handed on."""
    return proved(
        *exchange(1),
        *judged(1, supported=False),
        *exchange(2, strict=True),
        t.rejected(1, 2),
        *exchange(3, strict=True),
        t.repeated(1, 3),
        flagged(1),
        proposed(False, low=True),
    )


def doubted_at_the_ceiling() -> Events:
    return proved(
        *exchange(1),
        t.rejected(1, 1),
        *exchange(2),
        t.rejected(1, 2),
        *exchange(3),
        *judged(3, supported=False),
        flagged(1),
        proposed(False, low=True),
    )


def judge_failed() -> Events:
    return proved(
        *exchange(1),
        asked(1, kind=JUDGE),
        failed(1, JUDGE, ModelFailureKind.OVERLOADED),
        unjudged(1),
        proposed(None),
    )


def regenerated_not_judged() -> Events:
    return proved(
        *exchange(1),
        *judged(1, supported=False),
        *exchange(2, strict=True),
        unjudged(2),
        proposed(None),
    )


def doubted_then_the_same_not_judged() -> Events:
    """The same edits again, and nobody looked anew: the doubt stands."""
    return proved(
        *exchange(1),
        *judged(1, supported=False),
        *exchange(2, strict=True),
        unjudged(2),
        flagged(1),
        proposed(False, low=True),
    )


def at_budget() -> Events:
    """The first answer is rejected, and there is no budget for a second one."""
    reached = BudgetReached(
        attempt=1, limit=BudgetLimit.USD_PER_FIX, cap="0.05", used="0.01", wanted="0.05"
    )
    return [
        *begun(),
        *exchange(1),
        t.rejected(1, 1),
        reached,
        t.refused(1, RefusalReason.BUDGET_EXHAUSTED),
    ]


def stopped_at_budget() -> Events:
    return [t.fix_started(), *at_budget(), t.escalated(1, EscalationReason.BUDGET_EXHAUSTED)]


def raised(by: str = "A. Person", reason: str = "worth it") -> AuditEvent:
    return BudgetRaised(by=by, reason=reason, usd_per_fix="0.50")


def resumed_later() -> Events:
    """What was answered before the stop is found again; the rest is asked."""
    return [
        *begun(),
        reused(1),
        t.rejected(1, 1),
        *exchange(2),
        *judged(2, supported=True),
        proposed(True),
        *t.passing_gates(1),
        t.verified(1),
    ]


def raised_and_verified() -> Events:
    return [*stopped_at_budget(), raised(), *resumed_later()]


def raised_twice() -> Events:
    """The first raise was too small; the process died before the second stop was escalated."""
    again = [*begun(), reused(1), *at_budget()[-3:]]
    return [*stopped_at_budget(), raised(), *again, raised(), *resumed_later()]


def withheld() -> Events:
    """Another process booked in between: the call that was announced is not sent."""
    head = at_budget()[:5]
    return [
        t.fix_started(),
        *head,
        t.rejected(1, 1),
        asked(2),
        failed(2, AUTHOR, ModelFailureKind.WITHHELD),
        *at_budget()[-2:],
        t.escalated(1, EscalationReason.BUDGET_EXHAUSTED),
    ]


def died_and_resumed() -> Events:
    """Killed while the judge worked, then left while the strict call did: three runs of attempt 1."""
    return [
        t.fix_started(),
        *begun(),
        *exchange(1),
        asked(1, kind=JUDGE),
        *begun(),
        reused(1),
        *judged(1, supported=False),
        asked(2, strict=True),
        ConsumerLeft(attempt=1, resume_rule="start again"),
        *begun(),
        reused(1),
        reused(1, kind=JUDGE),
        verdict(1, supported=False),
        *exchange(2, strict=True),
        *judged(2, supported=True, nth=2),
        proposed(True),
        *t.passing_gates(1),
        t.verified(1),
    ]


def candidate(step: int, number: int, path: int = 0) -> Candidate:
    return Candidate(step=step, path=path, number=number)


def decided(
    step: int, decision: Retrieve, *, path: int = 0, attempt: int = 1, forced: bool = False
) -> AuditEvent:
    return RetrieveDecided(
        attempt=attempt, step=step, path=path, decision=decision, forced=forced, reason="said so"
    )


def scored(of: Candidate, *, kept: bool = False, problem: str = "", attempt: int = 1) -> AuditEvent:
    facts: dict[str, object] = {"problem": problem}
    if not problem:
        facts = {"relevant": True, "support": Support.FULL, "usefulness": 4, "score": 0.75}
    return SegmentScored.model_validate(
        {"attempt": attempt, "candidate": of, "example_id": "e1", "kept": kept, **facts}
    )


def pair(step: int, first: int, *, attempt: int = 1, examples: tuple[str, ...] = ()) -> Events:
    """Two candidates, at the same time, and their critiques; the first one is kept."""
    both = [candidate(step, 0), candidate(step, 1)]
    nothing: list[tuple[str, ...]] = [(), ()]
    chunks = [(name,) for name in examples] if examples else nothing
    calls: Events = []
    for kind, shown in ((AUTHOR, chunks), (CRITIQUE, nothing)):
        for number, (of, chunk) in enumerate(zip(both, shown, strict=True), start=first):
            calls.append(asked(number, kind=kind, attempt=attempt, candidate=of, examples=chunk))
        calls += [answer(number, kind=kind, attempt=attempt) for number in (first, first + 1)]
    return [
        *calls,
        scored(both[0], kept=True, attempt=attempt),
        scored(both[1], attempt=attempt),
    ]


def fetched(*examples: str) -> AuditEvent:
    event = t.retrieved(*examples)
    assert isinstance(event, RetrievalQueried)
    return event


def self_rag() -> Events:
    """Two steps with examples, a third that goes on with them; one of its candidates fails."""
    third = [candidate(3, 0), candidate(3, 1)]
    return [
        t.fix_started(),
        *begun("e1", "e2"),
        decided(1, Retrieve.YES),
        *pair(1, 1, examples=("e1", "e2")),
        *exchange(3, kind=CRITIQUE),
        decided(2, Retrieve.YES),
        fetched("e3", "e4"),
        *pair(2, 4, examples=("e3", "e4")),
        decided(3, Retrieve.CONTINUE),
        asked(6, candidate=third[0], examples=("e3",)),
        asked(7, candidate=third[1], examples=("e4",)),
        failed(6, AUTHOR, ModelFailureKind.TIMEOUT),
        answer(7),
        scored(third[0], problem="no answer"),
        scored(third[1], kept=True),
        *judged(7, supported=True),
        proposed(True),
        *t.passing_gates(1),
        t.verified(1),
    ]


def self_rag_on_retry() -> Events:
    return [
        t.fix_started(),
        *t.first_by_recipe(),
        *t.failing_gates(1, tier=Tier.RECIPE),
        t.started(2, 1),
        t.skipped(2, 1),
        decided(1, Retrieve.NO, attempt=2, forced=True),
        *pair(1, 1, attempt=2),
        decided(2, Retrieve.NO, attempt=2, forced=True),
        *pair(2, 3, attempt=2),
        *judged(3, supported=True, attempt=2),
        proposed(True, attempt=2),
        *t.passing_gates(2),
        t.verified(2),
    ]


def self_rag_degraded() -> Events:
    """The examples are not wanted; the plan that came of it is invalid; the ordinary loop goes on."""
    return [
        t.fix_started(),
        *begun("e1", "e2"),
        decided(1, Retrieve.NO),
        *pair(1, 1),
        StrategyDegraded(attempt=1, step=2, reason="the budget has room for one candidate"),
        decided(2, Retrieve.NO),
        *exchange(3, candidate=candidate(2, 0)),
        scored(candidate(2, 0), kept=True),
        t.rejected(1, 3),
        *exchange(4, examples=("e1",)),
        *judged(4, supported=True),
        proposed(True),
        *t.passing_gates(1),
        t.verified(1),
    ]


def self_rag_out_of_means() -> Events:
    """A beam of two; examples are fetched for both paths, and there are means for one candidate."""
    return [
        t.fix_started(),
        *begun("e1", "e2"),
        decided(1, Retrieve.YES),
        *pair(1, 1, examples=("e1", "e2")),
        decided(2, Retrieve.YES),
        fetched("e3"),
        decided(2, Retrieve.YES, path=1),
        fetched("e4"),
        StrategyDegraded(attempt=1, step=2, reason="greedy search with one example from here on"),
        *exchange(3, candidate=candidate(2, 0), examples=("e3",)),
        scored(candidate(2, 0), kept=True),
        decided(3, Retrieve.YES),
        fetched("e5"),
        StrategyDegraded(attempt=1, step=3, reason="the search ends here"),
        t.rejected(1, 3),
        *exchange(4, examples=("e1",)),
        *judged(4, supported=True),
        proposed(True),
        *t.passing_gates(1),
        t.verified(1),
    ]


def self_rag_resumed() -> Events:
    """Killed when one candidate of two was answered: that one is found again."""
    both = [candidate(1, 0), candidate(1, 1)]
    head = [*begun("e1", "e2"), decided(1, Retrieve.YES)]
    first, second = (
        asked(number, candidate=of, examples=(f"e{number}",))
        for number, of in enumerate(both, start=1)
    )
    return [
        t.fix_started(),
        *head,
        first,
        second,
        answer(1),
        *head,
        reused(1, candidate=both[0], example_ids=("e1",)),
        second,
        answer(2),
        scored(both[0]),
        scored(both[1], kept=True),
        *judged(2, supported=True),
        proposed(True),
        *t.passing_gates(1),
        t.verified(1),
    ]


MODEL_VALID = (
    supported,
    more_code_then_supported,
    more_code_in_vain,
    doubted_then_supported,
    doubted_twice,
    doubted_then_invalid,
    doubted_at_the_ceiling,
    judge_failed,
    regenerated_not_judged,
    doubted_then_the_same_not_judged,
    stopped_at_budget,
    raised_and_verified,
    raised_twice,
    withheld,
    died_and_resumed,
    self_rag,
    self_rag_on_retry,
    self_rag_degraded,
    self_rag_out_of_means,
    self_rag_resumed,
)

#: Every valid trail.
VALID = (*t.VALID, *MODEL_VALID)


def many_candidates() -> Events:
    """One candidate over the bound, all asked at the same time."""
    calls = range(1, MAX_CANDIDATE_CALLS + 2)
    return [
        *begun(),
        decided(1, Retrieve.NO),
        *(asked(call, candidate=candidate(1, call)) for call in calls),
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
    return [*events[:place], *exchange(1), *events[place + 1 :]]


def goes_on_without_raise() -> Events:
    return without(raised_and_verified(), BudgetRaised)


MODEL_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    # --- Model calls ---
    "calls-are-answered": [
        lambda: without(t.model_with_examples(), ModelAnswered),
        lambda: before(t.model_with_examples(), GroundingNotEvaluated, t.answered(1)),
        lambda: before(t.model_with_examples(), ModelAnswered, t.called(1, examples=("e1",))),
        lambda: before(self_rag(), SegmentScored, asked(9), which=0),
        lambda: without(withheld(), ModelFailed),
        lambda: changed(self_rag(), ModelCalled, call_type=CallType.CRITIQUE),
        lambda: before(died_and_resumed(), PatchProposed, reused(1)),
    ],
    "rejections-act": [
        lambda: before(t.model_with_examples(), GroundingNotEvaluated, t.rejected(1)),
        lambda: before(t.verified_on_retry(), GroundingNotEvaluated, t.repeated(2)),
        lambda: without(t.invalid_then_verified(), AttemptRefused),
        lambda: without(t.model_unavailable(), AttemptRefused),
        lambda: without(doubted_then_invalid(), LowConfidenceFlagged),
        lambda: without(withheld(), AttemptRefused),
        lambda: before(judge_failed(), PatchProposed, t.repeated(1, 1)),
        lambda: before(supported(), PatchProposed, t.rejected(1, 1)),
    ],
    "reasks-have-reasons": [
        lambda: without(t.verified_on_retry(), PlanRejected),
        lambda: without(doubted_then_supported(), GroundingJudged),
        lambda: changed(doubted_twice(), GroundingJudged, which=0, supported=True),
        lambda: without(raised_and_verified(), PlanRejected),
        lambda: without(self_rag_degraded(), PlanRejected),
        lambda: without(more_code_then_supported(), MoreCodeShown),
    ],
    "more-code-was-asked-for": [
        lambda: before(more_code_then_supported(), ModelCalled, more_code(1)),
        lambda: changed(more_code_then_supported(), MoreCodeShown, call=2),
        lambda: before(more_code_then_supported(), GroundingJudged, more_code(2)),
        lambda: before(supported(), PatchProposed, more_code(1)),
        lambda: before(supported(), GateJudged, more_code(1), which=0),
        lambda: before(doubted_then_invalid(), RepeatedPatchRejected, more_code(2)),
        lambda: before(doubted_then_supported(), GroundingJudged, more_code(2), which=1),
        lambda: before(withheld(), AttemptRefused, more_code(1)),
        lambda: before(self_rag_degraded(), GroundingJudged, more_code(1)),
    ],
    "author-calls-bounded": [
        lambda: before(
            t.verified_on_retry(),
            GroundingNotEvaluated,
            t.rejected(2, 3),
            t.called(2, 4),
            t.answered(2, 4),
        ),
        lambda: before(doubted_then_invalid(), LowConfidenceFlagged, *exchange(4, strict=True)),
        lambda: before(
            self_rag_degraded(),
            GroundingJudged,
            t.rejected(1, 4),
            *exchange(5),
            t.rejected(1, 5),
            *exchange(6),
        ),
        many_candidates,
    ],
    "answers-reused-were-paid": [
        lambda: before(supported(), GroundingJudged, reused(2)),
        lambda: changed(raised_and_verified(), AnswerReused, answer_evidence=digest("other")),
        lambda: changed(raised_and_verified(), AnswerReused, answer_sha256=digest("other")),
        lambda: changed(raised_and_verified(), AnswerReused, request_key=digest("other")),
        lambda: changed(raised_and_verified(), AnswerReused, model="another"),
        lambda: changed(died_and_resumed(), AnswerReused, call_type=CallType.AUTHOR),
        lambda: changed(raised_and_verified(), ModelCalled, which=0, request_key=None),
        lambda: before(raised_and_verified(), GateJudged, reused(3, of=2), which=0),
        lambda: before(died_and_resumed(), PatchProposed, reused(3, of=1)),
    ],
    "no-finished-call-paid-twice": [
        lambda: asked_anew(raised_and_verified()),
        lambda: asked_anew(died_and_resumed()),
        lambda: asked_anew(self_rag_resumed()),
    ],
    # --- Support ---
    "grounding-is-recorded": [
        lambda: without(t.model_with_examples(), GroundingNotEvaluated),
        lambda: swapped(t.model_with_examples(), GroundingNotEvaluated, PatchProposed),
        lambda: without(supported(), GroundingJudged),
        lambda: before(supported(), GroundingJudged, verdict(1, supported=False)),
        lambda: before(supported(), GroundingJudged, unjudged(1)),
        lambda: changed(supported(), PatchProposed, grounded=None),
        lambda: changed(doubted_twice(), PatchProposed, grounded=True),
        lambda: changed(judge_failed(), PatchProposed, grounded=True),
        lambda: changed(doubted_then_supported(), GroundingJudged, call=1),
        lambda: without(regenerated_not_judged(), GroundingNotEvaluated),
        lambda: without(doubted_then_invalid(), RepeatedPatchRejected),
        lambda: changed(doubted_then_the_same_not_judged(), PatchProposed, grounded=None),
        lambda: without(self_rag(), GroundingJudged),
        lambda: changed(more_code_then_supported(), GroundingJudged, call=1),
        lambda: before(
            more_code_then_supported(), ModelCalled, verdict(1, supported=True), which=1
        ),
        lambda: changed(t.recipe_verified(), PatchProposed, grounded=True),
    ],
    "grounding-acts": [
        lambda: changed(supported(), GroundingJudged, supported=False),
        lambda: before(supported(), GroundingJudged, verdict(1, supported=False)),
        lambda: without(doubted_at_the_ceiling(), LowConfidenceFlagged),
        lambda: without(doubted_twice(), LowConfidenceFlagged),
        lambda: changed(doubted_then_supported(), ModelCalled, which=2, strict=False),
        lambda: without(doubted_at_the_ceiling(), LowConfidenceFlagged, PatchProposed),
        lambda: without(doubted_twice(), LowConfidenceFlagged, PatchProposed, GateJudged),
    ],
    "low-confidence-has-grounds": [
        lambda: before(supported(), PatchProposed, flagged(1)),
        lambda: changed(doubted_twice(), LowConfidenceFlagged, attempts=1),
        lambda: before(doubted_twice(), PatchProposed, flagged(2)),
        lambda: changed(doubted_twice(), PatchProposed, low_confidence=False),
        lambda: changed(supported(), PatchProposed, low_confidence=True),
        lambda: changed(t.recipe_verified(), PatchProposed, low_confidence=True),
        lambda: before(doubted_twice(), PatchProposed, *exchange(3, strict=True)),
    ],
    "strict-only-after-doubt": [
        lambda: changed(supported(), ModelCalled, which=0, strict=True),
        lambda: changed(doubted_then_supported(), ModelCalled, strict=True),
        lambda: changed(doubted_then_invalid(), ModelCalled, strict=False),
        lambda: changed(raised_and_verified(), AnswerReused, strict=True),
        lambda: without(doubted_then_supported(), GroundingJudged),
        lambda: before(doubted_twice(), LowConfidenceFlagged, *exchange(3, strict=True)),
    ],
    # --- Budgets ---
    "budget-acts": [
        lambda: before(stopped_at_budget(), AttemptRefused, *exchange(2)),
        lambda: changed(
            stopped_at_budget(), AttemptRefused, reason=RefusalReason.MODEL_UNAVAILABLE
        ),
        lambda: before(stopped_at_budget(), AttemptRefused, at_budget()[-2]),
        lambda: before(without(stopped_at_budget(), AttemptRefused), FixEscalated, proposed(None)),
    ],
    "budget-stops-are-real": [
        lambda: without(stopped_at_budget(), BudgetReached),
        lambda: changed(stopped_at_budget(), FixEscalated, reason=EscalationReason.RETRY_REFUSED),
        lambda: changed(t.cap_reached(), FixEscalated, reason=EscalationReason.BUDGET_EXHAUSTED),
    ],
    "budget-raises-are-signed": [
        lambda: changed(raised_and_verified(), BudgetRaised, by=" "),
        lambda: changed(raised_and_verified(), BudgetRaised, reason=""),
        lambda: before(supported(), FixVerified, raised()),
        lambda: before(supported(), AttemptStarted, raised()),
        lambda: [*t.cap_reached(), raised()],
        lambda: before(stopped_at_budget(), BudgetReached, raised()),
        lambda: before(raised_and_verified(), PatchProposed, raised()),
    ],
    "budget-raises-reopen": [
        lambda: [*stopped_at_budget(), raised(), *t.retry(2, 0)],
        lambda: [*stopped_at_budget(), raised(), *exchange(2)],
        lambda: before(stopped_at_budget(), AttemptRefused, raised()),
        lambda: [*at_budget(), raised(), *t.retry(2, 1)],
    ],
    # --- Self-RAG ---
    "retrieve-forced-on-retry": [
        lambda: changed(self_rag_on_retry(), RetrieveDecided, decision=Retrieve.YES),
        lambda: changed(self_rag_on_retry(), RetrieveDecided, forced=False),
    ],
    "retrieve-acts": [
        lambda: without(self_rag_on_retry(), RetrieveDecided),
        lambda: changed(self_rag(), RetrieveDecided, path=1),
        lambda: before(self_rag(), ModelCalled, decided(3, Retrieve.YES)),
        lambda: changed(self_rag(), RetrieveDecided, decision=Retrieve.NO),
    ],
    "retrieve-yes-fetches": [
        lambda: not_fetched(self_rag()),
        lambda: without(self_rag(), RetrievalQueried),
        lambda: changed(self_rag(), RetrieveDecided, which=1, decision=Retrieve.CONTINUE),
        lambda: changed(self_rag(), RetrieveDecided, decision=Retrieve.YES),
    ],
    "candidates-come-first": [
        lambda: before(
            self_rag_degraded(),
            GroundingJudged,
            decided(3, Retrieve.NO),
            *exchange(5, candidate=candidate(3, 0)),
            scored(candidate(3, 0), kept=True),
        ),
    ],
    "segments-are-scored": [
        lambda: without(self_rag(), SegmentScored),
        lambda: not_scored(self_rag(), number=1),
        lambda: not_scored(self_rag_degraded()),
        lambda: not_scored(self_rag_on_retry(), number=1),
        lambda: not_scored(self_rag_resumed()),
        lambda: changed(self_rag(), SegmentScored, score=None),
        lambda: changed(self_rag(), SegmentScored, problem="no such file"),
        lambda: before(self_rag(), SegmentScored, scored(candidate(1, 1)), which=0),
        lambda: before(self_rag(), SegmentScored, scored(candidate(9, 0))),
    ],
}

#: More mutants for rules whose first ones are in ``test_contract``.
ALSO: dict[str, list[Callable[[], Events]]] = {
    "rag-skip-recorded": [
        lambda: [
            *t.first_by_recipe(),
            *t.failing_gates(1, tier=Tier.RECIPE),
            t.started(2, 1),
            reused(1, attempt=2),
        ],
    ],
    "chain-ends-where-it-answers": [
        lambda: before(t.replayed(), PatchProposed, reused(1)),
    ],
    "patches-have-a-source": [
        lambda: without(self_rag_resumed(), AnswerReused, ModelAnswered),
    ],
    "prompt-shapes-agree": [
        lambda: changed(raised_and_verified(), AnswerReused, prompt_shape=PromptShape.RETRY),
    ],
    "examples-come-from-retrieval": [
        lambda: changed(self_rag_resumed(), AnswerReused, example_ids=("e9",)),
    ],
    "retrieval-acts": [
        lambda: [_bare(event) for event in self_rag()],
        lambda: [_bare(event) for event in self_rag_resumed()],
    ],
    "attempts-in-order": [
        lambda: [*supported()[:-4], t.started(1, 0)],
    ],
    "refusals-act": [
        lambda: [
            *stopped_at_budget()[:-1],
            FixRefused(attempt=1, reason=RefusalReason.BUDGET_EXHAUSTED, sentence="No."),
        ],
        lambda: [*stopped_at_budget()[:-1], *t.retry(2, 1)],
    ],
    "one-terminal-event": [
        goes_on_without_raise,
        lambda: changed(
            raised_and_verified(), FixEscalated, reason=EscalationReason.MODEL_UNAVAILABLE
        ),
        lambda: before(raised_and_verified(), BudgetRaised, t.recipe(selected=False)),
    ],
}


def _bare(event: AuditEvent) -> AuditEvent:
    """Its prompt without examples."""
    if isinstance(event, ModelCalled | AnswerReused):
        return event.model_copy(update={"example_ids": ()})
    return event
