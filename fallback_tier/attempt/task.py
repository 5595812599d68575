"""The task of one attempt, its results, and the recorder of its events."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from fallback_audit.events import MAX_EXCERPT_CHARS, AuditEvent
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditStore, Scope
from fallback_audit.vocabulary import PromptShape, ProofLevel, RefusalReason, Tier
from fallback_tier.advisory import Advisory
from fallback_tier.errors import AttemptHistoryError, FallbackError
from fallback_tier.limits import (
    MAX_FAILURE_SUMMARY_BYTES,
    MAX_RETRIES,
    SMALL_CODE_ROOM_BYTES,
    SMALL_OUTPUT_TOKENS,
)
from fallback_tier.outcome import (
    AttemptSummary,
    CallUsage,
    FileChange,
    LowConfidence,
    NotApplicable,
    Plan,
    RecipeApplication,
    RecipeResult,
    RecipeSelection,
    StepDeclined,
    UnreadItem,
    next_attempt,
)
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.prompt.redact import excerpt
from fallback_tier.repo import RepoContext


class Finished(Frozen):
    """The last event of every stream."""

    kind: str = "Finished"
    application: RecipeApplication


class DraftText(Frozen):
    """A piece of an answer as it arrives: a draft, on no record. No patch comes before its verdict."""

    kind: str = "DraftText"
    attempt: int
    call: int
    text: str


class DraftDiscarded(Frozen):
    """The draft of ``call`` is void: it was rejected, unsupported, or broke off. Forget its text."""

    kind: str = "DraftDiscarded"
    attempt: int
    call: int
    reason: str

    @classmethod
    def because(cls, why: str, *, attempt: int, call: int) -> Self:
        """Return the event. ``why`` may contain text of a model, a client or a server: it is redacted and
        cut, as in the record."""
        return cls(attempt=attempt, call=call, reason=excerpt(why, MAX_EXCERPT_CHARS))


@dataclass(frozen=True)
class Inputs:
    """The arguments of ``FallbackTier.run``, made from an advisory and a repository."""

    advisory: Advisory
    repo_ctx: RepoContext
    recipe_selection: RecipeSelection


TierEvent = AuditEvent | DraftText | DraftDiscarded | Finished


@dataclass(frozen=True)
class AttemptTask:
    """The arguments of one attempt, and properties derived from them. ``is_resumed``: a missing client
    raises an error, not a refusal; ``needs_model``: so does a missing model."""

    advisory: Advisory
    repo: RepoContext
    selection: RecipeSelection
    prior_attempts: tuple[AttemptSummary, ...]
    plugin: EcosystemPlugin
    is_resumed: bool = False
    needs_model: bool = False

    @property
    def is_retry(self) -> bool:
        """Whether this is a retry with a fresh context, decided by this property alone (ADR-0011)."""
        return bool(self.prior_attempts)

    @property
    def number(self) -> int:
        """See ``next_attempt``."""
        return next_attempt(self.prior_attempts)

    @property
    def over_cap(self) -> bool:
        """Whether this would be a fourth retry (ADR-0014)."""
        return len(self.prior_attempts) > MAX_RETRIES

    @property
    def is_own_code(self) -> bool:
        """Whether the repository is the affected package: its source is edited then, no version raised."""
        if self.repo.affected is not None:
            return self.repo.affected.is_own
        return (  # another host's context: its selection tells
            isinstance(self.selection, NotApplicable)
            and self.selection.reason is RefusalReason.OWN_CODE
        )

    @property
    def with_less(self) -> "AttemptTask | None":
        """The same task with as much of the package's own code, and as long an answer, as fits a small
        window; None if it is no larger already."""
        settings = self.repo.settings
        code_budget = min(settings.own_code_budget_bytes, SMALL_CODE_ROOM_BYTES)
        output_tokens = min(settings.max_output_tokens, SMALL_OUTPUT_TOKENS)
        smaller = settings.model_copy(
            update={"own_code_budget_bytes": code_budget, "max_output_tokens": output_tokens}
        )
        if smaller == settings:
            return None
        return replace(self, repo=self.repo.model_copy(update={"settings": smaller}))

    @property
    def shape(self) -> PromptShape:
        """The prompt shape of this attempt."""
        return PromptShape.asked(retry=self.is_retry)


@dataclass(frozen=True)
class Draft:
    """The result of an author, or of a search over its answers: exactly one of ``plan`` and ``problems``.
    ``call``: the author call that ended it."""

    call: int
    text: str
    plan: Plan | None
    problems: tuple[str, ...] = ()
    example_ids: tuple[str, ...] = ()
    #: Sentences for a reader of the result on how it was made.
    notes: tuple[str, ...] = ()
    #: The examples as the author read them: a judge may compare the plan with them.
    example_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grounding:
    """A judge's result for a plan. ``grounded`` None: no judge was asked, which is recorded."""

    grounded: bool | None = None
    faithfulness_score: float | None = None
    low_confidence: LowConfidence | None = None


