"""Rules on model traffic: calls, verdicts on plans, budgets, self-RAG."""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from fallback_audit.contract.rule import Added, Altered, Kind, Removed, rule
from fallback_audit.contract.trail import TERMINALS, Asked, Finding, Run, Trail, is_budget_stop
from fallback_audit.events import (
    AnswerReused,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    BudgetRaised,
    BudgetReached,
    ConsumerLeft,
    FixEscalated,
    FixRefused,
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
    RetrievalQueried,
    RetrieveDecided,
    SegmentScored,
)
from fallback_audit.events.model import Candidate
from fallback_audit.vocabulary import CallType, Retrieve, Tier

# --- Calls and their answers. ----------------------------------------------------------------------

# This package can't import fallback_tier.limits; a test keeps these equal to the tier's own.
MAX_AUTHOR_CALLS = 3

#: Most author calls of one self-RAG search, which count as one: one candidate for each of MAX_EXAMPLES
#: examples, path of the beam and step.
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
                    (call_seq, f"{key[0]} call {key[1]} has no end")
                    for key, call_seq in waiting.items()
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
                    continue  # the other candidates remain
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
        reason_seqs = [
            seq
            for seq, event in run.any_of(
                PlanRejected, RepeatedPatchRejected, ModelFailed, GroundingJudged, MoreCodeShown
            )
            if _is_authors(event) and not (isinstance(event, GroundingJudged) and event.supported)
        ]
        for earlier, later in pairwise(run.author_asked):
            reason_count = bisect(reason_seqs, later.seq) - bisect(reason_seqs, earlier.seq)
            if later.event.candidate is None and not reason_count:
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
            next_seq = min(
                (entry.seq for entry in run.author_asked if entry.seq > seq), default=None
            )
            for at, _ in run.of(PatchProposed):
                if at > seq and (next_seq is None or at < next_seq):
                    yield seq, "a patch came of it without another answer"


def _answered_last(run: Run, call: int, before: int) -> int | None:
    """Return the event of author call ``call`` if it was answered, and is the last one before ``before``.

    Any candidate of a search may be the last. None also for a call under the strict instruction.
    """
    calls = [entry for entry in run.author_asked if entry.seq < before]
    without_candidates = [entry for entry in calls if not entry.event.candidate]
    last = [
        entry for entry in calls if entry.event.candidate and not without_candidates
    ] or without_candidates[-1:]
    matching = next(
        (entry for entry in last if entry.event.call == call and not entry.event.strict), None
    )
    if matching is None:
        return None
    is_answered = isinstance(matching.event, AnswerReused) or any(
        entry.seq < before and entry.event.call == call and _is_authors(entry.event)
        for entry in run.of(ModelAnswered)
    )
    return matching.seq if is_answered else None


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
            key_of_call = (call.call_type, call.model, call.request_key)
            paid[run.attempt][(*key_of_call, end.answer_sha256, end.answer_evidence)] += 1


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
        for seq, request in run.asked:
            key = (request.call_type, request.request_key)
            if isinstance(request, AnswerReused):
                used[key] += 1
            elif used[key] < paid[run.attempt][key]:
                yield seq, f"{request.call_type} call {request.call} was paid for before"
        for call, end in _answered(run):
            if call.request_key is not None and end.answer_evidence is not None:
                paid[run.attempt][(call.call_type, call.request_key)] += 1


def _is_authors(event: AuditEvent) -> bool:
    """Return whether the event is the author's or about the plan: False only for calls of other types."""
    if not isinstance(event, (ModelCalled, AnswerReused, ModelFailed)):
        return True
    return event.call_type is CallType.AUTHOR


def _answered(run: Run) -> Iterator[tuple[ModelCalled, ModelAnswered]]:
    calls = {(e.event.call_type, e.event.call): e.event for e in run.of(ModelCalled)}
    for _, answer in run.of(ModelAnswered):
        call = calls.get((answer.call_type, answer.call))
        if call is not None:
            yield call, answer


# --- Grounding: is a plan supported. ---------------------------------------------------------------

#: Kinds after which there is no current draft.
_NO_DRAFT = frozenset({PlanRejected, RepeatedPatchRejected, MoreCodeShown})

