"""Predicates of the trace contract over one attempt: what the tier must do after what it recorded.

Each takes a trail and yields (seq, what is wrong there). An unfinished tail is never wrong for what
may still come. The table that names them is ``fallback_audit.contract``.
"""

from collections.abc import Iterator
from itertools import pairwise

from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    ConsumerLeft,
    ExampleReplayed,
    FixStarted,
    GateJudged,
    GroundingNotEvaluated,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
    PlanRejected,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RepeatedPatchRejected,
    RetrievalQueried,
)
from fallback_audit.trail import TERMINALS, Entry, Run, Trail
from fallback_audit.vocabulary import CallType, PromptShape, RetrievalVerdict, Tier

Finding = tuple[int, str]

# The floor can't import fallback_tier.limits; a test holds these equal to the tier's own.
MAX_RETRIES = 3
MAX_AUTHOR_CALLS = 3
MAX_EXAMPLES = 4


def rag_skip_recorded(trail: Trail) -> Iterator[Finding]:
    """Exactly one RagSkippedOnRetry, before the first request; none on a first attempt."""
    for run in trail.runs:
        skips = run.of(RagSkippedOnRetry)
        calls = run.of(ModelCalled)
        if not run.is_retry:
            yield from ((skip.seq, "a first attempt has nothing to skip") for skip in skips)
        elif calls and not (skips and skips[0].seq < calls[0].seq):
            yield calls[0].seq, "a retry asked the model before RagSkippedOnRetry was on record"
        if run.is_retry and len(skips) > 1:
            yield skips[1].seq, "RagSkippedOnRetry stands twice in one attempt"


def retrieval_untouched_on_retry(trail: Trail) -> Iterator[Finding]:
    """No retrieval, no replay and no recipe on a retry."""
    for run in trail.runs:
        if run.is_retry:
            for seq, event in run.any_of(RetrievalQueried, ExampleReplayed, RecipeEvaluated):
                if not isinstance(event, RecipeEvaluated) or event.selected:
                    yield seq, f"{event.kind} on a retry"


def skip_counts_priors(trail: Trail) -> Iterator[Finding]:
    """``attempt_count`` is the number of prior attempts that the attempt started with."""
    for run in trail.runs:
        expected = run.start.event.prior_attempt_count
        for seq, skip in run.of(RagSkippedOnRetry):
            if skip.attempt_count != expected:
                yield seq, f"attempt_count {skip.attempt_count}, but {expected} prior attempts"


def retry_carries_last_failure(trail: Trail) -> Iterator[Finding]:
    """What stands in place of the examples is the last recorded failure's summary."""
    last: AttemptFailed | None = None
    for seq, event in trail.any_of(AttemptFailed, RagSkippedOnRetry):
        if isinstance(event, AttemptFailed):
            last = event
        elif isinstance(event, RagSkippedOnRetry) and last is not None:
            carried = (event.summary_sha256, event.last_failure_kind)
            if carried != (last.summary_sha256, last.failure_kind):
                yield seq, f"the summary is not that of failed attempt {last.attempt}"


def attempts_in_order(trail: Trail) -> Iterator[Finding]:
    """Numbers increase; an interrupted attempt may be taken up again under its own number."""
    for run in trail.runs:
        after = run.successor
        if after and after.attempt <= run.attempt and not (run.resumed and run.interrupted):
            yield after.start.seq, f"attempt {after.attempt} starts after attempt {run.attempt}"


def history_grows(trail: Trail) -> Iterator[Finding]:
    """Nobody regains retrieval by emptying the list of prior attempts."""
    linked = any(start.event.linked_transition for start in trail.of(FixStarted))
    if linked and trail.runs and not trail.runs[0].is_retry:
        yield trail.runs[0].start.seq, "a linked transition starts without its prior attempt"
    for run in trail.runs:
        if run.successor:
            before = run.start.event.prior_attempt_count
            seq, start = run.successor.start
            if start.prior_attempt_count < before + (0 if run.interrupted else 1):
                yield seq, f"{start.prior_attempt_count} prior attempts after one with {before}"


