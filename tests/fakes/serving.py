"""Small HTTP servers of tests: they answer in a thread, and are gone at the end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

from tests.waiting import joined

#: How often a server looks whether it is to end. The library's half a second is waited for at the end of
#: every test that has one, some hundreds.
POLL_S = 0.02


@contextmanager
def serving(server: HTTPServer) -> Iterator[None]:
    """It answers while this lasts."""
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": POLL_S}, daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        joined(thread)
        server.server_close()


@contextmanager
def listening(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server with this handler on any free port of loopback: its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"
