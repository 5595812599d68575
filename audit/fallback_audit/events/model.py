"""Events of model traffic: calls, verdicts on answers, budgets, self-RAG's steps."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import (
    Attempt,
    Badge,
    Call,
    Digest,
    Dollars,
    Event,
    Excerpt,
    Prose,
    Structural,
)
from fallback_audit.events.attempt import grounded_words
from fallback_audit.frozen import Frozen
from fallback_audit.metrics import NONE, Metric, Move, zeros
from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    ModelFailureKind,
    PromptShape,
    Provenance,
    Retrieve,
    Support,
)

#: Kinds of tokens, as servers bill them.
DIRECTIONS = ("input", "output", "cache_read", "cache_write")

TOKENS = Metric(
    "counter",
    "llm_tokens_total",
    "Tokens, as servers count them.",
    ("call_type", "direction"),
    zeros=zeros(CallType, DIRECTIONS),
)
CALLS = Metric(
    "counter",
    "llm_calls_total",
    "Model calls and their ends.",
    ("call_type", "outcome"),
    zeros=zeros(CallType, ("answered", "failed", "reused")),
)
#: Buckets from a short verdict to a long answer of a slow server.
CALL_DURATION = Metric(
    "histogram",
    "llm_call_duration_seconds",
    "What answered calls took.",
    ("call_type",),
    buckets=(0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
COST = Metric(
    "counter",
    "llm_cost_usd_estimate_total",
    "Dollars, from dated list prices.",
    ("call_type",),
    zeros=zeros(CallType),
)
MODEL_FAILURES = Metric(
    "counter",
    "llm_call_failures_total",
    "Calls without an answer, and why.",
    ("call_type", "failure"),
)
LOW_CONFIDENCE = Metric(
    "counter", "fallback_tier_low_confidence_total", "Patches that no judge found supported."
)
BUDGET_REFUSALS = Metric(
    "counter",
    "fallback_tier_budget_refusals_total",
    "Calls that a cap did not let pass.",
    ("limit",),
    zeros=zeros(BudgetLimit),
)
JUDGEMENTS = Metric(
    "counter",
    "fallback_tier_judgements_total",
    "Verdicts of the judge.",
    ("supported",),
    zeros=zeros(("true", "false")),
)
JUDGE_FAILING = Metric(
    "gauge",
    "fallback_tier_judge_failing",
    "Calls of the judge that failed since its last verdict.",
)

#: A share between 0 and 1.
Share = Annotated[float, Field(ge=0, le=1)]


class Charge(Frozen):
    """What a call may cost at most, booked before it is sent. Dollars None: the price is unknown."""

    tokens: Annotated[int, Field(ge=0)]
    cost_usd_estimate: Dollars | None = None


class Candidate(Frozen):
    """Which candidate of a self-RAG step a call is for: ``path`` of the beam, ``number`` in the step."""

    step: Annotated[int, Field(ge=1)]
    path: Annotated[int, Field(ge=0)]
    number: Annotated[int, Field(ge=0)]

    @property
    def name(self) -> str:
        """Return how the candidate is called in texts."""
        return f"step {self.step}, path {self.path}, candidate {self.number}"


class ModelCalled(Event):
    """A request is about to be sent (recorded before it is).

    ``strict``: it carries the strict instruction (a regeneration of an unsupported plan).
    ``request_key``: digest of the request without its nonces, by which a finished call is found again.
    ``reserved``: booked until the server says what was used. ``candidate``: one of self-RAG's calls.
    ``prompt_evidence``: the prompt itself, kept (private) because somebody switched that on.
    """

    kind: Literal["ModelCalled"] = "ModelCalled"
    attempt: Attempt
    call: Call
    call_type: CallType
    model: Structural
    provenance: Provenance
    prompt_shape: PromptShape
    prompt_sha256: Digest
    prompt_bytes: int
    example_ids: tuple[Structural, ...] = ()
    strict: bool = False
    request_key: Digest | None = None
    reserved: Charge | None = None
    candidate: Candidate | None = None
    prompt_evidence: Digest | None = None

    def in_words(self) -> str:
        booked = ""
        if self.reserved and self.reserved.cost_usd_estimate:
            booked = f", at most ~${self.reserved.cost_usd_estimate}"
        return (
            f"{self.call_type} call {self.call} to {self.model} ({self.provenance}):"
            f" {self.prompt_shape.label}, {self.prompt_bytes:,} bytes,"
            f" {len(self.example_ids)} examples{booked}{_asked_for(self)}"
        )


class ModelAnswered(Event):
    """What the server said it used. The cost is an estimate from a dated price table.

    ``answer_sha256`` is the digest of the text; ``answer_evidence`` that of the whole answer as it is
    kept, so that an attempt that is resumed need not pay for it twice; None: it was not kept, since it
    holds a secret.
    """

    kind: Literal["ModelAnswered"] = "ModelAnswered"
    attempt: Attempt
    call: Call
    call_type: CallType
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd_estimate: Structural | None = None
    stop_reason: Prose
    answer_sha256: Digest
    answer_evidence: Digest | None = None
    duration_ms: int = 0

    def in_words(self) -> str:
        cost = f", ~${self.cost_usd_estimate}" if self.cost_usd_estimate else ""
        tokens = f"{self.input_tokens:,} + {self.output_tokens:,} tokens"
        whose = "" if self.call_type is CallType.AUTHOR else f"{self.call_type} "
        return f"{whose}answer {self.call}: {tokens}{cost}, {self.stop_reason}"

    def moves(self) -> Iterator[Move]:
        call = self.call_type.value
        yield Move(CALLS, (call, "answered"))
        yield Move(CALL_DURATION, (call,), self.duration_ms / 1000, "observe")
        counts = (
            self.input_tokens,
            self.output_tokens,
            self.cache_read_tokens,
            self.cache_write_tokens,
        )
        for direction, count in zip(DIRECTIONS, counts, strict=True):
            yield Move(TOKENS, (call, direction), count)
        if self.cost_usd_estimate is not None:
            yield Move(COST, (call,), float(self.cost_usd_estimate))


class AnswerReused(Event):
    """In place of a call and its answer: this request was answered before the attempt was interrupted.

    ``call``, ``strict``, ``candidate`` and the prompt are this run's; the answer is the earlier one's.
    """

    kind: Literal["AnswerReused"] = "AnswerReused"
    BADGE = Badge(style="cyan")
    attempt: Attempt
    call: Call
    call_type: CallType
    model: Structural
    prompt_shape: PromptShape
    request_key: Digest
    answer_sha256: Digest
    answer_evidence: Digest
    example_ids: tuple[Structural, ...] = ()
    strict: bool = False
    candidate: Candidate | None = None

    def in_words(self) -> str:
        return (
            f"{self.call_type} call {self.call} to {self.model} not sent: answered before the "
            f"interruption, nothing is paid twice{_asked_for(self)}"
        )

    def moves(self) -> Iterator[Move]:
        yield Move(CALLS, (self.call_type.value, "reused"))


class ModelFailed(Event):
    """The request ended without an answer: a transport failure, not a gate failure."""

    kind: Literal["ModelFailed"] = "ModelFailed"
    BADGE = Badge(warns=True)
    attempt: Attempt
    call: Call
    call_type: CallType
    reason: Excerpt
    failure: ModelFailureKind | None = None

    def in_words(self) -> str:
        kind = f" ({self.failure})" if self.failure else ""
        return f"{self.call_type} call {self.call} gave no answer{kind}: {self.reason}"

    def moves(self) -> Iterator[Move]:
        call = self.call_type.value
        yield Move(CALLS, (call, "failed"))
        yield Move(MODEL_FAILURES, (call, NONE if self.failure is None else self.failure.value))
        if self.call_type is CallType.JUDGE:
            yield Move(JUDGE_FAILING)


class PlanRejected(Event):
    """An invalid plan: asked again within the call ceiling, never handed on."""

    kind: Literal["PlanRejected"] = "PlanRejected"
    BADGE = Badge(style="yellow")
    attempt: Attempt
    call: Call
    problems: tuple[Excerpt, ...]

    def in_words(self) -> str:
        return f"answer {self.call} rejected: not a valid plan"

    def excerpt(self) -> str | None:
        return "\n".join(self.problems)


class MoreCodeShown(Event):
    """The author declined in answer ``call`` and named code that it had not been shown.

    Once an attempt it is asked again, with ``byte_count`` bytes of ``files`` beside the first prompt.
    """

    kind: Literal["MoreCodeShown"] = "MoreCodeShown"
    BADGE = Badge(style="cyan")
    attempt: Attempt
    call: Call
    files: Annotated[tuple[Excerpt, ...], Field(min_length=1)]
    byte_count: Annotated[int, Field(ge=1)]

    def in_words(self) -> str:
        return (
            f"answer {self.call} declined because code was missing: shown {self.byte_count:,} "
            f"bytes more, of {', '.join(self.files)}"
        )


class RepeatedPatchRejected(Event):
    """The normalised edit set equals an earlier attempt's: asked again, never handed on."""

    kind: Literal["RepeatedPatchRejected"] = "RepeatedPatchRejected"
    BADGE = Badge(tone="bad", style="yellow")
    attempt: Attempt
    call: Annotated[int, Field(ge=0)]
    edit_digest: Digest
    repeats_attempt: int

    def in_words(self) -> str:
        return f"answer {self.call} rejected: the edits of attempt {self.repeats_attempt}"


