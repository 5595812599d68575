"""Bounds on what any server sends: the bytes of an answer, and the time of a whole exchange.

All network reads of this program go through here: ``fetch``, or a client with ``bounds``. A server may
answer with a body that never ends, under any status, or send one byte per minute: a limit on each read does
not limit their sum.
"""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final, Self

import httpx2

#: Most bytes of an answer that reports a failure. Its status decides what to do; the rest is a sentence.
MAX_ERROR_BYTES: Final = 64 * 1024

#: Hosts that are contacted directly, without a proxy of the environment.
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class AnswerTooLargeError(OSError):
    """An answer has more bytes than the caller accepts."""


class AddressError(OSError):
    """An address that the caller does not allow, or that can't be requested here: it is not valid, or the
    environment names a proxy for it that can't be used. Another request would fail in the same way."""


class StatusError(OSError):
    """The server answered, and ``status`` is not a success. ``body``: its first MAX_ERROR_BYTES."""

    def __init__(self, message: str, status: int, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class TimeLimit:
    """Limit on the time of an exchange, with its connections, redirects and retries.

    It runs from the ``with`` on. When it is over, every connection that was passed to ``watch`` is shut
    down, since only that wakes a reader that is blocked. ``passed`` is True then.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._over = threading.Event()
        self._ends = float("inf")
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True  # an abandoned generator keeps no process alive

    @property
    def passed(self) -> bool:
        """Whether the time is over, so that watched connections were shut down."""
        return self._over.is_set()

    @property
    def left_s(self) -> float:
        """Seconds until the time is over."""
        return self._ends - time.monotonic()

    def __enter__(self) -> Self:
        self._ends = time.monotonic() + self.seconds
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            while self._watched:
                self._watched.pop().close()

    def watch(self, connection: socket.socket) -> None:
        """Shut this connection down when the time is over. ``connection``: as it is before TLS, whose
        socket replaces this one."""
        with self._lock:
            self._watched.append(connection.dup())
        if self.passed:
            self._end()

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Watch each connection as soon as there is one, before TLS: httpx2's ``trace`` extension."""
        if name.endswith("connect_tcp.complete"):
            self.watch(info["return_value"].get_extra_info("socket"))

    def _end(self) -> None:
        self._over.set()
        with self._lock:
            for connection in self._watched:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


Hooks = dict[str, list[Callable[..., Any]]]


def bounds(limit: TimeLimit, max_bytes: int) -> Hooks:
    """Return ``event_hooks`` of a client, for every answer that it gets.

    An answer that reports success and is longer than ``max_bytes`` raises AnswerTooLargeError while it is
    read. Of any other only the first MAX_ERROR_BYTES are read, and a broken connection is no further
    failure. The bytes are those on the wire: an encoding is not undone, since a few of its bytes may expand
    to gigabytes. So request none.
    """

    def send(request: httpx2.Request) -> None:
        request.extensions["trace"] = limit.trace

    def arrived(response: httpx2.Response) -> None:
        response.headers.pop("content-encoding", None)
        assert isinstance(response.stream, httpx2.SyncByteStream)  # noqa: S101 (a synchronous client's)
        response.stream = (
            _Bounded(response.stream, max_bytes)
            if response.is_success
            else _Beginning(response.stream, MAX_ERROR_BYTES)
        )

    return {"request": [send], "response": [arrived]}


class _Bounded(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, max_bytes: int) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[bytes]:
        bytes_left = self._max_bytes
        for chunk in self._stream:
            bytes_left -= len(chunk)
            if bytes_left < 0:
                raise AnswerTooLargeError(f"it has more than {self._max_bytes:,} bytes")
            yield chunk

    def close(self) -> None:
        self._stream.close()


class _Beginning(_Bounded):
    def __iter__(self) -> Iterator[bytes]:
        bytes_left = self._max_bytes
        with suppress(httpx2.HTTPError):
            for chunk in self._stream:
                yield chunk[:bytes_left]
                bytes_left -= len(chunk)
                if bytes_left <= 0:
                    return


def fetch(
    url: str,
    *,
    max_bytes: int,
    timeout_s: float,
    allowed: Callable[[str], bool] | None = None,
    posted: bytes | None = None,
) -> bytes:
    """Return the body of one GET, or of a POST of this JSON. Redirects are followed, and the environment's
    proxies are used (not for loopback).

    ``timeout_s`` is the limit on the whole of it; ``allowed``: whether an address may be requested, be it
    the first or one of a redirect. Raises OSError: no connection, a status that is not a success
    (StatusError), more than ``max_bytes`` (AnswerTooLargeError), not in time (TimeoutError), an address
    that is not allowed or not usable (AddressError).
    """

    def check(request: httpx2.Request) -> None:
        if allowed is not None and not allowed(str(request.url)):
            raise AddressError(f"{request.url} is not asked")

    try:
        host = httpx2.URL(url).host
        limit = TimeLimit(timeout_s)
        hooks = bounds(limit, max_bytes)
        hooks["request"].append(check)  # for each address, before it is requested
        with (
            limit,
            httpx2.Client(
                headers={"accept-encoding": "identity"},
                event_hooks=hooks,
                follow_redirects=True,
                timeout=timeout_s,
                trust_env=host not in LOOPBACK,
                verify=_system_roots(),
            ) as client,
        ):
            message = f"{host} did not finish within {timeout_s:g} s"
            try:
                answer = (
                    client.get(url)
                    if posted is None
                    else client.post(
                        url, content=posted, headers={"content-type": "application/json"}
                    )
                )
                content = answer.raise_for_status().content
            except httpx2.HTTPStatusError as error:
                answer = error.response
                raise StatusError(str(error), answer.status_code, answer.content) from error
            except httpx2.HTTPError as error:
                if limit.passed or isinstance(error, httpx2.TimeoutException):
                    raise TimeoutError(message) from error
                raise
            # A body without a length ends with its connection, which the limit ends.
            if limit.passed:
                raise TimeoutError(message)
            return content
    except httpx2.HTTPError as error:
        raise OSError(str(error)) from error
    # A proxy raises ImportError (SOCKS) or ValueError (no scheme).
    except (httpx2.InvalidURL, ImportError, ValueError) as error:
        raise AddressError(str(error)) from error


@cache
def _system_roots() -> ssl.SSLContext:
    """Return the roots that other programs here trust: a site's registry may have a private one."""
    return ssl.create_default_context()
