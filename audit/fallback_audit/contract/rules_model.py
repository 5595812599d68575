"""Rules of the trace contract over model calls: each is answered, paid once, and acted upon."""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from fallback_audit.contract.rule import Added, Altered, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Finding, Run, Trail
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    ConsumerLeft,
    GateJudged,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    MoreCodeShown,
    PatchProposed,
    PlanRejected,
    RepeatedPatchRejected,
)
from fallback_audit.vocabulary import CallType

# The floor can't import fallback_tier.limits; a test holds these equal to the tier's own.
MAX_AUTHOR_CALLS = 3

#: Author calls of one self-RAG search, which count as one: a candidate for each of MAX_EXAMPLES
#: examples, path of the beam and step makes no more.
MAX_CANDIDATE_CALLS = 64

_ASKED = frozenset({ModelCalled, AnswerReused})
_REJECTED = frozenset({PlanRejected, RepeatedPatchRejected, ModelFailed})
_SETTLED = frozenset({LowConfidenceFlagged, AttemptRefused, ConsumerLeft})
_VERDICTS = (
    PlanRejected,
    RepeatedPatchRejected,
    GroundingJudged,
    GroundingNotEvaluated,
    PatchProposed,
)
_OUTCOMES = frozenset({PatchProposed, GateJudged, AttemptFailed, *TERMINALS})


@rule(
    "Each model call has exactly one answer or failure, unless it was interrupted.",
    "ADR-0023",
    breaches=(
        Removed(ModelAnswered),
        Removed(ModelFailed),
        Added(ModelAnswered),
    ),
    sees=None,
    local=True,
)
def calls_are_answered(trail: Trail) -> Iterator[Finding]:
    """The end stands before anything else."""
    for run in trail.runs:
        if not (run.asked or run.any_of(ModelAnswered, ModelFailed)):
            continue
        waiting: dict[tuple[CallType, int], int] = {}
        numbers: set[tuple[CallType, int]] = set()
        for seq, event in run.entries:
            if type(event) is ModelCalled or type(event) is AnswerReused:
                key = (event.call_type, event.call)
                if key in numbers:
                    yield seq, f"{event.call_type} call {event.call} was made twice"
                numbers.add(key)
                if type(event) is ModelCalled:
                    waiting[key] = seq
            elif type(event) is ModelAnswered or type(event) is ModelFailed:
                if waiting.pop((event.call_type, event.call), None) is None:
                    yield seq, f"{event.kind} without a {event.call_type} call {event.call}"
            elif waiting and type(event) is not ConsumerLeft:
                yield from (
                    (at, f"{key[0]} call {key[1]} has no end") for key, at in waiting.items()
                )
                waiting = {}


