"""The search itself: step by step, from an empty plan to the best one that was found.

A step, for all paths of the beam at once: decide on examples, ask an author for one candidate an
example, check each at once, ask a critic about those that hold, keep the best. What is asked at the
same time is recorded in the order of paths and examples, so that the same answers leave the same trail.
"""

from collections.abc import Generator, Sequence
from typing import Final

from fallback_audit.events import MAX_EXCERPT_CHARS, StrategyDegraded
from fallback_tier.attempt.task import Draft, DraftDiscarded, TierEvent
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.llm.calling import Answered, ModelAttempt
from fallback_tier.llm.selfrag.affordable import shortage
from fallback_tier.llm.selfrag.beam import Beam, Scored
from fallback_tier.llm.selfrag.critics import ScoredCandidate, scored_candidates
from fallback_tier.llm.selfrag.fetching import Fetching
from fallback_tier.llm.selfrag.plan import plan_of
from fallback_tier.llm.selfrag.search_context import (
    SearchContext,
    SearchModels,
    WrittenSegment,
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
        self._fetching = Fetching(context)
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
        judged, silent = yield from scored_candidates(found, self._context)
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
        short = shortage(planned, self._asked, self._context)
        if short is None:
            return planned
        shorter = shortage(planned[:1], self._asked, self._context)
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

    def _advance(self, judged: Sequence[ScoredCandidate]) -> Generator[TierEvent, None, None]:
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
