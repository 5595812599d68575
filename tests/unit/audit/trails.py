"""Valid trails, as the tier and the gate runner write them: the material of mutants."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

from fallback_audit.contract.trail import Entry, Trail
from fallback_audit.event_types import AgeException, UnreadItem
from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    ConsumerLeft,
    ExampleReplayed,
    FixEscalated,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    GroundingNotEvaluated,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
    PlanRejected,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RepeatedPatchRejected,
    RetrievalQueried,
    SandboxDisabled,
)
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import (
    CallType,
    EscalationReason,
    FailureKind,
    GateStatus,
    PromptShape,
    ProofLevel,
    Provenance,
    RefusalReason,
    RetrievalVerdict,
    Tier,
)

Events = list[AuditEvent]
SCOPE = Scope(fix_id="fix-1", gate_transition_id="transition-1")


#: What digests stand for: the evidence of these trails.
TEXTS: dict[str, str] = {}


def digest(text: str) -> str:
    made = hashlib.sha256(text.encode()).hexdigest()
    TEXTS[made] = text
    return made


def trail_of(events: Iterable[AuditEvent]) -> Trail:
    return Trail(SCOPE, [Entry(seq, event) for seq, event in enumerate(events, start=1)])


def fix_started(linked: str | None = None) -> AuditEvent:
    return FixStarted(
        advisory_id="GHSA-xxxx-yyyy-zzzz",
        repository="shop",
        base_commit="c0ffee" * 6 + "c0ff",
        ecosystem="npm",
        tool_version="0.1.0",
        linked_transition=linked,
    )


def started(attempt: int, prior: int) -> AuditEvent:
    return AttemptStarted(
        attempt=attempt,
        advisory_id="GHSA-xxxx-yyyy-zzzz",
        prior_attempt_count=prior,
        prompt_shape=PromptShape.RETRY if prior else PromptShape.INITIAL,
    )


def recipe(*, selected: bool) -> AuditEvent:
    return RecipeEvaluated(attempt=1, selected=selected, recipe="npm-bump", reason="no such recipe")


def retrieved(*ids: str) -> AuditEvent:
    verdict = RetrievalVerdict.HIT if ids else RetrievalVerdict.MISS
    return RetrievalQueried(attempt=1, verdict=verdict, example_ids=ids, reason="score")


def skipped(attempt: int, prior: int, of: int | None = None) -> AuditEvent:
    return RagSkippedOnRetry(
        attempt=attempt,
        attempt_count=prior,
        last_failure_kind=FailureKind.TESTS_FAILED,
        summary_sha256=digest(f"summary {of or attempt - 1}"),
        summary_excerpt="expected 1, got 2",
    )


def called(attempt: int, call: int = 1, *, examples: Sequence[str] = ()) -> AuditEvent:
    return ModelCalled(
        attempt=attempt,
        call=call,
        call_type=CallType.AUTHOR,
        model="a-model",
        provenance=Provenance.SCRIPTED,
        prompt_shape=PromptShape.INITIAL if attempt == 1 else PromptShape.RETRY,
        prompt_sha256=digest("prompt"),
        prompt_bytes=1_000,
        example_ids=tuple(examples),
    )


def answered(attempt: int, call: int = 1) -> AuditEvent:
    return ModelAnswered(
        attempt=attempt,
        call=call,
        call_type=CallType.AUTHOR,
        input_tokens=900,
        output_tokens=100,
        cost_usd_estimate="0.01",
        stop_reason="end_turn",
        answer_sha256=digest("answer"),
    )


def unanswered(attempt: int, call: int = 1) -> AuditEvent:
    return ModelFailed(attempt=attempt, call=call, call_type=CallType.AUTHOR, reason="timeout")


def rejected(attempt: int, call: int = 1) -> AuditEvent:
    return PlanRejected(attempt=attempt, call=call, problems=("old text not found",))


def repeated(attempt: int, call: int = 1) -> AuditEvent:
    return RepeatedPatchRejected(
        attempt=attempt, call=call, edit_digest=digest("edit 1"), repeats_attempt=1
    )


def ungrounded(attempt: int) -> AuditEvent:
    return GroundingNotEvaluated(attempt=attempt, reason="no judge is configured")


def proposed(attempt: int, tier: Tier = Tier.LLM) -> AuditEvent:
    shape = PromptShape.INITIAL if attempt == 1 else PromptShape.RETRY
    return PatchProposed(
        attempt=attempt,
        tier=tier,
        prompt_shape=shape if tier is Tier.LLM else PromptShape.NONE,
        patch_sha256=digest(f"patch {attempt}"),
        edit_digest=digest(f"edit {attempt}"),
        files=("package.json",),
    )


def refused(attempt: int, reason: RefusalReason, *, asked: bool = True) -> AuditEvent:
    shape = PromptShape.INITIAL if attempt == 1 else PromptShape.RETRY
    return AttemptRefused(
        attempt=attempt,
        reason=reason,
        sentence="No patch.",
        prompt_shape=shape if asked else PromptShape.NONE,
    )


def judged(
    attempt: int, gate: str, status: GateStatus = GateStatus.PASSED, log: str | None = None
) -> AuditEvent:
    return GateJudged(
        attempt=attempt,
        gate=gate,
        status=status,
        failure_kind=FailureKind.TESTS_FAILED if status is GateStatus.FAILED else None,
        detail="as expected",
        evidence_sha256=digest(log) if log else None,
        duration_ms=12,
    )


def failed(
    attempt: int,
    *gates: str,
    kind: FailureKind = FailureKind.TESTS_FAILED,
    signature: str | None = None,
    tier: Tier = Tier.LLM,
) -> AuditEvent:
    return AttemptFailed(
        attempt=attempt,
        tier=tier,
        failure_kind=kind,
        failing_gates=gates,
        failure_signature=digest(signature or f"signature {attempt}"),
        edit_digest=digest(f"edit {attempt}"),
        summary_sha256=digest(f"summary {attempt}"),
        summary_excerpt="expected 1, got 2",
    )


def verified(attempt: int, tier: Tier = Tier.LLM) -> AuditEvent:
    return FixVerified(
        attempt=attempt,
        tier=tier,
        patch_sha256=digest(f"patch {attempt}"),
        proof_level=ProofLevel.RESOLVED_TREE,
        gates_passed=("applies", "tests"),
        gates_skipped=("proof",),
    )


def escalated(attempt: int, reason: EscalationReason) -> AuditEvent:
    return FixEscalated(attempt=attempt, reason=reason, question="What now?")


def passing_gates(attempt: int) -> Events:
    return [
        judged(attempt, "applies"),
        judged(attempt, "tests"),
        judged(attempt, "proof", GateStatus.SKIPPED),
    ]


def failing_gates(attempt: int, signature: str | None = None, tier: Tier = Tier.LLM) -> Events:
    return [
        judged(attempt, "applies"),
        judged(attempt, "tests", GateStatus.FAILED),
        failed(attempt, "tests", signature=signature, tier=tier),
    ]


def retry(attempt: int, prior: int | None = None, of: int | None = None) -> Events:
    """A retry up to its patch."""
    prior = attempt - 1 if prior is None else prior
    return [
        started(attempt, prior),
        skipped(attempt, prior, of),
        called(attempt),
        answered(attempt),
        ungrounded(attempt),
        proposed(attempt),
    ]


def first_by_recipe() -> Events:
    return [started(1, 0), recipe(selected=True), proposed(1, Tier.RECIPE)]


def first_by_model(*examples: str) -> Events:
    return [
        started(1, 0),
        recipe(selected=False),
        retrieved(*examples),
        called(1, examples=examples),
        answered(1),
        ungrounded(1),
        proposed(1),
    ]


def recipe_verified() -> Events:
    return [fix_started(), *first_by_recipe(), *passing_gates(1), verified(1, Tier.RECIPE)]


def verified_on_retry() -> Events:
    """The recipe's patch fails its gates; the retry's first plan is invalid, its second is proved."""
    return [
        fix_started(),
        SandboxDisabled(reason="a person said so"),
        *first_by_recipe(),
        *failing_gates(1, tier=Tier.RECIPE),
        started(2, 1),
        skipped(2, 1),
        called(2, 1),
        answered(2, 1),
        rejected(2, 1),
        called(2, 2),
        answered(2, 2),
        repeated(2, 2),
        called(2, 3),
        answered(2, 3),
        ungrounded(2),
        proposed(2),
        *passing_gates(2),
        verified(2),
    ]


def model_with_examples() -> Events:
    return [fix_started(), *first_by_model("e1", "e2"), *passing_gates(1), verified(1)]


def replayed() -> Events:
    return [
        fix_started(),
        started(1, 0),
        recipe(selected=False),
        retrieved("e1"),
        ExampleReplayed(attempt=1, example_id="e1"),
        proposed(1, Tier.RAG),
        *passing_gates(1),
        verified(1, Tier.RAG),
    ]


def invalid_then_verified() -> Events:
    """The first attempt gets no valid plan: an attempt failure, so a retry follows."""
    return [
        fix_started(),
        started(1, 0),
        recipe(selected=False),
        retrieved(),
        *(e for call in (1, 2, 3) for e in (called(1, call), answered(1, call), rejected(1, call))),
        refused(1, RefusalReason.PLAN_INVALID),
        failed(1, kind=FailureKind.PLAN_INVALID),
        started(2, 1),
        skipped(2, 1).model_copy(update={"last_failure_kind": FailureKind.PLAN_INVALID}),
        *retry(2)[2:],
        *passing_gates(2),
        verified(2),
    ]


def cap_reached() -> Events:
    events = [fix_started(), *first_by_model(), *failing_gates(1)]
    for attempt in (2, 3, 4):
        events += [*retry(attempt), *failing_gates(attempt)]
    return [*events, escalated(4, EscalationReason.RETRY_CAP_REACHED)]


def same_failure_three_times() -> Events:
    events = [fix_started(), *first_by_model(), *failing_gates(1, "same")]
    for attempt in (2, 3):
        events += [*retry(attempt), *failing_gates(attempt, "same")]
    return [*events, escalated(3, EscalationReason.SAME_FAILURE_REPEATED)]


def not_affected() -> Events:
    return [
        fix_started(),
        started(1, 0),
        recipe(selected=False),
        refused(1, RefusalReason.NOT_AFFECTED, asked=False),
        FixRefused(attempt=1, reason=RefusalReason.NOT_AFFECTED, sentence="Not affected."),
    ]


def unknown() -> Events:
    """A lock that can't be read may hold the package."""
    unread = (UnreadItem(path="lib/yarn.lock", reason="It is not valid.", next_step="Repair it."),)
    ended = {"reason": RefusalReason.UNKNOWN, "unread": unread}
    return [
        one.model_copy(update=ended if hasattr(one, "unread") else {}) for one in not_affected()
    ]


