"""One model call: look up, charge, record, send, book. The only way to a model (ADR-0021).

A request is recorded with its pre-charge before it is sent; the usage that the server reports replaces the
charge. An answer that was paid for before an interruption is found again by its request, not paid twice.
"""

import queue
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from fallback_audit.events import (
    MAX_EXCERPT_CHARS,
    AnswerReused,
    Candidate,
    Charge,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
)
from fallback_audit.ports import EvidenceStore
from fallback_audit.vocabulary import CallType, ModelFailureKind
from fallback_tier.answers.reading import beginning
from fallback_tier.attempt.task import AttemptTask, DraftDiscarded, DraftText, Recorder, TierEvent
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.journal import AuditJournal, Found
from fallback_tier.budget.meter import OverBudget
from fallback_tier.budget.prices import Prices
from fallback_tier.budget.tally import UsageLedger
from fallback_tier.errors import ModelError
from fallback_tier.limits import MAX_PARALLEL_CALLS
from fallback_tier.outcome import CallUsage
from fallback_tier.patch.diff import patch_digest
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest
from fallback_tier.prompt.builder import Prompt
from fallback_tier.prompt.redact import excerpt, redact_secrets

# Several concurrent model requests: threads talk to the servers, one generator reports.


@dataclass(frozen=True)
class Piece:
    """A piece of the answer to request ``index``."""

    index: int
    text: str


@dataclass(frozen=True)
class Arrived:
    """The outcome of a request, and its duration."""

    outcome: ModelAnswer | ModelError
    duration_ms: int


@dataclass(frozen=True)
class _Ended:
    """The end of a thread. ``error``: an exception other than ModelError, which the caller must see."""

    index: int
    arrived: Arrived | None
    error: BaseException | None = None


def exchange(
    model: LanguageModel, requests: Sequence[ModelRequest]
) -> Generator[Piece, None, list[Arrived]]:
    """Send all requests, at most MAX_PARALLEL_CALLS at once, and yield pieces as they arrive.

    Closing the generator abandons the requests: each thread ends at its next piece. Raises what ``ask``
    raises except ModelError, after every thread has ended.
    """
    if len(requests) == 1:
        return (yield from _inline(model, requests[0]))
    arrivals: queue.SimpleQueue[Piece | _Ended] = queue.SimpleQueue()
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    stop = threading.Event()
    for index in range(len(requests)):
        waiting.put(index)

    def work() -> None:
        while not stop.is_set():
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            arrivals.put(_ask(model, requests[index], index, arrivals, stop))

    threads = [
        threading.Thread(target=work, daemon=True, name=f"model-call-{number}")
        for number in range(min(MAX_PARALLEL_CALLS, len(requests)))
    ]
    for thread in threads:
        thread.start()
    ended: dict[int, _Ended] = {}
    try:
        while len(ended) < len(requests):
            arrival = arrivals.get()
            if isinstance(arrival, Piece):
                yield arrival
            else:
                ended[arrival.index] = arrival
    finally:
        stop.set()
    fault = next((end.error for end in ended.values() if end.error is not None), None)
    if fault is not None:
        raise fault
    return [end.arrived for _, end in sorted(ended.items()) if end.arrived is not None]


