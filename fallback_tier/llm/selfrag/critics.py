"""Candidates that hold, judged by a critic and weighed (Self-RAG's ISREL, ISSUP and ISUSE)."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from fallback_audit.events import MAX_EXCERPT_CHARS, SegmentScored
from fallback_tier.answers.critique import Critique, read_critique
from fallback_tier.attempt.task import AttemptTask, TierEvent
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.llm.calling import Answered, CallRequest
from fallback_tier.llm.selfrag.score import segment_score, unread
from fallback_tier.llm.selfrag.search_context import SearchContext, example_id
from fallback_tier.llm.selfrag.trying import CandidateAnswer
from fallback_tier.prompt.redact import excerpt


@dataclass(frozen=True)
class ScoredCandidate:
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


def scored_candidates(
    found: Sequence[CandidateAnswer], context: SearchContext
) -> Generator[TierEvent, None, tuple[list[ScoredCandidate], str]]:
    """Every candidate in order, and why there is no critique at all (empty: there is one, or none was
    needed). All critiques are asked for at the same time."""
    asks = [ask for one in found if (ask := _ask(one, context)) is not None]
    if not asks:
        return [ScoredCandidate(one) for one in found], ""
    try:
        outcomes = yield from context.attempt.caller.ask_all(context.parts.critic, asks)
    except OverBudget as over:
        critiques: list[Critique | None] = [None] * len(asks)
        silent = f"the budget has no room for critiques: {over.problem}"
    else:
        critiques = [_read(outcome) for outcome in outcomes]
        answered = any(isinstance(outcome, Answered) for outcome in outcomes)
        silent = "" if answered else "the critic gives no answer"
    waiting = iter(critiques)
    return [
        ScoredCandidate(one) if one.move is None else _scored(one, next(waiting)) for one in found
    ], silent


def _ask(one: CandidateAnswer, context: SearchContext) -> CallRequest | None:
    if one.move is None:
        return None
    return one.one.critique(context, one.move.segment.model_dump_json())


def _read(outcome: Answered | ModelError) -> Critique | None:
    return None if isinstance(outcome, ModelError) else read_critique(outcome.answer)[0]


def _scored(one: CandidateAnswer, critique: Critique | None) -> ScoredCandidate:
    """Relevance is an example's: without one it is nobody's to say, with one it must be said."""
    shown = one.one.shot is not None
    if critique is None:
        return ScoredCandidate(one, None, segment_score(unread(shown=shown), one.lm_score))
    relevant = bool(critique.relevant) if shown else None
    critique = critique.model_copy(update={"relevant": relevant})
    return ScoredCandidate(one, critique, segment_score(critique, one.lm_score))