class GroundingNotEvaluated(Event):
    """No judge looked at the plan, and why; ``grounded`` is None, never invented."""

    kind: Literal["GroundingNotEvaluated"] = "GroundingNotEvaluated"
    attempt: Attempt
    reason: Prose
    call: Call | None = None

    def in_words(self) -> str:
        return f"grounding not evaluated: {self.reason}"


class GroundingJudged(Event):
    """A judge's verdict on the plan of author call ``call``: are all its claims supported?

    ``faithfulness_score``: the share of claims that are. False demands a regeneration with the strict
    instruction, or LowConfidenceFlagged. ``judgement_sha256``: every claim with its grade and reason.
    """

    kind: Literal["GroundingJudged"] = "GroundingJudged"
    attempt: Attempt
    call: Call
    supported: bool
    faithfulness_score: Share
    claims: Annotated[int, Field(ge=1)]
    unsupported: tuple[Excerpt, ...] = ()
    judge_model: Structural
    judgement_sha256: Digest

    def in_words(self) -> str:
        return (
            f"answer {self.call} {grounded_words(self.supported)}:"
            f" {self.faithfulness_score:.0%} of {self.claims} claims supported,"
            f" by {self.judge_model}"
        )

    def excerpt(self) -> str | None:
        return None if self.supported else "\n".join(self.unsupported)

    def moves(self) -> Iterator[Move]:
        yield Move(JUDGEMENTS, ("true" if self.supported else "false",))
        yield Move(JUDGE_FAILING, value=0, action="set")

    @property
    def badge(self) -> Badge:
        return Badge(style="green") if self.supported else Badge(tone="warn", style="yellow")


