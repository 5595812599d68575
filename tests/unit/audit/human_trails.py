"""Valid trails with interruptions, people's answers and deliveries: the material of more mutants."""

from collections.abc import Callable

from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    AuditEvent,
    FixAbandoned,
    FixEscalated,
    FixResumed,
    FixStarted,
    FixVerified,
    GateJudged,
    PatchDelivered,
    ReviewDecided,
    SandboxDisabled,
    TransitionReopened,
)
from fallback_audit.vocabulary import (
    DeliveryPlace,
    EscalationReason,
    GateStatus,
    ProofLevel,
    RefusalReason,
    ReviewVerdict,
    Tier,
)
from tests.unit.audit import model_trails as m
from tests.unit.audit import trails as t
from tests.unit.audit.again_trails import AGAIN_VALID, GATES, resumed
from tests.unit.audit.batch_trails import BATCH_VALID
from tests.unit.audit.candidate_trails import CANDIDATE_VALID
from tests.unit.audit.proof_trails import PROOF_VALID
from tests.unit.audit.trails import Events, before, changed, digest, swapped, without


def planned(linked: str | None = None) -> AuditEvent:
    started = t.fix_started(linked)
    return started.model_copy(update={"gates": GATES, "inputs_sha256": digest("inputs")})


def with_gates(events: Events) -> Events:
    """As schema version 5 writes it: the fix says by which gates it will judge."""
    more = {"gates": GATES, "inputs_sha256": digest("inputs")}
    return [e.model_copy(update=more) if isinstance(e, FixStarted) else e for e in events]


def approved(attempt: int) -> AuditEvent:
    return ReviewDecided(
        verdict=ReviewVerdict.APPROVED,
        by="A. Person",
        reason="read it line by line",
        patch_sha256=digest(f"patch {attempt}"),
    )


def rejected() -> AuditEvent:
    return ReviewDecided(verdict=ReviewVerdict.REJECTED, by="A. Person", reason="not worth it")


def reopened(opens: str = "transition-2", *, again: int | None = None) -> AuditEvent:
    """``again``: the attempt whose patch alone is put to the gates again."""
    patch = None if again is None else digest(f"patch {again}")
    why = "the test was wrong"
    return TransitionReopened(by="A. Person", reason=why, opens=opens, judges_again=patch)


def abandoned() -> AuditEvent:
    return FixAbandoned(by="A. Person", reason="the project is archived")


def delivered(attempt: int, place: DeliveryPlace = DeliveryPlace.WORKING_TREE) -> AuditEvent:
    reference = "fix/GHSA at c0ffee" if place is DeliveryPlace.BRANCH else None
    return PatchDelivered(patch_sha256=digest(f"patch {attempt}"), place=place, reference=reference)


def verified_and_delivered() -> Events:
    branch = delivered(1, DeliveryPlace.BRANCH)
    return [*with_gates(t.recipe_verified()), delivered(1), branch]


def flaky_and_verified() -> Events:
    """A test fails now and then, at the base commit too: it says nothing of the patch."""
    flaky = t.judged(1, "tests").model_copy(
        update={"flaky": ("test_clock",), "proof_level": ProofLevel.SOURCE}
    )
    gates = [t.judged(1, "applies"), flaky, t.judged(1, "proof", GateStatus.SKIPPED)]
    proved = t.verified(1, Tier.RECIPE).model_copy(update={"proof_level": ProofLevel.SOURCE})
    return [planned(), *t.first_by_recipe(), *gates, proved]


def resumed_between_gates() -> Events:
    """Killed after each verdict, and while the model worked on the retry."""
    return [
        planned(),
        resumed("FixStarted"),
        *t.first_by_recipe(),
        resumed("PatchProposed"),
        t.judged(1, "applies"),
        resumed("GateJudged"),
        SandboxDisabled(reason="a person said so"),
        *t.failing_gates(1, tier=Tier.RECIPE)[1:],
        resumed("AttemptFailed"),
        SandboxDisabled(reason="a person said so"),
        *t.retry(2)[:3],
        resumed("ModelCalled"),
        SandboxDisabled(reason="a person said so"),
        *t.retry(2),
        *t.passing_gates(2),
        resumed("GateJudged"),
        t.verified(2),
    ]


def resumed_after_raise() -> Events:
    stopped = with_gates(m.stopped_at_budget())
    return [*stopped, m.raised(), resumed("BudgetRaised"), *m.resumed_later()]


def resumed_while_refused() -> Events:
    """The process died between the attempt's outcome and what follows of it."""
    return [
        planned(),
        *t.not_affected()[1:-1],
        resumed("AttemptRefused"),
        t.not_affected()[-1],
    ]


