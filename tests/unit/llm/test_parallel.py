"""Requests at the same time: bounded, complete, abandoned when nobody listens any more."""

import threading
from collections.abc import Generator
from contextlib import closing

import pytest

from fallback_audit.vocabulary import Provenance
from fallback_tier.errors import ModelError
from fallback_tier.limits import MAX_PARALLEL_CALLS
from fallback_tier.llm.calling import Arrived, Piece, exchange
from fallback_tier.ports import ModelAnswer, ModelRequest
from tests.fakes.talking import TalkingModel, answer, request

_HANG_S = 30


def texts(count: int) -> list[ModelRequest]:
    return [request(f"question {number}") for number in range(count)]


def finish(events: Generator[Piece, None, list[Arrived]]) -> tuple[list[Piece], list[Arrived]]:
    pieces: list[Piece] = []
    while True:
        try:
            pieces.append(next(events))
        except StopIteration as end:
            return pieces, end.value


def model_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("model-call-")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Generator[None, None, None]:
    yield
    for thread in model_threads():
        thread.join(_HANG_S)
    assert model_threads() == []


@pytest.mark.parametrize("count", [0, 1, 2, MAX_PARALLEL_CALLS, 3 * MAX_PARALLEL_CALLS])
def test_every_request_has_its_own_answer(count: int) -> None:
    model = TalkingModel(lambda asked: answer(f"re: {asked.messages[0].content}"))
    pieces, ends = finish(exchange(model, texts(count)))
    messages = [end.outcome.text for end in ends if isinstance(end.outcome, ModelAnswer)]
    assert messages == [f"re: question {number}" for number in range(count)]
    for number in range(count):
        assert "".join(p.text for p in pieces if p.index == number) == messages[number]


def test_at_most_so_many_at_once_and_as_many_as_that() -> None:
    """The barrier opens only when the full number talks; one more would be seen."""
    together = threading.Barrier(MAX_PARALLEL_CALLS)
    lock = threading.Lock()
    talking: list[int] = [0, 0]

    def reply(_asked: ModelRequest) -> ModelAnswer:
        with lock:
            talking[0] += 1
            talking[1] = max(talking)
        together.wait(_HANG_S)
        with lock:
            talking[0] -= 1
        together.wait(_HANG_S)
        return answer()

    finish(exchange(TalkingModel(reply), texts(2 * MAX_PARALLEL_CALLS)))
    assert talking == [0, MAX_PARALLEL_CALLS]


def test_the_first_to_arrive_is_told_first_and_stands_in_its_own_place() -> None:
    second_has_answered = threading.Event()

    def reply(asked: ModelRequest) -> ModelAnswer:
        if asked.messages[0].content == "question 0":
            assert second_has_answered.wait(_HANG_S)
        return answer(asked.messages[0].content)

    heard: list[int] = []
    with closing(exchange(TalkingModel(reply), texts(2))) as events:
        try:
            while True:
                heard.append(next(events).index)
                second_has_answered.set()
        except StopIteration as end:
            ends: list[Arrived] = end.value
    assert heard[0] == 1
    assert [end.outcome.text for end in ends if isinstance(end.outcome, ModelAnswer)] == [
        "question 0",
        "question 1",
    ]


def test_a_failed_request_is_an_outcome_and_ends_no_other() -> None:
    def reply(asked: ModelRequest) -> ModelAnswer:
        if asked.messages[0].content == "question 1":
            raise ModelError("No.", next_step="Wait.")
        return answer()

    for count in (2, 6):
        _, ends = finish(exchange(TalkingModel(reply), texts(count)))
        assert [isinstance(end.outcome, ModelError) for end in ends] == [
            number == 1 for number in range(count)
        ]


@pytest.mark.parametrize("count", [1, 5])
def test_any_other_error_is_raised_after_all_have_ended(count: int) -> None:
    model = TalkingModel(lambda _: answer())

    def reply(asked: ModelRequest) -> ModelAnswer:
        if asked.messages[0].content == "question 0":
            raise RuntimeError("a mistake of ours")
        return answer()

    model = TalkingModel(reply)
    with pytest.raises(RuntimeError, match="a mistake of ours"):
        finish(exchange(model, texts(count)))
    assert len(model.asked) == count


class EndlessModel:
    """Talks until its generator is closed, and counts who was."""

    model, provenance = "endless", Provenance.SCRIPTED

    def __init__(self) -> None:
        self.opened = 0
        self.closed = threading.Semaphore(0)
        self._lock = threading.Lock()

    def close(self) -> None:
        pass

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        with self._lock:
            self.opened += 1
        try:
            while True:
                yield "word"
        finally:
            self.closed.release()


@pytest.mark.parametrize("count", [1, 2, 3 * MAX_PARALLEL_CALLS])
def test_who_closes_abandons_the_requests_and_none_starts_another(count: int) -> None:
    model = EndlessModel()
    events = exchange(model, texts(count))
    heard = {next(events).index}
    while len(heard) < min(count, MAX_PARALLEL_CALLS):
        heard.add(next(events).index)
    events.close()
    for _ in heard:
        assert model.closed.acquire(timeout=_HANG_S)
    for thread in model_threads():
        thread.join(_HANG_S)
    assert model.opened == len(heard)


def test_what_was_never_begun_starts_nothing() -> None:
    model = EndlessModel()
    exchange(model, texts(3)).close()
    assert model.opened == 0