@rule(
    "A rejected answer is asked for again, refused, or replaced by a flagged earlier one.",
    "ADR-0022",
    breaches=(
        Removed(AttemptRefused),
        Removed(LowConfidenceFlagged),
    ),
    sees={PatchProposed, GateJudged, AttemptFailed, *TERMINALS},
    local=True,
)
def rejections_act(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        if not run.any_of(PlanRejected, RepeatedPatchRejected, ModelFailed):
            continue
        follows: AuditEvent | None = None
        candidates = {e.event.call for e in run.author_asked if e.event.candidate}
        for seq, event in reversed(run.entries):
            kind = type(event)
            if kind in _SETTLED or (kind in _ASKED and _is_authors(event)):
                follows = None
            elif kind in _OUTCOMES:
                follows = event
            elif follows is not None and kind in _REJECTED and _is_authors(event):
                if isinstance(event, ModelFailed) and event.call in candidates:
                    continue  # the other candidates are still there
                yield seq, f"{event.kind} is followed by {follows.kind}"


@rule(
    "The author is asked again after a rejected or doubted answer, a failed call, or because code "
    "was missing.",
    "ADR-0022",
    breaches=(
        Removed(PlanRejected),
        Removed(GroundingJudged),
        Removed(MoreCodeShown),
    ),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def reasks_have_reasons(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        if len(run.author_asked) < 2:
            continue
        why = [
            seq
            for seq, event in run.any_of(
                PlanRejected, RepeatedPatchRejected, ModelFailed, GroundingJudged, MoreCodeShown
            )
            if _is_authors(event) and not (isinstance(event, GroundingJudged) and event.supported)
        ]
        for earlier, later in pairwise(run.author_asked):
            reasons = bisect(why, later.seq) - bisect(why, earlier.seq)
            if later.event.candidate is None and not reasons:
                yield later.seq, "the author was asked again without a rejected answer"


@rule(
    "More code is shown once an attempt, on the author's last answer; a patch needs another one.",
    "ADR-0044",
    breaches=(
        Added(MoreCodeShown),
        Altered(MoreCodeShown, "call"),
    ),
    sees={MoreCodeShown, PatchProposed},
    local=True,
)
def more_code_was_asked_for(trail: Trail) -> Iterator[Finding]:
    """Nothing else came of that answer."""
    for run in trail.runs:
        shown = run.of(MoreCodeShown)
        for seq, _ in shown[1:]:
            yield seq, "more code was shown twice in one attempt"
        for seq, event in shown:
            if (since := _answered_last(run, event.call, seq)) is None:
                yield seq, f"answer {event.call} is not what the author said last"
                continue
            for at, verdict in run.any_of(*_VERDICTS):
                if since < at < seq:
                    yield seq, f"answer {event.call} has its verdict: {verdict.kind}"
            again = min((one.seq for one in run.author_asked if one.seq > seq), default=None)
            for at, _ in run.of(PatchProposed):
                if at > seq and (again is None or at < again):
                    yield seq, "a patch came of it without another answer"


def _answered_last(run: Run, call: int, before: int) -> int | None:
    """Where the author was asked for this answer, if it came, and it was asked nothing since; of a search's
    candidates any may be the last. Not under the strict instruction."""
    asked = [one for one in run.author_asked if one.seq < before]
    plain = [one for one in asked if not one.event.candidate]
    last = [one for one in asked if one.event.candidate and not plain] or plain[-1:]
    its = next((one for one in last if one.event.call == call and not one.event.strict), None)
    if its is None:
        return None
    came = isinstance(its.event, AnswerReused) or any(
        one.seq < before and one.event.call == call and _is_authors(one.event)
        for one in run.of(ModelAnswered)
    )
    return its.seq if came else None


@rule(
    "An attempt has at most three author calls; all of a self-RAG search count as one.",
    "ADR-0014",
    breaches=(Added(ModelCalled),),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def author_calls_bounded(trail: Trail) -> Iterator[Finding]:
    """Repair, strict regeneration and repeat share the ceiling."""
    for run in trail.runs:
        if len(run.author_asked) <= MAX_AUTHOR_CALLS:
            continue
        candidates = [e.seq for e in run.author_asked if e.event.candidate]
        generations = [*candidates[:1], *(e.seq for e in run.author_asked if not e.event.candidate)]
        for seq in sorted(generations)[MAX_AUTHOR_CALLS:]:
            yield seq, f"more than {MAX_AUTHOR_CALLS} author calls in one attempt"
        for seq in candidates[MAX_CANDIDATE_CALLS:]:
            yield seq, f"more than {MAX_CANDIDATE_CALLS} candidates in one attempt"


@rule(
    "A reused answer was paid for before this attempt was interrupted, and is used once.",
    "ADR-0023",
    breaches=(
        Added(AnswerReused),
        Altered(AnswerReused, "answer_sha256"),
    ),
    sees={AnswerReused},
)
def answers_reused_were_paid(trail: Trail) -> Iterator[Finding]:
    paid: dict[int, Counter[object]] = defaultdict(Counter)
    for run in trail.runs if trail.of(AnswerReused) else ():
        used: Counter[object] = Counter()
        for seq, reused in run.of(AnswerReused):
            key = (reused.call_type, reused.model, reused.request_key)
            answer = (*key, reused.answer_sha256, reused.answer_evidence)
            used[answer] += 1
            if used[answer] > paid[run.attempt][answer]:
                yield seq, "no earlier run of this attempt paid for this answer, or it is used up"
        for call, end in _answered(run):
            made = (call.call_type, call.model, call.request_key)
            paid[run.attempt][(*made, end.answer_sha256, end.answer_evidence)] += 1


@rule(
    "A resumed attempt asks for nothing that it has an answer to.",
    "ADR-0023",
    breaches=(Added(ModelCalled),),
    sees={ModelCalled, AttemptStarted},
)
def no_finished_call_paid_twice(trail: Trail) -> Iterator[Finding]:
    paid: dict[int, Counter[object]] = defaultdict(Counter)
    for run in trail.runs if any(run.resumed for run in trail.runs) else ():
        used: Counter[object] = Counter()
        for seq, asked in run.asked:
            key = (asked.call_type, asked.request_key)
            if isinstance(asked, AnswerReused):
                used[key] += 1
            elif used[key] < paid[run.attempt][key]:
                yield seq, f"{asked.call_type} call {asked.call} was paid for before"
        for call, end in _answered(run):
            if call.request_key is not None and end.answer_evidence is not None:
                paid[run.attempt][(call.call_type, call.request_key)] += 1


def _is_authors(event: AuditEvent) -> bool:
    """A call of the author's, or something about his plan: all but calls for another purpose."""
    if not isinstance(event, (ModelCalled, AnswerReused, ModelFailed)):
        return True
    return event.call_type is CallType.AUTHOR


def _answered(run: Run) -> Iterator[tuple[ModelCalled, ModelAnswered]]:
    calls = {(e.event.call_type, e.event.call): e.event for e in run.of(ModelCalled)}
    for _, answer in run.of(ModelAnswered):
        call = calls.get((answer.call_type, answer.call))
        if call is not None:
            yield call, answer