_ABOUT_A_DRAFT = (
    ModelAnswered,
    AnswerReused,
    PlanRejected,
    RepeatedPatchRejected,
    MoreCodeShown,
    GroundingJudged,
    GroundingNotEvaluated,
    LowConfidenceFlagged,
    PatchProposed,
)


@rule(
    "A model's patch has the verdict on its answer, or the reason why there is none.",
    "ADR-0022",
    breaches=(
        Removed(GroundingJudged),
        Removed(GroundingNotEvaluated),
        Altered(PatchProposed, "grounded"),
    ),
    sees={PatchProposed, GroundingJudged, GroundingNotEvaluated},
    local=True,
)
def grounding_is_recorded(trail: Trail) -> Iterator[Finding]:
    """The patch says the same. Where gates alone are run again, both stand where it was made."""
    for run in trail.runs if trail.judges_again is None else ():
        for seq, patch in run.of(PatchProposed):
            if patch.tier is Tier.LLM:
                yield from _recorded(run)
            elif patch.grounded is not None:
                yield seq, f"a {patch.tier} patch has no claims to judge"


def _recorded(run: Run) -> Iterator[Finding]:
    candidates = {call.call for _, call in run.author_asked if call.candidate}
    in_hand: set[int] = set()  # the calls that made the draft: one, or those of a search
    verdict: GroundingJudged | GroundingNotEvaluated | None = None
    judged, flagged = True, False
    for seq, event in run.any_of(*_ABOUT_A_DRAFT):
        if type(event) is ModelAnswered or type(event) is AnswerReused:
            if event.call_type is CallType.AUTHOR:
                if event.call not in candidates:
                    in_hand.clear()
                in_hand.add(event.call)
                judged = False
        elif type(event) in _NO_DRAFT:
            in_hand.clear()
            judged = True
        elif type(event) is GroundingJudged or type(event) is GroundingNotEvaluated:
            if judged:
                yield seq, f"{event.kind} on a draft that has its verdict"
            if event.call is not None and event.call not in in_hand:
                yield seq, f"{event.kind} about call {event.call}, not about the draft in hand"
            verdict, judged = event, True
        elif type(event) is LowConfidenceFlagged:
            flagged = True  # the doubted plan is handed on, whatever came of the one after it
        elif type(event) is PatchProposed:
            supported = verdict.supported if isinstance(verdict, GroundingJudged) else None
            expected = False if flagged else supported
            if verdict is None or not judged:
                yield seq, "nothing is recorded about the grounding of this patch"
            elif event.grounded is not expected:
                yield seq, f"grounded: {event.grounded}, which is not the last verdict"


@rule(
    "An unsupported plan is written again with the strict instruction, flagged, or refused.",
    "ADR-0022",
    breaches=(
        Removed(LowConfidenceFlagged),
        Altered(GroundingJudged, "supported"),
    ),
    sees={PatchProposed, GateJudged, AttemptFailed, ModelCalled, AnswerReused, *TERMINALS},
    local=True,
)
def grounding_acts(trail: Trail) -> Iterator[Finding]:
    ignored: tuple[Kind, ...] = (PatchProposed, GateJudged, AttemptFailed, *TERMINALS)
    for run in trail.runs:
        doubted = False
        for seq, event in run.entries if run.of(GroundingJudged) else ():
            if isinstance(event, GroundingJudged):
                doubted = doubted or not event.supported
            elif isinstance(event, Asked) and event.call_type is CallType.AUTHOR:
                if doubted and not event.strict:
                    yield (
                        seq,
                        "an unsupported plan was asked for again without the strict instruction",
                    )
                doubted = False
            elif isinstance(event, LowConfidenceFlagged):
                doubted = False
            elif doubted and isinstance(event, ignored):
                yield seq, f"{event.kind} although the plan is unsupported, and nothing says so"
                doubted = False


