"""Valid trails in which gates alone are run again, on a patch made in another gate transition; mutants."""

from collections.abc import Callable

from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    AuditEvent,
    FixEscalated,
    FixResumed,
    FixStarted,
    GateJudged,
    PatchProposed,
)
from fallback_audit.vocabulary import EscalationReason, PromptShape, Tier
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events, before, changed, digest, without

GATES = ("applies", "tests", "proof")

#: The transition that made the patch, in trails that show the further one alone.
MAKER = "transition-0"


def begun(attempt: int = 4, maker: str = MAKER) -> AuditEvent:
    more = {"gates": GATES, "inputs_sha256": digest("inputs")}
    return t.fix_started(maker).model_copy(
        update={**more, "judges_again": digest(f"patch {attempt}")}
    )


def resumed(after: str) -> AuditEvent:
    return FixResumed(after=after, tool_version="0.1.0")


def started(attempt: int = 4) -> AuditEvent:
    return t.started(attempt, 0).model_copy(update={"prompt_shape": PromptShape.NONE})


def taken(attempt: int = 4, maker: str = MAKER, tier: Tier = Tier.LLM) -> AuditEvent:
    return t.proposed(attempt, tier).model_copy(update={"taken_from": maker})


def up_to_its_patch(attempt: int = 4, maker: str = MAKER, tier: Tier = Tier.LLM) -> Events:
    return [begun(attempt, maker), started(attempt), taken(attempt, maker, tier)]


def gates_passed_again() -> Events:
    return [*up_to_its_patch(), *t.passing_gates(4), t.verified(4)]


def gates_failed_again() -> Events:
    end = t.escalated(4, EscalationReason.GATES_FAILED_AGAIN)
    return [*up_to_its_patch(), *t.failing_gates(4), end]


def gates_not_run_again() -> Events:
    end = t.escalated(4, EscalationReason.GATE_INFRASTRUCTURE)
    return [*up_to_its_patch(), t.judged(4, "applies"), end]


def gates_interrupted_again() -> Events:
    """Killed before the patch was on record, and between two gates."""
    begin, start, patch = up_to_its_patch()
    applies, *others = t.passing_gates(4)
    return [
        begin,
        start,
        resumed("AttemptStarted"),
        start,
        patch,
        applies,
        resumed("GateJudged"),
        *others,
        t.verified(4),
    ]


AGAIN_VALID = (gates_passed_again, gates_failed_again, gates_not_run_again, gates_interrupted_again)

AGAIN_MUTANTS: dict[str, list[Callable[[], Events]]] = {
    "gates-again-make-nothing": [
        # A model is asked, or anything else that makes a patch.
        lambda: before(gates_passed_again(), PatchProposed, *_asked()),
        lambda: before(
            gates_passed_again(),
            PatchProposed,
            t.recipe(selected=False).model_copy(update={"attempt": 4}),
        ),
        lambda: before(
            gates_passed_again(),
            PatchProposed,
            t.retrieved().model_copy(update={"attempt": 4}),
        ),
        # Another patch than the one named, or one that is made here.
        lambda: changed(gates_failed_again(), PatchProposed, patch_sha256=digest("patch 3")),
        lambda: changed(gates_passed_again(), PatchProposed, taken_from=None),
        lambda: changed(gates_passed_again(), FixStarted, judges_again=digest("patch 3")),
        lambda: changed(t.recipe_verified(), PatchProposed, taken_from=MAKER),
        # It is tried again, or its failure is none.
        lambda: [*gates_failed_again()[:-1], *t.retry(5, 1)],
        lambda: changed(t.cap_reached(), FixEscalated, reason=EscalationReason.GATES_FAILED_AGAIN),
        lambda: changed(
            gates_not_run_again(), FixEscalated, reason=EscalationReason.GATES_FAILED_AGAIN
        ),
    ],
}

AGAIN_ALSO: dict[str, list[Callable[[], Events]]] = {
    "prompt-shapes-agree": [
        lambda: changed(gates_passed_again(), AttemptStarted, prompt_shape=PromptShape.INITIAL)
    ],
    "failed-gates-act": [lambda: without(gates_failed_again(), AttemptFailed)],
    "verified-is-proved": [lambda: without(gates_passed_again(), GateJudged)],
}


def _asked() -> Events:
    call = t.called(4).model_copy(update={"prompt_shape": PromptShape.NONE})
    return [call, t.answered(4)]
