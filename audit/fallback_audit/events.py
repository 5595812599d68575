"""The event vocabulary: evidence of what happened, one frozen model a kind.

Payloads carry digests and short redacted excerpts, never whole prompts, diffs or logs: those live
in the evidence store (``fallback_audit.evidence.store``). Numbers stay below 2**53 and times are strings,
so that every payload has one canonical form (RFC 8785).
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter

from fallback_audit.event_types import MAX_EXCERPT_CHARS as MAX_EXCERPT_CHARS
from fallback_audit.event_types import Attempt as Attempt
from fallback_audit.event_types import Declined, Prose, StartedOn, Unread
from fallback_audit.event_types import Digest as Digest
from fallback_audit.event_types import Excerpt as Excerpt
from fallback_audit.frozen import Frozen
from fallback_audit.gate_events import AttemptFailed as AttemptFailed
from fallback_audit.gate_events import FixEscalated as FixEscalated
from fallback_audit.gate_events import FixPatched as FixPatched
from fallback_audit.gate_events import FixRefused as FixRefused
from fallback_audit.gate_events import FixStarted as FixStarted
from fallback_audit.gate_events import FixVerified as FixVerified
from fallback_audit.gate_events import GateJudged as GateJudged
from fallback_audit.gate_events import RecipeCandidateFailed as RecipeCandidateFailed
from fallback_audit.gate_events import SandboxDisabled as SandboxDisabled
from fallback_audit.human_events import FixResumed as FixResumed
from fallback_audit.human_events import PatchDelivered as PatchDelivered
from fallback_audit.human_events import ReviewDecided as ReviewDecided
from fallback_audit.human_events import TransitionReopened as TransitionReopened
from fallback_audit.maintenance_events import AppendFlagged as AppendFlagged
from fallback_audit.maintenance_events import EvidenceCollected as EvidenceCollected
from fallback_audit.maintenance_events import PayloadRedacted as PayloadRedacted
from fallback_audit.maintenance_events import RecordBegunAgain as RecordBegunAgain
from fallback_audit.maintenance_events import SegmentRetired as SegmentRetired
from fallback_audit.maintenance_events import SegmentSealed as SegmentSealed
from fallback_audit.maintenance_events import SigningKeyRotated as SigningKeyRotated
from fallback_audit.model_events import AnswerReused as AnswerReused
from fallback_audit.model_events import BudgetRaised as BudgetRaised
from fallback_audit.model_events import BudgetReached as BudgetReached
from fallback_audit.model_events import GroundingJudged as GroundingJudged
from fallback_audit.model_events import GroundingNotEvaluated as GroundingNotEvaluated
from fallback_audit.model_events import LowConfidenceFlagged as LowConfidenceFlagged
from fallback_audit.model_events import ModelAnswered as ModelAnswered
from fallback_audit.model_events import ModelCalled as ModelCalled
from fallback_audit.model_events import ModelFailed as ModelFailed
from fallback_audit.model_events import MoreCodeShown as MoreCodeShown
from fallback_audit.model_events import PlanRejected as PlanRejected
from fallback_audit.model_events import RepeatedPatchRejected as RepeatedPatchRejected
from fallback_audit.model_events import RetrieveDecided as RetrieveDecided
from fallback_audit.model_events import SegmentScored as SegmentScored
from fallback_audit.model_events import StrategyDegraded as StrategyDegraded
from fallback_audit.vocabulary import (
    FailureKind,
    LadderStep,
    PromptShape,
    RefusalReason,
    RetrievalVerdict,
    Tier,
)

#: Readers accept every version up to this one; a payload change raises it.
SCHEMA_VERSION = 16


class AttemptStarted(StartedOn):
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
    """The attempt's outcome: no patch, and why. Refused for a budget, it can be resumed.

    ``unread``: sources that were not read, if that is the reason. Since schema version 14. ``declined``:
    steps that did not work, and what blocked each; not written if empty. Since schema version 15.
    """

    kind: Literal["AttemptRefused"] = "AttemptRefused"
    attempt: Attempt
    reason: RefusalReason
    sentence: Prose
    prompt_shape: PromptShape
    unread: tuple[Unread, ...] = ()
    declined: tuple[Declined, ...] = Field(default=(), exclude_if=lambda it: not it)


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
