"""Events of one attempt: its start, the recipe, the memory's answer, and a patch or the reason for none.

Their rules are in ``contract/attempt.py``; lists of events and rules are derived from the chapters.
Payloads have digests and short redacted excerpts, never whole prompts, diffs or logs: those are in the
evidence store (``fallback_audit.evidence.store``). Numbers are below 2**53 and times are strings, so that
every payload has one canonical form (RFC 8785).
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from fallback_audit.event_types import (
    Attempt,
    Badge,
    Declined,
    Digest,
    Event,
    Excerpt,
    Prose,
    StartedOn,
    Structural,
    Unread,
)
from fallback_audit.metrics import Metric, Move, zeros
from fallback_audit.vocabulary import (
    FailureKind,
    LadderStep,
    PromptShape,
    RefusalReason,
    RetrievalVerdict,
    Tier,
)

ATTEMPTS = Metric("counter", "fallback_tier_attempts_total", "Attempts that began.")
RETRIES = Metric("counter", "fallback_tier_retries_total", "Those of them that were retries.")
RAG_SKIPPED = Metric(
    "counter",
    "fallback_tier_rag_skipped_total",
    "Retries that did without retrieval, by what had failed.",
    ("last_failure_kind",),
    zeros=zeros(FailureKind),
)
TIER_OUTCOMES = Metric(
    "counter",
    "fallback_tier_tier_outcomes_total",
    "What became of a tier's patches.",
    ("tier", "outcome"),
    zeros=zeros(Tier, ("proposed", "failed", "verified", "patched")),
)
ATTEMPT_REFUSALS = Metric(
    "counter",
    "fallback_tier_attempt_refusals_total",
    "Attempts without a patch, and why.",
    ("reason",),
)
#: Buckets from milliseconds to what a memory of thousands with reranking takes.
RAG_PHASE = Metric(
    "histogram",
    "rag_phase_duration_seconds",
    "From the recipe's no to the memory's answer, as the record dates them.",
    ("verdict",),
    zeros=zeros(RetrievalVerdict),
    buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)


class AttemptStarted(StartedOn, Event):
    """One ``FallbackTier.run`` began. It counts against the cap however it ends."""

    kind: Literal["AttemptStarted"] = "AttemptStarted"
    attempt: Attempt
    advisory_id: Structural
    prior_attempt_count: int
    prompt_shape: PromptShape

    def in_words(self) -> str:
        if self.prompt_shape == PromptShape.NONE:
            return f"attempt {self.attempt}: its patch alone is judged again, no tier is asked"
        before = self.prior_attempt_count
        return f"attempt {self.attempt} started{f', {before} failed before it' if before else ''}"

    def moves(self) -> Iterator[Move]:
        yield Move(ATTEMPTS)
        if self.prior_attempt_count:
            yield Move(RETRIES)


class RecipeEvaluated(Event):
    """First attempt, step 1: did a deterministic recipe apply, by which steps (ADR-0016)?"""

    kind: Literal["RecipeEvaluated"] = "RecipeEvaluated"
    attempt: Attempt
    selected: bool
    recipe: Structural | None = None
    reason: Prose | None = None
    steps: tuple[LadderStep, ...] = ()

    def in_words(self) -> str:
        steps = f" ({', '.join(step.label for step in self.steps)})" if self.steps else ""
        verdict = f"selected {self.recipe}{steps}" if self.selected else f"no: {self.reason}"
        return f"recipe: {verdict}"

    def moves(self) -> Iterator[Move]:
        yield Move(RAG_PHASE, action="begin")  # retrieval is the next step of an attempt


class RetrievalQueried(Event):
    """First attempt, step 2: what the memory answered; ``account_sha256``: scores, floors, drops."""

    kind: Literal["RetrievalQueried"] = "RetrievalQueried"
    attempt: Attempt
    verdict: RetrievalVerdict
    example_ids: tuple[Structural, ...] = ()
    reason: Prose
    account_sha256: Digest | None = None

    def in_words(self) -> str:
        examples = ", ".join(self.example_ids) or "no example"
        return f"solved examples: {self.verdict} ({examples}): {self.reason}"

    def moves(self) -> Iterator[Move]:
        yield Move(RAG_PHASE, (self.verdict.value,), action="end")


class ExampleReplayed(Event):
    """An example with the same package and the same code was replayed; no model was asked."""

    kind: Literal["ExampleReplayed"] = "ExampleReplayed"
    attempt: Attempt
    example_id: Structural

    def in_words(self) -> str:
        return f"example {self.example_id} replayed; no model asked"


class RagSkippedOnRetry(Event):
    """Retry as fresh context (ADR-0011): retrieval was not touched, this summary stands instead.

    Durable before the first model request of the attempt: if it can't be appended, nothing is sent.
    """

    kind: Literal["RagSkippedOnRetry"] = "RagSkippedOnRetry"
    BADGE = Badge(tone="fresh", style="cyan")
    attempt: Attempt
    attempt_count: int
    last_failure_kind: FailureKind
    summary_sha256: Digest
    summary_excerpt: Excerpt

    def in_words(self) -> str:
        return (
            f"{PromptShape.RETRY.label}: in place of examples, the summary of the last failure"
            f" ({self.last_failure_kind})"
        )

    def excerpt(self) -> str | None:
        return self.summary_excerpt

    def moves(self) -> Iterator[Move]:
        yield Move(RAG_SKIPPED, (self.last_failure_kind.value,))


class PatchProposed(Event):
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
    #: Edits that matched only if white space was ignored (``path: edit n``).
    loose_edits: tuple[Prose, ...] = ()
    grounded: bool | None = None
    low_confidence: bool = False
    application_sha256: Digest | None = None
    taken_from: Structural | None = None

    def in_words(self) -> str:
        origin = f", made in {self.taken_from}" if self.taken_from else ""
        return (
            f"patch {self.patch_sha256[:12]} by {self.tier}{origin}: {', '.join(self.files)}"
            f"{self._confidence()}"
        )

    def _confidence(self) -> str:
        """Return how far to trust the patch. Only a model's claims can be grounded."""
        parts = [grounded_words(self.grounded)] if self.tier is Tier.LLM else []
        parts += ["LOW CONFIDENCE"] if self.low_confidence else []
        loose = len(self.loose_edits)
        parts += [f"{loose} edits matched only without white space"] if loose else []
        return f" ({', '.join(parts)})" if parts else ""

    def moves(self) -> Iterator[Move]:
        if self.taken_from is None:  # otherwise it was proposed, and counted, before
            yield Move(TIER_OUTCOMES, (self.tier.value, "proposed"))


class AttemptRefused(Event):
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

    def in_words(self) -> str:
        return f"refused ({self.reason}): {self.sentence}"

    def moves(self) -> Iterator[Move]:
        yield Move(ATTEMPT_REFUSALS, (self.reason.value,))


class ConsumerLeft(Event):
    """Whoever drained the stream went away; the resume rule says what a successor does."""

    kind: Literal["ConsumerLeft"] = "ConsumerLeft"
    BADGE = Badge(warns=True)
    attempt: Attempt
    resume_rule: Structural

    def in_words(self) -> str:
        return f"the consumer left. {self.resume_rule}"


def grounded_words(grounded: bool | None) -> str:
    """Return a judge's verdict on a plan as text."""
    return {True: "grounded", False: "NOT grounded", None: "grounding not evaluated"}[grounded]
