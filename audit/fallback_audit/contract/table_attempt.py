"""The trace contract on the tier: retries, tiers, attempts. A part of ``contract.table``."""

from typing import get_args

from fallback_audit.contract import rules_attempt as attempt
from fallback_audit.contract.rule import Added, Altered, Removed, Rule
from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import (
    AnswerReused,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    ConsumerLeft,
    ExampleReplayed,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
    RetrieveDecided,
    StrategyDegraded,
)

_KINDS, *_ = get_args(AuditEvent)

#: What says of which attempt it is, and stands in it.
_OF_ATTEMPTS = frozenset(
    kind for kind in get_args(_KINDS) if "attempt" in kind.model_fields and kind not in TERMINALS
)

ATTEMPT_RULES: tuple[Rule, ...] = (
    # --- The retry, as fresh context ---
    Rule(
        "rag-skip-recorded",
        "A retry that asks a model has exactly one RagSkippedOnRetry, before the first request.",
        "ADR-0011",
        attempt.rag_skip_recorded,
        breaches=(
            Removed(RagSkippedOnRetry),
            Added(RagSkippedOnRetry),
        ),
        sees=frozenset({RagSkippedOnRetry, ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "retrieval-untouched-on-retry",
        "A retry has no retrieval, no replay and no recipe.",
        "ADR-0011",
        attempt.retrieval_untouched_on_retry,
        breaches=(
            Added(RetrievalQueried),
            Added(ExampleReplayed),
            Added(RecipeEvaluated),
        ),
        sees=frozenset({RetrievalQueried, ExampleReplayed, RecipeEvaluated}),
        local=True,
    ),
    Rule(
        "skip-counts-priors",
        "RagSkippedOnRetry counts the prior attempts that the attempt started with.",
        "ADR-0011",
        attempt.skip_counts_priors,
        breaches=(Altered(RagSkippedOnRetry, "attempt_count"),),
        sees=frozenset({RagSkippedOnRetry}),
        local=True,
    ),
    Rule(
        "retry-carries-last-failure",
        "In place of the examples stands the summary of the last failed attempt.",
        "ADR-0011",
        attempt.retry_carries_last_failure,
        breaches=(
            Altered(RagSkippedOnRetry, "summary_sha256"),
            Altered(RagSkippedOnRetry, "last_failure_kind"),
        ),
        sees=frozenset({RagSkippedOnRetry}),
    ),
    Rule(
        "history-grows",
        "Each attempt has more prior attempts than the last; a linked transition for attempts has one.",
        "DESIGN §2",
        attempt.history_grows,
        breaches=(
            Altered(AttemptStarted, "prior_attempt_count"),
            Altered(FixStarted, "linked_transition"),
        ),
        sees=frozenset({AttemptStarted, FixStarted}),
    ),
    Rule(
        "attempts-in-order",
        "Attempt numbers increase; only an interrupted attempt is taken up again.",
        "DESIGN §2",
        attempt.attempts_in_order,
        breaches=(Altered(AttemptStarted, "attempt"),),
        sees=frozenset({AttemptStarted}),
        local=True,
    ),
    Rule(
        "retry-cap-holds",
        "A gate transition has one first attempt and at most three retries.",
        "ADR-0014",
        attempt.retry_cap_holds,
        breaches=(Altered(AttemptStarted, "prior_attempt_count"),),
        sees=frozenset({AttemptStarted}),
    ),
    Rule(
        "edits-are-new",
        "No normalised edits are proposed twice in a gate transition, save to declare a capability.",
        "DESIGN §2",
        attempt.edits_are_new,
        breaches=(Altered(PatchProposed, "edit_digest"),),
        sees=frozenset({PatchProposed}),
    ),
    # --- The chain of tiers ---
    Rule(
        "chain-ends-where-it-answers",
        "After a selected recipe or a replayed example no later tier is asked.",
        "ADR-0005",
        attempt.chain_ends_where_it_answers,
        breaches=(
            Added(RetrievalQueried),
            Added(ModelCalled),
            Added(AnswerReused),
        ),
        sees=frozenset({RetrievalQueried, ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "patches-have-a-source",
        "A patch comes from the tier that it names.",
        "ADR-0005",
        attempt.patches_have_a_source,
        breaches=(
            Removed(RecipeEvaluated),
            Removed(ExampleReplayed),
            Removed(ModelAnswered),
            Altered(PatchProposed, "tier"),
        ),
        sees=frozenset({PatchProposed}),
        local=True,
    ),
    Rule(
        "examples-come-from-retrieval",
        "A prompt has only examples that this attempt's retrieval returned, at most four.",
        "DESIGN §2",
        attempt.examples_come_from_retrieval,
        breaches=(
            Removed(RetrievalQueried),
            Altered(ModelCalled, "example_ids"),
            Altered(AnswerReused, "example_ids"),
        ),
        sees=frozenset({ModelCalled, AnswerReused}),
        local=True,
    ),
    Rule(
        "retrieval-means-what-it-says",
        "A miss returned nothing, and only what this attempt's retrieval returned is replayed.",
        "ADR-0019",
        attempt.retrieval_means_what_it_says,
        breaches=(
            Altered(RetrievalQueried, "verdict"),
            Altered(ExampleReplayed, "example_id"),
        ),
        sees=frozenset({RetrievalQueried, ExampleReplayed}),
        local=True,
    ),
    Rule(
        "retrieval-acts",
        "Examples that retrieval returned are replayed, or stand in a prompt, unless self-RAG decides no.",
        "DESIGN §2",
        attempt.retrieval_acts,
        breaches=(Altered(ModelCalled, "example_ids"),),
        sees=frozenset(
            {RetrievalQueried, RetrieveDecided, StrategyDegraded, ModelCalled, AnswerReused}
        ),
        local=True,
    ),
    Rule(
        "prompt-shapes-agree",
        "The prompt shape on record is that of the attempt.",
        "DESIGN §8",
        attempt.prompt_shapes_agree,
        breaches=(
            Altered(AttemptStarted, "prompt_shape"),
            Altered(ModelCalled, "prompt_shape"),
            Altered(AnswerReused, "prompt_shape"),
            Altered(PatchProposed, "prompt_shape"),
            Altered(AttemptRefused, "prompt_shape"),
        ),
        sees=frozenset(
            {FixStarted, AttemptStarted, PatchProposed, AttemptRefused, ModelCalled, AnswerReused}
        ),
        local=True,
    ),
    # --- Attempts ---
    Rule(
        "events-stand-in-their-attempt",
        "An event of an attempt stands between its AttemptStarted and the next.",
        "DESIGN §8",
        attempt.events_stand_in_their_attempt,
        breaches=(
            Removed(AttemptStarted),
            Altered(GateJudged, "attempt"),
        ),
        sees=_OF_ATTEMPTS,
        local=True,
    ),
    Rule(
        "attempts-have-one-outcome",
        "An attempt ends in exactly one of PatchProposed, AttemptRefused, ConsumerLeft.",
        "DESIGN §2",
        attempt.attempts_have_one_outcome,
        breaches=(
            Removed(PatchProposed),
            Removed(AttemptRefused),
            Added(ConsumerLeft),
        ),
        sees=frozenset(
            {
                PatchProposed,
                AttemptRefused,
                ConsumerLeft,
                AttemptStarted,
                FixVerified,
                FixPatched,
                FixRefused,
                FixEscalated,
            }
        ),
        local=True,
    ),
)
