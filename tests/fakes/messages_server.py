"""A Messages API server on loopback, scripted a request at a time: nothing in it waits for a clock.

Each request takes the next reply (the last one again and again). A reply is sent step by step: bytes go
out at once, a ``Hold`` waits until the test lets it go, ``Hang`` waits until the client is gone, ``BREAK``
cuts the connection. ``Server.left`` is set as soon as a client closed its connection in mid-answer.
"""

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.waiting import joined

#: What a test waits at most for an event here, in seconds: longer is a bug, not a slow machine.
PATIENCE_S: Final = 30.0

#: How often a client's departure is looked for, in seconds.
_LOOK_S: Final = 0.01


@dataclass
class Hold:
    """The server says nothing more until the test calls ``let_go``. ``reached``: it is holding."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def let_go(self) -> None:
        self.released.set()


@dataclass(frozen=True)
class Repeat:
    """The same bytes until the client is gone."""

    chunk: bytes = b""


#: Says nothing more, keeps the connection open until the client is gone.
HANG: Final = Repeat()


@dataclass(frozen=True)
class _Break:
    """Cuts the connection (a reset): the end of the body never comes."""


BREAK: Final = _Break()

Step = bytes | Hold | Repeat | _Break


@dataclass(frozen=True)
class Reply:
    """One answer, sent in chunks; the connection ends with it."""

    steps: tuple[Step, ...]
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)


@dataclass
class Seen:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Server:
    """What the server does next, what it saw."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)
    patience_ends: float = field(default_factory=lambda: time.monotonic() + PATIENCE_S)

    def streams(self, *steps: Step) -> None:
        """The next reply is an event stream of these steps."""
        self.replies.append(Reply(steps))

    def answers(self, status: int, body: object = None, **headers: str) -> None:
        """The next reply is one body: bytes as they are, anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"content_type": "application/json", **headers}
        pairs = tuple((name.replace("_", "-"), value) for name, value in named.items())
        self.replies.append(Reply((content,), status, pairs))

    def fails(self, status: int, error_type: str, message: str, **headers: str) -> None:
        """The next reply is an error of the Messages API."""
        error = {"type": "error", "error": {"type": error_type, "message": message}}
        self.answers(status, error, **headers)

    def take(self, seen: Seen) -> Reply:
        with self.lock:
            self.seen.append(seen)
            return self.replies[min(len(self.seen), len(self.replies)) - 1]


#: A connection that is kept would keep its thread here beyond the test.
_FRAMING: Final = (("transfer-encoding", "chunked"), ("connection", "close"))


class _GoneError(Exception):
    """The client closed its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Of each read and write: a client that neither reads on nor closes must not keep the test from ending.
    timeout = PATIENCE_S
    told: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.told.take(Seen(self.path, headers, body))
        self.send_response(reply.status)
        for name, value in (*reply.headers, *_FRAMING):
            self.send_header(name, value)
        self.end_headers()
        try:
            if all(self._do(step) for step in reply.steps):
                self.wfile.write(b"0\r\n\r\n")
        except (OSError, _GoneError):
            self.close_connection = True
            if not self.told.closing.is_set() and time.monotonic() <= self.told.patience_ends:
                self.told.left.set()

    def _do(self, step: Step) -> bool:
        match step:
            case bytes():
                self._send(step)
            case Hold():
                step.reached.set()
                while not step.released.wait(_LOOK_S):
                    self._look()
            case Repeat():
                while not self.told.closing.wait(_LOOK_S):
                    self._send(step.chunk)
                    self._look()
            case _Break():
                self._reset()
                return False
        return True

    def _send(self, chunk: bytes) -> None:
        if chunk:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.flush()

    def _look(self) -> None:
        """Raises _GoneError where the client has closed its end (or the test is, or should be, over)."""
        if self.told.closing.is_set() or time.monotonic() > self.told.patience_ends:
            raise _GoneError
        readable, _, _ = select.select([self.connection], [], [], 0)
        if readable and not self.connection.recv(1, socket.MSG_PEEK):
            raise _GoneError

    def _reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.connection.close()
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class _Listener(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True


@contextmanager
def messages_server() -> Iterator[Server]:
    """A server for one test; at its end every thread has ended."""
    reported = Server()
    handler = type("Handler", (_Handler,), {"told": reported})
    listener = _Listener(("127.0.0.1", 0), handler)
    reported.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield reported
    finally:
        reported.closing.set()
        listener.shutdown()
        joined(thread)
        listener.server_close()


# --- What a server says -----------------------------------------------------------------------------


def event(kind: str, **fields: Any) -> bytes:
    """One server-sent event, whose data names its type, as the Messages API's does."""
    return b"event: %s\ndata: %s\n\n" % (
        kind.encode(),
        json.dumps({"type": kind, **fields}).encode(),
    )


def start(input_tokens: Any = 11, **usage: Any) -> bytes:
    """The first event: who answers, and what reading the prompt has cost."""
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": 1, **usage},
    }
    return event("message_start", message=message)


def block(index: int = 0, kind: str = "text", **fields: Any) -> bytes:
    """A content block begins."""
    empty = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}.get(kind, {})
    content = {"type": kind, **empty, **fields}
    return event("content_block_start", index=index, content_block=content)


def piece(text: str, index: int = 0) -> bytes:
    """A piece of text."""
    delta = {"type": "text_delta", "text": text}
    return event("content_block_delta", index=index, delta=delta)


def block_end(index: int = 0) -> bytes:
    return event("content_block_stop", index=index)


def stop(stop_reason: str | None = "end_turn", output_tokens: Any = 22) -> bytes:
    """The last two events: why it stopped, what writing has cost, and that this is all."""
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    usage = {"output_tokens": output_tokens}
    return event("message_delta", delta=delta, usage=usage) + event("message_stop")


PING: Final = event("ping")


def answer(*pieces: str, stop_reason: str = "end_turn", **usage: int) -> bytes:
    """A whole answer as an event stream."""
    words = b"".join(map(piece, pieces))
    return start(**usage) + PING + block() + words + block_end() + stop(stop_reason)


def error_event(error_type: str, message: str = "no") -> bytes:
    return event("error", error={"type": error_type, "message": message})


def message(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """A whole answer as one JSON object, as it comes without streaming."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "thinking", "thinking": "?"}, {"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 22},
        **fields,
    }
