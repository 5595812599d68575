"""Self-RAG (Asai et al. 2023, arXiv 2310.11511) over edits: a search for an attempt's first draft.

A segment is one search/replace edit. Each step, for all paths of the beam at once: decide on examples, ask
an author for one candidate per example, check each, ask a critic about the valid ones, keep the best. The
paper's model emits reflections as tokens; here a critic is asked for them, and no model was trained.
Concurrent calls are recorded in the order of paths and examples, so the same answers leave the same trail.
"""

import math
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean
from typing import Final, Generic, TypeVar

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    Candidate,
    Charge,
    RetrieveDecided,
    SegmentScored,
    StrategyDegraded,
)
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import Retrieve, Support
from fallback_tier.answers.critique import (
    Critique,
    DoneSegment,
    EditSegment,
    RaiseSegment,
    RefuseSegment,
    RetrieveAnswer,
    Segment,
    read_critique,
    read_retrieve,
    read_segment,
)
from fallback_tier.attempt.rag import retrieve
from fallback_tier.attempt.task import AttemptTask, Draft, DraftDiscarded, TierEvent
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import EditError, ModelError, RepositoryError
from fallback_tier.grounding.validity import check_plan
from fallback_tier.llm.calling import Answered, CallRequest, ModelAttempt
from fallback_tier.outcome import (
    DependencyBump,
    Override,
    Plan,
    Refuse,
    SearchReplace,
    SourceEdit,
)
from fallback_tier.patch.edits import merge_edits
from fallback_tier.patch.normalise import edit_digest
from fallback_tier.ports import LanguageModel, SolvedExampleRetriever
from fallback_tier.prompt.redact import excerpt
from fallback_tier.prompt.self_rag import SelfRagPrompts, Situation
from fallback_tier.repo import RepoContext
from fallback_tier.retrieval import FewShot, example_text

SegmentT = TypeVar("SegmentT")


# The beam (section 3.3): what is kept, what is finished, what wins, without a model. A path's score is the
# *mean* of its segments' scores, so that a longer plan is neither better nor worse for its length. Equal
# scores are ordered by position, never by arrival: the same scores give the same plan.


