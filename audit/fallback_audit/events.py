"""The event vocabulary: evidence of what happened, one frozen model a kind.

Payloads carry digests and short redacted excerpts, never whole prompts, diffs or logs: those live
in the evidence store (``fallback_audit.evidence.store``). Numbers stay below 2**53 and times are strings,
so that every payload has one canonical form (RFC 8785).
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from fallback_audit.event_types import MAX_EXCERPT_CHARS, Attempt, Digest, Excerpt, Prose
from fallback_audit.frozen import Frozen
from fallback_audit.gate_events import (
    AttemptFailed,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    RecipeCandidateFailed,
    SandboxDisabled,
)
from fallback_audit.human_events import (
    FixResumed,
    PatchDelivered,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.maintenance_events import (
    AppendFlagged,
    EvidenceCollected,
    PayloadRedacted,
    RecordBegunAgain,
    SegmentRetired,
    SegmentSealed,
    SigningKeyRotated,
)
from fallback_audit.model_events import (
    AnswerReused,
    BudgetRaised,
    BudgetReached,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    MoreCodeShown,
    PlanRejected,
    RepeatedPatchRejected,
    RetrieveDecided,
    SegmentScored,
    StrategyDegraded,
)
from fallback_audit.vocabulary import (
    FailureKind,
    LadderStep,
    PromptShape,
    RefusalReason,
    RetrievalVerdict,
    Tier,
)

__all__ = [
    "MAX_EXCERPT_CHARS",
    "SCHEMA_VERSION",
    "TERMINAL_KINDS",
    "AnswerReused",
    "AppendFlagged",
    "Attempt",
    "AttemptFailed",
    "AttemptRefused",
    "AttemptStarted",
    "AuditEvent",
    "BudgetRaised",
    "BudgetReached",
    "ConsumerLeft",
    "Digest",
    "EvidenceCollected",
    "ExampleReplayed",
    "Excerpt",
    "FixEscalated",
    "FixPatched",
    "FixRefused",
    "FixResumed",
    "FixStarted",
    "FixVerified",
    "GateJudged",
    "GroundingJudged",
    "GroundingNotEvaluated",
    "LowConfidenceFlagged",
    "ModelAnswered",
    "ModelCalled",
    "ModelFailed",
    "MoreCodeShown",
    "PatchDelivered",
    "PatchProposed",
    "PayloadRedacted",
    "PlanRejected",
    "RagSkippedOnRetry",
    "RecipeCandidateFailed",
    "RecipeEvaluated",
    "RecordBegunAgain",
    "RepeatedPatchRejected",
    "RetrievalQueried",
    "RetrieveDecided",
    "ReviewDecided",
    "SandboxDisabled",
    "SegmentRetired",
    "SegmentScored",
    "SegmentSealed",
    "SigningKeyRotated",
    "StrategyDegraded",
    "TransitionReopened",
    "event_adapter",
]

#: Readers accept every version up to this one; a payload change raises it.
SCHEMA_VERSION = 12


class AttemptStarted(Frozen):
    """One ``FallbackTier.run`` began. It counts against the cap however it ends."""

    kind: Literal["AttemptStarted"] = "AttemptStarted"
    attempt: Attempt
    advisory_id: str
    prior_attempt_count: int
    prompt_shape: PromptShape


class RecipeEvaluated(Frozen):
    """First attempt, step 1: did a deterministic recipe apply, by which steps (ADR-0016)?"""

    kind: Literal["RecipeEvaluated"] = "RecipeEvaluated"
    attempt: Attempt
    selected: bool
    recipe: str | None = None
    reason: Prose | None = None
    steps: tuple[LadderStep, ...] = ()


class RetrievalQueried(Frozen):
    """First attempt, step 2: what the memory answered; ``account_sha256``: scores, floors, drops."""

    kind: Literal["RetrievalQueried"] = "RetrievalQueried"
    attempt: Attempt
    verdict: RetrievalVerdict
    example_ids: tuple[str, ...] = ()
    reason: Prose
    account_sha256: Digest | None = None


class ExampleReplayed(Frozen):
    """An example with the same package and the same code was replayed; no model was asked."""

    kind: Literal["ExampleReplayed"] = "ExampleReplayed"
    attempt: Attempt
    example_id: str


class RagSkippedOnRetry(Frozen):
    """Retry as fresh context (ADR-0011): retrieval was not touched, this summary stands instead.

    Durable before the first model request of the attempt: if it can't be appended, nothing is sent.
    """

    kind: Literal["RagSkippedOnRetry"] = "RagSkippedOnRetry"
    attempt: Attempt
    attempt_count: int
    last_failure_kind: FailureKind
    summary_sha256: Digest
    summary_excerpt: Excerpt


class PatchProposed(Frozen):
    """The attempt's outcome: a patch, to be proved; ``remediation_sha256``: a recipe's own account.

    ``application_sha256``: the whole ``Applied``, as evidence, for a run that is resumed.
    ``taken_from``: the gate transition in which it was made, where only its gates are run again; nothing
    was asked here then, and all else is said as it was said there. Since schema version 8.
    """

    kind: Literal["PatchProposed"] = "PatchProposed"
    attempt: Attempt
    tier: Tier
    prompt_shape: PromptShape
    patch_sha256: Digest
    edit_digest: Digest
    files: tuple[Prose, ...]
    remediation_sha256: Digest | None = None
    #: Edits that matched only when white space was left out of the comparison (``path: edit n``).
    loose_edits: tuple[Prose, ...] = ()
    grounded: bool | None = None
    low_confidence: bool = False
    application_sha256: Digest | None = None
    taken_from: str | None = None


class AttemptRefused(Frozen):
    """The attempt's outcome: no patch, and why. Refused for a budget, it can be resumed."""

    kind: Literal["AttemptRefused"] = "AttemptRefused"
    attempt: Attempt
    reason: RefusalReason
    sentence: Prose
    prompt_shape: PromptShape


