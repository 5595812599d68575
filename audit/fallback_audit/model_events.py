"""Events of the LLM leaf: calls, verdicts on their answers, budgets, self-RAG's steps.

Part of the vocabulary in ``fallback_audit.events``, which names them all.
"""

from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import Attempt, Call, Digest, Dollars, Excerpt, Prose
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    ModelFailureKind,
    PromptShape,
    Provenance,
    Retrieve,
    Support,
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


class ModelCalled(Frozen):
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
    model: str
    provenance: Provenance
    prompt_shape: PromptShape
    prompt_sha256: Digest
    prompt_bytes: int
    example_ids: tuple[str, ...] = ()
    strict: bool = False
    request_key: Digest | None = None
    reserved: Charge | None = None
    candidate: Candidate | None = None
    prompt_evidence: Digest | None = None


class ModelAnswered(Frozen):
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
    cost_usd_estimate: str | None = None
    stop_reason: Prose
    answer_sha256: Digest
    answer_evidence: Digest | None = None
    duration_ms: int = 0


class AnswerReused(Frozen):
    """In place of a call and its answer: this request was answered before the attempt was interrupted.

    ``call``, ``strict``, ``candidate`` and the prompt are this run's; the answer is the earlier one's.
    """

    kind: Literal["AnswerReused"] = "AnswerReused"
    attempt: Attempt
    call: Call
    call_type: CallType
    model: str
    prompt_shape: PromptShape
    request_key: Digest
    answer_sha256: Digest
    answer_evidence: Digest
    example_ids: tuple[str, ...] = ()
    strict: bool = False
    candidate: Candidate | None = None


class ModelFailed(Frozen):
    """The request ended without an answer: a transport failure, not a gate failure."""

    kind: Literal["ModelFailed"] = "ModelFailed"
    attempt: Attempt
    call: Call
    call_type: CallType
    reason: Excerpt
    failure: ModelFailureKind | None = None


class PlanRejected(Frozen):
    """An invalid plan: asked again within the call ceiling, never handed on."""

    kind: Literal["PlanRejected"] = "PlanRejected"
    attempt: Attempt
    call: Call
    problems: tuple[Excerpt, ...]


class MoreCodeShown(Frozen):
    """The author declined in answer ``call`` and named code that it had not been shown.

    Once an attempt it is asked again, with ``byte_count`` bytes of ``files`` beside the first prompt.
    """

    kind: Literal["MoreCodeShown"] = "MoreCodeShown"
    attempt: Attempt
    call: Call
    files: Annotated[tuple[Excerpt, ...], Field(min_length=1)]
    byte_count: Annotated[int, Field(ge=1)]


class RepeatedPatchRejected(Frozen):
    """The normalised edit set equals an earlier attempt's: asked again, never handed on."""

    kind: Literal["RepeatedPatchRejected"] = "RepeatedPatchRejected"
    attempt: Attempt
    call: Annotated[int, Field(ge=0)]
    edit_digest: Digest
    repeats_attempt: int


class GroundingNotEvaluated(Frozen):
    """No judge looked at the plan, and why; ``grounded`` is None, never invented."""

    kind: Literal["GroundingNotEvaluated"] = "GroundingNotEvaluated"
    attempt: Attempt
    reason: Prose
    call: Call | None = None


class GroundingJudged(Frozen):
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
    judge_model: str
    judgement_sha256: Digest


class LowConfidenceFlagged(Frozen):
    """An unsupported plan is handed on with this flag; ``attempts``: plans judged unsupported in this
    attempt.
    """

    kind: Literal["LowConfidenceFlagged"] = "LowConfidenceFlagged"
    attempt: Attempt
    reason: Excerpt
    attempts: Annotated[int, Field(ge=1)]


class BudgetReached(Frozen):
    """The next call would pass a cap: nothing is sent, the attempt is refused and can be resumed.

    Amounts are dollars (a decimal string) or tokens, as the limit says; None: no price is known.
    """

    kind: Literal["BudgetReached"] = "BudgetReached"
    attempt: Attempt
    limit: BudgetLimit
    cap: str
    used: str
    wanted: str


class BudgetRaised(Frozen):
    """A named person raised a cap of this fix, and why: the fix that stopped at it may go on.

    It stands in the stopped gate transition, right after the stop, and belongs to no attempt; the
    attempt that was stopped is then resumed under its own number. None: that cap stays as
    configured (a new day has room again). Nothing raises the cap on retries (ADR-0014).
    """

    kind: Literal["BudgetRaised"] = "BudgetRaised"
    by: Prose
    reason: Prose
    usd_per_fix: Dollars | None = None
    tokens_per_fix: int | None = None


class RetrieveDecided(Frozen):
    """Self-RAG: are examples needed for the next segment of this path? Forced to no on a retry."""

    kind: Literal["RetrieveDecided"] = "RetrieveDecided"
    attempt: Attempt
    step: Annotated[int, Field(ge=1)]
    path: Annotated[int, Field(ge=0)]
    decision: Retrieve
    forced: bool = False
    reason: Excerpt = ""


class SegmentScored(Frozen):
    """Self-RAG: a candidate's critique and score, and whether the beam kept it.

    ``lm_score``: normalised log-probability of the answer, None where the server gives none.
    ``problem``: why it could not be a candidate (invalid edit, no answer); then it has no score.
    """

    kind: Literal["SegmentScored"] = "SegmentScored"
    attempt: Attempt
    candidate: Candidate
    example_id: str | None = None
    relevant: bool | None = None
    support: Support | None = None
    usefulness: Annotated[int, Field(ge=1, le=5)] | None = None
    is_final: bool = False
    lm_score: float | None = None
    score: float | None = None
    kept: bool = False
    problem: Excerpt = ""


class StrategyDegraded(Frozen):
    """Self-RAG went on as greedy search (or ended early) rather than overrun a limit, and why."""

    kind: Literal["StrategyDegraded"] = "StrategyDegraded"
    attempt: Attempt
    step: Annotated[int, Field(ge=1)]
    reason: Excerpt