@dataclass(frozen=True)
class Path(Generic[SegmentT]):
    """Segments in order, each with its score."""

    segments: tuple[SegmentT, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """The mean of the scores, or 0 for the empty path."""
        return fmean(self.scores) if self.scores else 0.0

    def then(self, segment: SegmentT, score: float) -> "Path[SegmentT]":
        """Return this path with one more segment."""
        return Path((*self.segments, segment), (*self.scores, score))


@dataclass(frozen=True)
class Scored(Generic[SegmentT]):
    """A valid continuation of path ``parent`` (its index in the frontier), or its end (``is_final``)."""

    parent: int
    segment: SegmentT
    score: float
    is_final: bool


class Beam(Generic[SegmentT]):
    """The state of one search. ``frontier``: the paths to continue, best first; at first the empty one."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.frontier: tuple[Path[SegmentT], ...] = (Path(),)
        self._finished: list[Path[SegmentT]] = []
        self._stuck: list[Path[SegmentT]] = []
        self._seen: set[Hashable] = set()

    def is_new(self, key: Hashable) -> bool:
        """Return whether this key is new, and remember it. Only the first path with a key is scored."""
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def advance(self, scored: Sequence[Scored[SegmentT]]) -> tuple[bool, ...]:
        """Keep the best ``width`` of all continuations, and return for each whether it was kept.

        Final ones are finished, the others are the next frontier; a path without a continuation ends
        unfinished.
        """
        paths = [
            self.frontier[continuation.parent].then(continuation.segment, continuation.score)
            for continuation in scored
        ]
        order = sorted(range(len(scored)), key=lambda index: (-paths[index].score, index))
        kept_indexes = order[: self.width]
        continued = {continuation.parent for continuation in scored}
        self._stuck += [path for index, path in enumerate(self.frontier) if index not in continued]
        self._finished += [paths[index] for index in kept_indexes if scored[index].is_final]
        self.frontier = tuple(paths[index] for index in kept_indexes if not scored[index].is_final)
        return tuple(index in kept_indexes for index in range(len(scored)))

    @property
    def has_finished(self) -> bool:
        """Whether any path is finished. The best path is then a finished one."""
        return bool(self._finished)

    def best(self) -> Path[SegmentT] | None:
        """Return the best finished path, otherwise the best one with a segment, or None. Of equal paths,
        the one that ended first wins."""
        ended = self._finished or [path for path in (*self._stuck, *self.frontier) if path.segments]
        return max(ended, key=lambda path: path.score, default=None)


@dataclass(frozen=True)
class SearchModels:
    """The components of a search, wired once. ``meter`` is only checked for budget: the caller charges."""

    author: LanguageModel
    critic: LanguageModel
    prompts: SelfRagPrompts
    retriever: SolvedExampleRetriever | None
    evidence: EvidenceStore
    meter: AuditMeter | None = None


@dataclass(frozen=True)
class SearchContext:
    """One attempt, with its examples and situation."""

    parts: SearchModels
    attempt: ModelAttempt
    examples: tuple[FewShot, ...]
    situation: Situation

    @property
    def snippet_ids(self) -> frozenset[str]:
        """The ids of the snippets that a plan may cite."""
        return frozenset(snippet.id for snippet in self.attempt.prompt.snippets)


@dataclass(frozen=True)
class WrittenSegment:
    """A segment on a path, written by author call ``call`` from ``shot`` (None: no example). ``shots``: the
    examples of its step, which the next step may reuse."""

    segment: Segment
    call: int
    shot: FewShot | None = None
    shots: tuple[FewShot, ...] = ()


def segments_text(moves: Sequence[WrittenSegment]) -> str:
    """Return the segments as the next prompt shows them, one per line."""
    return "\n".join(move.segment.model_dump_json() for move in moves)


def shown(shot: FewShot | None) -> str:
    """Return an example as a prompt shows it, or "" for None."""
    return "" if shot is None else example_text(shot.example, shot.text, shot.edits)


def example_id(shot: FewShot | None) -> str | None:
    """Return the example's id, or None for None."""
    return None if shot is None else shot.example.example_id


def shots_of(path: Path[WrittenSegment]) -> tuple[FewShot, ...]:
    """Return the examples that a path's segments were written from, each once, in order."""
    shots_by_id = {move.shot.example.example_id: move.shot for move in path.segments if move.shot}
    return tuple(shots_by_id.values())


#: A candidate's recorded problem.
SAME_PLAN = "Another candidate made the same plan."


@dataclass(frozen=True)
class CandidateCall:
    """A candidate before the author is asked for it. ``shots``: the examples of its path's step."""

    candidate: Candidate
    path: Path[WrittenSegment]
    shot: FewShot | None
    shots: tuple[FewShot, ...]

    def ask(self, context: SearchContext) -> CallRequest:
        """Return the request to the author."""
        request = context.parts.prompts.segment(
            context.situation,
            plan=segments_text(self.path.segments),
            example=shown(self.shot),
            max_output_tokens=context.attempt.task.repo.settings.max_output_tokens,
        )
        request = request.model_copy(update={"effort": context.attempt.task.repo.settings.effort})
        return CallRequest(request, example_ids=self.example_ids, candidate=self.candidate)

    def critique(self, context: SearchContext, segment: str) -> CallRequest:
        """Return the request to the critic about the author's answer."""
        request = context.parts.prompts.critique(
            context.situation,
            plan=segments_text(self.path.segments),
            segment=segment,
            example=shown(self.shot),
        )
        return CallRequest(request, example_ids=self.example_ids, candidate=self.candidate)

    @property
    def example_ids(self) -> tuple[str, ...]:
        """The ids of the examples that the candidate's prompts show."""
        name = example_id(self.shot)
        return () if name is None else (name,)


@dataclass(frozen=True)
class CandidateAnswer:
    """A candidate's answer. ``move`` None: it is not a valid continuation (``problem``); ``call`` None:
    there was no answer; ``refused``: the author declined."""

    one: CandidateCall
    call: int | None = None
    move: WrittenSegment | None = None
    problem: str = ""
    text: str = ""
    lm_score: float | None = None
    refused: RefuseSegment | None = None


def candidate_calls(
    step: int, frontier: tuple[Path[WrittenSegment], ...], shots_by_path: list[tuple[FewShot, ...]]
) -> list[CandidateCall]:
    """Return one candidate per path and example, or one for a path without examples, in the order of paths
    and examples."""
    return [
        CandidateCall(Candidate(step=step, path=index, number=number), path, shot, shots)
        for index, (path, shots) in enumerate(zip(frontier, shots_by_path, strict=True))
        for number, shot in enumerate(shots or (None,))
    ]


def candidate_answers(
    candidate_call: CandidateCall,
    outcome: Answered | ModelError,
    context: SearchContext,
    beam: Beam[WrittenSegment],
) -> CandidateAnswer:
    """Return a candidate's checked answer. Marks its path as seen, so that an equal one is not scored."""
    if isinstance(outcome, ModelError):
        return CandidateAnswer(candidate_call, problem=outcome.problem)
    answer = outcome.answer
    segment, problems = read_segment(answer)
    problem = (
        " ".join(problems) if segment is None else _problem(segment, candidate_call, context, beam)
    )
    return CandidateAnswer(
        candidate_call,
        call=outcome.call,
        move=None
        if problem or segment is None
        else WrittenSegment(segment, outcome.call, candidate_call.shot, candidate_call.shots),
        problem=problem,
        text=answer.text,
        lm_score=likelihood(answer.mean_logprob),
        refused=segment if isinstance(segment, RefuseSegment) else None,
    )


def _problem(
    segment: Segment,
    candidate_call: CandidateCall,
    context: SearchContext,
    beam: Beam[WrittenSegment],
) -> str:
    """Return why the segment is not a valid continuation of its path, or "". A refusal counts only if no
    path reaches an edit."""
    before = [move.segment for move in candidate_call.path.segments]
    placement_problem = misplaced(segment, before)
    if placement_problem is not None:
        return placement_problem
    if isinstance(segment, RefuseSegment):
        return f"The model declined: {segment.reason}"
    plan = plan_of([*before, segment])
    problems = check_plan(
        plan,
        advisory=context.attempt.task.advisory,
        repo=context.attempt.task.repo,
        plugin=context.attempt.task.plugin,
        snippet_ids=context.snippet_ids,
        # Examples only show a method: a segment may cite this repository's snippets alone.
        example_ids=frozenset(),
    )
    if problems:
        return " ".join(problems)
    try:
        key = plan_key(plan, context.attempt.task.repo)
    except (EditError, RepositoryError) as error:
        return str(error)
    return "" if beam.is_new(key) else SAME_PLAN


# Valid candidates, judged by a critic and weighted (Self-RAG's ISREL, ISSUP and ISUSE).


@dataclass(frozen=True)
class _ScoredCandidate:
    """A candidate's score. ``score`` None: it is not valid; ``critique`` None with a score: there was no
    readable critique, so it gets the worst one."""

    tried: CandidateAnswer
    critique: Critique | None = None
    score: float | None = None

    @property
    def is_final(self) -> bool:
        """Whether the critic says that this segment completes the plan."""
        return self.critique is not None and self.critique.is_final

    def event(self, task: AttemptTask, *, kept: bool) -> SegmentScored:
        """Return the event that records this candidate."""
        critique = self.critique
        return SegmentScored(
            attempt=task.number,
            candidate=self.tried.one.candidate,
            example_id=example_id(self.tried.one.shot),
            relevant=critique.relevant if critique else None,
            support=critique.support if critique else None,
            usefulness=critique.usefulness if critique else None,
            is_final=self.is_final,
            lm_score=self.tried.lm_score,
            score=self.score,
            kept=kept,
            problem=excerpt(self.tried.problem, MAX_EXCERPT_CHARS),
        )


def _scored_candidates(
    answers: Sequence[CandidateAnswer], context: SearchContext
) -> Generator[TierEvent, None, tuple[list[_ScoredCandidate], str]]:
    """Return all candidates in order, and why there is no critique at all ("": there is one, or none was
    needed). All critiques are requested at the same time."""
    requests = [request for answer in answers if (request := _ask(answer, context)) is not None]
    if not requests:
        return [_ScoredCandidate(answer) for answer in answers], ""
    try:
        outcomes = yield from context.attempt.caller.ask_all(context.parts.critic, requests)
    except OverBudget as over:
        critiques: list[Critique | None] = [None] * len(requests)
        no_critique_reason = f"the budget has no room for critiques: {over.problem}"
    else:
        critiques = [
            None if isinstance(outcome, ModelError) else read_critique(outcome.answer)[0]
            for outcome in outcomes
        ]
        answered = any(isinstance(outcome, Answered) for outcome in outcomes)
        no_critique_reason = "" if answered else "the critic gives no answer"
    remaining_critiques = iter(critiques)
    return [
        _ScoredCandidate(answer)
        if answer.move is None
        else _scored(answer, next(remaining_critiques))
        for answer in answers
    ], no_critique_reason


def _ask(answer: CandidateAnswer, context: SearchContext) -> CallRequest | None:
    if answer.move is None:
        return None
    return answer.one.critique(context, answer.move.segment.model_dump_json())


def _scored(answer: CandidateAnswer, critique: Critique | None) -> _ScoredCandidate:
    """Return the candidate with its score. Relevance is about an example: without one it is None, with one
    it is required."""
    shown = answer.one.shot is not None
    if critique is None:
        return _ScoredCandidate(answer, None, segment_score(unread(shown=shown), answer.lm_score))
    relevant = bool(critique.relevant) if shown else None
    critique = critique.model_copy(update={"relevant": relevant})
    return _ScoredCandidate(answer, critique, segment_score(critique, answer.lm_score))


# Retrieve: whether the next segment of a path needs examples, and which ones (Self-RAG's first token).

# Recorded reasons of decisions.
FRESH_CONTEXT = "a retry is a fresh context, without examples"
UNREADABLE_ANSWER = "the critic's answer can't be read"
_NO_EXAMPLES = "the memory has nothing for this advisory"

_Shots = tuple[FewShot, ...]


class _Fetching:
    """The decision on examples, for each path at each step. On a retry no model and no memory is asked."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def shots(
        self, step: int, frontier: Sequence[Path[WrittenSegment]]
    ) -> Generator[TierEvent, None, list[_Shots]]:
        """Return the examples for the next segment of each path; empty: it is written without examples."""
        answers = yield from self._answers(frontier)
        shots_by_path: list[_Shots] = []
        for index, (path, answer) in enumerate(zip(frontier, answers, strict=True)):
            previous = path.segments[-1].shots if path.segments else ()
            decision, reason = _decided(answer, previous)
            yield self._context.attempt.record(
                RetrieveDecided(
                    attempt=self._context.attempt.task.number,
                    step=step,
                    path=index,
                    decision=decision,
                    forced=self._context.attempt.task.is_retry,
                    reason=excerpt(reason, MAX_EXCERPT_CHARS),
                )
            )
            if decision is Retrieve.YES:
                shots_by_path.append((yield from self._fetched(step, path)))
            else:
                shots_by_path.append(previous if decision is Retrieve.CONTINUE else ())
        return shots_by_path

    def _answers(
        self, frontier: Sequence[Path[WrittenSegment]]
    ) -> Generator[TierEvent, None, list[RetrieveAnswer | str]]:
        """Return a critic's decision per path, or why there is none. The critic is not asked if only one
        decision is possible."""
        context = self._context
        if context.attempt.task.is_retry:
            return [RetrieveAnswer(retrieve=Retrieve.NO, reason=FRESH_CONTEXT)] * len(frontier)
        if not context.examples:
            # The query to the memory is the same at every step.
            return [RetrieveAnswer(retrieve=Retrieve.NO, reason=_NO_EXAMPLES)] * len(frontier)
        requests = [
            CallRequest(
                context.parts.prompts.retrieve(
                    context.situation,
                    plan=segments_text(path.segments),
                    going_on=bool(path.segments and path.segments[-1].shots),
                )
            )
            for path in frontier
        ]
        try:
            outcomes = yield from context.attempt.caller.ask_all(context.parts.critic, requests)
        except OverBudget as over:
            return [f"the budget has no room for the question: {over.problem}"] * len(frontier)
        return [_read_decision(outcome) for outcome in outcomes]

    def _fetched(self, step: int, path: Path[WrittenSegment]) -> Generator[TierEvent, None, _Shots]:
        """Return new examples. At the first step these are the ones that the chain has fetched."""
        context = self._context
        if step == 1:
            return context.examples
        seen = {shot.example.example_id for move in path.segments for shot in move.shots}
        return (
            yield from retrieve(
                context.parts.retriever,
                context.attempt.task,
                context.parts.evidence,
                context.attempt.record,
                beyond=frozenset(seen),
            )
        )


def _read_decision(outcome: Answered | ModelError) -> RetrieveAnswer | str:
    if isinstance(outcome, ModelError):
        return f"the critic gave no answer: {outcome.problem}"
    answer, problems = read_retrieve(outcome.answer)
    return answer or f"{UNREADABLE_ANSWER}: {' '.join(problems)}"


def _decided(answer: RetrieveAnswer | str, previous: _Shots) -> tuple[Retrieve, str]:
    """Return the decision and its reason. An unreadable decision changes nothing; without earlier examples
    there is nothing to continue with."""
    if isinstance(answer, str):
        return (Retrieve.CONTINUE if previous else Retrieve.NO), answer
    if answer.retrieve is Retrieve.CONTINUE and not previous:
        return Retrieve.NO, f"nothing to continue with; {answer.reason}"
    return answer.retrieve, answer.reason


# Whether the budget covers a step, checked before the step.

#: Author calls of one search: a beam of four, four examples, four steps. Beyond that it would be guessing.
MAX_CANDIDATE_CALLS: Final = 64

#: Bytes per token of a segment in its critique's prompt: the ratio of code and JSON.
_BYTES_PER_TOKEN: Final = 4


def _shortage(
    step: Sequence[CandidateCall], calls_made: int, context: SearchContext
) -> OverBudget | str | None:
    """Return why the candidates and their critiques are not all affordable, or None.

    ``calls_made``: author calls so far. Reused answers count as unpaid, so that the search may stop early,
    but never exceeds the budget.
    """
    if calls_made + len(step) > MAX_CANDIDATE_CALLS:
        return f"{calls_made} of at most {MAX_CANDIDATE_CALLS} candidates were asked for"
    meter = context.parts.meter
    if meter is None:
        return None
    segment = "x" * (_BYTES_PER_TOKEN * context.attempt.task.repo.settings.max_output_tokens)
    needed = [
        charge
        for candidate_call in step
        for charge in (
            meter.charge(context.parts.author.model, candidate_call.ask(context).request),
            meter.charge(
                context.parts.critic.model, candidate_call.critique(context, segment).request
            ),
        )
    ]
    try:
        meter.check(context.attempt.record.scope, _sum(needed))
    except OverBudget as over:
        return over
    return None


def _sum(charges: Sequence[Charge]) -> Charge:
    """Return one charge for all; its price is unknown if any price is."""
    costs = [charge.cost_usd_estimate for charge in charges]
    known_costs = [Decimal(cost) for cost in costs if cost is not None]
    return Charge(
        tokens=sum(charge.tokens for charge in charges),
        cost_usd_estimate=f"{sum(known_costs, Decimal(0)):f}"
        if len(known_costs) == len(costs)
        else None,
    )


#: Segments of one plan. Real fixes have a median of two or three hunks; beyond this limit a person should
#: see the change.
MAX_STEPS: Final = 6

#: How many problems a draft without a plan names: those of the first candidates.
_MAX_PROBLEMS: Final = 5


class SelfRag(SearchModels):
    """Makes an attempt's first draft; stateless, safe to share.

    ``critic`` (may be the author's model) decides on examples and judges segments; ``meter``: that of the
    attempts' callers, or None for no caps.
    """

    def draft(
        self, attempt: ModelAttempt, examples: Sequence[FewShot]
    ) -> Generator[TierEvent, None, Draft]:
        """Return the search's best plan, or the problems of every candidate of the first step.

        ``examples``: those already fetched. Raises OverBudget if no candidate is affordable, ModelError if
        no candidate of the first step was answered; later, both end the search with its result so far.
        """
        task = attempt.task
        context = SearchContext(
            parts=self,
            attempt=attempt,
            examples=() if task.is_retry else tuple(examples),
            situation=self.prompts.situation(attempt.prompt, own_code=task.is_own_code),
        )
        return (yield from _Search(context).run())


class _Search:
    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._beam: Beam[WrittenSegment] = Beam(context.attempt.task.repo.settings.beam_width)
        self._fetching = _Fetching(context)
        self._asked = 0
        self._greedy = False
        self._over = False
        self._notes: list[str] = []
        self._first: tuple[CandidateAnswer, ...] = ()
        self._kept: list[int] = []

    def run(self) -> Generator[TierEvent, None, Draft]:
        for step in range(1, MAX_STEPS + 1):
            if not self._beam.frontier or self._over:
                break
            yield from self._step(step)
        best = self._beam.best()
        if best is None:
            return self._nothing()
        for call in self._kept:
            if call not in {move.call for move in best.segments}:
                yield self._discarded(call, "Another path of the search is better.")
        if not self._beam.has_finished:
            self._notes.append("Self-RAG: the critic found no plan of the search complete.")
        plan = plan_of([move.segment for move in best.segments])
        shots = shots_of(best)
        return Draft(
            call=best.segments[-1].call,
            text=plan.model_dump_json(),
            plan=plan,
            example_ids=tuple(shot.example.example_id for shot in shots),
            notes=tuple(self._notes),
            example_texts=tuple(map(shown, shots)),
        )

    def _step(self, step: int) -> Generator[TierEvent, None, None]:
        frontier = self._beam.frontier
        shots_by_path = yield from self._fetching.shots(step, frontier)
        planned = yield from self._affordable(step, candidate_calls(step, frontier, shots_by_path))
        outcomes = yield from self._answers(step, planned)
        if not outcomes:
            return
        answers = [
            candidate_answers(candidate_call, outcome, self._context, self._beam)
            for candidate_call, outcome in zip(planned, outcomes, strict=True)
        ]
        if step == 1:
            self._first = tuple(answers)
            _check_answered(outcomes)
        judged, no_critique_reason = yield from _scored_candidates(answers, self._context)
        if no_critique_reason:
            # Without critiques a longer path is only longer, not better.
            self._over = True
            yield self._degraded(step, f"the search ends here: {no_critique_reason}")
        yield from self._advance(judged)

    def _affordable(
        self, step: int, planned: list[CandidateCall]
    ) -> Generator[TierEvent, None, list[CandidateCall]]:
        """Return the candidates that the budget covers: all, the first one of the best path, or none."""
        # One candidate means one path from then on: a path without a continuation ends.
        planned = planned[:1] if self._greedy else planned
        shortage = _shortage(planned, self._asked, self._context)
        if shortage is None:
            return planned
        greedy_shortage = _shortage(planned[:1], self._asked, self._context)
        if greedy_shortage is None:
            self._greedy = True
            yield self._degraded(
                step, f"greedy search with one example from here on: {_why(shortage)}"
            )
            return planned[:1]
        if isinstance(greedy_shortage, OverBudget) and self._beam.best() is None:
            raise greedy_shortage
        self._over = True
        yield self._degraded(step, f"the search ends here: {_why(greedy_shortage)}")
        return []

    def _answers(
        self, step: int, planned: Sequence[CandidateCall]
    ) -> Generator[TierEvent, None, list[Answered | ModelError]]:
        """Return the author's answers, or none if other fixes have used up the budget in the meantime."""
        if not planned:
            return []
        requests = [candidate_call.ask(self._context) for candidate_call in planned]
        try:
            outcomes = yield from self._context.attempt.caller.ask_all(
                self._context.parts.author, requests
            )
        except OverBudget as over:
            if self._beam.best() is None:
                raise
            self._over = True
            yield self._degraded(step, f"the search ends here: {over.problem}")
            return []
        self._asked += len(planned)
        return outcomes

    def _advance(self, judged: Sequence[_ScoredCandidate]) -> Generator[TierEvent, None, None]:
        scored = [
            Scored(
                candidate.tried.one.candidate.path,
                candidate.tried.move,
                candidate.score,
                candidate.is_final,
            )
            for candidate in judged
            if candidate.tried.move is not None and candidate.score is not None
        ]
        kept_flags = iter(self._beam.advance(scored))
        for candidate in judged:
            is_kept = candidate.score is not None and next(kept_flags)
            yield self._context.attempt.record(
                candidate.event(self._context.attempt.task, kept=is_kept)
            )
            call = candidate.tried.call
            if is_kept and call is not None:
                self._kept.append(call)
            elif call is not None:
                yield self._discarded(
                    call, candidate.tried.problem or "Other candidates score higher."
                )

    def _nothing(self) -> Draft:
        answered = [answer for answer in self._first if answer.call is not None]
        last = answered[-1]
        refusal = next((answer for answer in answered if answer.refused is not None), None)
        if refusal is not None and refusal.refused is not None and refusal.call is not None:
            plan = plan_of([refusal.refused])
            return Draft(refusal.call, refusal.text, plan, notes=tuple(self._notes))
        problems = tuple(dict.fromkeys(answer.problem for answer in answered))[:_MAX_PROBLEMS]
        return Draft(last.call or 1, last.text, None, problems, notes=tuple(self._notes))

    def _degraded(self, step: int, reason: str) -> TierEvent:
        self._notes.append(f"Self-RAG, step {step}: {reason}")
        return self._context.attempt.record(
            StrategyDegraded(
                attempt=self._context.attempt.task.number,
                step=step,
                reason=excerpt(reason, MAX_EXCERPT_CHARS),
            )
        )

    def _discarded(self, call: int, reason: str) -> DraftDiscarded:
        return DraftDiscarded.because(reason, attempt=self._context.attempt.task.number, call=call)


def _why(shortage: OverBudget | str) -> str:
    return shortage if isinstance(shortage, str) else shortage.problem


def _check_answered(outcomes: Sequence[Answered | ModelError]) -> None:
    """Raise the first ModelError if every outcome is one."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, ModelError)]
    if len(errors) == len(outcomes):
        raise errors[0]


# From reflections to a number (section 3.3 and appendix A.3 of the paper):
#
#     score = sum(weight * part) / sum(weight)      over the parts that are present
#
#     part         weight  value
#     ISREL        1       1 relevant, 0 not; absent without an example
#     ISSUP        1       1 full, 0.5 partial, 0 none
#     ISUSE        0.5     -1, -0.5, 0, 0.5, 1 for 1 to 5
#     likelihood   1       exp(mean log-probability of a token); absent if the server gives none
#
# Weights and values are the paper's; dividing by the sum of the weights makes segments comparable if one
# lacks a part. Of two segments with the same parts, one that is worse in no part does not score less.

WEIGHT_RELEVANCE: Final = 1.0
WEIGHT_SUPPORT: Final = 1.0
WEIGHT_USEFULNESS: Final = 0.5
WEIGHT_LIKELIHOOD: Final = 1.0

_SUPPORT: Final = {Support.FULL: 1.0, Support.PARTIAL: 0.5, Support.NONE: 0.0}

#: Decimal places: smaller differences are floating-point noise, and records must not differ by machine.
_PLACES: Final = 6


def likelihood(mean_logprob: float | None) -> float | None:
    """Return the normalised likelihood of an answer, above 0 to 1, or None if the server gave none."""
    if mean_logprob is None or math.isnan(mean_logprob):
        return None
    return round(math.exp(min(mean_logprob, 0.0)), _PLACES)


def segment_score(critique: Critique, lm_score: float | None) -> float:
    """Return the weighted mean of the parts that are present: -1/3 (the worst, of two parts) to 1."""
    parts = [
        (WEIGHT_SUPPORT, _SUPPORT[critique.support]),
        (WEIGHT_USEFULNESS, (critique.usefulness - 3) / 2),
    ]
    if critique.relevant is not None:
        parts.append((WEIGHT_RELEVANCE, float(critique.relevant)))
    if lm_score is not None:
        parts.append((WEIGHT_LIKELIHOOD, lm_score))
    total = sum(weight * value for weight, value in parts)
    return round(total / sum(weight for weight, _ in parts), _PLACES)


def unread(*, shown: bool) -> Critique:
    """Return the critique of a segment whose critique is unreadable: the worst. ``shown``: had an
    example."""
    return Critique(
        relevant=False if shown else None, support=Support.NONE, usefulness=1, is_final=False
    )


def misplaced(segment: Segment, before: Sequence[Segment]) -> str | None:
    """Return why the segment can't follow these segments, or None if it can."""
    if isinstance(segment, DoneSegment):
        return "Nothing is added." if before else "A plan begins with an edit, a bump or a refusal."
    if before and not isinstance(segment, EditSegment):
        return f"`{segment.action}` can only be the first segment: add one edit."
    return None


def plan_of(segments: Sequence[Segment]) -> Plan:
    """Return the plan that well-placed segments make up (at least one segment)."""
    first = segments[0]
    rationale = " ".join(segment.rationale for segment in segments if segment.rationale)
    citations = tuple(dict.fromkeys(name for segment in segments for name in segment.citations))
    if isinstance(first, RefuseSegment):
        return Refuse(reason=first.reason, rationale=rationale, citations=citations)
    edits = tuple(
        SearchReplace(path=segment.path, old=segment.old, new=segment.new)
        for segment in segments
        if isinstance(segment, EditSegment)
    )
    if isinstance(first, RaiseSegment):
        kind = DependencyBump if first.action == "dependency_bump" else Override
        return kind(
            package=first.package,
            version=first.version,
            edits=edits,
            rationale=rationale,
            citations=citations,
        )
    return SourceEdit(edits=edits, rationale=rationale, citations=citations)


def plan_key(plan: Plan, repo: RepoContext) -> Hashable:
    """Return a key that is equal for equal paths: the action and the normalised result of the edits.

    Raises EditError, RepositoryError for unchecked edits, or if nothing changes.
    """
    if isinstance(plan, Refuse):
        return plan.action
    raised = () if isinstance(plan, SourceEdit) else (plan.package, plan.version)
    changes = merge_edits(repo, (), plan.edits).changes if plan.edits else ()
    return (plan.action, *raised, edit_digest(changes))
