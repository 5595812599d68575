"""Nothing that a server sends goes on for longer, or is more, than whoever asked allows."""

import gzip
import socket
import time

import pytest

from fallback_tier.network import (
    MAX_ERROR_BYTES,
    AddressError,
    AnswerTooLargeError,
    StatusError,
    TimeLimit,
    fetch,
)
from tests.fakes.endless import PATIENCE_S, Endless, serving

OK = b"HTTP/1.1 200 OK\r\n"
FAILED = b"HTTP/1.1 500 Oh\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
DRIP = b"1\r\nx\r\n"


def ended(server: Endless, error: type[OSError], *, timeout_s: float = 0.3) -> str:
    """The words of the failure; the connection is closed by then, or soon."""
    with pytest.raises(error) as caught:
        fetch(server.url, max_bytes=1_000_000, timeout_s=timeout_s)
    assert server.left.wait(PATIENCE_S)
    return str(caught.value)


def test_a_proxy_that_is_none_of_ours_is_told_from_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    with pytest.raises(AddressError, match="SOCKS"):
        fetch("https://server.invalid/", max_bytes=1, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("framing", [b"\r\n", CHUNKED], ids=["until it closes", "chunks"])
def test_an_answer_larger_than_allowed_ends_there(framing: bytes) -> None:
    with serving(OK + framing, CHUNK) as server:
        assert "1,000,000 bytes" in ended(server, AnswerTooLargeError, timeout_s=PATIENCE_S)
        assert server.sent < 20_000_000  # what the kernel's buffers took


def test_of_a_failures_body_only_the_beginning_is_read() -> None:
    with serving(FAILED + CHUNKED, CHUNK) as server:
        message = ended(server, OSError, timeout_s=PATIENCE_S)
        assert "500" in message
        assert server.sent < 20_000_000
    assert MAX_ERROR_BYTES < 1_000_000


def test_what_is_not_allowed_is_not_asked_wherever_it_stands() -> None:
    there_head = OK + b"content-length: 2\r\n\r\nhi"
    with serving(there_head) as there:
        hop = f"HTTP/1.1 302 \r\nlocation: {there.url}/b\r\ncontent-length: 0\r\n\r\n"
        with serving(hop.encode()) as server:
            assert fetch(server.url, max_bytes=2, timeout_s=PATIENCE_S) == b"hi"
            asked: list[str] = []

            def allowed(url: str) -> bool:
                asked.append(url)
                return not url.endswith("/b")

            with pytest.raises(AddressError, match="/b is not asked"):
                fetch(server.url, max_bytes=2, timeout_s=PATIENCE_S, allowed=allowed)
            assert asked == [server.url, f"{there.url}/b"]
        assert there.connections == 1


def test_a_status_that_is_no_success_is_told_with_its_number() -> None:
    answer = b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"
    with serving(answer) as server, pytest.raises(StatusError) as caught:
        fetch(server.url, max_bytes=1, timeout_s=PATIENCE_S)
    assert caught.value.status == 404


def test_a_redirects_body_is_not_read_to_its_end() -> None:
    with serving(
        b"HTTP/1.1 302 \r\nlocation: http://127.0.0.1:{port}/\r\n" + CHUNKED, CHUNK
    ) as server:
        assert "redirects" in ended(server, OSError, timeout_s=PATIENCE_S)
        assert server.connections < 30


@pytest.mark.parametrize(
    ("head", "forever"),
    [
        (OK + CHUNKED, DRIP),
        (FAILED + CHUNKED, DRIP),
        (OK, b"x: y\r\n"),
        (OK + b"x: ", b"y"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 200 OK"),
    ],
    ids=["body", "body of a failure", "headers", "one header", "interim answers", "status line"],
)
def test_what_drips_ends_when_its_time_is_over(head: bytes, forever: bytes) -> None:
    with serving(head, forever, drip=True) as server:
        ended(server, OSError)


@pytest.mark.parametrize(
    ("framing", "forever"), [(CHUNKED, DRIP), (b"\r\n", b"x")], ids=["chunks", "until it closes"]
)
def test_time_that_is_over_is_called_that(framing: bytes, forever: bytes) -> None:
    """Also where a connection that ends is the end of a body: what came until then is not all of it."""
    with serving(OK + framing, forever, drip=True) as server:
        with pytest.raises(TimeoutError, match=r"127\.0\.0\.1 did not finish within 0\.3 s"):
            fetch(server.url, max_bytes=1_000, timeout_s=0.3)
        assert server.left.wait(PATIENCE_S)


def test_headers_without_end_are_no_answer() -> None:
    with serving(OK, b"x: y\r\n" * 1_000) as server:
        ended(server, OSError, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("head", [OK, FAILED])
def test_what_is_packed_stays_packed(head: bytes) -> None:
    packed = gzip.compress(b"\0" * 10_000_000)
    assert len(packed) < 20_000
    with serving(head + b"content-encoding: gzip\r\n\r\n" + packed) as server:
        if head is FAILED:
            with pytest.raises(OSError, match="500"):
                fetch(server.url, max_bytes=1_000_000, timeout_s=PATIENCE_S)
        else:
            assert fetch(server.url, max_bytes=1_000_000, timeout_s=PATIENCE_S) == packed


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://[::1", "ftp://127.0.0.1/", ""])
def test_what_can_not_be_asked_is_a_failure_of_the_network(url: str) -> None:
    with pytest.raises(OSError):
        fetch(url, max_bytes=1_000, timeout_s=1)


def test_loopback_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with serving(OK + b"content-length: 2\r\n\r\nhi") as server:
        assert fetch(server.url, max_bytes=2, timeout_s=PATIENCE_S) == b"hi"


def test_a_connection_that_is_made_when_time_is_over_ends_at_once() -> None:
    with serving(b"", b"x", drip=True) as server, TimeLimit(0) as limit:
        while not limit.passed:
            time.sleep(0.01)
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            limit.watch(connection)
            assert connection.recv(1) == b""
