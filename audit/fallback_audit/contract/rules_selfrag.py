"""Rules of the trace contract over self-RAG: what was decided is done, what was asked is scored."""

from collections.abc import Iterator

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import Asked, Finding, Run, Trail
from fallback_audit.events import (
    AnswerReused,
    GroundingJudged,
    GroundingNotEvaluated,
    ModelAnswered,
    ModelCalled,
    PatchProposed,
    PlanRejected,
    RetrievalQueried,
    RetrieveDecided,
    SegmentScored,
)
from fallback_audit.events.model import Candidate
from fallback_audit.vocabulary import CallType, Retrieve


@rule(
    "On a retry each of self-RAG's decisions on retrieval is a forced no.",
    "ADR-0011",
    breaches=(
        Altered(RetrieveDecided, "decision"),
        Altered(RetrieveDecided, "forced"),
    ),
    sees={RetrieveDecided},
    local=True,
)
def retrieve_forced_on_retry(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        for seq, decided in run.of(RetrieveDecided) if run.is_retry else ():
            if decided.decision is not Retrieve.NO or not decided.forced:
                yield seq, f"retrieve: {decided.decision} on a retry, and it must be a forced no"


@rule(
    "A candidate follows one decision on retrieval, and has no example if that is no.",
    "ADR-0024",
    breaches=(
        Removed(RetrieveDecided),
        Added(RetrieveDecided),
        Altered(RetrieveDecided, "decision"),
    ),
    sees={RetrieveDecided, ModelCalled, AnswerReused},
    local=True,
)
def retrieve_acts(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        decisions: dict[tuple[int, int], Retrieve] = {}
        for seq, event in run.any_of(RetrieveDecided, ModelCalled, AnswerReused):
            if type(event) is RetrieveDecided:
                if (event.step, event.path) in decisions:
                    yield seq, f"path {event.path} of step {event.step} was decided on twice"
                decisions[event.step, event.path] = event.decision
            elif (candidate := _candidate(event)) is not None:
                decision = decisions.get((candidate.step, candidate.path))
                if decision is None:
                    yield (
                        seq,
                        f"step {candidate.step} was asked for before retrieval was decided on",
                    )
                elif decision is Retrieve.NO and isinstance(event, Asked) and event.example_ids:
                    yield seq, "an example stands where retrieval was decided against"


@rule(
    "Examples are fetched for a segment exactly where a path decided yes.",
    "ADR-0024",
    breaches=(
        Removed(RetrievalQueried),
        Altered(RetrieveDecided, "decision"),
    ),
    sees={RetrievalQueried, ModelCalled, AnswerReused},
    local=True,
)
def retrieve_yes_fetches(trail: Trail) -> Iterator[Finding]:
    """The chain's own query serves the first step."""
    for run in trail.runs:
        if not run.of(RetrieveDecided):
            continue
        fetched, step, wanted = False, 0, False
        for seq, event in run.any_of(RetrieveDecided, RetrievalQueried, ModelCalled, AnswerReused):
            if isinstance(event, RetrieveDecided):
                if event.step != step:
                    step, wanted, fetched = event.step, False, fetched and event.step == 1
                wanted = wanted or event.decision is Retrieve.YES
            elif isinstance(event, RetrievalQueried):
                fetched = True
                if step and not wanted:
                    yield (
                        seq,
                        f"examples were fetched at step {step}, and no path had asked for them",
                    )
            elif wanted and not fetched and _candidate(event) is not None:
                yield seq, f"step {step} was to fetch examples, and did not"
                wanted = False


@rule(
    "Self-RAG's candidates make the first draft of an attempt, and nothing after it.",
    "ADR-0024",
    breaches=(Altered(ModelCalled, "candidate"),),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def candidates_come_first(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        ordinary = False
        for seq, asked in run.author_asked:
            if asked.candidate and ordinary:
                yield seq, "a candidate after the first draft was done"
            ordinary = ordinary or asked.candidate is None


@rule(
    "Each answered candidate is scored once before the search goes on; a kept one has a score.",
    "ADR-0024",
    breaches=(
        Removed(SegmentScored),
        Added(SegmentScored),
        Altered(SegmentScored, "score"),
    ),
    sees={
        SegmentScored,
        PatchProposed,
        PlanRejected,
        GroundingJudged,
        GroundingNotEvaluated,
        ModelCalled,
        AnswerReused,
    },
    local=True,
)
def segments_are_scored(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        if run.of(SegmentScored) or any(asked.candidate for _, asked in run.author_asked):
            yield from _scored(run)


def _scored(run: Run) -> Iterator[Finding]:
    calls = {a.call: a.candidate for _, a in run.author_asked if a.candidate is not None}
    unscored = set(calls.values())
    owed: dict[Candidate, int] = {}
    for seq, event in run.entries:
        match event:
            case ModelAnswered(call_type=CallType.AUTHOR, call=call) if call in calls:
                owed[calls[call]] = seq
            case SegmentScored(candidate=candidate):
                if candidate not in unscored:
                    yield seq, f"{_name(candidate)} was scored twice, or never asked for"
                if event.kept and (event.score is None or event.problem):
                    yield seq, f"{_name(candidate)} was kept without a score"
                unscored.discard(candidate)
                owed.pop(candidate, None)
            case _ if late := _left_behind(event, owed):
                for candidate in late:
                    yield owed.pop(candidate), f"{_name(candidate)} was answered and never scored"
            case _:
                pass
        if isinstance(event, AnswerReused) and (mine := _candidate(event)) is not None:
            owed[mine] = seq


def _left_behind(event: object, owed: dict[Candidate, int]) -> list[Candidate]:
    """Unscored candidates that this event leaves behind."""
    if not owed:
        return []
    if isinstance(event, PatchProposed | PlanRejected | GroundingJudged | GroundingNotEvaluated):
        return list(owed)
    if isinstance(event, Asked) and event.call_type is CallType.AUTHOR:
        # All of them are of one step: the one before had to be scored for this one to be asked.
        step = event.candidate.step if event.candidate else None
        return [] if step == next(iter(owed)).step else list(owed)
    return []


def _candidate(event: object) -> Candidate | None:
    """Which candidate the author is asked for."""
    if type(event) is ModelCalled or type(event) is AnswerReused:
        return event.candidate if event.call_type is CallType.AUTHOR else None
    return None


def _name(candidate: Candidate) -> str:
    return f"candidate {candidate.path}.{candidate.number} of step {candidate.step}"