def _inline(model: LanguageModel, request: ModelRequest) -> Generator[Piece, None, list[Arrived]]:
    """Send one request without a thread."""
    started = time.monotonic_ns()
    try:
        with closing(model.ask(request)) as pieces:
            while True:
                yield Piece(0, next(pieces))
    except StopIteration as end:
        outcome: ModelAnswer | ModelError = end.value
    except ModelError as error:
        outcome = error
    return [Arrived(outcome, (time.monotonic_ns() - started) // 1_000_000)]


def _ask(
    model: LanguageModel,
    request: ModelRequest,
    index: int,
    arrivals: "queue.SimpleQueue[Piece | _Ended]",
    stop: threading.Event,
) -> _Ended:
    started = time.monotonic_ns()

    def arrived(outcome: ModelAnswer | ModelError) -> _Ended:
        return _Ended(index, Arrived(outcome, (time.monotonic_ns() - started) // 1_000_000))

    try:
        with closing(model.ask(request)) as pieces:
            while not stop.is_set():
                arrivals.put(Piece(index, next(pieces)))
    except StopIteration as end:
        return arrived(end.value)
    except ModelError as error:
        return arrived(error)
    except BaseException as error:  # noqa: BLE001 (passed to the generator, which raises it)
        return _Ended(index, None, error)
    abandoned = ModelError("The call was abandoned.", next_step="Start the attempt again.")
    return arrived(abandoned)


@dataclass(frozen=True)
class CallRequest:
    """A request to send, and further fields of its record."""

    request: ModelRequest
    example_ids: tuple[str, ...] = ()
    strict: bool = False
    candidate: Candidate | None = None


@dataclass(frozen=True)
class Answered:
    """An answer and the number of its call (from 1, per call type)."""

    answer: ModelAnswer
    call: int


@dataclass(frozen=True)
class _Call:
    ask: CallRequest
    number: int
    key: str

    @property
    def type(self) -> CallType:
        return self.ask.request.call_type


class Caller:
    """The calls of one attempt. ``meter`` None: no caps; ``journal`` None: no answers are reused;
    ``keep_prompts``: each prompt is stored as private evidence before it is sent."""

    def __init__(
        self,
        task: AttemptTask,
        record: Recorder,
        evidence: EvidenceStore,
        *,
        meter: AuditMeter | None = None,
        journal: AuditJournal | None = None,
        keep_prompts: bool = False,
    ) -> None:
        self._task = task
        self._record = record
        self._evidence = evidence
        self._meter = meter
        self._journal = journal
        self._keep_prompts = keep_prompts
        self._prices = Prices() if meter is None else meter.prices
        self._ledger = UsageLedger()
        self._numbers: dict[CallType, int] = {}
        self._given_back: list[tuple[str, Found]] = []

    @property
    def usage(self) -> tuple[CallUsage, ...]:
        """The usage of this attempt's calls, including reused answers."""
        return self._ledger.totals()

    def ask(self, model: LanguageModel, ask: CallRequest) -> Generator[TierEvent, None, Answered]:
        """Make one call; an author's text is yielded as it arrives, as draft. Raises ModelError if there is
        no answer (recorded by then), OverBudget."""
        outcome = (yield from self.ask_all(model, [ask]))[0]
        if isinstance(outcome, ModelError):
            raise outcome
        return outcome

    def ask_all(
        self, model: LanguageModel, asks: Sequence[CallRequest]
    ) -> Generator[TierEvent, None, list[Answered | ModelError]]:
        """Make several calls, at most MAX_PARALLEL_CALLS at once, and return their outcomes in order.

        All are recorded before the first is sent, and their ends in the order of ``asks``: the same answers
        leave the same trail. Raises OverBudget if not all may be sent: then none was.
        """
        calls = [self._numbered(model, ask) for ask in asks]
        reused = {
            index: match for index, call in enumerate(calls) if (match := self._earlier(call))
        }
        to_send = {index: call for index, call in enumerate(calls) if index not in reused}
        outcomes: dict[int, Answered | ModelError] = {}
        again = [self._reused(model, calls[index], found.event) for index, found in reused.items()]
        try:
            yield from self._announce(model, list(to_send.values()), again)
        except OverBudget:
            # Return reused answers, so that a smaller request can use them.
            self._given_back += [(calls[index].key, earlier) for index, earlier in reused.items()]
            raise
        for index, earlier in reused.items():
            outcomes[index] = Answered(earlier.answer, calls[index].number)
        drafts: set[int] = set()
        arrived = yield from self._exchange(model, list(to_send.values()), drafts)
        # All ends are stored before the first is yielded: a consumer that stops between two of them loses
        # no answer that was paid for.
        ends = [
            self._record(self._end(model, call, end))
            for call, end in zip(to_send.values(), arrived, strict=True)
        ]
        yield from ends
        for (index, call), end in zip(to_send.items(), arrived, strict=True):
            if isinstance(end.outcome, ModelError):
                outcomes[index] = end.outcome
                if call.number in drafts:
                    why = f"The call broke off: {end.outcome}"
                    yield DraftDiscarded.because(why, attempt=self._task.number, call=call.number)
            else:
                outcomes[index] = Answered(end.outcome, call.number)
        in_order = [outcomes[index] for index in range(len(calls))]
        self._book(model, calls, in_order)
        return in_order

    def _book(
        self,
        model: LanguageModel,
        calls: Sequence[_Call],
        outcomes: Sequence[Answered | ModelError],
    ) -> None:
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, Answered):
                usage = outcome.answer.usage
                self._ledger.record(call.type, usage, self._prices.cost(model.model, usage))

    def _numbered(self, model: LanguageModel, ask: CallRequest) -> _Call:
        kind = ask.request.call_type
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return _Call(ask, self._numbers[kind], ask.request.key(model.model))

    def _earlier(self, call: _Call) -> Found | None:
        for index, (key, answer) in enumerate(self._given_back):
            if key == call.key:
                del self._given_back[index]
                return answer
        if self._journal is None:
            return None
        return self._journal.take(self._record.scope, self._task.number, call.key)

    def _announce(
        self, model: LanguageModel, calls: Sequence[_Call], again: Sequence[AnswerReused]
    ) -> Generator[TierEvent, None, None]:
        """Record calls with their charges, before they are sent; all or none. Then record reused answers
        (``again``): if the consumer stops there, the calls are not sent either."""
        announced: list[_Call] = []
        try:
            for call in calls:
                charge = self._admit(model, call)
                event = self._record(self._called(model, call, charge))
                announced.append(call)
                yield event
                if self._meter is not None:
                    self._meter.confirm(self._record.scope)
            for event in again:
                yield self._record(event)
        except OverBudget as error:
            for call in announced:
                yield self._record(self._failed(call, _withheld(error.problem)))
            raise
        except (GeneratorExit, KeyboardInterrupt):
            for call in announced:
                self._record(self._failed(call, _withheld("The caller went away.")))
            raise

    def _admit(self, model: LanguageModel, call: _Call) -> Charge | None:
        if self._meter is None:
            return None
        charge = self._meter.charge(model.model, call.ask.request)
        self._meter.check(self._record.scope, charge)
        return charge

    def _exchange(
        self, model: LanguageModel, calls: Sequence[_Call], drafts: set[int]
    ) -> Generator[TierEvent, None, list[Arrived]]:
        """Send the calls, yield an author's text, wait for all. ``drafts``: the numbers of calls that had
        text are added to it."""
        with closing(exchange(model, [call.ask.request for call in calls])) as pieces:
            while True:
                try:
                    piece = next(pieces)
                except StopIteration as end:
                    return [
                        replace(arrived, outcome=beginning(arrived.outcome))
                        for arrived in end.value
                    ]
                call = calls[piece.index]
                if call.type is CallType.AUTHOR:
                    drafts.add(call.number)
                    yield DraftText(attempt=self._task.number, call=call.number, text=piece.text)

    def _called(self, model: LanguageModel, call: _Call, charge: Charge | None) -> ModelCalled:
        text = call.ask.request.text
        return ModelCalled(
            attempt=self._task.number,
            call=call.number,
            call_type=call.type,
            model=model.model,
            provenance=model.provenance,
            prompt_shape=self._task.shape,
            prompt_sha256=patch_digest(text),
            prompt_bytes=len(text.encode()),
            example_ids=call.ask.example_ids,
            strict=call.ask.strict,
            request_key=call.key,
            reserved=charge,
            candidate=call.ask.candidate,
            prompt_evidence=self._evidence.put(text.encode()) if self._keep_prompts else None,
        )

    def _reused(self, model: LanguageModel, call: _Call, earlier: ModelAnswered) -> AnswerReused:
        assert earlier.answer_evidence is not None  # noqa: S101 (a journal finds only stored answers)
        return AnswerReused(
            attempt=self._task.number,
            call=call.number,
            call_type=call.type,
            model=model.model,
            prompt_shape=self._task.shape,
            request_key=call.key,
            answer_sha256=earlier.answer_sha256,
            answer_evidence=earlier.answer_evidence,
            example_ids=call.ask.example_ids,
            strict=call.ask.strict,
            candidate=call.ask.candidate,
        )

    def _end(self, model: LanguageModel, call: _Call, end: Arrived) -> ModelAnswered | ModelFailed:
        if isinstance(end.outcome, ModelError):
            return self._failed(call, end.outcome)
        answer = end.outcome
        cost = self._prices.cost(model.model, answer.usage)
        return ModelAnswered(
            attempt=self._task.number,
            call=call.number,
            call_type=call.type,
            **answer.usage.model_dump(),
            cost_usd_estimate=None if cost is None else f"{cost:f}",
            stop_reason=excerpt(answer.stop_reason, MAX_EXCERPT_CHARS),  # a server's own text
            answer_sha256=patch_digest(answer.text),
            answer_evidence=self._kept_answer(answer),
            duration_ms=end.duration_ms,
        )

    def _kept_answer(self, answer: ModelAnswer) -> str | None:
        """Store an answer for a resume. None: it holds a secret, which evidence must not; a resume asks
        again."""
        if redact_secrets(answer.text)[0] != answer.text:
            return None
        return self._evidence.put(answer.model_dump_json().encode())

    def _failed(self, call: _Call, error: ModelError) -> ModelFailed:
        return ModelFailed(
            attempt=self._task.number,
            call=call.number,
            call_type=call.type,
            reason=excerpt(str(error), MAX_EXCERPT_CHARS),
            failure=error.failure,
        )


def _withheld(why: str) -> ModelError:
    return ModelError(
        f"It was not sent. {why}",
        next_step="Resume the attempt.",
        failure=ModelFailureKind.WITHHELD,
    )


@dataclass(frozen=True)
class ModelAttempt:
    """One attempt with a model: the prompt, and the recorder and caller of its events and calls. With
    another prompt it is another value (``dataclasses.replace``)."""

    task: AttemptTask
    prompt: Prompt
    record: Recorder
    caller: Caller
