"""Events of the LLM leaf in words: the part of ``fallback_audit.showing.describe`` about model traffic.

Nothing is neutralised here: ``describe.sentence`` does that for all of them.
"""

from fallback_audit import events
from fallback_audit.contract.trail import Asked
from fallback_audit.model_events import Candidate
from fallback_audit.vocabulary import Retrieve

_RETRIEVE = {
    Retrieve.YES: "fetch examples",
    Retrieve.NO: "no examples",
    Retrieve.CONTINUE: "continue with the examples of the step before",
}


def model_sentence(event: events.AuditEvent) -> str:
    """What happened, in one line; empty for an event of another kind."""
    return _call_sentence(event) or _verdict_sentence(event) or _search_sentence(event)


def grounded_words(grounded: bool | None) -> str:
    """What a judge said of a plan, in words."""
    return {True: "grounded", False: "NOT grounded", None: "grounding not evaluated"}[grounded]


def _call_sentence(event: events.AuditEvent) -> str:
    match event:
        case events.ModelCalled():
            booked = ""
            if event.reserved and event.reserved.cost_usd_estimate:
                booked = f", at most ~${event.reserved.cost_usd_estimate}"
            return (
                f"{event.call_type} call {event.call} to {event.model} ({event.provenance}):"
                f" {event.prompt_shape.label}, {event.prompt_bytes:,} bytes,"
                f" {len(event.example_ids)} examples{booked}{_asked_for(event)}"
            )
        case events.AnswerReused():
            return (
                f"{event.call_type} call {event.call} to {event.model} not sent: answered before the "
                f"interruption, nothing is paid twice{_asked_for(event)}"
            )
        case events.ModelAnswered():
            cost = f", ~${event.cost_usd_estimate}" if event.cost_usd_estimate else ""
            tokens = f"{event.input_tokens:,} + {event.output_tokens:,} tokens"
            return f"{_answer(event.call, event.call_type)}: {tokens}{cost}, {event.stop_reason}"
        case events.ModelFailed():
            kind = f" ({event.failure})" if event.failure else ""
            return f"{event.call_type} call {event.call} gave no answer{kind}: {event.reason}"
        case events.BudgetReached():
            return (
                f"BUDGET REACHED ({event.limit}): the next call may use {event.wanted},"
                f" {event.used} of {event.cap} are used; nothing was sent"
            )
        case events.BudgetRaised():
            caps = (("$", event.usd_per_fix), ("tokens ", event.tokens_per_fix))
            to = ", ".join(f"{unit}{cap}" for unit, cap in caps if cap is not None)
            raised = f"budget of this fix raised to {to}" if to else "budget stop lifted"
            return f"{raised} by {event.by}: {event.reason}"
        case _:
            return ""


def _verdict_sentence(event: events.AuditEvent) -> str:
    match event:
        case events.PlanRejected():
            return f"answer {event.call} rejected: not a valid plan"
        case events.MoreCodeShown():
            return (
                f"answer {event.call} declined because code was missing: shown {event.byte_count:,} "
                "bytes more,"
                f" of {', '.join(event.files)}"
            )
        case events.RepeatedPatchRejected():
            return f"answer {event.call} rejected: the edits of attempt {event.repeats_attempt}"
        case events.GroundingNotEvaluated():
            return f"grounding not evaluated: {event.reason}"
        case events.GroundingJudged():
            return (
                f"answer {event.call} {grounded_words(event.supported)}:"
                f" {event.faithfulness_score:.0%} of {event.claims} claims supported,"
                f" by {event.judge_model}"
            )
        case events.LowConfidenceFlagged():
            times = "once" if event.attempts == 1 else f"{event.attempts} times"
            return f"LOW CONFIDENCE (unsupported {times}), check by hand: {event.reason}"
        case _:
            return ""


def _search_sentence(event: events.AuditEvent) -> str:
    match event:
        case events.RetrieveDecided():
            why = ", ".join(filter(None, ("forced" if event.forced else "", event.reason)))
            message = f"path {event.path}: {_RETRIEVE[event.decision]}"
            return f"self-RAG step {event.step}, {message}" + (f" ({why})" if why else "")
        case events.SegmentScored():
            return f"self-RAG {_name(event.candidate)}: {_score(event)}"
        case events.StrategyDegraded():
            return f"self-RAG degraded at step {event.step}: {event.reason}"
        case _:
            return ""


def _score(event: events.SegmentScored) -> str:
    if event.problem:
        return f"no candidate: {event.problem}"
    facts = (
        "kept" if event.kept else "dropped",
        None if event.score is None else f"score {event.score:.3f}",
        None if event.example_id is None else f"from {event.example_id}",
        None if event.relevant is None else ("relevant" if event.relevant else "not relevant"),
        None if event.support is None else f"support {event.support}",
        None if event.usefulness is None else f"usefulness {event.usefulness}",
        "no log-probability" if event.lm_score is None else f"log-probability {event.lm_score:.3f}",
        "final" if event.is_final else None,
    )
    return ", ".join(fact for fact in facts if fact)


def _answer(call: int, call_type: str) -> str:
    return f"answer {call}" if call_type == "author" else f"{call_type} answer {call}"


def _asked_for(event: Asked) -> str:
    strict = ", strict: only what the context states" if event.strict else ""
    return strict + (f", self-RAG {_name(event.candidate)}" if event.candidate else "")


def _name(candidate: Candidate) -> str:
    return f"step {candidate.step}, path {candidate.path}, candidate {candidate.number}"
