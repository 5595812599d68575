"""Self-RAG (Asai et al. 2023, arXiv 2310.11511) over edits: the first draft of an attempt by search.

A segment is one search/replace edit. A step, for all paths of the beam at once: decide on examples, ask an
author for one candidate per example, check each, ask a critic about those that hold, keep the best. The
paper's model emits reflections as tokens; here they are asked of a critic, and no model was trained.
What is asked at the same time is recorded in the order of paths and examples: the same answers leave the
same trail.
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


# The beam (section 3.3): what is kept, what is finished, what wins, without a model. A path is as good as
# the *mean* of its segments' scores, so that a longer plan is neither better nor worse for its length.
# Equal scores are ordered by position, never by arrival: the same scores give the same plan.


@dataclass(frozen=True)
class Path(Generic[SegmentT]):
    """Segments in order, each with its score."""

    segments: tuple[SegmentT, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """The mean of the scores; of the empty path, 0."""
        return fmean(self.scores) if self.scores else 0.0

    def then(self, segment: SegmentT, score: float) -> "Path[SegmentT]":
        """One segment longer."""
        return Path((*self.segments, segment), (*self.scores, score))


@dataclass(frozen=True)
class Scored(Generic[SegmentT]):
    """A valid continuation of path ``parent`` (its place in the frontier). ``is_final``: it ends it."""

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
        """Whether no path with this key came before; from now on one has. Scores belong to new ones."""
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def advance(self, scored: Sequence[Scored[SegmentT]]) -> tuple[bool, ...]:
        """Keep the best ``width`` of all continuations, and return which. Final ones are finished, the
        others are the next frontier; a path that nothing continues ends unfinished."""
        paths = [self.frontier[one.parent].then(one.segment, one.score) for one in scored]
        order = sorted(range(len(scored)), key=lambda place: (-paths[place].score, place))
        kept = order[: self.width]
        continued = {one.parent for one in scored}
        self._stuck += [path for place, path in enumerate(self.frontier) if place not in continued]
        self._finished += [paths[place] for place in kept if scored[place].is_final]
        self.frontier = tuple(paths[place] for place in kept if not scored[place].is_final)
        return tuple(place in kept for place in range(len(scored)))

    @property
    def has_finished(self) -> bool:
        """Some path is finished: the best one is, then."""
        return bool(self._finished)

    def best(self) -> Path[SegmentT] | None:
        """Return the best finished path, or else the best with a segment, or None. Of equal ones, the one
        that ended first."""
        ended = self._finished or [path for path in (*self._stuck, *self.frontier) if path.segments]
        return max(ended, key=lambda path: path.score, default=None)


@dataclass(frozen=True)
class SearchModels:
    """What is wired once. ``meter`` is only asked for room: charging is the caller's business."""

    author: LanguageModel
    critic: LanguageModel
    prompts: SelfRagPrompts
    retriever: SolvedExampleRetriever | None
    evidence: EvidenceStore
    meter: AuditMeter | None = None


@dataclass(frozen=True)
class SearchContext:
    """One attempt, and what is known of it."""

    parts: SearchModels
    attempt: ModelAttempt
    examples: tuple[FewShot, ...]
    situation: Situation

    @property
    def snippet_ids(self) -> frozenset[str]:
        """The snippets that a plan may cite."""
        return frozenset(snippet.id for snippet in self.attempt.prompt.snippets)


@dataclass(frozen=True)
class WrittenSegment:
    """A segment on a path, by author call ``call`` from ``shot`` (None: no example). ``shots``: its step's
    examples, which the next may use."""

    segment: Segment
    call: int
    shot: FewShot | None = None
    shots: tuple[FewShot, ...] = ()


def segments_text(moves: Sequence[WrittenSegment]) -> str:
    """The segments as the next prompt shows them, one a line."""
    return "\n".join(move.segment.model_dump_json() for move in moves)


def shown(shot: FewShot | None) -> str:
    """An example as a prompt shows it; empty for none."""
    return "" if shot is None else example_text(shot.example, shot.text, shot.edits)


def example_id(shot: FewShot | None) -> str | None:
    """Its id; None for none."""
    return None if shot is None else shot.example.example_id


def shots_of(path: Path[WrittenSegment]) -> tuple[FewShot, ...]:
    """The examples that a path's segments were written from, each once, in order."""
    found = {move.shot.example.example_id: move.shot for move in path.segments if move.shot}
    return tuple(found.values())


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
    """A candidate's answer. ``move`` None: it continues nothing (``problem``); ``call`` None: no answer
    came; ``refused``: the author declined."""

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
    """Return why the segment does not continue its path; empty if it does. A refusal counts only if no path
    comes to an edit."""
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


# Candidates that hold, judged by a critic and weighed (Self-RAG's ISREL, ISSUP and ISUSE).


