"""The search itself: step by step, from an empty plan to the best one that was found.

A step, for all paths of the beam at once: decide on examples, ask an author for one candidate an
example, check each at once, ask a critic about those that hold, keep the best. What is asked at the
same time is recorded in the order of paths and examples, so that the same answers leave the same trail.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    Charge,
    RetrieveDecided,
    SegmentScored,
    StrategyDegraded,
)
from fallback_audit.vocabulary import Retrieve
from fallback_tier.answers.critique import Critique, RetrieveAnswer, read_critique, read_retrieve
from fallback_tier.attempt.rag import retrieve
from fallback_tier.attempt.task import AttemptTask, Draft, DraftDiscarded, TierEvent
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.llm.calling import Answered, CallRequest, ModelAttempt
from fallback_tier.llm.selfrag.beam import Beam, Path, Scored
from fallback_tier.llm.selfrag.plan import plan_of
from fallback_tier.llm.selfrag.score import segment_score, unread
from fallback_tier.llm.selfrag.search_context import (
    SearchContext,
    SearchModels,
    WrittenSegment,
    example_id,
    segments_text,
    shots_of,
    shown,
)
from fallback_tier.llm.selfrag.trying import (
    CandidateAnswer,
    CandidateCall,
    candidate_answers,
    candidate_calls,
)
from fallback_tier.prompt.redact import excerpt
from fallback_tier.retrieval import FewShot

# Candidates that hold, judged by a critic and weighed (Self-RAG's ISREL, ISSUP and ISUSE).


@dataclass(frozen=True)
class _ScoredCandidate:
    """A candidate with what it counts. ``score`` None: it does not hold.

    ``critique`` None beside a score: none could be had, so it counts the worst.
    """

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
        critiques = [_read_critique(outcome) for outcome in outcomes]
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


def _read_critique(outcome: Answered | ModelError) -> Critique | None:
    return None if isinstance(outcome, ModelError) else read_critique(outcome.answer)[0]


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
    """Why the candidates and their critiques can't all be asked for; None: they can.

    ``asked``: author calls so far. What was answered before an interruption is counted as if it had
    still to be paid: then less is searched than could be, and never more.
    """
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
    """Makes the first draft of an attempt. Stateless between attempts; safe to share.

    ``critic`` decides on examples and judges segments; it may be the author's model. ``meter``: the one
    that the callers of the attempts have; None: no cap is looked at.
    """

    def draft(
        self, attempt: ModelAttempt, examples: Sequence[FewShot]
    ) -> Generator[TierEvent, None, Draft]:
        """The best plan of the search, or what was wrong with every candidate of the first step.

        ``examples``: what the chain has fetched (none on a retry). Raises OverBudget where not even one
        candidate can be paid for, ModelError where no candidate of the first step was answered. Later
        on either ends the search, with what there is.
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
    """One search: its beam, and what it has to tell at the end."""

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
        """Move the beam on, and tell of every candidate."""
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
        """No path came to anything: a refusal where an author declined, else the problems."""
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