@rule(
    "A patch is flagged exactly where unsupported plans are on record, and counts them.",
    "ADR-0022",
    breaches=(
        Removed(GroundingJudged),
        Added(LowConfidenceFlagged),
        Altered(PatchProposed, "low_confidence"),
        Altered(LowConfidenceFlagged, "attempts"),
    ),
    sees={LowConfidenceFlagged, ModelCalled, PatchProposed},
    local=True,
)
def low_confidence_has_grounds(trail: Trail) -> Iterator[Finding]:
    """Where gates alone are run again, the flag stands where the patch was made."""
    for run in trail.runs if trail.judges_again is None else ():
        judged = run.any_of(GroundingJudged, LowConfidenceFlagged)
        if not (judged or any(patch.low_confidence for _, patch in run.of(PatchProposed))):
            continue
        doubts = flags = 0
        for seq, event in run.any_of(
            GroundingJudged, LowConfidenceFlagged, ModelCalled, PatchProposed
        ):
            match event:
                case GroundingJudged(supported=False):
                    doubts += 1
                case LowConfidenceFlagged():
                    if flags or not doubts or event.attempts != doubts:
                        yield seq, f"LowConfidenceFlagged after {doubts} unsupported plans"
                    flags += 1
                case ModelCalled(call_type=CallType.AUTHOR) if flags:
                    yield seq, "the author was asked again after LowConfidenceFlagged"
                case PatchProposed(low_confidence=is_flagged) if is_flagged is not bool(flags):
                    yield seq, f"low_confidence: {is_flagged}, and the record says otherwise"
                case _:
                    pass


