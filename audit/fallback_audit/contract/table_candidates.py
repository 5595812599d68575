"""The trace contract on a recipe's candidates. A part of ``contract.table``."""

from fallback_audit.contract import rules_candidates as candidates
from fallback_audit.contract.rule import Added, Altered, Removed, Rule
from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    ExampleReplayed,
    GateJudged,
    ModelCalled,
    RecipeCandidateFailed,
    RetrievalQueried,
)

CANDIDATE_RULES: tuple[Rule, ...] = (
    Rule(
        "recipe-candidates-fail-by-gates",
        "A failed candidate is a recipe's patch of a first attempt, refused by the gates that it names.",
        "ADR-0048",
        candidates.candidates_fail_by_gates,
        breaches=(
            Added(RecipeCandidateFailed),
            Removed(GateJudged),
            Altered(RecipeCandidateFailed, "candidate"),
            Altered(RecipeCandidateFailed, "failing_gates"),
            Altered(RecipeCandidateFailed, "failure_kind"),
            Altered(RecipeCandidateFailed, "patch_sha256"),
        ),
        sees=frozenset({RecipeCandidateFailed, GateJudged}),
    ),
    Rule(
        "recipe-candidates-act",
        "After a failed candidate the same first attempt begins again, with the recipe's next one.",
        "ADR-0048",
        candidates.candidates_act,
        breaches=(Altered(AttemptStarted, "attempt"),),
        sees=frozenset({AttemptStarted, AttemptFailed, GateJudged, *TERMINALS}),
        local=True,
    ),
    Rule(
        "no-retrieval-after-a-failed-gate",
        "Once a gate has refused a patch, nothing is retrieved in that gate transition.",
        "ADR-0048",
        candidates.no_retrieval_after_a_failed_gate,
        breaches=(Added(RetrievalQueried), Added(ExampleReplayed), Added(ModelCalled)),
        sees=frozenset({RetrievalQueried, ExampleReplayed, ModelCalled}),
    ),
)
