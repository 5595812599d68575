"""Bounds on what any server sends: the bytes of an answer, and the time of a whole exchange.

Whatever of ours reads from a network does it through here: ``fetch``, or a client with ``bounds``. A server
may answer with a body that never ends, under any status, or say one byte a minute: a limit on each read is
none on their sum.
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

#: Bytes of an answer that reports a failure. Its status says what to do; the rest is a sentence.
MAX_ERROR_BYTES: Final = 64 * 1024

#: Hosts that no proxy of the environment is asked for.
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


class AnswerTooLargeError(OSError):
    """An answer has more bytes than whoever asked has room for."""


class AddressError(OSError):
    """An address that whoever asks does not allow, or that nobody here can ask: it is none, or the
    environment names a proxy for it that is none of ours. Asked again, it is the same."""


class StatusError(OSError):
    """There was an answer, and its ``status`` is no success. ``body``: its first MAX_ERROR_BYTES."""

    def __init__(self, message: str, status: int, body: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class TimeLimit:
    """The time that an exchange may take, connections, redirects and retries counted in.

    From the ``with`` on; at its end every connection that ``watch`` was told of is ended, since only that
    wakes a reader that is blocked. ``passed`` then says so.
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
        """It is over, and what was watched was ended for it."""
        return self._over.is_set()

    @property
    def left_s(self) -> float:
        """Seconds until then."""
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
        """``connection``: as it is before TLS, whose socket takes the place of this one."""
        with self._lock:
            self._watched.append(connection.dup())
        if self.passed:
            self._end()

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """httpx2's ``trace`` extension: tells of each connection as soon as there is one, before TLS."""
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
    """``event_hooks`` of a client, for every answer that it gets.

    One that reports success and is longer than ``max_bytes`` raises AnswerTooLargeError while it is read;
    of any other the first MAX_ERROR_BYTES are all there is, and that it broke off is no further failure.
    The bytes are those of the wire: an encoding is not undone, since a few of its bytes may stand for
    gigabytes. So ask for none.
    """

    def send(request: httpx2.Request) -> None:
        request.extensions["trace"] = limit.trace

    def arrived(response: httpx2.Response) -> None:
        response.headers.pop("content-encoding", None)
        assert isinstance(response.stream, httpx2.SyncByteStream)  # noqa: S101 (of a client that waits)
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
        left = self._max_bytes
        for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise AnswerTooLargeError(f"it has more than {self._max_bytes:,} bytes")
            yield chunk

    def close(self) -> None:
        self._stream.close()


class _Beginning(_Bounded):
    def __iter__(self) -> Iterator[bytes]:
        left = self._max_bytes
        with suppress(httpx2.HTTPError):
            for chunk in self._stream:
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return


def fetch(
    url: str,
    *,
    max_bytes: int,
    timeout_s: float,
    allowed: Callable[[str], bool] | None = None,
    posted: bytes | None = None,
) -> bytes:
    """The body of one GET, or of a POST of this JSON, redirects followed, through the environment's proxies
    (loopback: directly).

    ``timeout_s`` is the limit on the whole of it; ``allowed``: may this address be asked, be it the first
    or one that a redirect names? Raises OSError: no connection, a status that is no success (StatusError),
    more than ``max_bytes`` (AnswerTooLargeError), not in time (TimeoutError), an address that is not
    allowed or not usable (AddressError).
    """

    def check(request: httpx2.Request) -> None:
        if allowed is not None and not allowed(str(request.url)):
            raise AddressError(f"{request.url} is not asked")

    try:
        host = httpx2.URL(url).host
        limit = TimeLimit(timeout_s)
        hooks = bounds(limit, max_bytes)
        hooks["request"].append(check)  # of each address, before it is asked
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
            late = f"{host} did not finish within {timeout_s:g} s"
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
                    raise TimeoutError(late) from error
                raise
            # A body without a length ends with its connection, which the limit ends.
            if limit.passed:
                raise TimeoutError(late)
            return content
    except httpx2.HTTPError as error:
        raise OSError(str(error)) from error
    # ImportError, ValueError: of a proxy (SOCKS, no scheme).
    except (httpx2.InvalidURL, ImportError, ValueError) as error:
        raise AddressError(str(error)) from error


@cache
def _system_roots() -> ssl.SSLContext:
    """As other programs of this machine trust: a site's own registry may have a certificate of its own."""
    return ssl.create_default_context()
