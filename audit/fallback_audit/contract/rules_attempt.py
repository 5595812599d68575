"""Rules of the trace contract on one attempt: its prompt, its events, its outcome."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Finding, Trail
from fallback_audit.events import (
    KINDS,
    AnswerReused,
    AttemptRefused,
    AttemptStarted,
    ConsumerLeft,
    FixStarted,
    GateJudged,
    ModelCalled,
    PatchProposed,
)
from fallback_audit.vocabulary import (
    PromptShape,
    Tier,
)

#: What says of which attempt it is, and stands inside it.
_NUMBERED = frozenset(
    kind for kind in KINDS if "attempt" in kind.model_fields and kind not in TERMINALS
)


@rule(
    "The prompt shape on record is that of the attempt.",
    "ADR-0011",
    breaches=(
        Altered(AttemptStarted, "prompt_shape"),
        Altered(ModelCalled, "prompt_shape"),
        Altered(AnswerReused, "prompt_shape"),
        Altered(PatchProposed, "prompt_shape"),
        Altered(AttemptRefused, "prompt_shape"),
    ),
    sees={FixStarted, AttemptStarted, PatchProposed, AttemptRefused, ModelCalled, AnswerReused},
    local=True,
)
def prompt_shapes_agree(trail: Trail) -> Iterator[Finding]:
    """Initial on a first attempt, retry on a retry, none where no model was asked or is to be."""
    again = trail.judges_again is not None
    for run in trail.runs:
        shape = PromptShape.asked(retry=run.is_retry)
        shape = PromptShape.NONE if again else shape
        asked = shape if run.asked else PromptShape.NONE
        for seq, event in run.any_of(
            AttemptStarted, ModelCalled, AnswerReused, PatchProposed, AttemptRefused
        ):
            if type(event) is AttemptRefused:
                expected = asked
            elif type(event) is PatchProposed:
                if again:  # that of its making
                    continue
                expected = shape if event.tier is Tier.LLM else PromptShape.NONE
            else:
                expected = shape
            if event.prompt_shape is not expected:  # type: ignore[attr-defined]
                yield seq, f"{event.kind} does not have the prompt shape {expected}"


@rule(
    "An event of an attempt is recorded between its AttemptStarted and the next.",
    "ADR-0070",
    breaches=(
        Removed(AttemptStarted),
        Altered(GateJudged, "attempt"),
    ),
    sees=_NUMBERED,
    local=True,
)
def events_stand_in_their_attempt(trail: Trail) -> Iterator[Finding]:
    for seq, event in trail.preamble:
        if type(event) in _NUMBERED:
            yield seq, f"{event.kind} before any AttemptStarted"
    for run in trail.runs:
        number = run.attempt
        for seq, event in run.entries:
            if type(event) in _NUMBERED and event.attempt != number:  # type: ignore[attr-defined]
                yield seq, (f"{event.kind} of attempt {event.attempt} stands in attempt {number}")  # type: ignore[attr-defined]


@rule(
    "An attempt ends in exactly one of PatchProposed, AttemptRefused, ConsumerLeft.",
    "ADR-0070",
    breaches=(
        Removed(PatchProposed),
        Removed(AttemptRefused),
        Added(ConsumerLeft),
    ),
    sees={PatchProposed, AttemptRefused, ConsumerLeft, AttemptStarted, *TERMINALS},
    local=True,
)
def attempts_have_one_outcome(trail: Trail) -> Iterator[Finding]:
    """A crash has none: its attempt is resumed."""
    for run in trail.runs:
        outcomes = run.any_of(PatchProposed, AttemptRefused, ConsumerLeft)
        for seq, event in outcomes[1:]:
            yield seq, f"{event.kind} is a second outcome of attempt {run.attempt}"
        if not outcomes and run.went_on and not run.resumed:
            yield run.start.seq, f"attempt {run.attempt} has no outcome, and the fix went on"
