"""What the LLM tier records, and how its work on one attempt ends, where no supported plan came of it."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    BudgetReached,
    LowConfidenceFlagged,
    MoreCodeShown,
)
from fallback_audit.vocabulary import ModelFailureKind, RefusalReason
from fallback_tier.attempt.checks import Invalid, declining
from fallback_tier.attempt.task import (
    AttemptTask,
    Draft,
    Grounding,
    Proposal,
    Recorder,
    Refusal,
    TierEvent,
)
from fallback_tier.budget.meter import OverBudget
from fallback_tier.errors import ModelError
from fallback_tier.grounding.support import Judgement
from fallback_tier.outcome import CallUsage, LowConfidence, Refuse
from fallback_tier.prompt.context import Snippet
from fallback_tier.prompt.redact import excerpt


@dataclass(frozen=True)
class Doubted:
    """A valid plan that the judge found unsupported, and how many such there were by then."""

    proposal: Proposal
    judgement: Judgement
    attempts: int


def flagged(
    doubted: Doubted, task: AttemptTask, record: Recorder
) -> Generator[TierEvent, None, Proposal]:
    """Handed on, saying what to double-check: the gates prove behaviour, not reasons."""
    judgement = doubted.judgement
    reason = (
        f"{len(judgement.unsupported)} of {len(judgement.claims)} claims of this plan are not supported "
        "by the advisory and the code that the model was shown"
    )
    yield record(
        LowConfidenceFlagged(
            attempt=task.number,
            reason=excerpt(reason, MAX_EXCERPT_CHARS),
            attempts=doubted.attempts,
        )
    )
    flag = LowConfidence(
        reason=reason,
        attempts=doubted.attempts,
        double_check=tuple(excerpt(claim, MAX_EXCERPT_CHARS) for claim in judgement.unsupported),
    )
    return replace(
        doubted.proposal,
        grounding=Grounding(False, judgement.faithfulness_score, flag),
    )


def out_of_calls(invalid: Invalid | None, calls: int) -> Refusal:
    """No answer was a valid plan."""
    assert invalid is not None  # noqa: S101 (the ceiling is at least one call)
    return Refusal(
        invalid.reason,
        f"The model gave no usable plan in {calls} calls: {' '.join(invalid.problems)}",
    )


def stopped(over: OverBudget, task: AttemptTask) -> BudgetReached:
    """The cap that held the next call back, on record."""
    return BudgetReached(
        attempt=task.number, limit=over.limit, cap=over.cap, used=over.used, wanted=over.wanted
    )


def more_code_shown(draft: Draft, snippets: Sequence[Snippet], task: AttemptTask) -> MoreCodeShown:
    """A model declined and is asked again with these, on record."""
    files = dict.fromkeys(snippet.path for snippet in snippets)
    return MoreCodeShown(
        attempt=task.number,
        call=draft.call,
        files=tuple(excerpt(path, MAX_EXCERPT_CHARS) for path in files),
        byte_count=sum(len(snippet.text.encode()) for snippet in snippets),
    )


def unless_too_much(
    asking: Generator[TierEvent, None, Draft], declined: Refuse
) -> Generator[TierEvent, None, Draft]:
    """Return the answer of a model that was shown more code. If its window has no room for that, the model
    has declined. Raises Refusal; OverBudget if a cap has no room, since a person may raise a cap."""
    try:
        return (yield from asking)
    except ModelError as error:
        if not is_too_much(error):
            raise
        raise declining(declined) from error


def is_too_much(error: OverBudget | ModelError) -> bool:
    """Would a shorter prompt be another matter?"""
    if isinstance(error, OverBudget):
        return bool(error.wanted)
    return error.failure is ModelFailureKind.CONTEXT_TOO_LONG


def refused(error: OverBudget | ModelError | Refusal, usage: tuple[CallUsage, ...]) -> Refusal:
    """Why the attempt ends without a patch, with what its calls used."""
    if isinstance(error, Refusal):
        return Refusal(error.reason, error.sentence, usage)
    if isinstance(error, OverBudget):
        return Refusal(RefusalReason.BUDGET_EXHAUSTED, str(error), usage)
    too_long = error.failure is ModelFailureKind.CONTEXT_TOO_LONG
    reason = RefusalReason.CONTEXT_TOO_LONG if too_long else RefusalReason.MODEL_UNAVAILABLE
    return Refusal(reason, str(error), usage)