def cap_then_approved() -> Events:
    return [*t.cap_reached(), approved(4), delivered(4)]


def cap_then_rejected() -> Events:
    return [*t.cap_reached(), rejected()]


def cap_then_reopened() -> Events:
    return [*with_gates(t.cap_reached()), reopened()]


def cap_then_gates_again() -> Events:
    return [*with_gates(t.cap_reached()), reopened(again=4)]


def unproved_then_gates_again() -> Events:
    """No attempt has failed, and the gates alone need none that did."""
    return [*with_gates(unproved_then_approved()[:-1]), reopened(again=1)]


def reopened_twice() -> Events:
    """A transition that was opened for another one ends without an attempt of its own that failed."""
    refused = t.refused(5, RefusalReason.MODEL_UNAVAILABLE)
    return [
        planned("transition-0"),
        t.started(5, 1),
        t.skipped(5, 1),
        t.called(5),
        t.unanswered(5),
        refused,
        t.escalated(5, EscalationReason.MODEL_UNAVAILABLE),
        reopened(),
    ]


def unavailable_then_reopened() -> Events:
    """No attempt was made, so that the next gate transition starts with a first attempt."""
    return [*with_gates(t.model_unavailable()), reopened()]


def budget_then_rejected() -> Events:
    return [*m.stopped_at_budget(), rejected()]


def unproved_then_approved() -> Events:
    question = t.escalated(1, EscalationReason.NOTHING_PROVED)
    gates = [t.judged(1, "applies"), t.judged(1, "tests", GateStatus.SKIPPED)]
    return [t.fix_started(), *t.first_by_recipe(), *gates, question, approved(1)]


def abandoned_at_once() -> Events:
    return [planned(), abandoned()]


def abandoned_between_gates() -> Events:
    """A verdict is on record that nothing follows: no rule about steps takes that for a step left out."""
    return [*resumed_between_gates()[:9], abandoned()]


def abandoned_while_asked() -> Events:
    """The answer of a call that was paid for has not come."""
    return [planned(), *t.first_by_model()[:3], abandoned()]


def abandoned_after_raise() -> Events:
    return [*with_gates(m.stopped_at_budget()), m.raised(), abandoned()]


def abandoned_when_reopened() -> Events:
    return [*cap_then_reopened(), abandoned()]


HUMAN_VALID = (
    verified_and_delivered,
    flaky_and_verified,
    resumed_between_gates,
    resumed_after_raise,
    resumed_while_refused,
    cap_then_approved,
    cap_then_rejected,
    cap_then_reopened,
    cap_then_gates_again,
    unproved_then_gates_again,
    reopened_twice,
    unavailable_then_reopened,
    budget_then_rejected,
    unproved_then_approved,
    abandoned_at_once,
    abandoned_between_gates,
    abandoned_while_asked,
    abandoned_after_raise,
    abandoned_when_reopened,
)

#: Every valid trail.
VALID = (*m.VALID, *HUMAN_VALID, *PROOF_VALID, *AGAIN_VALID, *CANDIDATE_VALID, *BATCH_VALID)


