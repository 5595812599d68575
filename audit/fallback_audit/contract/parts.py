"""Rules on the parts of a fix: a recipe's candidates, and the advisories of a batch."""

from collections.abc import Iterator

from fallback_audit.contract.fix import judged
from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Finding, Trail
from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    ExampleReplayed,
    FixRefused,
    FixStarted,
    GateJudged,
    ModelCalled,
    PatchDelivered,
    PatchProposed,
    RecipeCandidateFailed,
    RetrievalQueried,
)
from fallback_audit.vocabulary import PROVING_GATES, GateStatus, RefusalReason, Tier

# --- A recipe's candidates (ADR-0048). -------------------------------------------------------------

# This package can't import fallback_tier.limits; a test keeps this equal to the tier's own.
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
            following = run.next_of(seq, GateJudged, AttemptFailed, *TERMINALS)
            if following is not None:
                yield following.seq, f"{following.event.kind} after the candidate had failed"
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
    refusal_seq: int | None = None
    for run in trail.runs:
        if refusal_seq is not None:
            forbidden = (
                RetrievalQueried,
                ExampleReplayed,
                *(() if run.is_retry else (ModelCalled,)),
            )
            for seq, event in run.any_of(*forbidden):
                yield seq, f"{event.kind} after gates had refused a patch (event {refusal_seq})"
        refusals = judged(run, GateStatus.FAILED)
        refusal_seq = refusal_seq or (refusals[0][0] if refusals else None)


# --- Several advisories (ADR-0051). ----------------------------------------------------------------


@rule(
    "Only several fixes of a batch fail together, in one patch that gates refused or could not prove.",
    "ADR-0051",
    breaches=(
        Removed(AttemptFailed),
        Altered(GateJudged, "status"),
        Altered(FixRefused, "reason"),
        Altered(FixStarted, "batch_sha256"),
        Altered(FixStarted, "advisory_ids"),
    ),
    sees={FixStarted, AttemptFailed, GateJudged, *TERMINALS},
)
def fails_together_is_of_a_batch(trail: Trail) -> Iterator[Finding]:
    for seq, end in trail.of(FixRefused):
        if end.reason is not RefusalReason.FAILS_TOGETHER:
            continue
        starts = trail.of(FixStarted)
        if not any(
            start.event.batch_sha256 and len(start.event.advisory_ids) > 1 for start in starts
        ):
            yield seq, "it is no part of a batch with several advisories"
        before = [entry.event for entry in trail.acts if entry.seq < seq]
        last = before[-1] if before else None
        if not isinstance(last, AttemptFailed) and not _could_not_be_proved(trail, last):
            yield seq, "gates had not refused them in one patch"


def _could_not_be_proved(trail: Trail, last: object) -> bool:
    """Return whether gates judged last, none failed, and one was undecided or no proving gate passed."""
    verdicts = [event for _, event in trail.of(GateJudged)]
    passed = {event.gate for event in verdicts if event.status is GateStatus.PASSED}
    statuses = {event.status for event in verdicts}
    unproved = GateStatus.UNDECIDED in statuses or PROVING_GATES.isdisjoint(passed)
    return isinstance(last, GateJudged) and GateStatus.FAILED not in statuses and unproved


@rule(
    "Only a part of a batch fixes an advisory in part, and names it among those that it is about.",
    "ADR-0051",
    breaches=(
        Altered(FixStarted, "in_part"),
        Altered(FixStarted, "batch_sha256"),
        Altered(PatchDelivered, "in_part"),
    ),
    sees={FixStarted, PatchDelivered},
)
def in_part_is_said_of_a_batch(trail: Trail) -> Iterator[Finding]:
    for seq, start in trail.of(FixStarted):
        if start.in_part and start.batch_sha256 is None:
            yield seq, "an advisory is fixed in part, and this is no part of a batch"
        if foreign := set(start.in_part) - set(start.advisory_ids):
            yield seq, f"fixed in part, and not among its advisories: {min(foreign)}"
    of_batches = [
        entry.event for entry in trail.of(FixStarted) if entry.event.batch_sha256 is not None
    ]
    advisory_ids = {name for start in of_batches for name in start.advisory_ids}
    for seq, delivered in trail.of(PatchDelivered):
        if foreign := set(delivered.in_part) - advisory_ids:
            yield seq, f"delivered as fixed in part, and of no batch's advisories: {min(foreign)}"
