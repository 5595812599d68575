"""What can go wrong with a request, as one ModelError that says what happened and what to do.

Every failure is typed (``ModelFailureKind``), so that a caller can act without reading prose. The prose
has the server's address, the status and the server's own words, bounded; never a header, and never the
key: a server may quote one back, so the exact key and whatever looks like one are taken out first.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fallback_audit.vocabulary import ModelFailureKind as Kind
from fallback_tier.errors import ModelError

if TYPE_CHECKING:
    from anthropic import AnthropicError, APIConnectionError, APIStatusError

    from fallback_tier.network import AnswerTooLargeError

#: A server's own words in our message: enough to recognise the fault.
_MAX_SERVER_WORDS: Final = 300

_KEY_SHAPE: Final = re.compile(r"\b(?:sk-|Bearer\s+)\S+")

#: How servers say that the prompt does not fit: the provider, llama.cpp, vLLM and OpenAI's format.
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

#: Where the status says more than the kind does.
_NEXT_STEP_OF_STATUS: Final = {
    400: "The server's message says what it did not accept; check the model's name and the server's "
    "version.",
    401: "Check the API key (ANTHROPIC_API_KEY), and that it belongs to this server.",
    402: "The account can't pay for this request; check its balance.",
    403: "This key may not use this model; ask for access or name another model.",
}

#: What passes by itself, and the next step where the SDK did not retry: it takes a 200 for an answer.
_PASSING: Final = frozenset({Kind.OVERLOADED, Kind.RATE_LIMITED, Kind.SERVER_ERROR})
_NOT_RETRIED: Final = "An answer that began is not asked for again; try again later and resume."

_CHECK_KEY: Final = "Check the API key, its access to this model, and the account's balance."
_REFUSED: Final = "The server refused the request; check its log."
_REDIRECTED: Final = "Redirects are not followed; give the server's final base URL."


@dataclass(frozen=True)
class Failures:
    """Makes the errors of one model behind one server."""

    url: str
    model: str
    key: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """``host:port`` of the base URL, never what else it may hold (a user, a password, a query)."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    def of(self, error: "AnthropicError") -> ModelError:
        """For what the SDK raises."""
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
        """The answer was not whole within the time that it may take."""
        return self._error(
            Kind.TIMEOUT,
            f"The model server at {self.address} did not finish its answer within {seconds:g} s.",
        )

    def too_long_a_wait(self, status: int, wait_s: float, seconds: float) -> ModelError:
        """It asks to be left alone (``Retry-After``) for longer than is left of the exchange."""
        return self._error(
            _KIND_OF_STATUS.get(status, Kind.OVERLOADED),
            f"The model server at {self.address} answered {status} and asks to wait {wait_s:.0f} s, which "
            f"is more than is left of the {seconds:g} s for an answer.",
            "Try again later and resume, or allow more time.",
        )

    def broken(self, cause: BaseException | None = None) -> ModelError:
        """The answer has no end. What came of it is never used."""
        reason = f": {words}" if (words := self._clean(str(cause or ""))) else ""
        return self._error(
            Kind.BROKEN_STREAM,
            f"The model server at {self.address} broke off before its answer was whole{reason}.",
        )

    def not_an_answer(self) -> ModelError:
        """A 200 whose body isn't a Messages API answer."""
        return self._error(
            Kind.NOT_AN_ANSWER,
            f"The server at {self.address} answered with something that is not a Messages API answer.",
        )

    def too_large(self, error: "AnswerTooLargeError") -> ModelError:
        """What it sent is more than any answer is."""
        return self._error(
            Kind.NOT_AN_ANSWER, f"The answer of the server at {self.address} is no answer: {error}."
        )

    def in_mid_answer(self, error: ModelError) -> ModelError:
        """What ended an answer that had begun: whatever its cause, the server had worked by then, so the
        kind is one that may be billed. A request that didn't fit was not worked on."""
        if error.failure is Kind.CONTEXT_TOO_LONG:
            return error
        return self._error(Kind.BROKEN_STREAM, error.problem, error.next_step)

    def _of_connection(self, error: "APIConnectionError") -> ModelError:
        import httpx2

        cause = error.__cause__
        match cause:
            case httpx2.ReadError() | httpx2.WriteError() | httpx2.RemoteProtocolError():
                return self.broken(cause)
        reason = f": {words}" if (words := self._clean(str(cause or ""))) else ""
        return self._error(
            Kind.UNREACHABLE, f"The model server at {self.address} can't be reached{reason}."
        )

    def _of_status(self, error: "APIStatusError") -> ModelError:
        status, message = error.status_code, _server_message(error.body)
        kind = _kind(status, error.type, message)
        words = f": {clean}" if (clean := self._clean(message)) else ""
        if status < 300:  # an ``error`` event in the stream of a 200
            kind_reported = self._clean(str(error.type or ""))
            words = f" ({kind_reported}){words}" if kind_reported else words
            step = _NOT_RETRIED if kind in _PASSING else None
            return self._error(
                kind, f"The server at {self.address} ended its answer with an error{words}.", step
            )
        if kind is Kind.UNKNOWN_MODEL:
            does = f"does not know the model {self.model!r} ({status})"
        elif kind is Kind.RATE_LIMITED:
            does = f"still answers {status} (too many requests) after retries"
        else:
            does = f"answered {status}"
        return self._error(
            kind, f"The server at {self.address} {does}{words}.", _next_step(status, kind)
        )

    def _error(self, kind: Kind, problem: str, next_step: str | None = None) -> ModelError:
        return ModelError(
            problem, next_step=next_step or _NEXT_STEP.get(kind) or _CHECK_KEY, failure=kind
        )

    def _clean(self, words: str) -> str:
        """A server's (or the operating system's) words: one line that any screen shows and any file
        takes (no escape sequence, no lone surrogate), bounded, without the key."""
        line = "".join(one if one.isprintable() else " " for one in words)
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
    # An error event of a type that nobody knows is the server's own fault, as a 500 is.
    return Kind.SERVER_ERROR if status >= 500 or status < 300 else Kind.REJECTED


def _next_step(status: int, kind: Kind) -> str | None:
    if kind is Kind.CONTEXT_TOO_LONG:
        return None
    if 300 <= status < 400:
        return _REDIRECTED
    return _NEXT_STEP_OF_STATUS.get(status, _REFUSED if kind is Kind.REJECTED else None)


def _server_message(body: object) -> str:
    """The server's words: ``error.message``, or ``error`` itself, as other servers write it."""
    match body:
        case {"error": {"message": str(words)}} | {"error": str(words)} | {"message": str(words)}:
            return words
    return ""
