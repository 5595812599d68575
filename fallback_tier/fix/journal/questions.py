"""Questions to people, and what they need to answer them: read from the trail and its evidence.

The texts come from models, targets and advisories: whoever prints them must neutralise them.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple, Protocol

from fallback_audit.canonical import GENESIS
from fallback_audit.contract.trail import Asked, is_budget_stop
from fallback_audit.errors import EvidenceError
from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    Digest,
    FixEscalated,
    GateJudged,
    GroundingJudged,
    LowConfidenceFlagged,
    ModelAnswered,
    PatchProposed,
    RagSkippedOnRetry,
    RetrievalQueried,
)
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader, EvidenceStore, HeaderReader, Scope, StoredEvent
from fallback_audit.showing.describe import AttemptLine, FixSummary, summarise
from fallback_audit.vocabulary import (
    EscalationReason,
    FailureKind,
    GateStatus,
    PromptShape,
    RefusalReason,
)
from fallback_tier.advisory.vulnerability import Vulnerability
from fallback_tier.budget.meter import raising_command
from fallback_tier.errors import InputError
from fallback_tier.fix.journal.history import Transition, read_history
from fallback_tier.fix.journal.inputs import recorded_vulnerabilities
from fallback_tier.fix.journal.review import answer_to, asked_about, can_be_tried_again

#: The kinds of events that a list of questions is read from.
_KINDS = frozenset(
    {
        "FixStarted",
        "AttemptStarted",
        "AttemptRefused",
        "FixAbandoned",
        "FixEscalated",
        "FixVerified",
        "FixPatched",
        "FixRefused",
        "BudgetRaised",
        "ReviewDecided",
        "TransitionReopened",
    }
)

#: Events that remove earlier events, or parts of them, from the trail.
_TAKING = frozenset({"PayloadRedacted", "SegmentSealed", "RecordBegunAgain"})


class Question(Frozen):
    """One escalated gate transition. ``answer`` None: no person has answered yet.

    ``cause``: why the last attempt gave no patch, if it was refused; ``why`` and ``next_step``: a sentence
    each, for a person who has not followed the fix.
    """

    fix_id: str
    gate_transition_id: str
    advisory_id: str
    repository: str
    asked_at: str
    reason: EscalationReason
    attempts: int
    answer: str | None
    cause: RefusalReason | None = None
    why: str = ""
    next_step: str = ""


class Evidence(Frozen):
    """A piece of evidence by what it is: ``patch``, ``failure summary``, ``log of tests``."""

    what: str
    sha256: Digest


class AttemptReview(Frozen):
    """One attempt, as far as a person needs it to decide.

    ``in_place_of_examples``: the failure summary that a retry had instead of retrieval, whole where its
    evidence is there; None on a first attempt. ``undecided``: gates that could not hold it against the base
    commit, each with its reason. ``double_check``: claims that a judge found unsupported.
    ``cost_usd_estimate`` None: no model was paid, or its price is not known.
    """

    attempt: int
    shape: str
    tier: str | None
    outcome: str
    examples: tuple[str, ...] = ()
    in_place_of_examples: str | None = None
    failure_kind: FailureKind | None = None
    failing_gates: tuple[str, ...] = ()
    failure: str | None = None
    flaky: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    grounded: bool | None = None
    low_confidence: str | None = None
    double_check: tuple[str, ...] = ()
    tokens: int = 0
    cost_usd_estimate: str | None = None
    evidence: tuple[Evidence, ...] = ()


class Review(Frozen):
    """Everything about one question. ``patch`` None: none was proposed, or ``patch_problem`` says why.

    ``vulnerabilities``: what the fix is about, by its recorded advisory; empty if the record has none.
    """

    question: Question
    vulnerabilities: tuple[Vulnerability, ...] = ()
    asks: str
    attempts: tuple[AttemptReview, ...]
    patch_sha256: Digest | None = None
    patch: str | None = None
    patch_problem: str | None = None
    evidence: tuple[Evidence, ...] = ()
    next_steps: tuple[str, ...] = ()


class WhyAsked(NamedTuple):
    """Why a person is asked, and what that person can do."""

    why: str
    next_step: str


_REASONS = {
    EscalationReason.RETRY_CAP_REACHED: WhyAsked(
        "Every attempt failed its gates, and no retry is left.",
        "Read the last failure. Approve a patch, try again, or reject it and fix it by hand.",
    ),
    EscalationReason.SAME_FAILURE_REPEATED: WhyAsked(
        "The same failure came back, so more tries would repeat it.",
        "Read the failure and add what is missing, then try again; or fix it by hand and reject.",
    ),
    EscalationReason.GATE_INFRASTRUCTURE: WhyAsked(
        "A gate could not do its work, so nothing was judged.",
        "Repair what the gate needs, then run the gates again.",
    ),
    EscalationReason.MODEL_UNAVAILABLE: WhyAsked(
        "The model gave no answer.",
        "Check that its server answers and accepts the key, then try again.",
    ),
    EscalationReason.BUDGET_EXHAUSTED: WhyAsked(
        "The next question to the model would pass the budget.",
        "Raise the cap to try again, or reject.",
    ),
    EscalationReason.RETRY_REFUSED: WhyAsked(
        "An attempt failed its gates, and the retry gave no patch.",
        "Read why below. Then try again, or reject.",
    ),
    EscalationReason.NOTHING_PROVED: WhyAsked(
        "No gate failed, and none showed anything either.",
        "Review the patch and approve it; or add a test of the vulnerability and start a new fix.",
    ),
    EscalationReason.TESTS_CONTRADICT_PATCH: WhyAsked(
        "Tests of the base commit fail with the patch, and they may assert the flaw itself.",
        "Read the failing tests. Approve the patch if they assert the vulnerability; otherwise try again.",
    ),
    EscalationReason.GATES_FAILED_AGAIN: WhyAsked(
        "Run again, a gate failed this patch once more.",
        "Decide whether the patch or the gate is wrong: try again, or repair the gate and run it again.",
    ),
    EscalationReason.GATES_UNDECIDED: WhyAsked(
        "A gate could not hold the patch against the base commit.",
        "Repair what prevents the comparison and run the gates again; or review the patch and approve it.",
    ),
}

#: Why a retry gave no patch, if that says more than EscalationReason.RETRY_REFUSED.
_REFUSED_RETRIES = {
    RefusalReason.MODEL_NOT_CONFIGURED: WhyAsked(
        "A retry needs a model, and no model is configured.",
        "Configure a model, then try again; or reject it and fix it by hand.",
    ),
    RefusalReason.MODEL_REFUSED: WhyAsked(
        "After a failed attempt the model declined to write another patch.",
        "Read its reason below. Then try again, or reject it and fix it by hand.",
    ),
    RefusalReason.REPEATED_PATCH: WhyAsked(
        "The model gave a plan again that had failed, although it had been asked for another.",
        "Read the failure. Add what is missing, or choose another model, then try again.",
    ),
    RefusalReason.PLAN_INVALID: WhyAsked(
        "The model gave the same unusable answer in two attempts.",
        "Choose another model or another form of answer (--answer-form), then try again.",
    ),
    RefusalReason.CONTEXT_TOO_LONG: WhyAsked(
        "After a failed attempt the prompt of the retry does not fit the model's window.",
        "Choose a model with a larger window or less code in the prompt, then try again.",
    ),
}


def why_asked(reason: EscalationReason, cause: RefusalReason | None = None) -> WhyAsked:
    """Return the explanation of a reason. ``cause``: why the last attempt gave no patch."""
    if reason is EscalationReason.RETRY_REFUSED and cause in _REFUSED_RETRIES:
        return _REFUSED_RETRIES[cause]
    return _REASONS[reason]


class _Chain(AuditReader, HeaderReader, Protocol):
    """A trail's events, and its links."""


