"""Answers from any server that speaks the Messages API, over the official SDK's stream.

``anthropic`` is imported when the first request is made: the import alone takes longer than a recipe fix.

Every failure is typed (``ModelFailureKind``), so that a caller need not read its text. The text has the
server's address, the status and a bounded part of the server's message; never a header, and never the
key: a server may quote one, so the exact key and all that looks like one are removed first.
"""

import contextlib
import json
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fallback_audit.errors import FallbackError
from fallback_audit.vocabulary import ModelFailureKind as Kind
from fallback_audit.vocabulary import Provenance
from fallback_tier.errors import ConfigurationError, ModelError
from fallback_tier.ports import Message, ModelAnswer, ModelRequest, Usage

if TYPE_CHECKING:
    from ssl import SSLContext

    from anthropic import (
        Anthropic,
        AnthropicError,
        APIConnectionError,
        APIStatusError,
        MessageStream,
    )
    from anthropic._middleware import CallNext, MiddlewareCallable
    from anthropic.types import Message as SdkMessage
    from anthropic.types import MessageParam, OutputConfigParam, TextBlockParam
    from httpx2 import Request, Response

    from fallback_tier.network import AnswerTooLargeError, TimeLimit

#: Where the SDK sends requests by default. Named here so that ANTHROPIC_BASE_URL, which the SDK would
#: read by itself, can't redirect a request (and its key) without the caller's knowledge.
PROVIDER_URL: Final = "https://api.anthropic.com"

#: The SDK's own default: attempts after the first, with exponential back-off (0.5 s to 8 s).
DEFAULT_MAX_RETRIES: Final = 2

#: Seconds that one answer may take, the SDK's own default: 2,048 tokens at 3.5 a second, the slowest
#: local model that is of use.
DEFAULT_TIMEOUT_S: Final = 600.0

#: Turns up to which a prompt may be cached: the API takes four marks, and the system block has one.
MAX_CACHED_TURNS: Final = 3


class ClaudeModel:
    """Implements LanguageModel. One streamed request per call of ``ask``; safe to share among threads.

    ``base_url`` None is the provider itself: then ``api_key`` is required, and the server enforces the
    request's JSON schema. Any other server gets no schema (some ignore it, some refuse it) and no key
    but the one given here. ``enforces_schema`` overrides this for a server, as a replay of the provider's
    traffic must. ``timeout_s`` is the limit on one whole answer, from the first request on,
    with retries; a wait that the server asks for (at most MAX_RETRY_WAIT_S) is not cut short by it.

    Raises ConfigurationError for the provider without a key, and for anything but an http(s) URL.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provenance: Provenance = Provenance.LIVE,
        max_retries: int = DEFAULT_MAX_RETRIES,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        enforces_schema: bool | None = None,
    ) -> None:
        url = _checked(base_url or PROVIDER_URL)
        self._enforces_schema = url == PROVIDER_URL if enforces_schema is None else enforces_schema
        if url == PROVIDER_URL and api_key is None:
            raise ConfigurationError(
                f"Model {model!r} needs a key for {PROVIDER_URL}, and none was given.",
                next_step="Pass an API key, or the base URL of a server that needs none.",
                kind="no_key",
            )
        self._model = model
        self._failures = Failures(url, model, api_key)
        self._provenance = provenance
        self._max_retries = max_retries
        self._timeout_s = timeout_s

    @property
    def model(self) -> str:
        """Return the model's name as requests name it."""
        return self._model

    @property
    def provenance(self) -> Provenance:
        """Return the provenance passed to the constructor."""
        return self._provenance

    def close(self) -> None:
        """Do nothing: no connection outlives its exchange."""

    def ask(self, request: ModelRequest) -> Generator[str, None, ModelAnswer]:
        """Send one request. Closing the generator closes the connection, so that the server can stop.

        Raises ModelError if no whole answer came: the SDK retries before the first byte, and nothing
        retries after it. An error of our own that was raised below the SDK (a cassette that doesn't
        match) passes through unchanged: it does not mean that the server was unreachable.
        """
        from anthropic import AnthropicError, omit

        from fallback_tier.network import TimeLimit

        config = self._output_config(request)
        try:
            with (
                TimeLimit(self._timeout_s) as limit,
                self._client(limit) as client,
                client.messages.stream(
                    model=self._model,
                    max_tokens=request.max_output_tokens,
                    system=[_cached(request.system)],
                    messages=_turns(request.messages),
                    output_config=config or omit,
                ) as stream,
            ):
                return (yield from _read_answer(stream, self._failures, limit))
        except AnthropicError as error:
            raise self._failures.of(error) from error

    def _output_config(self, request: ModelRequest) -> "OutputConfigParam":
        config: OutputConfigParam = {}
        if request.answer_schema is not None and self._enforces_schema:
            schema = enforced(request.answer_schema)
            config["format"] = {"type": "json_schema", "schema": schema}
        if request.effort is not None:
            config["effort"] = request.effort.value
        return config

    def _client(self, limit: "TimeLimit") -> "Anthropic":
        return _make_client(self._failures, limit, max_retries=self._max_retries)


