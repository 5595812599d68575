"""Requests to an OSV API (https://google.github.io/osv.dev/api/): URLs, retries, and which answers are
errors.

Callers interpret the answers: ``lookup`` (records by identifier), ``query`` (ids by package).
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from fallback_tier.advisory.found import mapping
from fallback_tier.errors import AdvisoryResponseError, ConfigurationError

#: The public OSV database.
DEFAULT_URL: Final = "https://api.osv.dev"

#: Timeout of one request in seconds. OSV answers within one.
REQUEST_TIMEOUT_S: Final = 20.0

#: Seconds to wait before each retry: a server that is overloaded for longer is reported.
RETRY_DELAYS_S: Final = (0.5, 2.0)

#: Most concurrent requests: a report may name hundreds of ids, and a public server must not be flooded.
MAX_CONCURRENT: Final = 8

#: HTTP statuses after which the same request may succeed.
_RETRIED = frozenset({429, 500, 502, 503, 504})

#: Of these, the statuses by which a server, or the gateway in front of it, takes no requests now.
_TAKES_NONE = _RETRIED - {500}

_NOT_FOUND = 404

#: gRPC's code for "not found", which OSV sends with status 404.
_GRPC_NOT_FOUND = 5

#: Keys of an error of the API (google.rpc.Status): a document with more is something else.
_ERROR_KEYS = frozenset({"code", "message", "details"})


def utc_text(when: datetime) -> str:
    """Return a time in UTC as answers state it (RFC 3339, to the second)."""
    return when.isoformat(timespec="seconds").replace("+00:00", "Z")


def says_not_found(content: bytes) -> bool:
    """Return whether this is OSV's error for an identifier that it does not have. A gateway's page, or an
    error of another server, is not."""
    try:
        document = mapping(json.loads(content))
    except (ValueError, RecursionError):
        return False
    code = document.get("code")
    return type(code) is int and code == _GRPC_NOT_FOUND and document.keys() <= _ERROR_KEYS


@dataclass
class OsvServer:
    """Client of one OSV API, thread-safe. ``pause``: waits between retries. Raises ConfigurationError if
    ``base_url`` is not an http(s) address."""

    base_url: str
    pause: Callable[[float], None] = time.sleep
    #: Why the server can't be reached, or empty if it may be. If it is set, callers need not try again.
    down: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.base_url = self.base_url.rstrip("/")
        try:
            parts = urlsplit(self.base_url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname)
            plain = not (parts.username or parts.password or parts.query or parts.fragment)
        except ValueError:
            usable = plain = False
        if not (usable and plain):
            raise ConfigurationError(
                "The address of the OSV API is not usable.",
                next_step=f"Give an address without credentials and query, as {DEFAULT_URL}.",
            )

    def get(self, path: str, *, max_bytes: int) -> bytes:
        """Return the answer to a GET, or OSV's "not found" error. Raises OSError if there is no answer
        after all retries, and AdvisoryResponseError for more than ``max_bytes`` or for that error without
        its status."""
        from fallback_tier.network import StatusError

        try:
            answer = self._answer(path, None, max_bytes)
        except StatusError as error:
            if error.status == _NOT_FOUND and says_not_found(error.body):
                return error.body
            raise
        if says_not_found(answer):
            raise AdvisoryResponseError(
                f"The answer of {self.base_url}{path} is an error, and its status is that of a record.",
                next_step="Check the address of the OSV API (--advisory-url).",
            )
        return answer

    def post(self, path: str, body: bytes, *, max_bytes: int) -> bytes:
        """Return the answer to a POST of a JSON document. Raises as ``get``."""
        return self._answer(path, body, max_bytes)

    def _answer(self, path: str, body: bytes | None, max_bytes: int) -> bytes:
        # Imported on first use: most commands read files.
        from fallback_tier.network import AddressError, AnswerTooLargeError, StatusError, fetch

        url = f"{self.base_url}{path}"
        delays = iter(RETRY_DELAYS_S)
        while True:
            try:
                return fetch(
                    url,
                    max_bytes=max_bytes,
                    timeout_s=REQUEST_TIMEOUT_S,
                    allowed=self._allowed,
                    posted=body,
                )
            except StatusError as error:
                if error.status not in _RETRIED:
                    raise
                failure: OSError = error
            except AnswerTooLargeError as error:
                raise AdvisoryResponseError(
                    f"The answer of {url} is larger than {max_bytes:,} bytes.",
                    next_step="Give the advisory as a file.",
                ) from error
            except AddressError as error:
                self.down = reason_of(error)
                raise
            except OSError as error:
                failure = error
            delay = next(delays, None)
            if delay is None:
                # The refusal of one record (401, 403, 500) says nothing about the next request.
                if not isinstance(failure, StatusError) or failure.status in _TAKES_NONE:
                    self.down = reason_of(failure)
                raise failure
            self.pause(delay)

    def _allowed(self, url: str) -> bool:
        """Return whether a redirect may be followed: never from TLS to plain text."""
        return self.base_url.startswith("http:") or url.startswith("https:")


def reason_of(error: OSError) -> str:
    """Return an error as a clause."""
    return str(error) or type(error).__name__