class Questions:
    """A trail's questions, cached: only fixes with new events are read again. Not thread-safe."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._read_to: tuple[int, Digest] = (0, GENESIS)
        self._by_fix: dict[str, list[tuple[int, Question]]] = {}

    def read(self, audit: _Chain, *, answered: bool = False) -> list[Question]:
        """Return open questions, the newest first; ``answered``: also those with an answer."""
        tip = audit.tip()
        if tip != self._read_to:
            try:
                seq, leaf = self._read_to
                row = next(audit.headers(after=seq - 1, upto=seq), None) if seq else None
                continues = row is not None and row.leaf == leaf
                new = list(audit.events(kinds=_KINDS | _TAKING, after=seq)) if continues else []
                if not continues or any(event.kind in _TAKING for event in new):
                    self._by_fix = _questions_by_fix(audit.events(kinds=_KINDS))
                else:
                    for fix_id in {event.scope.fix_id for event in new}:
                        self._by_fix.pop(fix_id, None)
                        self._by_fix |= _questions_by_fix(audit.events(fix_id, kinds=_KINDS))
                self._read_to = tip  # events that were recorded meanwhile are read again
            except BaseException:
                self._clear()
                raise
        numbered = [entry for fix_questions in self._by_fix.values() for entry in fix_questions]
        numbered.sort(key=lambda entry: entry[0], reverse=True)
        return [question for _, question in numbered if answered or question.answer is None]


def questions(audit: _Chain, *, answered: bool = False) -> list[Question]:
    """Return open questions, the newest first; ``answered``: also those with an answer."""
    return Questions().read(audit, answered=answered)


def _questions_by_fix(
    stored_events: Iterable[StoredEvent],
) -> dict[str, list[tuple[int, Question]]]:
    """Return the questions of each fix that has any, each with its event's number."""
    transitions: dict[Scope, list[StoredEvent]] = {}
    for event in stored_events:
        transitions.setdefault(event.scope, []).append(event)
    questions_by_fix: dict[str, list[tuple[int, Question]]] = {}
    for scope, events in transitions.items():
        transition = Transition(scope, tuple(events))
        if isinstance(transition.end, FixEscalated):
            numbered = (_asked(transition)[0].seq, _question(transition))
            questions_by_fix.setdefault(scope.fix_id, []).append(numbered)
    return questions_by_fix