def _turns(messages: Sequence[Message]) -> "list[MessageParam]":
    """Put cache marks on the last ``MAX_CACHED_TURNS`` marked turns: a later request reads up to one."""
    marked = [index for index, message in enumerate(messages) if message.cache and message.content]
    cached = marked[-MAX_CACHED_TURNS:]
    return [_turn(message, cache=index in cached) for index, message in enumerate(messages)]


def _turn(message: Message, *, cache: bool) -> "MessageParam":
    content = [_cached(message.content)] if cache else message.content
    if message.role == "user":
        return {"role": "user", "content": content}
    return {"role": "assistant", "content": content}


def _cached(text: str) -> "TextBlockParam":
    """Return a block that is cached for five minutes (no ``ttl``), as the price table assumes."""
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def _checked(base_url: str) -> str:
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, an IPv6 address without its bracket
        usable = False
    if not usable:
        raise ConfigurationError(
            "The model's base URL is not of the form http(s)://host[:port][/path].",
            next_step="Give the address of a Messages API server, without /v1.",
            kind="bad_base_url",
        )
    return base_url.rstrip("/")


_KEPT: Final[tuple[str, ...]] = ("type", "const", "enum", "description")


def enforced(schema: dict[str, Any]) -> dict[str, object]:
    """Return a pydantic schema in the subset that the provider's structured outputs enforce.

    Allowed there: basic types, ``const``, ``enum``, ``anyOf``, local ``$ref``, ``minItems`` 0 or 1, and
    ``additionalProperties: false`` on every object; not ``oneOf``, ``discriminator``, lengths, ranges or
    patterns (a test compares this with the SDK's ``transform_schema``). Nothing is lost by this: our
    reader validates every answer against the whole schema.

    A union may not be the root (a 400), so it is inside an object: ``{"answer": <one of four>}``, which
    our reader unwraps.

    Every property is required and none is optional, so the grammar stays small and the answer whole.
    Raises ValueError for what can't be enforced: an object whose keys are not fixed.
    """
    answer = {keyword: value for keyword, value in schema.items() if keyword != "$defs"}
    return {
        "type": "object",
        "properties": {"answer": _strict(answer)},
        "required": ["answer"],
        "additionalProperties": False,
        "$defs": {name: _strict(value) for name, value in schema.get("$defs", {}).items()},
    }


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return one schema without the keywords that the provider refuses."""
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    strict: dict[str, Any] = {keyword: schema[keyword] for keyword in _KEPT if keyword in schema}
    if "const" in strict or "enum" in strict:
        strict.pop("type", None)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        strict["anyOf"] = [_strict(branch) for branch in branches]
    if "items" in schema:
        strict["items"] = _strict(schema["items"])
    if schema.get("minItems", 2) <= 1:
        strict["minItems"] = schema["minItems"]
    if schema.get("type") == "object":
        if isinstance(schema.get("additionalProperties"), dict):
            raise ValueError(f"The keys of {schema.get('title', 'an object')} are not fixed.")
        properties = schema.get("properties", {})
        strict["properties"] = {name: _strict(value) for name, value in properties.items()}
        strict["required"] = list(properties)
        strict["additionalProperties"] = False
    return strict


#: Sent to other servers in place of a key: the SDK insists on one, local servers ignore it.
PLACEHOLDER_KEY: Final = "no-key"

#: Seconds to connect. A server that is running accepts at once.
CONNECT_TIMEOUT_S: Final = 5.0

#: Bytes of one answer on the wire. An event has about 150 bytes in addition to its token, and the longest
#: answers that models write have 128,000 tokens.
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024

#: The longest wait between attempts that a server may ask for (``Retry-After``), in seconds. The SDK
#: itself would sleep for as long as the server says, which may be weeks.
MAX_RETRY_WAIT_S: Final = 60.0

#: Headers that may be sent to a server for which we have no key, with the SDK's ``x-stainless-*``. The SDK
#: adds ANTHROPIC_CUSTOM_HEADERS to every request, and they may hold credentials meant for another server.
_HEADERS_WITHOUT_KEY: Final = frozenset(
    {"accept", "accept-encoding", "anthropic-version", "connection", "content-length"}
    | {"content-type", "host", "user-agent"}
)


def _make_client(failures: "Failures", limit: "TimeLimit", *, max_retries: int) -> "Anthropic":
    """Return a client for one exchange with one server; making it takes 0.4 ms. Its retries (429, 5xx, no
    connection) come before the first byte, and within the limit."""
    import httpx2
    from anthropic import Anthropic, DefaultHttpxClient

    from fallback_tier.network import bounds

    timeout = httpx2.Timeout(limit.seconds, connect=CONNECT_TIMEOUT_S)
    hooks = bounds(limit, MAX_ANSWER_BYTES)
    if not failures.key:
        hooks["request"].append(_strip_headers)
    return Anthropic(
        api_key=failures.key or PLACEHOLDER_KEY,
        base_url=failures.url,
        max_retries=max_retries,
        timeout=timeout,
        middleware=[_attempt(failures, limit)],
        # Compression gains nothing on events of one word, and would hold some back.
        default_headers={"accept-encoding": "identity"},
        http_client=DefaultHttpxClient(
            timeout=timeout,
            verify=_trusted(),
            # A redirect would carry the key and the prompt to a host that the user did not choose.
            follow_redirects=False,
            event_hooks=hooks,
        ),
    )


@cache
def _trusted() -> "SSLContext":
    """Return the TLS context that all models of a process share: reading the roots takes 50 ms."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def _attempt(failures: "Failures", limit: "TimeLimit") -> "MiddlewareCallable":
    """Return a wrapper of each attempt: it limits which failures the SDK retries and how long it waits."""

    def attempt(request: Any, call_next: "CallNext") -> Any:
        from anthropic import APIConnectionError, APITimeoutError
        from httpx2 import ConnectTimeout

        try:
            response = call_next(request)
        except APIConnectionError as error:
            if (own_error := _own_error(error)) is not None:
                raise own_error from None
            silent = isinstance(error, APITimeoutError)
            if limit.passed or (silent and not isinstance(error.__cause__, ConnectTimeout)):
                # The server may be processing the request: a retry could be billed twice.
                raise failures.late(limit.seconds) from None
            raise
        wait_s = _wait_s(response.headers)
        if limit.left_s < wait_s <= MAX_RETRY_WAIT_S and _is_retried(response.status_code):
            raise failures.too_long_a_wait(response.status_code, wait_s, limit.seconds)
        if wait_s > MAX_RETRY_WAIT_S:
            response.http_response.headers["x-should-retry"] = "false"
        return response

    return attempt


