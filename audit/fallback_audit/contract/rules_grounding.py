"""Rules of the trace contract over support: a doubted plan is written anew, or handed on flagged."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Kind, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Asked, Finding, Run, Trail
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    GateJudged,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    MoreCodeShown,
    PatchProposed,
    PlanRejected,
    RepeatedPatchRejected,
)
from fallback_audit.vocabulary import CallType, Tier

#: What takes the draft in hand away.
_NO_DRAFT = frozenset({PlanRejected, RepeatedPatchRejected, MoreCodeShown})

_ABOUT_A_DRAFT = (
    ModelAnswered,
    AnswerReused,
    PlanRejected,
    RepeatedPatchRejected,
    MoreCodeShown,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    PatchProposed,
)


@rule(
    "A model's patch has the verdict on its answer, or the reason why there is none.",
    "ADR-0022",
    breaches=(
        Removed(GroundingJudged),
        Removed(GroundingNotEvaluated),
        Altered(PatchProposed, "grounded"),
    ),
    sees={PatchProposed, GroundingJudged, GroundingNotEvaluated},
    local=True,
)
def grounding_is_recorded(trail: Trail) -> Iterator[Finding]:
    """The patch says the same. Where gates alone are run again, both stand where it was made."""
    for run in trail.runs if trail.judges_again is None else ():
        for seq, patch in run.of(PatchProposed):
            if patch.tier is Tier.LLM:
                yield from _recorded(run)
            elif patch.grounded is not None:
                yield seq, f"a {patch.tier} patch has no claims to judge"


def _recorded(run: Run) -> Iterator[Finding]:
    candidates = {asked.call for _, asked in run.author_asked if asked.candidate}
    in_hand: set[int] = set()  # the calls that the draft is of: one, or those of a search
    verdict: GroundingJudged | GroundingNotEvaluated | None = None
    judged, flagged = True, False
    for seq, event in run.any_of(*_ABOUT_A_DRAFT):
        if type(event) is ModelAnswered or type(event) is AnswerReused:
            if event.call_type is CallType.AUTHOR:
                if event.call not in candidates:
                    in_hand.clear()
                in_hand.add(event.call)
                judged = False
        elif type(event) in _NO_DRAFT:
            in_hand.clear()
            judged = True
        elif type(event) is GroundingJudged or type(event) is GroundingNotEvaluated:
            if judged:
                yield seq, f"{event.kind} on a draft that has its verdict"
            if event.call is not None and event.call not in in_hand:
                yield seq, f"{event.kind} about call {event.call}, not about the draft in hand"
            verdict, judged = event, True
        elif type(event) is LowConfidenceFlagged:
            flagged = True  # the plan in doubt is handed on, whatever came of the one after it
        elif type(event) is PatchProposed:
            supported = verdict.supported if isinstance(verdict, GroundingJudged) else None
            reported = False if flagged else supported
            if verdict is None or not judged:
                yield seq, "nothing is recorded about the grounding of this patch"
            elif event.grounded is not reported:
                yield seq, f"grounded: {event.grounded}, which is not the last verdict"


@rule(
    "An unsupported plan is written again with the strict instruction, flagged, or refused.",
    "ADR-0022",
    breaches=(
        Removed(LowConfidenceFlagged),
        Altered(GroundingJudged, "supported"),
    ),
    sees={PatchProposed, GateJudged, AttemptFailed, ModelCalled, AnswerReused, *TERMINALS},
    local=True,
)
def grounding_acts(trail: Trail) -> Iterator[Finding]:
    ignored: tuple[Kind, ...] = (PatchProposed, GateJudged, AttemptFailed, *TERMINALS)
    for run in trail.runs:
        doubted = False
        for seq, event in run.entries if run.of(GroundingJudged) else ():
            if isinstance(event, GroundingJudged):
                doubted = doubted or not event.supported
            elif isinstance(event, Asked) and event.call_type is CallType.AUTHOR:
                if doubted and not event.strict:
                    yield (
                        seq,
                        "an unsupported plan was asked for again without the strict instruction",
                    )
                doubted = False
            elif isinstance(event, LowConfidenceFlagged):
                doubted = False
            elif doubted and isinstance(event, ignored):
                yield seq, f"{event.kind} although the plan is unsupported, and nothing says so"
                doubted = False


@rule(
    "A patch is flagged exactly where unsupported plans are on record, and counts them.",
    "ADR-0022",
    breaches=(
        Removed(GroundingJudged),
        Added(LowConfidenceFlagged),
        Altered(PatchProposed, "low_confidence"),
        Altered(LowConfidenceFlagged, "attempts"),
    ),
    sees={LowConfidenceFlagged, ModelCalled, PatchProposed},
    local=True,
)
def low_confidence_has_grounds(trail: Trail) -> Iterator[Finding]:
    """Where gates alone are run again, the flag stands where the patch was made."""
    for run in trail.runs if trail.judges_again is None else ():
        judged = run.any_of(GroundingJudged, LowConfidenceFlagged)
        if not (judged or any(patch.low_confidence for _, patch in run.of(PatchProposed))):
            continue
        doubts = flags = 0
        for seq, event in run.any_of(
            GroundingJudged, LowConfidenceFlagged, ModelCalled, PatchProposed
        ):
            match event:
                case GroundingJudged(supported=False):
                    doubts += 1
                case LowConfidenceFlagged():
                    if flags or not doubts or event.attempts != doubts:
                        yield seq, f"LowConfidenceFlagged after {doubts} unsupported plans"
                    flags += 1
                case ModelCalled(call_type=CallType.AUTHOR) if flags:
                    yield seq, "the author was asked again after LowConfidenceFlagged"
                case PatchProposed(low_confidence=reported) if reported is not bool(flags):
                    yield seq, f"low_confidence: {reported}, and the record says otherwise"
                case _:
                    pass


@rule(
    "The strict instruction is used only in the one regeneration of an unsupported plan.",
    "ADR-0022",
    breaches=(
        Removed(GroundingJudged),
        Altered(ModelCalled, "strict"),
        Altered(AnswerReused, "strict"),
    ),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def strict_only_after_doubt(trail: Trail) -> Iterator[Finding]:
    """Never on a first generation; repairs of that regeneration have it as well."""
    for run in trail.runs:
        if not any(asked.strict for _, asked in run.asked):
            continue
        doubts, begun = 0, False
        for seq, event in run.any_of(GroundingJudged, ModelCalled, AnswerReused):
            if isinstance(event, GroundingJudged):
                doubts += not event.supported
            elif isinstance(event, Asked) and event.strict:
                if event.call_type is not CallType.AUTHOR or not doubts:
                    yield seq, "the strict instruction stands without an unsupported plan"
                elif doubts > 1:
                    yield seq, "a second regeneration under the strict instruction"
                begun = True
            elif isinstance(event, Asked) and begun and event.call_type is CallType.AUTHOR:
                yield seq, "the regeneration went on without the strict instruction"