def retry_cap_holds(trail: Trail) -> Iterator[Finding]:
    """One first attempt and MAX_RETRIES retries; an attempt taken up again counts once."""
    numbers: set[int] = set()
    for run in trail.runs:
        numbers.add(run.attempt)
        if run.start.event.prior_attempt_count > MAX_RETRIES or len(numbers) > MAX_RETRIES + 1:
            yield run.start.seq, f"more than {MAX_RETRIES} retries in one gate transition"


def prompt_shapes_agree(trail: Trail) -> Iterator[Finding]:
    """Initial on a first attempt, retry on a retry, none where no model was asked."""
    for run in trail.runs:
        shape = PromptShape.RETRY if run.is_retry else PromptShape.INITIAL
        asked = shape if run.of(ModelCalled) else PromptShape.NONE
        for seq, event in run.any_of(AttemptStarted, ModelCalled, PatchProposed, AttemptRefused):
            match event:
                case AttemptRefused():
                    expected = asked
                case PatchProposed(tier=tier):
                    expected = shape if tier is Tier.LLM else PromptShape.NONE
                case _:
                    expected = shape
            if event.prompt_shape is not expected:  # type: ignore[union-attr]
                yield seq, f"{event.kind} does not have the prompt shape {expected!r}"


def calls_are_answered(trail: Trail) -> Iterator[Finding]:
    """Each request has exactly one end, unless it was the last thing before an interruption."""
    for run in trail.runs:
        if not run.any_of(ModelCalled, ModelAnswered, ModelFailed):
            continue
        waiting: dict[tuple[int, CallType], int] = {}
        for seq, event in run.entries:
            if isinstance(event, ModelCalled):
                key = (event.call, event.call_type)
                if key in waiting:
                    yield seq, f"call {event.call} was made twice"
                waiting[key] = seq
            elif isinstance(event, ModelAnswered | ModelFailed):
                if waiting.pop((event.call, event.call_type), None) is None:
                    yield seq, f"{event.kind} without a call {event.call}"
            elif waiting and not isinstance(event, ConsumerLeft):
                yield from ((at, f"call {key[0]} has no end") for key, at in waiting.items())
                waiting = {}


def rejections_act(trail: Trail) -> Iterator[Finding]:
    """A rejected answer is asked for again or refused; it never becomes a patch."""
    ends = (ModelCalled, AttemptRefused, ConsumerLeft)
    for run in trail.runs:
        for seq, event in run.any_of(PlanRejected, RepeatedPatchRejected, ModelFailed):
            if isinstance(event, ModelFailed) and event.call_type is not CallType.AUTHOR:
                continue
            follows = run.next_of(seq, *ends, PatchProposed, GateJudged, AttemptFailed, *TERMINALS)
            if follows and not isinstance(follows.event, ends):
                yield seq, f"{event.kind} is followed by {follows.event.kind}"


def reasks_have_reasons(trail: Trail) -> Iterator[Finding]:
    """The author is asked again only after a rejected answer or a failed call."""
    for run in trail.runs:
        calls = _author_calls(run)
        for earlier, later in pairwise(calls):
            why = run.next_of(earlier.seq, PlanRejected, RepeatedPatchRejected, ModelFailed)
            if why is None or why.seq > later.seq:
                yield later.seq, "the author was asked again without a rejected answer"


def author_calls_bounded(trail: Trail) -> Iterator[Finding]:
    """Repair, strict regeneration and repeat share one ceiling."""
    for run in trail.runs:
        for call in _author_calls(run)[MAX_AUTHOR_CALLS:]:
            yield call.seq, f"more than {MAX_AUTHOR_CALLS} author calls in one attempt"


def attempts_have_one_outcome(trail: Trail) -> Iterator[Finding]:
    """Exactly one of PatchProposed, AttemptRefused, ConsumerLeft; a crash is taken up again."""
    for run in trail.runs:
        outcomes = run.any_of(PatchProposed, AttemptRefused, ConsumerLeft)
        for seq, event in outcomes[1:]:
            yield seq, f"{event.kind} is a second outcome of attempt {run.attempt}"
        if not outcomes and run.went_on and not run.resumed:
            yield run.start.seq, f"attempt {run.attempt} has no outcome, and the fix went on"


