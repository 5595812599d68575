"""What the SDK raises, as one ModelError that says what happened and what to do.

Never the key, never a header: only the server's address, the status, and the server's own message,
bounded. (A server may quote a key back; the provider masks it, so other servers' words are kept short
and the key's shape is taken out.)
"""

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fallback_tier.errors import ModelError

if TYPE_CHECKING:
    from anthropic import AnthropicError, APIStatusError

#: A server's own words in our message: enough to recognise the fault.
_MAX_SERVER_WORDS: Final = 300

_KEY_SHAPE: Final = re.compile(r"\b(?:sk-|Bearer\s+)\S+")

#: Status → what to do. Others are told by their class (4xx, 5xx).
_NEXT_STEP: Final = {
    400: "The server says what it did not accept; check the model's name and the server's version.",
    401: "Check the API key (ANTHROPIC_API_KEY), and that it belongs to this server.",
    402: "The account can't pay for this request; check its balance.",
    403: "This key may not use this model; ask for access or name another model.",
    404: "Check the model's name and that the base URL ends before /v1.",
    413: "The request is too large for this server; lower snippet_budget_bytes.",
    429: "The server's rate limit held through all retries; wait, or raise the limit, and resume.",
}


def address(url: str) -> str:
    """``host:port`` of a base URL, never what else it may hold (a user, a password, a query)."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def model_error(error: "AnthropicError", url: str, model: str) -> ModelError:
    """The one error that a caller sees, for every exception of the SDK."""
    import anthropic
    import httpx2

    where = address(url)
    match error:
        case anthropic.APITimeoutError():
            return ModelError(
                f"The model server at {where} did not answer in time.",
                next_step="Check that it is not overloaded, or allow more time, and resume.",
            )
        case anthropic.APIConnectionError(__cause__=httpx2.TransportError() | OSError()):
            reason = _reason(error.__cause__)
            return ModelError(
                f"The model server at {where} can't be reached{reason}.",
                next_step="Check the base URL and that the server is running.",
            )
        case anthropic.APIStatusError():
            return _status(error, where, model)
        case anthropic.APIResponseValidationError():
            return not_an_answer(url)
        case _:
            return ModelError(
                f"The request to {where} could not be made ({type(error).__name__}).",
                next_step="Check the model's configuration (key, base URL).",
            )


def not_an_answer(url: str) -> ModelError:
    """A 200 whose body isn't a Messages API answer."""
    return ModelError(
        f"The server at {address(url)} answered with something that is not a Messages API answer.",
        next_step="Check that the base URL is that of a Messages API server and ends before /v1.",
    )


def _status(error: "APIStatusError", where: str, model: str) -> ModelError:
    status = error.status_code
    said = _words(error.api_message)
    if status == 404:
        problem = f"The server at {where} does not know the model {model!r} (404){said}."
    elif status == 429:
        problem = (
            f"The server at {where} still answers 429 (too many requests) after retries{said}."
        )
    else:
        problem = f"The server at {where} answered {status}{said}."
    if status in _NEXT_STEP:
        return ModelError(problem, next_step=_NEXT_STEP[status])
    if status >= 500:
        return ModelError(
            problem, next_step="The server failed after all retries; try again later and resume."
        )
    if 300 <= status < 400:
        return ModelError(
            problem, next_step="Redirects are not followed; give the server's final base URL."
        )
    return ModelError(problem, next_step="The server refused the request; check its log.")


def _words(message: object) -> str:
    if not isinstance(message, str) or not message.strip():
        return ""
    return ": " + _KEY_SHAPE.sub("[key]", " ".join(message.split())[:_MAX_SERVER_WORDS]).rstrip(".")


def _reason(cause: BaseException | None) -> str:
    """The operating system's words (connection refused, name not known), where there are some."""
    words = " ".join(str(cause or "").split())[:_MAX_SERVER_WORDS]
    return f": {_KEY_SHAPE.sub('[key]', words)}" if words else ""
