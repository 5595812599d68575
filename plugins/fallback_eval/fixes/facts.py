"""What an audit trail tells of one fix: attempts, calls, verdicts, in figures that can be added up."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AuditEvent,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixVerified,
    GateJudged,
    GroundingJudged,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
    PatchProposed,
    PlanRejected,
    RepeatedPatchRejected,
)
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import CallType, FailureKind, PromptShape
from fallback_eval.retrieval.results import EvaluationError


class CallFacts(Frozen):
    """One model call. ``failure``: why no answer came."""

    attempt: int
    call: int
    call_type: CallType
    prompt_bytes: int
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    duration_ms: int = 0
    stop_reason: str = ""
    failure: str = ""


class AttemptFacts(Frozen):
    """One attempt. ``failure_kind`` None: it was verified. ``why``: the failing gate's own words, or
    the reasons for which no patch came of it. ``rejected``: invalid or repeated answers, in order;
    ``invalid_calls``: those of them that were no valid plan, by the numbers of their calls."""

    attempt: int
    shape: PromptShape
    failure_kind: FailureKind | None = None
    failing_gates: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    invalid_calls: tuple[int, ...] = ()
    unsupported: int = 0
    why: str = ""
    gates_ms: int = 0


class FixFacts(Frozen):
    """What a trail tells of one fix. ``reason``: of a refusal or an escalation."""

    outcome: Literal["verified", "patched", "refused", "escalated"]
    reason: str = ""
    attempts: tuple[AttemptFacts, ...] = ()
    calls: tuple[CallFacts, ...] = ()

    @property
    def verified_at(self) -> int | None:
        """The number of the attempt that was verified."""
        return self.attempts[-1].attempt if self.outcome == "verified" else None

    @property
    def first_answers(self) -> tuple[int, int]:
        """Of the attempts whose first call was answered: in how many that was a valid plan, and how many
        they are. A repeated plan and a refusal are valid; the novelty of a plan is another matter."""
        answered = {
            one.attempt
            for one in self.calls
            if (one.call, one.call_type, one.failure) == (1, CallType.AUTHOR, "")
        }
        invalid = {one.attempt for one in self.attempts if 1 in one.invalid_calls}
        return len(answered - invalid), len(answered)

    def tokens(self, call_type: CallType | None = None) -> tuple[int, int]:
        """Tokens read (from a cache too) and written, of one call type or of all."""
        calls = [one for one in self.calls if call_type in {None, one.call_type}]
        return (
            sum(one.input_tokens + one.cache_read_tokens for one in calls),
            sum(one.output_tokens for one in calls),
        )

    @property
    def model_ms(self) -> int:
        """Wall time of the model's answers."""
        return sum(one.duration_ms for one in self.calls)

    @property
    def gates_ms(self) -> int:
        """Wall time of the gates."""
        return sum(one.gates_ms for one in self.attempts)


def facts_of(events: Iterable[AuditEvent]) -> FixFacts:
    """What a trail tells of one fix. Raises EvaluationError where it has no end."""
    trail = list(events)
    match trail[-1] if trail else None:
        case FixVerified():
            outcome, reason = "verified", ""
        case FixPatched():
            outcome, reason = "patched", ""
        case FixRefused(reason=why):
            outcome, reason = "refused", why.value
        case FixEscalated(reason=why):
            outcome, reason = "escalated", why.value
        case _:
            raise EvaluationError(
                "The trail of a fix has no end.", next_step="Run that project again."
            )
    numbers = dict.fromkeys(
        event.attempt for event in trail if isinstance(event, PatchProposed | AttemptRefused)
    )
    return FixFacts.model_validate(
        {
            "outcome": outcome,
            "reason": reason,
            "attempts": tuple(_attempt(number, trail) for number in numbers),
            "calls": tuple(_calls(trail)),
        }
    )


def _attempt(number: int, trail: Sequence[AuditEvent]) -> AttemptFacts:
    own = [event for event in trail if getattr(event, "attempt", None) == number]
    shape, why, failed = PromptShape.NONE, "", None
    rejected: list[str] = []
    invalid: list[int] = []
    for event in own:
        match event:
            case PatchProposed(prompt_shape=found):
                shape = found
            case AttemptRefused(prompt_shape=found, sentence=sentence):
                shape, why = found, sentence
            case PlanRejected(problems=problems, call=call):
                rejected.append(" ".join(problems))
                invalid.append(call)
            case RepeatedPatchRejected(repeats_attempt=earlier):
                rejected.append(f"the same edits as in attempt {earlier}")
            case GateJudged(failure_kind=kind, detail=detail) if kind is not None:
                why = detail
            case AttemptFailed():
                failed = event
            case _:
                continue
    return AttemptFacts(
        attempt=number,
        shape=shape,
        failure_kind=failed.failure_kind if failed else None,
        failing_gates=failed.failing_gates if failed else (),
        rejected=tuple(rejected),
        invalid_calls=tuple(invalid),
        unsupported=sum(isinstance(one, GroundingJudged) and not one.supported for one in own),
        why=why,
        gates_ms=sum(one.duration_ms for one in own if isinstance(one, GateJudged)),
    )


def _calls(trail: Sequence[AuditEvent]) -> Iterator[CallFacts]:
    """Each call with its end. (A run is made in one go: nothing is found again.)"""
    ends = {
        (event.attempt, event.call, event.call_type): event
        for event in trail
        if isinstance(event, ModelAnswered | ModelFailed)
    }
    for called in trail:
        if not isinstance(called, ModelCalled):
            continue
        about = {
            "attempt": called.attempt,
            "call": called.call,
            "call_type": called.call_type,
            "prompt_bytes": called.prompt_bytes,
        }
        end = ends.get((called.attempt, called.call, called.call_type))
        if isinstance(end, ModelAnswered):
            about |= {name: getattr(end, name) for name in _OF_AN_ANSWER}
        else:
            about["failure"] = end.reason if end is not None else "no end is on record"
        yield CallFacts.model_validate(about)


_OF_AN_ANSWER = ("input_tokens", "output_tokens", "cache_read_tokens", "duration_ms", "stop_reason")
