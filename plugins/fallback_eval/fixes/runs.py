"""Raw results of a real run: what became of each project, told from its audit trail.

::

    runs.jsonl                     one run a line, in the order in which they were made
    transcripts/NAME-SEED.json.gz  every prompt, answer, event, patch and gate log of that run
    report.md                      made from runs.jsonl

A row is computed from the events that its transcript holds, so that it can be computed again.
"""

import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AuditEvent,
    Digest,
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
    event_adapter,
)
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import CallType, FailureKind, PromptShape, Provenance
from fallback_eval.campaign import RowError, Rows
from fallback_eval.retrieval.results import EvaluationError
from fallback_tier.errors import first_fault
from fallback_tier.files.whole import write_whole
from fallback_tier.repo import AnswerForm


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


RUNS, TRANSCRIPTS, REPORT = "runs.jsonl", "transcripts", "report.md"

#: A transcript, unpacked: four attempts of three calls with 100 KB of prompt each, and their logs.
MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024


class FixRun(Frozen):
    """One run over one project. ``setup``: in words, what served the model and how."""

    project: str
    weakness: str
    cwe: str
    ecosystem: str
    seed: int
    date: str
    model: str
    provenance: Provenance
    setup: str
    answer_form: AnswerForm = AnswerForm.JSON
    tool_version: str
    facts: FixFacts
    transcript_sha256: Digest

    @property
    def key(self) -> tuple[str, int]:
        """What a run is known by."""
        return self.project, self.seed


def _line(run: FixRun) -> str:
    return json.dumps(run.model_dump(mode="json", exclude_defaults=True))


#: In the order in which they were made. The page is ``FixFolder.publish``'s: it is written more often.
_ROWS = Rows(FixRun, key=lambda run: run.key, dump=_line, name=RUNS)


@dataclass(frozen=True)
class FixFolder:
    """Where the runs are kept."""

    path: Path

    def runs(self) -> tuple[FixRun, ...]:
        """All runs, none where there is no file yet. Raises EvaluationError: not of the format."""
        try:
            return _ROWS.read(self.path)
        except RowError as error:
            raise EvaluationError(
                f"{error.place} is not a run: {first_fault(error.fault, 'the line')}.",
                next_step="Take the line out, and run that project again.",
            ) from error

    def add(self, run: FixRun, transcript: bytes) -> None:
        """Keep a run, in place of one of the same project and seed: the transcript first."""
        place = self._transcript(run.key)
        place.parent.mkdir(parents=True, exist_ok=True)
        _replace(place, transcript)
        _ROWS.keep(run, self.path)

    def publish(self, page: str) -> None:
        """Write the report."""
        _replace(self.path / REPORT, page.encode())

    def faults(self, page: str) -> Iterator[str]:
        """Every way in which report, rows and transcripts no longer follow from one another."""
        runs = self.runs()
        if not runs:
            yield f"there is no run in {str(self.path)!r}"
            return
        for run in runs:
            yield from self._run_faults(run)
        known = {self._transcript(run.key).name for run in runs}
        there = {place.name for place in (self.path / TRANSCRIPTS).glob("*")}
        yield from (f"{TRANSCRIPTS}/{name} belongs to no run" for name in sorted(there - known))
        report = self.path / REPORT
        if not report.exists() or report.read_text(encoding="utf-8") != page:
            yield f"{REPORT} does not follow from {RUNS}: make it again"

    def _run_faults(self, run: FixRun) -> Iterator[str]:
        place = self._transcript(run.key)
        try:
            packed = place.read_bytes()
            if hashlib.sha256(packed).hexdigest() != run.transcript_sha256:
                yield f"{TRANSCRIPTS}/{place.name} was altered"
            elif facts_of(events_of(unpack(packed))) != run.facts:
                yield f"the row of {run.project} (seed {run.seed}) does not follow from its transcript"
        except (OSError, EvaluationError) as error:
            yield f"{TRANSCRIPTS}/{place.name} can't be read: {error}"

    def _transcript(self, key: tuple[str, int]) -> Path:
        return self.path / TRANSCRIPTS / f"{key[0]}-{key[1]}.json.gz"


def pack(transcript: Mapping[str, object]) -> bytes:
    """A transcript's bytes: the same transcript, the same bytes."""
    text = json.dumps(transcript, ensure_ascii=False, indent=1, sort_keys=True)
    return gzip.compress(text.encode("utf-8", "replace"), mtime=0)


def unpack(packed: bytes) -> Mapping[str, object]:
    """What ``pack`` packed. Raises EvaluationError: not that, or larger than MAX_TRANSCRIPT_BYTES."""
    try:
        with gzip.open(io.BytesIO(packed)) as file:
            text = file.read(MAX_TRANSCRIPT_BYTES + 1)
        read = json.loads(text) if len(text) <= MAX_TRANSCRIPT_BYTES else None
    except (OSError, EOFError, ValueError) as error:
        raise _unreadable(str(error)) from error
    if not isinstance(read, dict):
        raise _unreadable(f"no object of at most {MAX_TRANSCRIPT_BYTES:,} bytes")
    return read


def events_of(transcript: Mapping[str, object]) -> Sequence[AuditEvent]:
    """The events of a transcript, in order. Raises EvaluationError."""
    events = transcript.get("events")
    try:
        if not isinstance(events, list):
            raise _unreadable("it has no events")
        return [event_adapter.validate_python(one) for one in events]
    except ValidationError as error:
        raise _unreadable(first_fault(error, "an event")) from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def _unreadable(why: str) -> EvaluationError:
    return EvaluationError(
        f"A transcript can't be used: {why}.",
        next_step="Run that project again.",
        kind="bad_transcript",
    )