def excepted() -> Events:
    """A person exempted a package from rules on the age of releases."""
    begin, *rest = recipe_verified()
    exception = AgeException(package="left", reason="exploited")
    return [
        begin.model_copy(update={"age_exceptions": (exception,), "release_age_days": 7}),
        *rest,
    ]


def model_unavailable() -> Events:
    return [
        fix_started(),
        started(1, 0),
        recipe(selected=False),
        retrieved(),
        called(1),
        unanswered(1),
        refused(1, RefusalReason.MODEL_UNAVAILABLE),
        escalated(1, EscalationReason.MODEL_UNAVAILABLE),
    ]


def infrastructure_failed() -> Events:
    reason = EscalationReason.GATE_INFRASTRUCTURE
    return [fix_started(), *first_by_recipe(), judged(1, "applies"), escalated(1, reason)]


def interrupted_and_resumed() -> Events:
    """The consumer leaves during a call; then the process dies; then attempt 1 comes to its end."""
    return [
        fix_started(),
        *first_by_model()[:4],
        ConsumerLeft(attempt=1, resume_rule="start again"),
        *first_by_model()[:4],
        *first_by_model(),
        *passing_gates(1),
        verified(1),
    ]


def linked_transition() -> Events:
    return [fix_started("transition-0"), *retry(5, 1), *passing_gates(5), verified(5)]


