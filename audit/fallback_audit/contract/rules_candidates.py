"""Rules of the trace contract over a recipe's candidates: a first attempt still (ADR-0048)."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.rules_ends import judged
from fallback_audit.contract.trail import TERMINALS, Finding, Trail
from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    ExampleReplayed,
    GateJudged,
    ModelCalled,
    PatchProposed,
    RecipeCandidateFailed,
    RetrievalQueried,
)
from fallback_audit.vocabulary import GateStatus, Tier

# The floor can't import fallback_tier.limits; a test holds this equal to it.
MAX_RECIPE_CANDIDATES = 3


@rule(
    "A failed candidate is a recipe's patch of a first attempt, refused by the gates that it names.",
    "ADR-0048",
    breaches=(
        Added(RecipeCandidateFailed),
        Removed(GateJudged),
        Altered(RecipeCandidateFailed, "candidate"),
        Altered(RecipeCandidateFailed, "failing_gates"),
        Altered(RecipeCandidateFailed, "failure_kind"),
        Altered(RecipeCandidateFailed, "patch_sha256"),
    ),
    sees={RecipeCandidateFailed, GateJudged},
)
def recipe_candidates_fail_by_gates(trail: Trail) -> Iterator[Finding]:
    for number, run in enumerate(run for run in trail.runs if run.handed_on):
        failures = run.of(RecipeCandidateFailed)
        for seq, _ in failures[1:]:
            yield seq, "a second candidate failed in one attempt"
        seq, failure = failures[0]
        refused = [verdict for _, verdict in judged(run, GateStatus.FAILED)]
        if set(failure.failing_gates) != {verdict.gate for verdict in refused} or not refused:
            yield seq, "failing_gates are not the gates that failed"
        elif failure.failure_kind not in {verdict.failure_kind for verdict in refused}:
            yield seq, f"no failed gate has the kind {failure.failure_kind}"
        patches = [(patch.tier, patch.patch_sha256) for _, patch in run.of(PatchProposed)]
        if run.is_retry or (Tier.RECIPE, failure.patch_sha256) not in patches:
            yield seq, "it is no recipe's patch of a first attempt"
        if not 1 <= failure.candidate == number + 1 < MAX_RECIPE_CANDIDATES:
            yield seq, f"candidate {failure.candidate}, of at most {MAX_RECIPE_CANDIDATES}"


@rule(
    "After a failed candidate the same first attempt begins again, with the recipe's next one.",
    "ADR-0048",
    breaches=(Altered(AttemptStarted, "attempt"),),
    sees={AttemptStarted, AttemptFailed, GateJudged, *TERMINALS},
    local=True,
)
def recipe_candidates_act(trail: Trail) -> Iterator[Finding]:
    """It still has no prior attempts."""
    for run in trail.runs:
        for seq, _ in run.of(RecipeCandidateFailed):
            follows = run.next_of(seq, GateJudged, AttemptFailed, *TERMINALS)
            if follows is not None:
                yield follows.seq, f"{follows.event.kind} after the candidate had failed"
        if run.handed_on and run.successor is not None:
            seq, start = run.successor.start
            if (start.attempt, start.prior_attempt_count) != (run.attempt, 0):
                yield seq, "the next candidate is not tried as the same first attempt"


@rule(
    "Once a gate has refused a patch, nothing is retrieved in that gate transition.",
    "ADR-0048",
    breaches=(Added(RetrievalQueried), Added(ExampleReplayed), Added(ModelCalled)),
    sees={RetrievalQueried, ExampleReplayed, ModelCalled},
)
def no_retrieval_after_a_failed_gate(trail: Trail) -> Iterator[Finding]:
    """What comes is another candidate of the recipe, or a retry. On a first attempt no model is asked
    then either."""
    failed: int | None = None
    for run in trail.runs:
        if failed is not None:
            asked = (RetrievalQueried, ExampleReplayed, *(() if run.is_retry else (ModelCalled,)))
            for seq, event in run.any_of(*asked):
                yield seq, f"{event.kind} after gates had refused a patch (event {failed})"
        refusals = judged(run, GateStatus.FAILED)
        failed = failed or (refusals[0][0] if refusals else None)
