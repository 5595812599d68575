"""Mutants for the rules on interruptions, people's answers and deliveries."""

from collections.abc import Callable

from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    FixEscalated,
    FixResumed,
    FixStarted,
    FixVerified,
    GateJudged,
    PatchDelivered,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.vocabulary import EscalationReason, GateStatus, ProofLevel, ReviewVerdict, Tier
from tests.unit.audit import human_trails as h
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.altered import before, changed, swapped, without
from tests.unit.audit.trails import Events, digest

HUMAN_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "verified-ran-its-gates": [
        lambda: changed(h.verified_and_delivered(), FixStarted, gates=(*h.GATES, "build")),
        lambda: changed(h.verified_and_delivered(), FixStarted, gates=h.GATES[:-1]),
        lambda: changed(h.verified_and_delivered(), FixStarted, gates=h.GATES[::-1]),
        lambda: changed(h.verified_and_delivered(), FixStarted, gates=()),
        lambda: without(h.resumed_between_gates(), GateJudged, attempt=2),
    ],
    "resumes-are-of-open-fixes": [
        lambda: [*t.recipe_verified(), h.resumed("FixVerified")],
        lambda: [*h.cap_then_rejected(), h.resumed("ReviewDecided")],
        lambda: [*m.stopped_at_budget(), h.resumed("FixEscalated"), m.raised()],
        lambda: changed(h.resumed_between_gates(), FixResumed, after="AttemptStarted"),
        lambda: before(t.foreign_orchestrator(), AttemptStarted, h.resumed("PatchProposed")),
    ],
    "reviews-are-signed": [
        lambda: changed(h.cap_then_approved(), ReviewDecided, by=" "),
        lambda: changed(h.cap_then_rejected(), ReviewDecided, reason=""),
        lambda: changed(h.cap_then_reopened(), TransitionReopened, by=""),
        lambda: changed(h.cap_then_reopened(), TransitionReopened, reason="\n"),
        lambda: [*t.recipe_verified(), h.approved(1)],
        lambda: [*t.not_affected(), h.reopened()],
        lambda: before(t.cap_reached(), FixEscalated, h.rejected()),
        lambda: [*m.stopped_at_budget(), h.approved(1)],
        lambda: [*m.stopped_at_budget(), h.reopened()],
        lambda: [*h.budget_then_rejected(), h.rejected()],
        lambda: [*m.stopped_at_budget(), m.raised(), h.rejected()],
        lambda: [*h.cap_then_rejected(), h.approved(4)],
        lambda: [*h.cap_then_approved(), h.reopened()],
        lambda: [*h.cap_then_rejected(), h.reopened()],
        lambda: [*h.cap_then_reopened(), h.approved(4)],
        lambda: [*h.cap_then_reopened(), h.reopened("transition-3")],
    ],
    "approvals-name-a-patch": [
        lambda: changed(h.cap_then_approved(), ReviewDecided, patch_sha256=digest("another")),
        lambda: changed(h.cap_then_approved(), ReviewDecided, patch_sha256=None),
        lambda: changed(h.cap_then_approved(), ReviewDecided, verdict=ReviewVerdict.REJECTED),
        lambda: changed(h.cap_then_rejected(), ReviewDecided, verdict=ReviewVerdict.APPROVED),
    ],
    "reopens-carry-a-failure": [
        lambda: [*h.unproved_then_approved()[:-1], h.reopened()],
        lambda: [*t.infrastructure_failed(), h.reopened()],
        lambda: without(h.cap_then_reopened(), AttemptFailed),
        lambda: changed(
            h.unavailable_then_reopened(), FixEscalated, reason=EscalationReason.NOTHING_PROVED
        ),
    ],
    "deliveries-are-earned": [
        lambda: changed(h.verified_and_delivered(), PatchDelivered, patch_sha256=digest("other")),
        lambda: changed(h.cap_then_approved(), PatchDelivered, patch_sha256=digest("patch 3")),
        lambda: without(h.cap_then_approved(), ReviewDecided),
        lambda: [*h.cap_then_rejected(), h.delivered(4)],
        lambda: swapped(h.cap_then_approved(), ReviewDecided, PatchDelivered),
        lambda: before(h.verified_and_delivered(), FixVerified, h.delivered(1)),
    ],
}

#: More mutants for rules whose first ones are elsewhere.
HUMAN_ALSO: dict[str, list[Callable[[], Events]]] = {
    "one-terminal-event": [
        lambda: [*h.cap_then_approved(), t.verified(4)],
        lambda: [*h.cap_then_reopened(), *t.retry(5)],
        lambda: [*h.cap_then_rejected(), m.raised()],
        lambda: [*h.budget_then_rejected(), m.raised()],
    ],
    "gates-judge-proposals": [
        lambda: changed(h.flaky_and_verified(), GateJudged, flaky=("test_clock",)),
        lambda: before(h.resumed_between_gates(), FixResumed, t.judged(1, "applies"), which=2),
    ],
    "failed-attempts-act": [
        lambda: [
            h.planned(),
            *t.first_by_recipe(),
            *t.failing_gates(1, tier=Tier.RECIPE),
            h.resumed("AttemptFailed"),
            t.judged(1, "proof", GateStatus.SKIPPED),
        ],
    ],
    "verified-is-proved": [
        lambda: changed(h.flaky_and_verified(), FixVerified, proof_level=ProofLevel.RESOLVED_TREE),
        lambda: changed(
            changed(t.recipe_verified(), GateJudged, 1, status=GateStatus.SKIPPED),
            FixVerified,
            gates_passed=("applies",),
            gates_skipped=("tests", "proof"),
        ),
    ],
    "budget-raises-are-signed": [
        lambda: changed(
            h.resumed_after_raise(), FixEscalated, reason=EscalationReason.NOTHING_PROVED
        ),
    ],
    "budget-raises-reopen": [
        lambda: [
            *m.stopped_at_budget(),
            m.raised(),
            h.resumed("BudgetRaised"),
            *m.exchange(2),
        ],
    ],
}
