"""Servers that give no reply at all: not there, silent, or gone in the middle of the request."""

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fallback_audit.vocabulary import ModelFailureKind as Kind
from fallback_plugins.messages_api.model import ClaudeModel
from fallback_tier.errors import ModelError
from tests.fakes.asking import REQUEST, hear
from tests.waiting import PATIENCE_S, joined

KEY = "gateway-key-0123456789abcdef"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Connections are taken by the kernel; nobody reads them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


def failure(port: int, max_retries: int = 0, timeout_s: float = 30.0) -> ModelError:
    url = f"http://user:{KEY}@127.0.0.1:{port}/x"
    model = ClaudeModel(
        "m", base_url=url, api_key=KEY, max_retries=max_retries, timeout_s=timeout_s
    )
    with pytest.raises(ModelError) as caught:
        hear(model, REQUEST)
    assert f"127.0.0.1:{port}" in caught.value.problem
    assert KEY not in str(caught.value)
    return caught.value


def connections(listener: socket.socket) -> int:
    """How many were made."""
    listener.settimeout(0)
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def test_no_server_is_unreachable(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    error = failure(port)
    assert error.failure is Kind.UNREACHABLE
    assert os.strerror(errno.ECONNREFUSED) in error.problem
    assert f"127.0.0.1:{port}" in error.problem


def test_a_server_that_does_not_answer_in_time_is_not_asked_again(listener: socket.socket) -> None:
    """It has the request and may be at work: a second would be paid twice."""
    error = failure(listener.getsockname()[1], max_retries=2, timeout_s=0.2)
    assert error.failure is Kind.TIMEOUT
    assert "did not finish its answer within 0.2 s" in error.problem
    assert connections(listener) == 1


@pytest.mark.parametrize("linger", [0, 1], ids=["closes", "resets"])
def test_a_server_that_goes_away_before_it_answers_broke_off(
    listener: socket.socket, linger: int
) -> None:
    def serve() -> None:
        connection = listener.accept()[0]
        connection.settimeout(PATIENCE_S)
        while (heard := connection.recv(65_536)) and not heard.endswith(b"}"):
            pass
        option = struct.pack("ii", linger, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        connection.close()

    listener.settimeout(PATIENCE_S)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    error = failure(listener.getsockname()[1])
    joined(thread)
    assert error.failure is Kind.BROKEN_STREAM
    assert error.failure.may_be_billed


def test_connecting_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue of a listener is full, so the kernel answers no further connection."""
    monkeypatch.setattr("fallback_plugins.messages_api.model.CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as full, ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(8):
            other = waiting.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        assert failure(full.getsockname()[1]).failure is Kind.UNREACHABLE
