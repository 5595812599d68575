"""Retrieve: whether the next segment of a path needs examples, and which (Self-RAG's first token)."""

from collections.abc import Generator, Sequence

from fallback_audit.events import MAX_EXCERPT_CHARS, RetrieveDecided
from fallback_audit.vocabulary import Retrieve
from fallback_tier.answers.critique import RetrieveAnswer, read_retrieve
from fallback_tier.attempt.rag import retrieve
from fallback_tier.attempt.task import TierEvent
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.llm.calling import Answered, CallRequest
from fallback_tier.llm.selfrag.beam import Path
from fallback_tier.llm.selfrag.search_context import SearchContext, WrittenSegment, segments_text
from fallback_tier.prompt.redact import excerpt
from fallback_tier.retrieval import FewShot

_FRESH_CONTEXT = "a retry is a fresh context, without examples"
_NO_EXAMPLES = "the memory has nothing for this advisory"

Shots = tuple[FewShot, ...]


class Fetching:
    """Decides for each path at each step. On a retry nothing is asked, and nothing is touched."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context

    def shots(
        self, step: int, frontier: Sequence[Path[WrittenSegment]]
    ) -> Generator[TierEvent, None, list[Shots]]:
        """The examples for the next segment of each path; empty: it is written from none."""
        answers = yield from self._answers(frontier)
        sets: list[Shots] = []
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
            return [RetrieveAnswer(retrieve=Retrieve.NO, reason=_FRESH_CONTEXT)] * len(frontier)
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
        return [_read(outcome) for outcome in outcomes]

    def _fetched(self, step: int, path: Path[WrittenSegment]) -> Generator[TierEvent, None, Shots]:
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


def _read(outcome: Answered | ModelError) -> RetrieveAnswer | str:
    if isinstance(outcome, ModelError):
        return f"the critic gave no answer: {outcome.problem}"
    answer, problems = read_retrieve(outcome.answer)
    return answer or f"the critic's answer can't be read: {' '.join(problems)}"


def _decided(answer: RetrieveAnswer | str, before: Shots) -> tuple[Retrieve, str]:
    """Without a readable decision things stay as they are; there may be nothing to continue with."""
    if isinstance(answer, str):
        return (Retrieve.CONTINUE if before else Retrieve.NO), answer
    if answer.retrieve is Retrieve.CONTINUE and not before:
        return Retrieve.NO, f"nothing to continue with; {answer.reason}"
    return answer.retrieve, answer.reason
