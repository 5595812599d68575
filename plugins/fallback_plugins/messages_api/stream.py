"""A streamed answer: its words as they arrive, and at its end the whole of it, or an error."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from fallback_plugins.messages_api.failures import Failures
from fallback_tier.errors import ModelError
from fallback_tier.ports import ModelAnswer, Usage

if TYPE_CHECKING:
    from anthropic import MessageStream
    from anthropic.types import Message
    from httpx2 import Response

    from fallback_tier.network import TimeLimit

#: Tokens that a server may say one answer took: a thousand of the largest contexts that there are. More
#: is no report, and would count against every cap.
MAX_TOKENS: Final = 1_000_000_000

#: A stop reason is one of a few words; it goes on record, and a server may say anything.
MAX_STOP_REASON_CHARS: Final = 64

#: What reading raises where a server sends what is no Messages API: the SDK validates nothing.
_MALFORMED: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read_answer(
    stream: "MessageStream[None]", failures: Failures, limit: "TimeLimit"
) -> Generator[str, None, ModelAnswer]:
    """Yields the text in pieces; returns the answer, whose text is exactly those pieces.

    Blocks that are no text (thinking, tools) are left out; their tokens are in the usage. A server that
    answers with one JSON message (some gateways don't stream) gives one piece.

    Raises ModelError: no partial answer is ever returned, whatever it was that ended it early. One that
    had begun may have to be paid for, and its failure is of a kind that says so.
    """
    begun = False
    try:
        if _is_json(stream.response):
            with _reading(failures, limit):
                answer = _whole(stream.response)
            if answer.text:
                yield answer.text
            return answer
        words: list[str] = []
        for event in _events(stream, failures, limit):
            begun = True
            with _reading(failures, limit):
                if event.type == "message_stop":
                    # What follows is of no interest, so a server that stalls there does no harm.
                    return _answer(stream.current_message_snapshot, "".join(words))
                piece = _printable(_text(event))
            if piece:
                words.append(piece)
                yield piece
        raise failures.late(limit.seconds) if limit.passed else failures.broken()
    except ModelError as error:
        if begun and not error.failure.may_be_billed:
            raise failures.in_mid_answer(error) from error
        raise


def _events(stream: "MessageStream[None]", failures: Failures, limit: "TimeLimit") -> Iterator[Any]:
    """The events of the API, and those that the SDK derives from them (``text``)."""
    events = iter(stream)
    while True:
        with _reading(failures, limit):
            event = next(events, None)
        if event is None:
            return
        yield event


@contextmanager
def _reading(failures: Failures, limit: "TimeLimit") -> Iterator[None]:
    """Whatever reading raises, as the one error that a caller sees."""
    from anthropic import AnthropicError
    from httpx2 import HTTPError, TimeoutException

    from fallback_tier.network import AnswerTooLargeError

    try:
        yield
    except AnthropicError as error:
        raise failures.of(error) from error
    except HTTPError as error:
        if limit.passed or isinstance(error, TimeoutException):
            raise failures.late(limit.seconds) from error
        raise failures.broken(error) from error
    except AnswerTooLargeError as error:
        raise failures.too_large(error) from error
    except _MALFORMED as error:
        raise failures.not_an_answer() from error


def _text(event: Any) -> str:
    """The text that an event of the API brings; derived ones say the same again."""
    if event.type == "content_block_start" and event.content_block.type == "text":
        return event.content_block.text or ""
    if event.type == "content_block_delta" and event.delta.type == "text_delta":
        return event.delta.text or ""
    return ""


def _printable(text: str) -> str:
    """A lone surrogate has no UTF-8: it can neither be hashed, recorded nor written to a file."""
    return text.encode("utf-8", "replace").decode()


def _is_json(response: "Response") -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "application/json"


def _whole(response: "Response") -> ModelAnswer:
    """A Messages API answer in one body; ValueError where it is not a whole one."""
    from anthropic.types import Message

    fields: dict[str, Any] = json.loads(response.read())
    if fields["type"] != "message" or not fields["stop_reason"]:
        raise ValueError(fields["type"])
    message = Message.construct(**fields)
    return _answer(
        message,
        _printable("".join(block.text for block in message.content if block.type == "text")),
    )


def _answer(message: "Message", text: str) -> ModelAnswer:
    """The SDK doesn't validate what a server sends, so nothing of it is taken for granted."""
    usage = Usage(
        input_tokens=message.usage.input_tokens,
        output_tokens=message.usage.output_tokens,
        cache_read_tokens=message.usage.cache_read_input_tokens or 0,
        cache_write_tokens=message.usage.cache_creation_input_tokens or 0,
    )
    if not all(0 <= tokens <= MAX_TOKENS for tokens in usage.model_dump().values()):
        raise ValueError(usage)
    stop_reason = _printable(message.stop_reason or "unknown")[:MAX_STOP_REASON_CHARS]
    return ModelAnswer(text=text, stop_reason=stop_reason, usage=usage)