@rule(
    "The strict instruction is used only in the one regeneration of an unsupported plan.",
    "ADR-0022",
    breaches=(
        Removed(GroundingJudged),
        Altered(ModelCalled, "strict"),
        Altered(AnswerReused, "strict"),
    ),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def strict_only_after_doubt(trail: Trail) -> Iterator[Finding]:
    """Never on a first generation; repairs of that regeneration have it as well."""
    for run in trail.runs:
        if not any(call.strict for _, call in run.asked):
            continue
        doubts, begun = 0, False
        for seq, event in run.any_of(GroundingJudged, ModelCalled, AnswerReused):
            if isinstance(event, GroundingJudged):
                doubts += not event.supported
            elif isinstance(event, Asked) and event.strict:
                if event.call_type is not CallType.AUTHOR or not doubts:
                    yield seq, "the strict instruction stands without an unsupported plan"
                elif doubts > 1:
                    yield seq, "a second regeneration under the strict instruction"
                begun = True
            elif isinstance(event, Asked) and begun and event.call_type is CallType.AUTHOR:
                yield seq, "the regeneration went on without the strict instruction"


# --- Budgets. --------------------------------------------------------------------------------------


@rule(
    "After BudgetReached nothing is sent or proposed, and the attempt is refused for it.",
    "ADR-0023",
    breaches=(
        Added(ModelCalled),
        Added(PatchProposed),
        Altered(AttemptRefused, "reason"),
    ),
    sees={ModelCalled, PatchProposed, BudgetReached, AttemptRefused},
    local=True,
)
def budget_acts(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        reached = run.of(BudgetReached)
        for seq, event in run.any_of(ModelCalled, PatchProposed, BudgetReached) if reached else ():
            if seq > reached[0].seq:
                yield seq, f"{event.kind} although the budget was used up"
        for seq, refusal in run.of(AttemptRefused) if reached else ():
            if seq > reached[0].seq and not is_budget_stop(refusal):
                yield (
                    seq,
                    f"the budget was used up, and the attempt was refused for {refusal.reason}",
                )


@rule(
    "A refusal or escalation for a budget has its BudgetReached, and no other reason.",
    "ADR-0023",
    breaches=(
        Removed(BudgetReached),
        Altered(FixEscalated, "reason"),
    ),
    sees={AttemptRefused, FixEscalated},
    local=True,
)
def budget_stops_are_real(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        stopped = False
        for seq, event in run.any_of(BudgetReached, BudgetRaised, AttemptRefused, FixEscalated):
            if isinstance(event, BudgetReached | BudgetRaised):
                stopped = isinstance(event, BudgetReached)
            elif is_budget_stop(event) and not stopped:
                yield seq, f"{event.kind} for a budget that was not reached"
            elif stopped and isinstance(event, FixEscalated) and not is_budget_stop(event):
                yield (
                    seq,
                    f"a budget stopped the attempt, and the fix is escalated as {event.reason}",
                )


@rule(
    "BudgetRaised has a name and a reason, and is recorded only if a budget stopped the fix.",
    "ADR-0023",
    breaches=(
        Added(BudgetRaised),
        Altered(BudgetRaised, "by"),
        Altered(BudgetRaised, "reason"),
    ),
    sees={BudgetRaised},
)
def budget_raises_are_signed(trail: Trail) -> Iterator[Finding]:
    for seq, raised in trail.of(BudgetRaised):
        if not (raised.by.strip() and raised.reason.strip()):
            yield seq, "BudgetRaised without a name and a reason"
    if not trail.of(BudgetRaised):
        return
    reached: int | None = None
    for (_, before), (seq, event) in pairwise([(0, None), *trail.acts]):
        if isinstance(event, AttemptStarted):
            reached = None
        elif isinstance(event, BudgetReached):
            reached = seq
        elif isinstance(event, BudgetRaised) and (
            reached is None
            or (
                not isinstance(before, BudgetReached | ConsumerLeft | BudgetRaised)
                and not is_budget_stop(before)
            )
        ):
            yield seq, "BudgetRaised where no budget had stopped the fix"


@rule(
    "After BudgetRaised the stopped attempt is resumed, or the fix ends.",
    "ADR-0023",
    breaches=(
        Removed(AttemptStarted),
        Added(ModelCalled),
    ),
    sees=None,
    local=True,
)
def budget_raises_reopen(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs if trail.of(BudgetRaised) else ():
        raises = run.of(BudgetRaised)
        for seq, event in run.entries if raises else ():
            if seq > raises[0].seq and not isinstance(
                event, BudgetRaised | FixEscalated | FixRefused
            ):
                yield seq, f"{event.kind} after BudgetRaised, before the attempt was resumed"
        if raises and run.successor and not run.resumed:
            yield run.successor.start.seq, f"attempt {run.attempt} was not resumed"


# --- Self-RAG: a search over single edits. ---------------------------------------------------------


@rule(
    "On a retry each of self-RAG's decisions on retrieval is a forced no.",
    "ADR-0011",
    breaches=(
        Altered(RetrieveDecided, "decision"),
        Altered(RetrieveDecided, "forced"),
    ),
    sees={RetrieveDecided},
    local=True,
)
def retrieve_forced_on_retry(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        for seq, decided in run.of(RetrieveDecided) if run.is_retry else ():
            if decided.decision is not Retrieve.NO or not decided.forced:
                yield seq, f"retrieve: {decided.decision} on a retry, and it must be a forced no"


@rule(
    "A candidate follows one decision on retrieval, and has no example if that is no.",
    "ADR-0024",
    breaches=(
        Removed(RetrieveDecided),
        Added(RetrieveDecided),
        Altered(RetrieveDecided, "decision"),
    ),
    sees={RetrieveDecided, ModelCalled, AnswerReused},
    local=True,
)
def retrieve_acts(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        decisions: dict[tuple[int, int], Retrieve] = {}
        for seq, event in run.any_of(RetrieveDecided, ModelCalled, AnswerReused):
            if type(event) is RetrieveDecided:
                if (event.step, event.path) in decisions:
                    yield seq, f"path {event.path} of step {event.step} was decided on twice"
                decisions[event.step, event.path] = event.decision
            elif (candidate := _candidate(event)) is not None:
                decision = decisions.get((candidate.step, candidate.path))
                if decision is None:
                    yield (
                        seq,
                        f"step {candidate.step} was asked for before retrieval was decided on",
                    )
                elif decision is Retrieve.NO and isinstance(event, Asked) and event.example_ids:
                    yield seq, "an example stands where retrieval was decided against"


@rule(
    "Examples are fetched for a segment exactly where a path decided yes.",
    "ADR-0024",
    breaches=(
        Removed(RetrievalQueried),
        Altered(RetrieveDecided, "decision"),
    ),
    sees={RetrievalQueried, ModelCalled, AnswerReused},
    local=True,
)
def retrieve_yes_fetches(trail: Trail) -> Iterator[Finding]:
    """The chain's own query serves the first step."""
    for run in trail.runs:
        if not run.of(RetrieveDecided):
            continue
        fetched, step, wanted = False, 0, False
        for seq, event in run.any_of(RetrieveDecided, RetrievalQueried, ModelCalled, AnswerReused):
            if isinstance(event, RetrieveDecided):
                if event.step != step:
                    step, wanted, fetched = event.step, False, fetched and event.step == 1
                wanted = wanted or event.decision is Retrieve.YES
            elif isinstance(event, RetrievalQueried):
                fetched = True
                if step and not wanted:
                    yield (
                        seq,
                        f"examples were fetched at step {step}, and no path had asked for them",
                    )
            elif wanted and not fetched and _candidate(event) is not None:
                yield seq, f"step {step} was to fetch examples, and did not"
                wanted = False


@rule(
    "Self-RAG's candidates make the first draft of an attempt, and nothing after it.",
    "ADR-0024",
    breaches=(Altered(ModelCalled, "candidate"),),
    sees={ModelCalled, AnswerReused},
    local=True,
)
def candidates_come_first(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        ordinary = False
        for seq, call in run.author_asked:
            if call.candidate and ordinary:
                yield seq, "a candidate after the first draft was done"
            ordinary = ordinary or call.candidate is None


@rule(
    "Each answered candidate is scored once before the search goes on; a kept one has a score.",
    "ADR-0024",
    breaches=(
        Removed(SegmentScored),
        Added(SegmentScored),
        Altered(SegmentScored, "score"),
    ),
    sees={
        SegmentScored,
        PatchProposed,
        PlanRejected,
        GroundingJudged,
        GroundingNotEvaluated,
        ModelCalled,
        AnswerReused,
    },
    local=True,
)
def segments_are_scored(trail: Trail) -> Iterator[Finding]:
    for run in trail.runs:
        if run.of(SegmentScored) or any(call.candidate for _, call in run.author_asked):
            yield from _scored(run)


def _scored(run: Run) -> Iterator[Finding]:
    calls = {a.call: a.candidate for _, a in run.author_asked if a.candidate is not None}
    unscored = set(calls.values())
    unscored_answers: dict[Candidate, int] = {}
    for seq, event in run.entries:
        match event:
            case ModelAnswered(call_type=CallType.AUTHOR, call=call) if call in calls:
                unscored_answers[calls[call]] = seq
            case SegmentScored(candidate=candidate):
                if candidate not in unscored:
                    yield seq, f"{_name(candidate)} was scored twice, or never asked for"
                if event.kept and (event.score is None or event.problem):
                    yield seq, f"{_name(candidate)} was kept without a score"
                unscored.discard(candidate)
                unscored_answers.pop(candidate, None)
            case _ if overdue := _left_behind(event, unscored_answers):
                for candidate in overdue:
                    yield (
                        unscored_answers.pop(candidate),
                        f"{_name(candidate)} was answered and never scored",
                    )
            case _:
                pass
        if isinstance(event, AnswerReused) and (reused := _candidate(event)) is not None:
            unscored_answers[reused] = seq


def _left_behind(event: object, unscored_answers: dict[Candidate, int]) -> list[Candidate]:
    """Return the answered candidates that should have been scored before this event."""
    if not unscored_answers:
        return []
    if isinstance(event, PatchProposed | PlanRejected | GroundingJudged | GroundingNotEvaluated):
        return list(unscored_answers)
    if isinstance(event, Asked) and event.call_type is CallType.AUTHOR:
        # They are all of one step: a step's candidates are scored before the next step begins.
        step = event.candidate.step if event.candidate else None
        return [] if step == next(iter(unscored_answers)).step else list(unscored_answers)
    return []


def _candidate(event: object) -> Candidate | None:
    """Return the candidate that an author call is for, or None."""
    if type(event) is ModelCalled or type(event) is AnswerReused:
        return event.candidate if event.call_type is CallType.AUTHOR else None
    return None


def _name(candidate: Candidate) -> str:
    return f"candidate {candidate.path}.{candidate.number} of step {candidate.step}"