@dataclass(frozen=True)
class Proposal:
    """The result of a tier: file changes, not yet a diff."""

    tier: Tier
    changes: tuple[FileChange, ...]
    proof_level: ProofLevel
    plan: Plan | None = None
    recipe: RecipeResult | None = None
    usage: tuple[CallUsage, ...] = ()
    example_ids: tuple[str, ...] = ()
    grounding: Grounding = Grounding()
    loose_edits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Refusal(FallbackError):  # noqa: N818 (control flow, not an error)
    """Control flow inside an attempt: a step ends it without a patch. Converted to ``Refused``."""

    code = "refusal"

    def __init__(
        self,
        reason: RefusalReason,
        sentence: str,
        usage: tuple[CallUsage, ...] = (),
        unread: tuple[UnreadItem, ...] = (),
        declined: tuple[StepDeclined, ...] = (),
    ) -> None:
        super().__init__(sentence, next_step="")
        self.reason = reason
        self.sentence = sentence
        self.usage = usage
        self.unread = unread
        self.declined = declined


def check_history(prior_attempts: Sequence[AttemptSummary]) -> tuple[AttemptSummary, ...]:
    """Check ``prior_attempts``: strictly increasing numbers, distilled summaries. Raises
    AttemptHistoryError naming the attempt."""
    previous = 0
    for summary in prior_attempts:
        if summary.attempt <= previous:
            raise AttemptHistoryError(
                f"Prior attempt {summary.attempt} follows attempt {previous}: attempt numbers must be "
                "strictly increasing.",
                next_step="Pass the prior attempts of one gate transition, oldest first, each once.",
                kind="not_increasing",
            )
        size = len(summary.prior_failure_summary.encode("utf-8", "surrogatepass"))
        if size > MAX_FAILURE_SUMMARY_BYTES:
            raise AttemptHistoryError(
                f"The failure summary of attempt {summary.attempt} has {size:,} bytes; the limit is "
                f"{MAX_FAILURE_SUMMARY_BYTES:,}.",
                next_step="Send a distilled diagnosis (failing test, assertion, frames), not the log.",
                kind="summary_too_large",
            )
        previous = summary.attempt
    return tuple(prior_attempts)


class Recorder:
    """Appends an event durably and returns it, so that a generator can ``yield record(...)``."""

    def __init__(self, store: AuditStore, repo: RepoContext) -> None:
        self._store = store
        self._scope = Scope(fix_id=repo.fix_id, gate_transition_id=repo.gate_transition_id)
        self._kinds: set[str] = set()

    @property
    def scope(self) -> Scope:
        """The fix and the gate transition of all recorded events."""
        return self._scope

    def __call__(self, event: AuditEvent) -> AuditEvent:
        """Append the event. Raises AuditStoreError: the event did not happen, and nothing after it may."""
        self._store.append(self._scope, event)
        self._kinds.add(event.kind)
        return event

    @property
    def asked_model(self) -> bool:
        """Whether a model was asked in this attempt, now or before it was interrupted."""
        return not self._kinds.isdisjoint({"ModelCalled", "AnswerReused"})

    @property
    def has_outcome(self) -> bool:
        """Whether the attempt's outcome is recorded."""
        return not self._kinds.isdisjoint({"PatchProposed", "AttemptRefused"})
