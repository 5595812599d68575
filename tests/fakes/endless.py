"""A server on loopback that answers every request with the same bytes, and then does not stop.

For what no well-behaved server does: it speaks no HTTP of its own. Who waits for its end waits too long:
after PATIENCE_S it gives up, so that a test fails rather than hangs.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from tests.waiting import joined

#: Between two drips, in seconds.
_DRIP_S: Final = 0.01

#: What a test waits at most for, in seconds: longer is a bug, not a slow machine.
PATIENCE_S: Final = 15.0


@dataclass
class Endless:
    """What it did so far. ``left``: a client closed its connection."""

    url: str = ""
    sent: int = 0
    connections: int = 0
    left: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(head: bytes, forever: bytes = b"", *, drip: bool = False) -> Iterator[Endless]:
    """Sends ``head``, then ``forever`` again and again (``drip``: a byte at a time, with waits between);
    without it the connection ends there. ``{port}`` in the head is the server's own."""
    reported = Endless()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reported.url = f"http://127.0.0.1:{port}"
        head = head.replace(b"{port}", str(port).encode())
        answers: list[threading.Thread] = []

        def accept() -> None:
            while not reported.closing.is_set():
                connection = listener.accept()[0]
                reported.connections += 1
                answer = threading.Thread(
                    target=_answer, args=(reported, connection, head, forever, drip)
                )
                answer.start()
                answers.append(answer)

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield reported
        finally:
            reported.closing.set()
            socket.create_connection(("127.0.0.1", port)).close()
            joined(accepting, *answers)


def _answer(
    reported: Endless, connection: socket.socket, head: bytes, forever: bytes, drip: bool
) -> None:
    with connection, suppress(OSError):
        connection.settimeout(PATIENCE_S)
        if not connection.recv(65_536):
            return
        connection.sendall(head)
        place, patience_ends = 0, time.monotonic() + PATIENCE_S
        while forever and not reported.closing.is_set() and time.monotonic() < patience_ends:
            chunk = forever[place % len(forever) :][:1] if drip else forever
            connection.sendall(chunk)
            reported.sent += len(chunk)
            place += 1
            if drip:
                reported.closing.wait(_DRIP_S)
        return
    if not reported.closing.is_set():
        reported.left.set()
