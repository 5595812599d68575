"""The trace contract on gates that are run again. A part of ``contract.table``."""

from fallback_audit.contract import rules_again as again
from fallback_audit.contract.rule import Added, Altered, FixRule, Rule
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptStarted,
    ExampleReplayed,
    FixEscalated,
    FixStarted,
    ModelCalled,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
    TransitionReopened,
)

GATES_AGAIN_MAKE_NOTHING = Rule(
    "gates-again-make-nothing",
    "Where gates alone are run again, they judge the named patch: nothing is asked, made or retried.",
    "ADR-0042",
    again.gates_again_make_nothing,
    breaches=(
        Added(ModelCalled),
        Added(AnswerReused),
        Added(RetrievalQueried),
        Added(ExampleReplayed),
        Added(RecipeEvaluated),
        Added(RagSkippedOnRetry),
        Added(AttemptStarted),
        Altered(FixStarted, "judges_again"),
        Altered(PatchProposed, "patch_sha256"),
        Altered(PatchProposed, "taken_from"),
        Altered(FixEscalated, "reason"),
    ),
    sees=frozenset(
        {*again.MAKING, AttemptFailed, AttemptStarted, FixEscalated, FixStarted, PatchProposed}
    ),
)

GATES_AGAIN_ARE_OF_RECORD = FixRule(
    "gates-again-are-of-record",
    "Gates are run again on the patch that a person named, as it was proposed, on its base commit.",
    "ADR-0042",
    again.gates_again_are_of_record,
    breaches=(
        Altered(TransitionReopened, "judges_again"),
        Altered(FixStarted, "judges_again"),
        Altered(FixStarted, "base_commit"),
        Altered(PatchProposed, "patch_sha256"),
        Altered(PatchProposed, "taken_from"),
        Altered(PatchProposed, "low_confidence"),
    ),
    sees=frozenset({FixStarted, PatchProposed, TransitionReopened}),
)