@dataclass(frozen=True)
class _ScoredCandidate:
    """A candidate's score. ``score`` None: it does not hold; ``critique`` None with a score: none was
    available, so it counts the worst."""

    tried: CandidateAnswer
    critique: Critique | None = None
    score: float | None = None

    @property
    def is_final(self) -> bool:
        """The critic says that the plan is complete with it."""
        return self.critique is not None and self.critique.is_final

    def event(self, task: AttemptTask, *, kept: bool) -> SegmentScored:
        """For the record."""
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
    found: Sequence[CandidateAnswer], context: SearchContext
) -> Generator[TierEvent, None, tuple[list[_ScoredCandidate], str]]:
    """Every candidate in order, and why there is no critique at all (empty: there is one, or none was
    needed). All critiques are asked for at the same time."""
    asks = [ask for one in found if (ask := _ask(one, context)) is not None]
    if not asks:
        return [_ScoredCandidate(one) for one in found], ""
    try:
        outcomes = yield from context.attempt.caller.ask_all(context.parts.critic, asks)
    except OverBudget as over:
        critiques: list[Critique | None] = [None] * len(asks)
        silent = f"the budget has no room for critiques: {over.problem}"
    else:
        critiques = [
            None if isinstance(outcome, ModelError) else read_critique(outcome.answer)[0]
            for outcome in outcomes
        ]
        answered = any(isinstance(outcome, Answered) for outcome in outcomes)
        silent = "" if answered else "the critic gives no answer"
    waiting = iter(critiques)
    return [
        _ScoredCandidate(one) if one.move is None else _scored(one, next(waiting)) for one in found
    ], silent


def _ask(one: CandidateAnswer, context: SearchContext) -> CallRequest | None:
    if one.move is None:
        return None
    return one.one.critique(context, one.move.segment.model_dump_json())


def _scored(one: CandidateAnswer, critique: Critique | None) -> _ScoredCandidate:
    """Relevance is an example's: without one it is nobody's to say, with one it must be said."""
    shown = one.one.shot is not None
    if critique is None:
        return _ScoredCandidate(one, None, segment_score(unread(shown=shown), one.lm_score))
    relevant = bool(critique.relevant) if shown else None
    critique = critique.model_copy(update={"relevant": relevant})
    return _ScoredCandidate(one, critique, segment_score(critique, one.lm_score))


# Retrieve: whether the next segment of a path needs examples, and which (Self-RAG's first token).

# Reasons of decisions, as they are recorded.
FRESH_CONTEXT = "a retry is a fresh context, without examples"
UNREADABLE_ANSWER = "the critic's answer can't be read"
_NO_EXAMPLES = "the memory has nothing for this advisory"

_Shots = tuple[FewShot, ...]