class LowConfidenceFlagged(Event):
    """An unsupported plan is handed on with this flag; ``attempts``: plans judged unsupported in this
    attempt.
    """

    kind: Literal["LowConfidenceFlagged"] = "LowConfidenceFlagged"
    BADGE = Badge(tone="warn", style="bold yellow")
    attempt: Attempt
    reason: Excerpt
    attempts: Annotated[int, Field(ge=1)]

    def in_words(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        return f"LOW CONFIDENCE (unsupported {times}), check by hand: {self.reason}"

    def moves(self) -> Iterator[Move]:
        yield Move(LOW_CONFIDENCE)


class BudgetReached(Event):
    """The next call would pass a cap: nothing is sent, the attempt is refused and can be resumed.

    Amounts are dollars (a decimal string) or tokens, as the limit says; None: no price is known.
    """

    kind: Literal["BudgetReached"] = "BudgetReached"
    BADGE = Badge(tone="bad", style="bold yellow", warns=True)
    attempt: Attempt
    limit: BudgetLimit
    cap: Structural
    used: Structural
    wanted: Structural

    def in_words(self) -> str:
        return (
            f"BUDGET REACHED ({self.limit}): the next call may use {self.wanted},"
            f" {self.used} of {self.cap} are used; nothing was sent"
        )

    def moves(self) -> Iterator[Move]:
        yield Move(BUDGET_REFUSALS, (self.limit.value,))


class BudgetRaised(Event):
    """A named person raised a cap of this fix, and why: the fix that stopped at it may go on.

    It stands in the stopped gate transition, right after the stop, and belongs to no attempt; the
    attempt that was stopped is then resumed under its own number. None: that cap stays as
    configured (a new day has room again). Nothing raises the cap on retries (ADR-0014).
    """

    kind: Literal["BudgetRaised"] = "BudgetRaised"
    BADGE = Badge(style="cyan")
    by: Prose
    reason: Prose
    usd_per_fix: Dollars | None = None
    tokens_per_fix: int | None = None

    def in_words(self) -> str:
        caps = (("$", self.usd_per_fix), ("tokens ", self.tokens_per_fix))
        to = ", ".join(f"{unit}{cap}" for unit, cap in caps if cap is not None)
        raised = f"budget of this fix raised to {to}" if to else "budget stop lifted"
        return f"{raised} by {self.by}: {self.reason}"


class RetrieveDecided(Event):
    """Self-RAG: are examples needed for the next segment of this path? Forced to no on a retry."""

    kind: Literal["RetrieveDecided"] = "RetrieveDecided"
    BADGE = Badge(routine=True)
    attempt: Attempt
    step: Annotated[int, Field(ge=1)]
    path: Annotated[int, Field(ge=0)]
    decision: Retrieve
    forced: bool = False
    reason: Excerpt = ""

    def in_words(self) -> str:
        why = ", ".join(filter(None, ("forced" if self.forced else "", self.reason)))
        decision = f"path {self.path}: {_RETRIEVE[self.decision]}"
        return f"self-RAG step {self.step}, {decision}" + (f" ({why})" if why else "")


class SegmentScored(Event):
    """Self-RAG: a candidate's critique and score, and whether the beam kept it.

    ``lm_score``: normalised log-probability of the answer, None where the server gives none.
    ``problem``: why it could not be a candidate (invalid edit, no answer); then it has no score.
    """

    kind: Literal["SegmentScored"] = "SegmentScored"
    BADGE = Badge(routine=True)
    attempt: Attempt
    candidate: Candidate
    example_id: Structural | None = None
    relevant: bool | None = None
    support: Support | None = None
    usefulness: Annotated[int, Field(ge=1, le=5)] | None = None
    is_final: bool = False
    lm_score: float | None = None
    score: float | None = None
    kept: bool = False
    problem: Excerpt = ""

    def in_words(self) -> str:
        return f"self-RAG {self.candidate.name}: {self._verdict()}"

    def _verdict(self) -> str:
        if self.problem:
            return f"no candidate: {self.problem}"
        facts = (
            "kept" if self.kept else "dropped",
            None if self.score is None else f"score {self.score:.3f}",
            None if self.example_id is None else f"from {self.example_id}",
            None if self.relevant is None else ("relevant" if self.relevant else "not relevant"),
            None if self.support is None else f"support {self.support}",
            None if self.usefulness is None else f"usefulness {self.usefulness}",
            "no log-probability"
            if self.lm_score is None
            else f"log-probability {self.lm_score:.3f}",
            "final" if self.is_final else None,
        )
        return ", ".join(fact for fact in facts if fact)


class StrategyDegraded(Event):
    """Self-RAG went on as greedy search (or ended early) rather than overrun a limit, and why."""

    kind: Literal["StrategyDegraded"] = "StrategyDegraded"
    BADGE = Badge(style="yellow", warns=True)
    attempt: Attempt
    step: Annotated[int, Field(ge=1)]
    reason: Excerpt

    def in_words(self) -> str:
        return f"self-RAG degraded at step {self.step}: {self.reason}"


_RETRIEVE = {
    Retrieve.YES: "fetch examples",
    Retrieve.NO: "no examples",
    Retrieve.CONTINUE: "continue with the examples of the step before",
}


def _asked_for(event: ModelCalled | AnswerReused) -> str:
    strict = ", strict: only what the context states" if event.strict else ""
    return strict + (f", self-RAG {event.candidate.name}" if event.candidate else "")
