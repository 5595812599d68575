"""The SDK's client, with the limits and the silence that we ask of it.

``anthropic`` is imported here when the first request is made, and not before: the import alone takes
longer than a recipe fix.
"""

import contextlib
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from fallback_audit.errors import FallbackError
from fallback_plugins.messages_api.failures import Failures

if TYPE_CHECKING:
    from ssl import SSLContext

    from anthropic import Anthropic
    from anthropic._middleware import CallNext, MiddlewareCallable
    from httpx2 import Request

    from fallback_tier.network import TimeLimit

#: Sent to other servers in place of a key: the SDK insists on one, local servers ignore it.
PLACEHOLDER_KEY: Final = "no-key"

#: Seconds to connect. A server that is there answers at once.
CONNECT_TIMEOUT_S: Final = 5.0

#: Bytes of one answer on the wire. An event has about 150 bytes beside its token, and the longest
#: answers that models write have 128,000 tokens.
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024

#: The longest wait between attempts that a server may ask for (``Retry-After``), in seconds. The SDK
#: itself would sleep for as long as it is told, which may be weeks.
MAX_RETRY_WAIT_S: Final = 60.0

#: What may leave for a server that we have no key for, beside the SDK's ``x-stainless-*``. The SDK adds
#: ANTHROPIC_CUSTOM_HEADERS to every request, and they may hold credentials meant for another server.
_HEADERS_WITHOUT_KEY: Final = frozenset(
    {"accept", "accept-encoding", "anthropic-version", "connection", "content-length"}
    | {"content-type", "host", "user-agent"}
)


def make_client(failures: Failures, limit: "TimeLimit", *, max_retries: int) -> "Anthropic":
    """A client for one exchange with one server, which takes 0.4 ms to make. Its retries (429, 5xx, no
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
            # A redirect would carry the key and the prompt to a host that nobody chose.
            follow_redirects=False,
            event_hooks=hooks,
        ),
    )


@cache
def _trusted() -> "SSLContext":
    """One for all models of a process: reading the roots takes 50 ms."""
    from httpx2 import create_ssl_context

    return create_ssl_context()


def _attempt(failures: Failures, limit: "TimeLimit") -> "MiddlewareCallable":
    """Around each attempt: which failures the SDK may retry, and how long it may wait."""

    def attempt(request: Any, call_next: "CallNext") -> Any:
        from anthropic import APIConnectionError, APITimeoutError
        from httpx2 import ConnectTimeout

        try:
            response = call_next(request)
        except APIConnectionError as error:
            if (own := _own_error(error)) is not None:
                raise own from None
            silent = isinstance(error, APITimeoutError)
            if limit.passed or (silent and not isinstance(error.__cause__, ConnectTimeout)):
                # The server has the request and may be at work: a second would be paid twice.
                raise failures.late(limit.seconds) from None
            raise
        wait_s = _wait_s(response.headers)
        if limit.left_s < wait_s <= MAX_RETRY_WAIT_S and _passes_by_itself(response.status_code):
            raise failures.too_long_a_wait(response.status_code, wait_s, limit.seconds)
        if wait_s > MAX_RETRY_WAIT_S:
            response.http_response.headers["x-should-retry"] = "false"
        return response

    return attempt


def _passes_by_itself(status: int) -> bool:
    """What the SDK asks again after."""
    return status in {408, 409, 429} or status >= 500


def _own_error(error: BaseException) -> FallbackError | None:
    """An error of ours that was raised below the SDK (a cassette that does not match)."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, FallbackError):
            return cause
        cause = cause.__cause__
    return None


def _wait_s(headers: Mapping[str, str]) -> float:
    """``Retry-After`` in seconds (RFC 9110, 10.2.3), from a number or a date; 0 where it is neither."""
    message = headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return float(headers.get("retry-after-ms", "")) / 1_000
    with contextlib.suppress(ValueError):
        return float(message)
    with contextlib.suppress(ValueError, TypeError):
        return parsedate_to_datetime(message).timestamp() - time.time()
    return 0.0


def _strip_headers(request: "Request") -> None:
    for name in list(request.headers):
        if name not in _HEADERS_WITHOUT_KEY and not name.startswith("x-stainless-"):
            del request.headers[name]
    request.headers["authorization"] = f"Bearer {PLACEHOLDER_KEY}"