class ConsumerLeft(Frozen):
    """Whoever drained the stream went away; the resume rule says what a successor does."""

    kind: Literal["ConsumerLeft"] = "ConsumerLeft"
    attempt: Attempt
    resume_rule: str


AuditEvent = Annotated[
    FixStarted
    | SandboxDisabled
    | AttemptStarted
    | RecipeEvaluated
    | RetrievalQueried
    | ExampleReplayed
    | RagSkippedOnRetry
    | ModelCalled
    | ModelAnswered
    | AnswerReused
    | ModelFailed
    | PlanRejected
    | MoreCodeShown
    | RepeatedPatchRejected
    | GroundingNotEvaluated
    | GroundingJudged
    | LowConfidenceFlagged
    | BudgetReached
    | BudgetRaised
    | RetrieveDecided
    | SegmentScored
    | StrategyDegraded
    | PatchProposed
    | AttemptRefused
    | ConsumerLeft
    | GateJudged
    | RecipeCandidateFailed
    | AttemptFailed
    | FixVerified
    | FixPatched
    | FixRefused
    | FixEscalated
    | FixResumed
    | ReviewDecided
    | TransitionReopened
    | PatchDelivered
    | AppendFlagged
    | EvidenceCollected
    | PayloadRedacted
    | SegmentRetired
    | SegmentSealed
    | SigningKeyRotated
    | RecordBegunAgain,
    Field(discriminator="kind"),
]

#: Terminal events: each fix ends in exactly one. FixEscalated for a budget ends it until BudgetRaised.
TERMINAL_KINDS = frozenset({"FixVerified", "FixPatched", "FixRefused", "FixEscalated"})

event_adapter: TypeAdapter[AuditEvent] = TypeAdapter(
    AuditEvent, config=ConfigDict(defer_build=True)
)
