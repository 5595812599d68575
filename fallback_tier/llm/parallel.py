"""Several model requests at the same time: threads talk to the servers, one generator tells of it."""

import queue
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

from fallback_tier.errors import ModelError
from fallback_tier.limits import MAX_PARALLEL_CALLS
from fallback_tier.ports import LanguageModel, ModelAnswer, ModelRequest


@dataclass(frozen=True)
class Piece:
    """A piece of the answer to request ``index``."""

    index: int
    text: str


@dataclass(frozen=True)
class Arrived:
    """How a request ended."""

    outcome: ModelAnswer | ModelError
    duration_ms: int


@dataclass(frozen=True)
class _Ended:
    """A thread's last word. ``error``: anything but a ModelError, which is the caller's to see."""

    index: int
    arrived: Arrived | None
    error: BaseException | None = None


def exchange(
    model: LanguageModel, requests: Sequence[ModelRequest]
) -> Generator[Piece, None, list[Arrived]]:
    """Ask all, at most MAX_PARALLEL_CALLS at once; pieces in the order in which they arrive.

    Whoever closes the generator abandons the requests: each thread ends at its next piece, and none
    starts another. Raises what ``ask`` raises beside ModelError, after every thread has ended.
    """
    if len(requests) == 1:
        return (yield from _inline(model, requests[0]))
    words: queue.SimpleQueue[Piece | _Ended] = queue.SimpleQueue()
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
            words.put(_ask(model, requests[index], index, words, stop))

    threads = [
        threading.Thread(target=work, daemon=True, name=f"model-call-{number}")
        for number in range(min(MAX_PARALLEL_CALLS, len(requests)))
    ]
    for thread in threads:
        thread.start()
    ended: dict[int, _Ended] = {}
    try:
        while len(ended) < len(requests):
            word = words.get()
            if isinstance(word, Piece):
                yield word
            else:
                ended[word.index] = word
    finally:
        stop.set()
    fault = next((end.error for end in ended.values() if end.error is not None), None)
    if fault is not None:
        raise fault
    return [end.arrived for _, end in sorted(ended.items()) if end.arrived is not None]


def _inline(model: LanguageModel, request: ModelRequest) -> Generator[Piece, None, list[Arrived]]:
    """One request needs no thread."""
    started = time.monotonic_ns()
    try:
        with closing(model.ask(request)) as words:
            while True:
                yield Piece(0, next(words))
    except StopIteration as end:
        outcome: ModelAnswer | ModelError = end.value
    except ModelError as error:
        outcome = error
    return [Arrived(outcome, (time.monotonic_ns() - started) // 1_000_000)]


def _ask(
    model: LanguageModel,
    request: ModelRequest,
    index: int,
    words: "queue.SimpleQueue[Piece | _Ended]",
    stop: threading.Event,
) -> _Ended:
    started = time.monotonic_ns()

    def arrived(outcome: ModelAnswer | ModelError) -> _Ended:
        return _Ended(index, Arrived(outcome, (time.monotonic_ns() - started) // 1_000_000))

    try:
        with closing(model.ask(request)) as pieces:
            while not stop.is_set():
                words.put(Piece(index, next(pieces)))
    except StopIteration as end:
        return arrived(end.value)
    except ModelError as error:
        return arrived(error)
    except BaseException as error:  # noqa: BLE001 (told to the generator, which raises it)
        return _Ended(index, None, error)
    abandoned = ModelError("The call was abandoned.", next_step="Start the attempt again.")
    return arrived(abandoned)
