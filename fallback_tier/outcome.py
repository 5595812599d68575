"""What goes into and comes out of one attempt: selections, plans, summaries, applications."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import (
    CallType,
    FailureKind,
    PromptShape,
    ProofLevel,
    RefusalReason,
    Tier,
)
from fallback_tier.limits import MAX_RETRIES

RelativePath = Annotated[str, Field(min_length=1, max_length=4096)]


# --- What the recipe plugins say ------------------------------------------------------------------


class Selected(Frozen):
    """A deterministic fix applies; ``parameters`` are the recipe's own (package, version …)."""

    outcome: Literal["selected"] = "selected"
    recipe: str
    parameters: dict[str, str] = Field(default_factory=dict)


class NotApplicable(Frozen):
    """No deterministic fix applies. ``reason`` refuses for good unless another tier can help."""

    outcome: Literal["not_applicable"] = "not_applicable"
    reason: RefusalReason
    sentence: str


RecipeSelection = Annotated[Selected | NotApplicable, Field(discriminator="outcome")]


class FileChange(Frozen):
    """One text file before and after (None: absent). Line ends are kept as found."""

    path: RelativePath
    before: str | None
    after: str | None


class RecipeResult(Frozen):
    """What a recipe changed, and how much that proves."""

    changes: tuple[FileChange, ...]
    proof_level: ProofLevel
    package: str
    before_versions: tuple[str, ...]
    after_version: str


# --- Plans: the only thing a model may emit -------------------------------------------------------


class SearchReplace(Frozen):
    """Replace ``old``, found exactly once in ``path``, by ``new``. Never a diff the model typed."""

    path: RelativePath
    old: str = Field(min_length=1)
    new: str


class _Plan(Frozen):
    rationale: str = ""
    citations: tuple[str, ...] = ()


class DependencyBump(_Plan):
    """Raise a declared dependency to a fixed version; call sites may need edits with it."""

    action: Literal["dependency_bump"] = "dependency_bump"
    package: str
    version: str
    edits: tuple[SearchReplace, ...] = ()


class Override(_Plan):
    """Force a transitive dependency to a fixed version."""

    action: Literal["override"] = "override"
    package: str
    version: str
    edits: tuple[SearchReplace, ...] = ()


class SourceEdit(_Plan):
    """Edit the repository's own source."""

    action: Literal["source_edit"] = "source_edit"
    edits: Annotated[tuple[SearchReplace, ...], Field(min_length=1)]


class Refuse(_Plan):
    """The model declines, and says why."""

    action: Literal["refuse"] = "refuse"
    reason: str


Plan = Annotated[DependencyBump | Override | SourceEdit | Refuse, Field(discriminator="action")]
plan_adapter: TypeAdapter[Plan] = TypeAdapter(Plan)


# --- Attempts -------------------------------------------------------------------------------------


class AttemptSummary(Frozen):
    """A failed attempt, distilled, as the next attempt's fresh context.

    ``prior_failure_summary`` is bounded by MAX_FAILURE_SUMMARY_BYTES; the tier checks it (a typed
    AttemptHistoryError) so that foreign orchestrators get one clear sentence. ``used_few_shot_ref``
    never enters a retry prompt.
    """

    attempt: Annotated[int, Field(ge=1)]
    tier: Tier | None = None
    edit_digest: Digest | None = None
    failing_gates: tuple[str, ...] = ()
    failure_kind: FailureKind
    prior_failure_summary: str
    evidence: tuple[Digest, ...] = ()
    used_few_shot_ref: tuple[str, ...] = ()


class CallUsage(Frozen):
    """Tokens and estimated dollars of one call type. The price table is dated; cost None: unknown model."""

    call_type: CallType
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd_estimate: str | None = None


class LowConfidence(Frozen):
    """Handed on although unsupported: what to double-check."""

    reason: str
    attempts: Annotated[int, Field(ge=1, le=MAX_RETRIES + 1)]


class _Application(Frozen):
    attempt: int
    prompt_shape: PromptShape
    usage: tuple[CallUsage, ...] = ()


class Applied(_Application):
    """A patch to be proved. ``grounded`` and ``faithfulness_score``: None means not evaluated."""

    outcome: Literal["applied"] = "applied"
    tier: Tier
    diff: str
    patch_sha256: Digest
    edit_digest: Digest
    files: tuple[str, ...]
    proof_level: ProofLevel
    plan: Plan | None = None
    citations: tuple[str, ...] = ()
    grounded: bool | None = None
    faithfulness_score: float | None = None
    low_confidence: LowConfidence | None = None
    used_few_shot_ref: tuple[str, ...] = ()


class Refused(_Application):
    """No patch, from a closed set of reasons, with one sentence a person can act on."""

    outcome: Literal["refused"] = "refused"
    reason: RefusalReason
    sentence: str


RecipeApplication = Annotated[Applied | Refused, Field(discriminator="outcome")]
application_adapter: TypeAdapter[RecipeApplication] = TypeAdapter(RecipeApplication)
