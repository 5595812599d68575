"""One candidate: what its author is asked, and whether the answer continues its path."""

from dataclasses import dataclass

from fallback_audit.events import Candidate
from fallback_tier.answers.segment import RefuseSegment, Segment, read_segment
from fallback_tier.errors import EditError, ModelError, RepositoryError
from fallback_tier.grounding.validity import check_plan
from fallback_tier.llm.calling import Answered, CallRequest
from fallback_tier.llm.selfrag.beam import Beam, Path
from fallback_tier.llm.selfrag.plan import misplaced, plan_key, plan_of
from fallback_tier.llm.selfrag.score import likelihood
from fallback_tier.llm.selfrag.search_context import (
    SearchContext,
    WrittenSegment,
    example_id,
    segments_text,
    shown,
)
from fallback_tier.retrieval import FewShot

#: A candidate's problem, as it is recorded.
SAME_PLAN = "Another candidate made the same plan."


@dataclass(frozen=True)
class CandidateCall:
    """A candidate before it is asked for. ``shots``: the examples of its path's step."""

    candidate: Candidate
    path: Path[WrittenSegment]
    shot: FewShot | None
    shots: tuple[FewShot, ...]

    def ask(self, context: SearchContext) -> CallRequest:
        """The author's request."""
        request = context.parts.prompts.segment(
            context.situation,
            plan=segments_text(self.path.segments),
            example=shown(self.shot),
            max_output_tokens=context.attempt.task.repo.settings.max_output_tokens,
        )
        request = request.model_copy(update={"effort": context.attempt.task.repo.settings.effort})
        return CallRequest(request, example_ids=self.example_ids, candidate=self.candidate)

    def critique(self, context: SearchContext, segment: str) -> CallRequest:
        """The critic's request on what the author answered."""
        request = context.parts.prompts.critique(
            context.situation,
            plan=segments_text(self.path.segments),
            segment=segment,
            example=shown(self.shot),
        )
        return CallRequest(request, example_ids=self.example_ids, candidate=self.candidate)

    @property
    def example_ids(self) -> tuple[str, ...]:
        """What the candidate's prompts show."""
        name = example_id(self.shot)
        return () if name is None else (name,)


@dataclass(frozen=True)
class CandidateAnswer:
    """A candidate after it was asked for. ``move`` None: it continues nothing, and ``problem`` says why.

    ``call`` None: no answer came. ``refused``: the author declined, in this segment.
    """

    one: CandidateCall
    call: int | None = None
    move: WrittenSegment | None = None
    problem: str = ""
    text: str = ""
    lm_score: float | None = None
    refused: RefuseSegment | None = None


def candidate_calls(
    step: int, frontier: tuple[Path[WrittenSegment], ...], sets: list[tuple[FewShot, ...]]
) -> list[CandidateCall]:
    """One candidate an example, or one without any; in the order of paths and examples."""
    return [
        CandidateCall(Candidate(step=step, path=place, number=number), path, shot, shots)
        for place, (path, shots) in enumerate(zip(frontier, sets, strict=True))
        for number, shot in enumerate(shots or (None,))
    ]


def candidate_answers(
    one: CandidateCall,
    outcome: Answered | ModelError,
    context: SearchContext,
    beam: Beam[WrittenSegment],
) -> CandidateAnswer:
    """What came of a candidate. Marks the path that it makes as seen: an equal one is not scored."""
    if isinstance(outcome, ModelError):
        return CandidateAnswer(one, problem=outcome.problem)
    answer = outcome.answer
    segment, problems = read_segment(answer)
    problem = " ".join(problems) if segment is None else _problem(segment, one, context, beam)
    return CandidateAnswer(
        one,
        call=outcome.call,
        move=None
        if problem or segment is None
        else WrittenSegment(segment, outcome.call, one.shot, one.shots),
        problem=problem,
        text=answer.text,
        lm_score=likelihood(answer.mean_logprob),
        refused=segment if isinstance(segment, RefuseSegment) else None,
    )


def _problem(
    segment: Segment, one: CandidateCall, context: SearchContext, beam: Beam[WrittenSegment]
) -> str:
    """Why the segment does not continue its path; empty: it does.

    A refusal continues nothing either: it counts only where no path comes to an edit.
    """
    before = [move.segment for move in one.path.segments]
    wrong = misplaced(segment, before)
    if wrong is not None:
        return wrong
    if isinstance(segment, RefuseSegment):
        return f"The model declined: {segment.reason}"
    plan = plan_of([*before, segment])
    problems = check_plan(
        plan,
        advisory=context.attempt.task.advisory,
        repo=context.attempt.task.repo,
        plugin=context.attempt.task.plugin,
        snippet_ids=context.snippet_ids,
        # Examples show how; what a segment rests on is this repository's.
        example_ids=frozenset(),
    )
    if problems:
        return " ".join(problems)
    try:
        key = plan_key(plan, context.attempt.task.repo)
    except (EditError, RepositoryError) as error:
        return str(error)
    return "" if beam.is_new(key) else SAME_PLAN