def edits_are_new(trail: Trail) -> Iterator[Finding]:
    """No normalised edit set is handed out twice in a transition."""
    seen: dict[str, int] = {}
    for seq, patch in trail.of(PatchProposed):
        if patch.edit_digest in seen:
            yield seq, f"the edits of attempt {seen[patch.edit_digest]} were proposed again"
        seen.setdefault(patch.edit_digest, patch.attempt)


def grounding_is_recorded(trail: Trail) -> Iterator[Finding]:
    """A model's patch has a verdict of its grounding, or the reason why there is none."""
    for run in trail.runs:
        for seq, patch in run.of(PatchProposed):
            words = run.of(GroundingNotEvaluated)
            if patch.tier is Tier.LLM and not (words and words[0].seq < seq):
                yield seq, "nothing is recorded about the grounding of this patch"


def patches_have_a_source(trail: Trail) -> Iterator[Finding]:
    """A patch comes from the tier that it names."""
    for run in trail.runs:
        made = {Tier.RECIPE: any(e.event.selected for e in run.of(RecipeEvaluated))}
        made[Tier.RAG] = bool(run.of(ExampleReplayed))
        made[Tier.LLM] = any(e.event.call_type is CallType.AUTHOR for e in run.of(ModelAnswered))
        for seq, patch in run.of(PatchProposed):
            if not made[patch.tier]:
                yield seq, f"nothing on record made this {patch.tier} patch"


def chain_ends_where_it_answers(trail: Trail) -> Iterator[Finding]:
    """After a selected recipe or a replayed example no later tier is asked."""
    for run in trail.runs:
        for seq, event in run.any_of(RecipeEvaluated, ExampleReplayed):
            if isinstance(event, RecipeEvaluated) and not event.selected:
                continue
            later = run.next_of(seq, RetrievalQueried, ModelCalled)
            if later:
                yield later.seq, f"{later.event.kind} although {event.kind} had ended the chain"


def examples_come_from_retrieval(trail: Trail) -> Iterator[Finding]:
    """A prompt has only what this attempt's retrieval returned; so on a retry, nothing."""
    for run in trail.runs:
        returned = {i for query in run.of(RetrievalQueried) for i in query.event.example_ids}
        for seq, call in run.of(ModelCalled):
            if not returned.issuperset(call.example_ids) or len(call.example_ids) > MAX_EXAMPLES:
                yield seq, "the prompt has examples that retrieval did not return"


def retrieval_means_what_it_says(trail: Trail) -> Iterator[Finding]:
    """A miss returned nothing; what is replayed is what this attempt's retrieval returned."""
    for run in trail.runs:
        queries = run.of(RetrievalQueried)
        for seq, query in queries:
            if query.verdict is RetrievalVerdict.MISS and query.example_ids:
                yield seq, "a miss that returned examples"
        returned = {i for query in queries for i in query.event.example_ids}
        for seq, replay in run.of(ExampleReplayed):
            if replay.example_id not in returned:
                yield seq, f"{replay.example_id} was replayed, and retrieval did not return it"


def retrieval_acts(trail: Trail) -> Iterator[Finding]:
    """What retrieval returned is replayed, or stands in the first author prompt."""
    for run in trail.runs:
        calls = _author_calls(run)
        for seq, query in run.of(RetrievalQueried):
            if query.example_ids and calls and not calls[0].event.example_ids:
                yield seq, "retrieval returned examples, and the prompt has none"


def events_stand_in_their_attempt(trail: Trail) -> Iterator[Finding]:
    """An event of an attempt stands between its AttemptStarted and the next."""
    for seq, event in trail.preamble:
        if hasattr(event, "attempt") and not isinstance(event, TERMINALS):
            yield seq, f"{event.kind} before any AttemptStarted"
    for run in trail.runs:
        for seq, event in run.entries:
            number = getattr(event, "attempt", run.attempt)
            if number != run.attempt and not isinstance(event, TERMINALS):
                yield seq, f"{event.kind} of attempt {number} stands in attempt {run.attempt}"


def _author_calls(run: Run) -> list[Entry[ModelCalled]]:
    return [call for call in run.of(ModelCalled) if call.event.call_type is CallType.AUTHOR]