def review(audit: AuditReader, evidence: EvidenceStore, fix_id: str) -> Review:
    """Return a fix's last question, with what is needed to answer it. Raises InputError if there is no such
    fix, or it asks nothing."""
    history = read_history(audit, fix_id)
    current = history.current
    end = current.end
    if not isinstance(end, FixEscalated):
        raise InputError(
            f"Fix {fix_id} asks nothing: its last event is {current.last_kind}.",
            next_step=f"See `fallback-tier audit show {fix_id}`.",
            kind="asks_nothing",
        )
    patch_sha256 = asked_about(current)
    patch, problem = _text(patch_sha256, evidence) if patch_sha256 else (None, None)
    return Review(
        question=_question(current),
        vulnerabilities=recorded_vulnerabilities(
            current.start.inputs_sha256 if current.start else None, evidence
        ),
        asks=end.question,
        attempts=_attempts(current, evidence),
        patch_sha256=patch_sha256,
        patch=patch,
        patch_problem=problem,
        evidence=tuple(Evidence(what="gate log", sha256=digest) for digest in end.evidence_sha256),
        next_steps=_next_steps(
            current,
            fix_id,
            may_reopen=can_be_tried_again(history, current),
            may_judge=bool(history.patches),
        ),
    )


def _asked(transition: Transition) -> tuple[StoredEvent, FixEscalated]:
    escalations = (
        (event, event.payload)
        for event in reversed(transition.events)
        if isinstance(event.payload, FixEscalated)
    )
    return next(escalations)


def _question(transition: Transition) -> Question:
    event, end = _asked(transition)
    summary = _summary(transition)
    refusal = transition.run.last_of(AttemptRefused) if transition.run else None
    cause = None if refusal is None else refusal.reason
    why = why_asked(end.reason, cause)
    return Question(
        fix_id=transition.scope.fix_id,
        gate_transition_id=transition.scope.gate_transition_id,
        advisory_id=summary.advisory_id,
        repository=summary.repository,
        asked_at=event.recorded_at,
        reason=end.reason,
        attempts=len({start.attempt for start in transition.of(AttemptStarted)}),
        answer=answer_to(transition),
        cause=cause,
        why=why.why,
        next_step=why.next_step,
    )


def _summary(transition: Transition) -> FixSummary:
    return summarise(transition.events)[0]