def foreign_orchestrator() -> Events:
    """Only the tier writes: the gates are somebody else's, and so is the asking over the cap."""
    return [
        *first_by_recipe(),
        *retry(2),
        *retry(3),
        *retry(4),
        refused(5, RefusalReason.RETRY_CAP_REACHED, asked=False),
    ]


VALID = (
    recipe_verified,
    verified_on_retry,
    model_with_examples,
    replayed,
    invalid_then_verified,
    cap_reached,
    same_failure_three_times,
    not_affected,
    unknown,
    model_unavailable,
    infrastructure_failed,
    interrupted_and_resumed,
    linked_transition,
    foreign_orchestrator,
)


def without(events: Events, *kinds: type, attempt: int | None = None) -> Events:
    """The action removed."""
    return [
        event
        for event in events
        if not (isinstance(event, kinds) and attempt in {None, getattr(event, "attempt", None)})
    ]


def changed(events: Events, kind: type, which: int = -1, **update: object) -> Events:
    """One event of a kind altered: the last."""
    place = [i for i, event in enumerate(events) if isinstance(event, kind)][which]
    return [*events[:place], events[place].model_copy(update=update), *events[place + 1 :]]


def before(events: Events, kind: type, *added: AuditEvent, which: int = -1) -> Events:
    """Events inserted before one of a kind."""
    place = [i for i, event in enumerate(events) if isinstance(event, kind)][which]
    return [*events[:place], *added, *events[place:]]