HUMAN_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "verified-ran-its-gates": [
        lambda: changed(verified_and_delivered(), FixStarted, gates=(*GATES, "build")),
        lambda: changed(verified_and_delivered(), FixStarted, gates=GATES[:-1]),
        lambda: changed(verified_and_delivered(), FixStarted, gates=GATES[::-1]),
        lambda: changed(verified_and_delivered(), FixStarted, gates=()),
        lambda: without(resumed_between_gates(), GateJudged, attempt=2),
    ],
    "resumes-are-of-open-fixes": [
        lambda: [*t.recipe_verified(), resumed("FixVerified")],
        lambda: [*cap_then_rejected(), resumed("ReviewDecided")],
        lambda: [*m.stopped_at_budget(), resumed("FixEscalated"), m.raised()],
        lambda: changed(resumed_between_gates(), FixResumed, after="AttemptStarted"),
        lambda: before(t.foreign_orchestrator(), AttemptStarted, resumed("PatchProposed")),
    ],
    "abandonments-end-a-fix": [
        lambda: changed(abandoned_at_once(), FixAbandoned, by=" "),
        lambda: changed(abandoned_while_asked(), FixAbandoned, reason=""),
        lambda: [*abandoned_at_once(), abandoned()],
        lambda: [*t.recipe_verified(), abandoned()],
        lambda: [*with_gates(t.cap_reached()), abandoned()],
        lambda: [*cap_then_rejected(), abandoned()],
        lambda: [*m.stopped_at_budget(), abandoned()],
        lambda: [*t.foreign_orchestrator()[:-1], abandoned()],
        lambda: [*abandoned_at_once(), resumed("FixStarted")],
        lambda: [*abandoned_at_once(), *t.first_by_recipe()],
        lambda: [*with_gates(t.recipe_verified())[:-1], abandoned(), t.verified(1, Tier.RECIPE)],
        lambda: before(abandoned_when_reopened(), TransitionReopened, abandoned()),
    ],
    "reviews-are-signed": [
        lambda: changed(cap_then_approved(), ReviewDecided, by=" "),
        lambda: changed(cap_then_rejected(), ReviewDecided, reason=""),
        lambda: changed(cap_then_reopened(), TransitionReopened, by=""),
        lambda: changed(cap_then_reopened(), TransitionReopened, reason="\n"),
        lambda: [*t.recipe_verified(), approved(1)],
        lambda: [*t.not_affected(), reopened()],
        lambda: before(t.cap_reached(), FixEscalated, rejected()),
        lambda: [*m.stopped_at_budget(), approved(1)],
        lambda: [*m.stopped_at_budget(), reopened()],
        lambda: [*budget_then_rejected(), rejected()],
        lambda: [*m.stopped_at_budget(), m.raised(), rejected()],
        lambda: [*cap_then_rejected(), approved(4)],
        lambda: [*cap_then_approved(), reopened()],
        lambda: [*cap_then_rejected(), reopened()],
        lambda: [*cap_then_reopened(), approved(4)],
        lambda: [*cap_then_reopened(), reopened("transition-3")],
    ],
    "approvals-name-a-patch": [
        lambda: changed(cap_then_approved(), ReviewDecided, patch_sha256=digest("another")),
        lambda: changed(cap_then_approved(), ReviewDecided, patch_sha256=None),
        lambda: changed(cap_then_approved(), ReviewDecided, verdict=ReviewVerdict.REJECTED),
        lambda: changed(cap_then_rejected(), ReviewDecided, verdict=ReviewVerdict.APPROVED),
    ],
    "reopens-carry-a-failure": [
        lambda: [*unproved_then_approved()[:-1], reopened()],
        lambda: [*t.infrastructure_failed(), reopened()],
        lambda: without(cap_then_reopened(), AttemptFailed),
        lambda: changed(
            unavailable_then_reopened(), FixEscalated, reason=EscalationReason.NOTHING_PROVED
        ),
    ],
    "deliveries-are-earned": [
        lambda: changed(verified_and_delivered(), PatchDelivered, patch_sha256=digest("other")),
        lambda: changed(cap_then_approved(), PatchDelivered, patch_sha256=digest("patch 3")),
        lambda: without(cap_then_approved(), ReviewDecided),
        lambda: [*cap_then_rejected(), delivered(4)],
        lambda: swapped(cap_then_approved(), ReviewDecided, PatchDelivered),
        lambda: before(verified_and_delivered(), FixVerified, delivered(1)),
    ],
}

#: More mutants for rules whose first ones are elsewhere.
HUMAN_ALSO: dict[str, list[Callable[[], Events]]] = {
    "one-terminal-event": [
        lambda: [*cap_then_approved(), t.verified(4)],
        lambda: [*cap_then_reopened(), *t.retry(5)],
        lambda: [*cap_then_rejected(), m.raised()],
        lambda: [*budget_then_rejected(), m.raised()],
    ],
    "gates-judge-proposals": [
        lambda: changed(flaky_and_verified(), GateJudged, flaky=("test_clock",)),
        lambda: before(resumed_between_gates(), FixResumed, t.judged(1, "applies"), which=2),
    ],
    "failed-attempts-act": [
        lambda: [
            planned(),
            *t.first_by_recipe(),
            *t.failing_gates(1, tier=Tier.RECIPE),
            resumed("AttemptFailed"),
            t.judged(1, "proof", GateStatus.SKIPPED),
        ],
    ],
    "verified-is-proved": [
        lambda: changed(flaky_and_verified(), FixVerified, proof_level=ProofLevel.RESOLVED_TREE),
        lambda: changed(
            changed(t.recipe_verified(), GateJudged, 1, status=GateStatus.SKIPPED),
            FixVerified,
            gates_passed=("applies",),
            gates_skipped=("tests", "proof"),
        ),
    ],
    "budget-raises-are-signed": [
        lambda: changed(
            resumed_after_raise(), FixEscalated, reason=EscalationReason.NOTHING_PROVED
        ),
    ],
    "budget-raises-reopen": [
        lambda: [
            *m.stopped_at_budget(),
            m.raised(),
            resumed("BudgetRaised"),
            *m.exchange(2),
        ],
    ],
}