def _attempts(transition: Transition, evidence: EvidenceStore) -> tuple[AttemptReview, ...]:
    """Return the attempts by number. A resumed attempt is one attempt, with its last outcome."""
    lines = {line.attempt: line for line in _summary(transition).attempts}
    return tuple(_attempt(transition, line, evidence) for _, line in sorted(lines.items()))


def _attempt(transition: Transition, line: AttemptLine, evidence: EvidenceStore) -> AttemptReview:
    events = Transition(
        transition.scope,
        tuple(
            event
            for event in transition.events
            if getattr(event.payload, "attempt", 0) == line.attempt
        ),
    )
    skipped_rag, failure = events.last_of(RagSkippedOnRetry), events.last_of(AttemptFailed)
    low_confidence, grounding = (
        events.last_of(LowConfidenceFlagged),
        events.last_of(GroundingJudged),
    )
    retrieval = events.last_of(RetrievalQueried)
    answers = events.of(ModelAnswered)
    has_prompt = any(isinstance(event.payload, Asked) for event in events.events)
    costs = [
        Decimal(answer.cost_usd_estimate)
        for answer in answers
        if answer.cost_usd_estimate is not None
    ]
    return AttemptReview(
        attempt=line.attempt,
        shape=line.shape if has_prompt else PromptShape.NONE.label,
        tier=line.tier,
        outcome=line.outcome,
        examples=retrieval.example_ids if retrieval else (),
        in_place_of_examples=_text(skipped_rag.summary_sha256, evidence)[0]
        or skipped_rag.summary_excerpt
        if skipped_rag
        else None,
        failure_kind=failure.failure_kind if failure else None,
        failing_gates=failure.failing_gates if failure else (),
        failure=_text(failure.summary_sha256, evidence)[0] or failure.summary_excerpt
        if failure
        else None,
        flaky=tuple(name for verdict in events.of(GateJudged) for name in verdict.flaky),
        undecided=tuple(
            "; ".join((f"{verdict.gate}: {verdict.detail}", *verdict.notes))
            for verdict in events.of(GateJudged)
            if verdict.status is GateStatus.UNDECIDED
        ),
        grounded=line.grounded,
        low_confidence=low_confidence.reason if low_confidence else None,
        double_check=grounding.unsupported if low_confidence and grounding else (),
        tokens=sum(answer.input_tokens + answer.output_tokens for answer in answers),
        cost_usd_estimate=f"{sum(costs):f}" if costs and len(costs) == len(answers) else None,
        evidence=_evidence(events),
    )


def _evidence(attempt_events: Transition) -> tuple[Evidence, ...]:
    evidence = [
        Evidence(what="patch", sha256=patch.patch_sha256)
        for patch in attempt_events.of(PatchProposed)
    ]
    evidence += [
        Evidence(what=f"log of {verdict.gate}", sha256=verdict.evidence_sha256)
        for verdict in attempt_events.of(GateJudged)
        if verdict.evidence_sha256 is not None
    ]
    evidence += [
        Evidence(what="failure summary", sha256=failure.summary_sha256)
        for failure in attempt_events.of(AttemptFailed)
    ]
    return tuple(evidence)


def _text(digest: Digest, evidence: EvidenceStore) -> tuple[str | None, str | None]:
    """Return the text of an evidence digest, or None and why it can't be read."""
    try:
        return evidence.get(digest).decode("utf-8", "replace"), None
    except EvidenceError as error:
        return None, error.problem


def _next_steps(
    current: Transition, fix_id: str, *, may_reopen: bool, may_judge: bool
) -> tuple[str, ...]:
    if current.reopened is not None and current.abandoned is None:
        return (f"fallback-tier resume {fix_id}",)
    if answer_to(current) is not None:
        return ()
    signed = f"{fix_id} --by NAME --because TEXT"
    steps = [f"fallback-tier review reject {signed}"]
    if is_budget_stop(current.end):
        return (*([raising_command(current.stopped, fix_id)] if current.stopped else []), *steps)
    if current.of(PatchProposed):
        steps.insert(0, f"fallback-tier review approve {signed} --output FILE")
    if may_reopen:
        steps.append(f"fallback-tier review reopen {signed}")
    if may_judge:
        steps.append(f"fallback-tier review reopen {signed} --gates-again")
    return tuple(steps)