class _Fetching:
    """Decides for each path at each step. On a retry nothing is asked, and nothing is touched."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def shots(
        self, step: int, frontier: Sequence[Path[WrittenSegment]]
    ) -> Generator[TierEvent, None, list[_Shots]]:
        """The examples for the next segment of each path; empty: it is written from none."""
        answers = yield from self._answers(frontier)
        sets: list[_Shots] = []
        for place, (path, answer) in enumerate(zip(frontier, answers, strict=True)):
            before = path.segments[-1].shots if path.segments else ()
            decision, reason = _decided(answer, before)
            yield self._context.attempt.record(
                RetrieveDecided(
                    attempt=self._context.attempt.task.number,
                    step=step,
                    path=place,
                    decision=decision,
                    forced=self._context.attempt.task.is_retry,
                    reason=excerpt(reason, MAX_EXCERPT_CHARS),
                )
            )
            if decision is Retrieve.YES:
                sets.append((yield from self._fetched(step, path)))
            else:
                sets.append(before if decision is Retrieve.CONTINUE else ())
        return sets

    def _answers(
        self, frontier: Sequence[Path[WrittenSegment]]
    ) -> Generator[TierEvent, None, list[RetrieveAnswer | str]]:
        """A critic's decision a path, or why there is none. No call where only one answer is possible."""
        context = self._context
        if context.attempt.task.is_retry:
            return [RetrieveAnswer(retrieve=Retrieve.NO, reason=FRESH_CONTEXT)] * len(frontier)
        if not context.examples:
            # What is asked of the memory is the same at every step.
            return [RetrieveAnswer(retrieve=Retrieve.NO, reason=_NO_EXAMPLES)] * len(frontier)
        asks = [
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
            outcomes = yield from context.attempt.caller.ask_all(context.parts.critic, asks)
        except OverBudget as over:
            return [f"the budget has no room for the question: {over.problem}"] * len(frontier)
        return [_read_decision(outcome) for outcome in outcomes]

    def _fetched(self, step: int, path: Path[WrittenSegment]) -> Generator[TierEvent, None, _Shots]:
        """New examples. At the first step those that the chain has fetched are new."""
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


def _decided(answer: RetrieveAnswer | str, before: _Shots) -> tuple[Retrieve, str]:
    """Without a readable decision things stay as they are; there may be nothing to continue with."""
    if isinstance(answer, str):
        return (Retrieve.CONTINUE if before else Retrieve.NO), answer
    if answer.retrieve is Retrieve.CONTINUE and not before:
        return Retrieve.NO, f"nothing to continue with; {answer.reason}"
    return answer.retrieve, answer.reason


# Whether a step can be paid for, before it is asked for.

#: Author calls of one search: a beam of four over four examples for four steps. What takes more is
#: not searched for but guessed at.
MAX_CANDIDATE_CALLS: Final = 64

#: Bytes that a token of a segment comes to in its critique's prompt: what code and JSON have.
_BYTES_PER_TOKEN: Final = 4


def _shortage(
    step: Sequence[CandidateCall], asked: int, context: SearchContext
) -> OverBudget | str | None:
    """Return why the candidates and their critiques can't all be asked for, or None. ``asked``: author
    calls so far. Reused answers count as unpaid, so that less is searched than could be, never more."""
    if asked + len(step) > MAX_CANDIDATE_CALLS:
        return f"{asked} of at most {MAX_CANDIDATE_CALLS} candidates were asked for"
    meter = context.parts.meter
    if meter is None:
        return None
    segment = "x" * (_BYTES_PER_TOKEN * context.attempt.task.repo.settings.max_output_tokens)
    needed = [
        charge
        for one in step
        for charge in (
            meter.charge(context.parts.author.model, one.ask(context).request),
            meter.charge(context.parts.critic.model, one.critique(context, segment).request),
        )
    ]
    try:
        meter.check(context.attempt.record.scope, _sum(needed))
    except OverBudget as over:
        return over
    return None


def _sum(charges: Sequence[Charge]) -> Charge:
    """One charge for all; of unknown price as soon as one is."""
    costs = [one.cost_usd_estimate for one in charges]
    known = [Decimal(cost) for cost in costs if cost is not None]
    return Charge(
        tokens=sum(one.tokens for one in charges),
        cost_usd_estimate=f"{sum(known, Decimal(0)):f}" if len(known) == len(costs) else None,
    )


#: Segments of one plan. Real fixes have a median of two or three hunks; beyond this many a person
#: should see the change.
MAX_STEPS: Final = 6

#: Problems that a draft without a plan names: those of the first candidates.
_MAX_PROBLEMS: Final = 5


class SelfRag(SearchModels):
    """Makes an attempt's first draft; stateless, safe to share. ``critic`` (maybe the author's model)
    decides on examples and judges segments; ``meter``: the attempts' callers' one, None: no caps."""

    def draft(
        self, attempt: ModelAttempt, examples: Sequence[FewShot]
    ) -> Generator[TierEvent, None, Draft]:
        """Return the search's best plan, or the problems of every candidate of the first step.
        ``examples``: those fetched already. Raises OverBudget if no candidate can be paid for, ModelError
        if none of the first step was answered; later, both end the search with what it has."""
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
        sets = yield from self._fetching.shots(step, frontier)
        planned = yield from self._affordable(step, candidate_calls(step, frontier, sets))
        outcomes = yield from self._answers(step, planned)
        if not outcomes:
            return
        found = [
            candidate_answers(one, outcome, self._context, self._beam)
            for one, outcome in zip(planned, outcomes, strict=True)
        ]
        if step == 1:
            self._first = tuple(found)
            _check_answered(outcomes)
        judged, silent = yield from _scored_candidates(found, self._context)
        if silent:
            # Without any critique a longer path is only longer.
            self._over = True
            yield self._degraded(step, f"the search ends here: {silent}")
        yield from self._advance(judged)

    def _affordable(
        self, step: int, planned: list[CandidateCall]
    ) -> Generator[TierEvent, None, list[CandidateCall]]:
        """The candidates that can be paid for: all, the first of the best path, or none."""
        # One candidate is one path from then on: what nothing continues has ended.
        planned = planned[:1] if self._greedy else planned
        short = _shortage(planned, self._asked, self._context)
        if short is None:
            return planned
        shorter = _shortage(planned[:1], self._asked, self._context)
        if shorter is None:
            self._greedy = True
            yield self._degraded(
                step, f"greedy search with one example from here on: {_why(short)}"
            )
            return planned[:1]
        if isinstance(shorter, OverBudget) and self._beam.best() is None:
            raise shorter
        self._over = True
        yield self._degraded(step, f"the search ends here: {_why(shorter)}")
        return []

    def _answers(
        self, step: int, planned: Sequence[CandidateCall]
    ) -> Generator[TierEvent, None, list[Answered | ModelError]]:
        """The authors' answers; none where others have spent in between what was left."""
        if not planned:
            return []
        asks = [one.ask(self._context) for one in planned]
        try:
            outcomes = yield from self._context.attempt.caller.ask_all(
                self._context.parts.author, asks
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
            Scored(one.tried.one.candidate.path, one.tried.move, one.score, one.is_final)
            for one in judged
            if one.tried.move is not None and one.score is not None
        ]
        kept = iter(self._beam.advance(scored))
        for one in judged:
            is_kept = one.score is not None and next(kept)
            yield self._context.attempt.record(one.event(self._context.attempt.task, kept=is_kept))
            call = one.tried.call
            if is_kept and call is not None:
                self._kept.append(call)
            elif call is not None:
                yield self._discarded(call, one.tried.problem or "Other candidates score higher.")

    def _nothing(self) -> Draft:
        answered = [one for one in self._first if one.call is not None]
        last = answered[-1]
        refusal = next((one for one in answered if one.refused is not None), None)
        if refusal is not None and refusal.refused is not None and refusal.call is not None:
            plan = plan_of([refusal.refused])
            return Draft(refusal.call, refusal.text, plan, notes=tuple(self._notes))
        problems = tuple(dict.fromkeys(one.problem for one in answered))[:_MAX_PROBLEMS]
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


def _why(short: OverBudget | str) -> str:
    return short if isinstance(short, str) else short.problem


def _check_answered(outcomes: Sequence[Answered | ModelError]) -> None:
    """Raises the first ModelError where there is nothing else."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, ModelError)]
    if len(errors) == len(outcomes):
        raise errors[0]


# From reflections to a number (section 3.3 and appendix A.3 of the paper):
#
#     score = sum(weight * part) / sum(weight)      over the parts that there are
#
#     part         weight  value
#     ISREL        1       1 relevant, 0 not; absent without an example
#     ISSUP        1       1 full, 0.5 partial, 0 none
#     ISUSE        0.5     -1, -0.5, 0, 0.5, 1 for 1 to 5
#     likelihood   1       exp(mean log-probability of a token); absent if the server gives none
#
# Weights and values are the paper's; dividing by the sum of the weights makes segments comparable if one
# lacks a part. Of two segments with the same parts, the one that is worse in none does not score less.

WEIGHT_RELEVANCE: Final = 1.0
WEIGHT_SUPPORT: Final = 1.0
WEIGHT_USEFULNESS: Final = 0.5
WEIGHT_LIKELIHOOD: Final = 1.0

_SUPPORT: Final = {Support.FULL: 1.0, Support.PARTIAL: 0.5, Support.NONE: 0.0}

#: Decimal places: below this it is noise of floating point, and records must not differ by machine.
_PLACES: Final = 6


def likelihood(mean_logprob: float | None) -> float | None:
    """The normalised likelihood of an answer, above 0 to 1; None where the server gave none."""
    if mean_logprob is None or math.isnan(mean_logprob):
        return None
    return round(math.exp(min(mean_logprob, 0.0)), _PLACES)


def segment_score(critique: Critique, lm_score: float | None) -> float:
    """The weighted mean of the parts that there are: -1/3 (the worst, of two parts) to 1."""
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
    """What a segment counts as whose critique can't be read: the worst, whether an example was shown
    or not."""
    return Critique(
        relevant=False if shown else None, support=Support.NONE, usefulness=1, is_final=False
    )


def misplaced(segment: Segment, before: Sequence[Segment]) -> str | None:
    """Why the segment can't follow these; None where it can."""
    if isinstance(segment, DoneSegment):
        return "Nothing is added." if before else "A plan begins with an edit, a bump or a refusal."
    if before and not isinstance(segment, EditSegment):
        return f"`{segment.action}` can only be the first segment: add one edit."
    return None


def plan_of(segments: Sequence[Segment]) -> Plan:
    """The plan that well-placed segments make up (at least one)."""
    first = segments[0]
    rationale = " ".join(one.rationale for one in segments if one.rationale)
    citations = tuple(dict.fromkeys(name for one in segments for name in one.citations))
    if isinstance(first, RefuseSegment):
        return Refuse(reason=first.reason, rationale=rationale, citations=citations)
    edits = tuple(
        SearchReplace(path=one.path, old=one.old, new=one.new)
        for one in segments
        if isinstance(one, EditSegment)
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
    """Return what makes two plans the same path: the action and the edits' normalised outcome. Raises
    EditError, RepositoryError for unchecked edits, or if nothing changes."""
    if isinstance(plan, Refuse):
        return plan.action
    raised = () if isinstance(plan, SourceEdit) else (plan.package, plan.version)
    changes = merge_edits(repo, (), plan.edits).changes if plan.edits else ()
    return (plan.action, *raised, edit_digest(changes))
