"""Valid trails of a recipe with several candidates, and mutants of their rules."""

from collections.abc import Callable

from fallback_audit.events import AttemptStarted, AuditEvent, GateJudged, RecipeCandidateFailed
from fallback_audit.vocabulary import (
    EscalationReason,
    FailureKind,
    GateStatus,
    LadderStep,
    RefusalReason,
    Tier,
)
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events, before, changed, digest, without


def failed(candidate: int) -> AuditEvent:
    """The gates refused it, and there is another."""
    return RecipeCandidateFailed(
        attempt=1,
        candidate=candidate,
        failure_kind=FailureKind.TESTS_FAILED,
        failing_gates=("tests",),
        patch_sha256=digest(f"patch of candidate {candidate}"),
        left_out=(LadderStep.PARENT_BUMP, LadderStep.OVERRIDE)[:candidate],
    )


def candidate(number: int) -> Events:
    """One of a recipe's patches, as a first attempt."""
    proposed = t.proposed(1, Tier.RECIPE).model_copy(
        update={
            "patch_sha256": digest(f"patch of candidate {number}"),
            "edit_digest": digest(f"edits of candidate {number}"),
        }
    )
    return [t.started(1, 0), t.recipe(selected=True), proposed]


def refused(number: int) -> Events:
    """… with its verdicts."""
    return [*candidate(number), t.judged(1, "applies"), t.judged(1, "tests", GateStatus.FAILED)]


def second_candidate_verified() -> Events:
    end = t.verified(1, Tier.RECIPE)
    end = end.model_copy(update={"patch_sha256": digest("patch of candidate 2")})
    gates = t.passing_gates(1)
    return [t.fix_started(), *refused(1), failed(1), *candidate(2), *gates, end]


def all_candidates_failed() -> Events:
    """The last one's failure is the only prior attempt."""
    edits = {"edit_digest": digest("edits of candidate 3")}
    last = t.failed(1, "tests", tier=Tier.RECIPE).model_copy(update=edits)
    none = t.refused(2, RefusalReason.MODEL_REFUSED)
    ask = t.escalated(2, EscalationReason.RETRY_REFUSED)
    retry = [t.started(2, 1), t.skipped(2, 1), t.called(2), t.unanswered(2), none, ask]
    before_it = [*refused(1), failed(1), *refused(2), failed(2)]
    return [t.fix_started(), *before_it, *refused(3), last, *retry]


CANDIDATE_VALID = (second_candidate_verified, all_candidates_failed)

CANDIDATE_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "recipe-candidates-fail-by-gates": [
        lambda: without(second_candidate_verified(), GateJudged),
        lambda: changed(
            second_candidate_verified(), RecipeCandidateFailed, failing_gates=("applies",)
        ),
        lambda: changed(
            second_candidate_verified(),
            RecipeCandidateFailed,
            failure_kind=FailureKind.BUILD_FAILED,
        ),
        lambda: changed(
            second_candidate_verified(), RecipeCandidateFailed, patch_sha256=digest("x")
        ),
        lambda: changed(second_candidate_verified(), RecipeCandidateFailed, candidate=2),
        lambda: before(second_candidate_verified(), RecipeCandidateFailed, failed(1)),
        lambda: [t.fix_started(), *t.first_by_model(), *refused(1)[3:], failed(1)],
    ],
    "recipe-candidates-act": [
        lambda: [t.fix_started(), *refused(1), failed(1), *t.retry(2)],
        lambda: [t.fix_started(), *refused(1), failed(1), t.failed(1, "tests", tier=Tier.RECIPE)],
        lambda: [
            t.fix_started(),
            *refused(1),
            failed(1),
            t.escalated(1, EscalationReason.NOTHING_PROVED),
        ],
        lambda: changed(second_candidate_verified(), AttemptStarted, prior_attempt_count=1),
    ],
    "no-retrieval-after-a-failed-gate": [
        lambda: [
            t.fix_started(),
            *refused(1),
            failed(1),
            t.started(1, 0),
            t.recipe(selected=False),
            t.retrieved("e1"),
        ],
        lambda: [
            t.fix_started(),
            *refused(1),
            failed(1),
            t.started(1, 0),
            t.recipe(selected=False),
            t.called(1),
        ],
        lambda: [
            *all_candidates_failed()[:-4],
            t.retrieved("e1"),
            *all_candidates_failed()[-4:],
        ],
    ],
}