def _is_retried(status: int) -> bool:
    return status in {408, 409, 429} or status >= 500


def _own_error(error: BaseException) -> FallbackError | None:
    """Return our own error that was raised below the SDK (a cassette that does not match)."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, FallbackError):
            return cause
        cause = cause.__cause__
    return None


def _wait_s(headers: Mapping[str, str]) -> float:
    """Return ``Retry-After`` in seconds (RFC 9110, 10.2.3), from a number or a date; 0 if it is neither."""
    from email.utils import parsedate_to_datetime

    retry_after = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return float(headers.get("retry-after-ms", "")) / 1_000
    with contextlib.suppress(ValueError):
        return float(retry_after)
    with contextlib.suppress(ValueError, TypeError):
        return parsedate_to_datetime(retry_after).timestamp() - time.time()
    return 0.0


def _strip_headers(request: "Request") -> None:
    for name in list(request.headers):
        if name not in _HEADERS_WITHOUT_KEY and not name.startswith("x-stainless-"):
            del request.headers[name]
    request.headers["authorization"] = f"Bearer {PLACEHOLDER_KEY}"


#: Tokens that a server may report for one answer: a thousand of the largest contexts that there are. A
#: larger number can't be true, and would count against every cap.
MAX_TOKENS: Final = 1_000_000_000

#: A stop reason is one of a few words, but it is recorded, and a server may send anything.
MAX_STOP_REASON_CHARS: Final = 64

#: Errors of reading an answer that doesn't follow the Messages API: the SDK validates nothing.
_MALFORMED: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def _read_answer(
    stream: "MessageStream[None]", failures: "Failures", limit: "TimeLimit"
) -> Generator[str, None, ModelAnswer]:
    """Yield the text in pieces; return the answer, whose text is exactly those pieces.

    Blocks other than text (thinking, tools) are left out; their tokens are in the usage. A server that
    answers with one JSON message (some gateways don't stream) gives one piece.

    Raises ModelError: no partial answer is ever returned, whatever ended it early. If an answer had begun,
    it may be billed, and the failure's kind says so.
    """
    begun = False
    try:
        if _is_json(stream.response):
            with _reading(failures, limit):
                answer = _whole(stream.response)
            if answer.text:
                yield answer.text
            return answer
        pieces: list[str] = []
        for event in _events(stream, failures, limit):
            begun = True
            with _reading(failures, limit):
                if event.type == "message_stop":
                    # Later events don't matter, so a server that stalls after this does no harm.
                    return _answer(stream.current_message_snapshot, "".join(pieces))
                piece = _printable(_text(event))
            if piece:
                pieces.append(piece)
                yield piece
        raise failures.late(limit.seconds) if limit.passed else failures.broken()
    except ModelError as error:
        if begun and not error.failure.may_be_billed:
            raise failures.in_mid_answer(error) from error
        raise


def _events(
    stream: "MessageStream[None]", failures: "Failures", limit: "TimeLimit"
) -> Iterator[Any]:
    """Yield the events of the API, and those that the SDK derives from them (``text``)."""
    events = iter(stream)
    while True:
        with _reading(failures, limit):
            event = next(events, None)
        if event is None:
            return
        yield event


@contextmanager
def _reading(failures: "Failures", limit: "TimeLimit") -> Iterator[None]:
    """Raise any error of reading as a ModelError."""
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
    """Return the text that an event of the API adds; "" for derived events, which only repeat it."""
    if event.type == "content_block_start" and event.content_block.type == "text":
        return event.content_block.text or ""
    if event.type == "content_block_delta" and event.delta.type == "text_delta":
        return event.delta.text or ""
    return ""


def _printable(text: str) -> str:
    """Return a text without lone surrogates: they can't be hashed, recorded or written, having no UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _is_json(response: "Response") -> bool:
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower() == "application/json"


def _whole(response: "Response") -> ModelAnswer:
    """Return a Messages API answer in one body. Raises ValueError if it is not a whole one."""
    from anthropic.types import Message

    fields: dict[str, Any] = json.loads(response.read())
    if fields["type"] != "message" or not fields["stop_reason"]:
        raise ValueError(fields["type"])
    message = Message.construct(**fields)
    return _answer(
        message,
        _printable("".join(block.text for block in message.content if block.type == "text")),
    )


def _answer(message: "SdkMessage", text: str) -> ModelAnswer:
    """Return the answer, checked because the SDK doesn't validate what a server sends. Raises
    ValueError."""
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


#: Characters of a server's message that an error quotes: enough to recognise the fault.
_MAX_SERVER_WORDS: Final = 300

_KEY_SHAPE: Final = re.compile(r"\b(?:sk-|Bearer\s+)\S+")

#: Messages of servers if the prompt does not fit: the provider, llama.cpp, vLLM and OpenAI's format.
_TOO_LONG: Final = re.compile(
    r"prompt is too long|exceeds? (?:the )?(?:available )?context|maximum context length"
    r"|exceed_context_size|context_length_exceeded",
    re.IGNORECASE,
)

#: The ``type`` of a Messages API error. It alone says what an ``error`` event in a stream means.
_KIND_OF_TYPE: Final = {
    "overloaded_error": Kind.OVERLOADED,
    "rate_limit_error": Kind.RATE_LIMITED,
    "timeout_error": Kind.TIMEOUT,
    "authentication_error": Kind.UNAUTHORISED,
    "permission_error": Kind.UNAUTHORISED,
    "billing_error": Kind.UNAUTHORISED,
    "not_found_error": Kind.UNKNOWN_MODEL,
    "request_too_large": Kind.CONTEXT_TOO_LONG,
    "api_error": Kind.SERVER_ERROR,
}

_KIND_OF_STATUS: Final = {
    401: Kind.UNAUTHORISED,
    402: Kind.UNAUTHORISED,
    403: Kind.UNAUTHORISED,
    404: Kind.UNKNOWN_MODEL,
    408: Kind.TIMEOUT,
    413: Kind.CONTEXT_TOO_LONG,
    429: Kind.RATE_LIMITED,
    504: Kind.TIMEOUT,
    529: Kind.OVERLOADED,
}

_NEXT_STEP: Final = {
    Kind.OVERLOADED: "The server is too busy, also after retries; try again later and resume.",
    Kind.RATE_LIMITED: "The server's rate limit held through all retries; wait, or raise the limit, "
    "and resume.",
    Kind.TIMEOUT: "Check that the server is not overloaded, or allow more time, and resume.",
    Kind.UNREACHABLE: "Check the base URL and that the server is running.",
    Kind.BROKEN_STREAM: "Check the server's log and what lies between (proxy, gateway), and resume.",
    Kind.CONTEXT_TOO_LONG: "Lower --code-room (own code), or use a model (or server setting) with a "
    "larger context.",
    Kind.UNKNOWN_MODEL: "Check the model's name and that the base URL ends before /v1.",
    Kind.SERVER_ERROR: "The server failed after all retries; try again later and resume.",
    Kind.NOT_AN_ANSWER: "Check that the base URL is that of a Messages API server and ends before /v1.",
}

#: Next steps for statuses that say more than the kind does.
_NEXT_STEP_OF_STATUS: Final = {
    400: "The server's message says what it did not accept; check the model's name and the server's "
    "version.",
    401: "Check the API key (ANTHROPIC_API_KEY), and that it belongs to this server.",
    402: "The account can't pay for this request; check its balance.",
    403: "This key may not use this model; ask for access or name another model.",
}

#: Temporary failures, and the next step if the SDK did not retry, since it takes a 200 for an answer.
_PASSING: Final = frozenset({Kind.OVERLOADED, Kind.RATE_LIMITED, Kind.SERVER_ERROR})
_NOT_RETRIED: Final = "An answer that began is not asked for again; try again later and resume."

_CHECK_KEY: Final = "Check the API key, its access to this model, and the account's balance."
_REFUSED: Final = "The server refused the request; check its log."
_REDIRECTED: Final = "Redirects are not followed; give the server's final base URL."


@dataclass(frozen=True)
class Failures:
    """Factory of the errors of one model on one server."""

    url: str
    model: str
    key: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """``host:port`` of the base URL, without anything else in it (a user, a password, a query)."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    def of(self, error: "AnthropicError") -> ModelError:
        """Return the error for an exception of the SDK."""
        import anthropic

        match error:
            case anthropic.APIStatusError():
                return self._of_status(error)
            case anthropic.APIConnectionError():
                return self._of_connection(error)
            case anthropic.APIResponseValidationError():
                return self.not_an_answer()
            case _:
                return self._error(
                    Kind.REJECTED,
                    f"The request to {self.address} could not be made ({type(error).__name__}).",
                    "Check the model's configuration (key, base URL).",
                )

    def late(self, seconds: float) -> ModelError:
        """Return the error of an answer that was not whole within its time limit."""
        return self._error(
            Kind.TIMEOUT,
            f"The model server at {self.address} did not finish its answer within {seconds:g} s.",
        )

    def too_long_a_wait(self, status: int, wait_s: float, seconds: float) -> ModelError:
        """Return the error of a wait (``Retry-After``) that is longer than the time left for the
        exchange."""
        return self._error(
            _KIND_OF_STATUS.get(status, Kind.OVERLOADED),
            f"The model server at {self.address} answered {status} and asks to wait {wait_s:.0f} s, which "
            f"is more than is left of the {seconds:g} s for an answer.",
            "Try again later and resume, or allow more time.",
        )

    def broken(self, cause: BaseException | None = None) -> ModelError:
        """Return the error of an answer that has no end. What was received of it is never used."""
        reason = f": {detail}" if (detail := self._clean(str(cause or ""))) else ""
        return self._error(
            Kind.BROKEN_STREAM,
            f"The model server at {self.address} broke off before its answer was whole{reason}.",
        )

    def not_an_answer(self) -> ModelError:
        """Return the error of a 200 whose body isn't a Messages API answer."""
        return self._error(
            Kind.NOT_AN_ANSWER,
            f"The server at {self.address} answered with something that is not a Messages API answer.",
        )

    def too_large(self, error: "AnswerTooLargeError") -> ModelError:
        """Return the error of a body that is larger than any answer."""
        return self._error(
            Kind.NOT_AN_ANSWER, f"The answer of the server at {self.address} is no answer: {error}."
        )

    def in_mid_answer(self, error: ModelError) -> ModelError:
        """Return the error of an answer that had begun. Whatever its cause, the server had worked by then,
        so the kind is one that may be billed. A request that didn't fit was not worked on."""
        if error.failure is Kind.CONTEXT_TOO_LONG:
            return error
        return self._error(Kind.BROKEN_STREAM, error.problem, error.next_step)

    def _of_connection(self, error: "APIConnectionError") -> ModelError:
        import httpx2

        cause = error.__cause__
        match cause:
            case httpx2.ReadError() | httpx2.WriteError() | httpx2.RemoteProtocolError():
                return self.broken(cause)
        reason = f": {detail}" if (detail := self._clean(str(cause or ""))) else ""
        return self._error(
            Kind.UNREACHABLE, f"The model server at {self.address} can't be reached{reason}."
        )

    def _of_status(self, error: "APIStatusError") -> ModelError:
        status, message = error.status_code, _server_message(error.body)
        kind = _kind(status, error.type, message)
        quote = f": {clean}" if (clean := self._clean(message)) else ""
        if status < 300:  # an ``error`` event in the stream of a 200
            kind_reported = self._clean(str(error.type or ""))
            quote = f" ({kind_reported}){quote}" if kind_reported else quote
            step = _NOT_RETRIED if kind in _PASSING else None
            return self._error(
                kind, f"The server at {self.address} ended its answer with an error{quote}.", step
            )
        if kind is Kind.UNKNOWN_MODEL:
            does = f"does not know the model {self.model!r} ({status})"
        elif kind is Kind.RATE_LIMITED:
            does = f"still answers {status} (too many requests) after retries"
        else:
            does = f"answered {status}"
        return self._error(
            kind, f"The server at {self.address} {does}{quote}.", _next_step(status, kind)
        )

    def _error(self, kind: Kind, problem: str, next_step: str | None = None) -> ModelError:
        return ModelError(
            problem, next_step=next_step or _NEXT_STEP.get(kind) or _CHECK_KEY, failure=kind
        )

    def _clean(self, text: str) -> str:
        """Return a text of a server (or the operating system) as one line that any screen shows and any
        file takes (no escape sequence, no lone surrogate), bounded, without the key."""
        line = "".join(character if character.isprintable() else " " for character in text)
        line = " ".join(line.split())
        if self.key:
            line = line.replace(self.key, "[key]")
        return _KEY_SHAPE.sub("[key]", line)[:_MAX_SERVER_WORDS].rstrip(".")


def _kind(status: int, error_type: object, message: str) -> Kind:
    if _TOO_LONG.search(f"{error_type} {message}"):
        return Kind.CONTEXT_TOO_LONG
    if isinstance(error_type, str) and error_type in _KIND_OF_TYPE:
        return _KIND_OF_TYPE[error_type]
    if status in _KIND_OF_STATUS:
        return _KIND_OF_STATUS[status]
    # An error event of an unknown type is the server's own fault, as a 500 is.
    return Kind.SERVER_ERROR if status >= 500 or status < 300 else Kind.REJECTED


def _next_step(status: int, kind: Kind) -> str | None:
    if kind is Kind.CONTEXT_TOO_LONG:
        return None
    if 300 <= status < 400:
        return _REDIRECTED
    return _NEXT_STEP_OF_STATUS.get(status, _REFUSED if kind is Kind.REJECTED else None)


def _server_message(body: object) -> str:
    """Return the server's message: ``error.message``, or ``error`` itself, as other servers write it."""
    match body:
        case (
            {"error": {"message": str(message)}}
            | {"error": str(message)}
            | {"message": str(message)}
        ):
            return message
    return ""