def swapped(events: Events, first: type, second: type) -> Events:
    """The first of one kind after the first of another one."""
    moved = next(event for event in events if isinstance(event, first))
    rest = [event for event in events if event is not moved]
    place = next(i for i, event in enumerate(rest) if isinstance(event, second))
    return [*rest[: place + 1], moved, *rest[place + 1 :]]


#: Rule → mutants: a valid trail, with an action removed or changed.
MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "rag-skip-recorded": [
        lambda: without(verified_on_retry(), RagSkippedOnRetry),
        lambda: swapped(verified_on_retry(), RagSkippedOnRetry, ModelCalled),
        lambda: before(verified_on_retry(), ModelCalled, skipped(2, 1)),
        lambda: before(model_with_examples(), ModelCalled, skipped(1, 0)),
    ],
    "retrieval-untouched-on-retry": [
        lambda: before(
            verified_on_retry(),
            RagSkippedOnRetry,
            retrieved().model_copy(update={"attempt": 2}),
        ),
        lambda: before(
            verified_on_retry(), PatchProposed, ExampleReplayed(attempt=2, example_id="e1")
        ),
        lambda: before(
            verified_on_retry(), PatchProposed, RecipeEvaluated(attempt=2, selected=True)
        ),
    ],
    "skip-counts-priors": [lambda: changed(cap_reached(), RagSkippedOnRetry, attempt_count=2)],
    "retry-carries-last-failure": [
        lambda: changed(cap_reached(), RagSkippedOnRetry, summary_sha256=digest("summary 1")),
        lambda: changed(
            cap_reached(), RagSkippedOnRetry, last_failure_kind=FailureKind.BUILD_FAILED
        ),
    ],
    "history-grows": [
        lambda: changed(verified_on_retry(), AttemptStarted, prior_attempt_count=0),
        lambda: changed(cap_reached(), AttemptStarted, prior_attempt_count=2),
        lambda: changed(recipe_verified(), FixStarted, linked_transition="transition-0"),
    ],
    "attempts-in-order": [
        lambda: changed(cap_reached(), AttemptStarted, attempt=2),
        lambda: changed(foreign_orchestrator(), AttemptStarted, attempt=3),
        lambda: [*first_by_recipe(), *retry(3, 1), *retry(2, 2)],
    ],
    "retry-cap-holds": [
        lambda: [*cap_reached()[:-1], *retry(5, 4)],
        lambda: [*foreign_orchestrator()[:-1], *retry(5, 3)],
    ],
    "edits-are-new": [
        lambda: changed(verified_on_retry(), PatchProposed, edit_digest=digest("edit 1"))
    ],
    "chain-ends-where-it-answers": [
        lambda: before(recipe_verified(), PatchProposed, retrieved("e1")),
        lambda: before(replayed(), PatchProposed, called(1), answered(1)),
    ],
    "patches-have-a-source": [
        lambda: changed(recipe_verified(), RecipeEvaluated, selected=False),
        lambda: without(replayed(), ExampleReplayed),
        lambda: without(verified_on_retry(), ModelAnswered),
        lambda: changed(verified_on_retry(), PatchProposed, tier=Tier.RECIPE),
    ],
    "examples-come-from-retrieval": [
        lambda: changed(model_with_examples(), ModelCalled, example_ids=("e1", "e9")),
        lambda: changed(verified_on_retry(), ModelCalled, example_ids=("e1",)),
        lambda: [*first_by_model(*"abcde")],
    ],
    "retrieval-means-what-it-says": [
        lambda: changed(model_with_examples(), RetrievalQueried, verdict=RetrievalVerdict.MISS),
        lambda: changed(replayed(), ExampleReplayed, example_id="e2"),
        lambda: without(replayed(), RetrievalQueried),
    ],
    "retrieval-acts": [lambda: changed(model_with_examples(), ModelCalled, example_ids=())],
    "prompt-shapes-agree": [
        lambda: changed(verified_on_retry(), AttemptStarted, prompt_shape=PromptShape.INITIAL),
        lambda: changed(verified_on_retry(), ModelCalled, prompt_shape=PromptShape.INITIAL),
        lambda: changed(recipe_verified(), PatchProposed, prompt_shape=PromptShape.INITIAL),
        lambda: changed(not_affected(), AttemptRefused, prompt_shape=PromptShape.INITIAL),
    ],
    "events-stand-in-their-attempt": [
        lambda: without(recipe_verified(), AttemptStarted),
        lambda: changed(verified_on_retry(), GateJudged, attempt=1),
    ],
    "attempts-have-one-outcome": [
        lambda: without(not_affected(), AttemptRefused),
        lambda: without(foreign_orchestrator(), PatchProposed, attempt=2),
        lambda: before(
            recipe_verified(),
            GateJudged,
            refused(1, RefusalReason.NOTHING_CHANGED, asked=False),
        ),
        lambda: before(recipe_verified(), PatchProposed, ConsumerLeft(attempt=1, resume_rule="")),
    ],
    "proposals-are-judged": [
        lambda: without(recipe_verified(), GateJudged),
        lambda: without(verified_on_retry(), GateJudged, attempt=1),
        lambda: without(verified_on_retry(), GateJudged, AttemptFailed, attempt=1),
        lambda: [
            fix_started(),
            *first_by_recipe(),
            FixRefused(attempt=1, reason=RefusalReason.NOTHING_CHANGED, sentence="No."),
        ],
    ],
    "gates-judge-proposals": [
        lambda: swapped(recipe_verified(), PatchProposed, GateJudged),
        lambda: changed(recipe_verified(), GateJudged, failure_kind=FailureKind.TESTS_FAILED),
        lambda: changed(verified_on_retry(), GateJudged, status=GateStatus.FAILED),
        lambda: before(recipe_verified(), FixVerified, judged(1, "tests")),
    ],
    "failed-gates-act": [
        lambda: without(verified_on_retry(), AttemptFailed),
        lambda: [
            fix_started(),
            *first_by_recipe(),
            *failing_gates(1)[:2],
            escalated(1, EscalationReason.GATE_INFRASTRUCTURE),
        ],
    ],
    "failures-have-grounds": [
        lambda: without(cap_reached(), GateJudged, attempt=4),
        lambda: changed(cap_reached(), AttemptFailed, failing_gates=("build",)),
        lambda: changed(cap_reached(), AttemptFailed, failure_kind=FailureKind.BUILD_FAILED),
        lambda: changed(
            invalid_then_verified(), AttemptFailed, failure_kind=FailureKind.REPEATED_PATCH
        ),
    ],
    "failed-attempts-act": [
        lambda: before(recipe_verified(), FixVerified, failed(1, "tests")),
        lambda: before(cap_reached(), FixEscalated, judged(4, "proof")),
    ],
    "refusals-act": [
        lambda: without(invalid_then_verified(), AttemptFailed),
        lambda: [*not_affected()[:-1], *retry(2)],
        lambda: changed(invalid_then_verified(), AttemptRefused, reason=RefusalReason.OWN_CODE),
    ],
    "retries-follow-failures": [lambda: [*recipe_verified()[:-1], *retry(2)]],
    "same-failure-stops": [lambda: [*same_failure_three_times()[:-1], *retry(4)]],
    "same-failure-is-real": [
        lambda: changed(cap_reached(), FixEscalated, reason=EscalationReason.SAME_FAILURE_REPEATED)
    ],
    "fix-starts-first": [
        lambda: without(recipe_verified(), FixStarted),
        lambda: before(recipe_verified(), GateJudged, fix_started()),
        lambda: swapped(recipe_verified(), FixStarted, AttemptStarted),
    ],
    "one-terminal-event": [
        lambda: [*recipe_verified(), verified(1, Tier.RECIPE)],
        lambda: [*cap_reached(), *retry(5)],
    ],
    "verified-is-proved": [
        lambda: changed(recipe_verified(), FixVerified, patch_sha256=digest("another")),
        lambda: changed(recipe_verified(), FixVerified, tier=Tier.LLM),
        lambda: changed(recipe_verified(), FixVerified, gates_passed=("applies",)),
        lambda: changed(recipe_verified(), FixVerified, gates_skipped=()),
        lambda: changed(verified_on_retry(), FixVerified, attempt=1),
        lambda: [*cap_reached()[:-2], verified(4)],
        lambda: changed(
            without(recipe_verified(), GateJudged), FixVerified, gates_passed=(), gates_skipped=()
        ),
    ],
}
