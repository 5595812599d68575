"""A server on loopback that lists models, or says that it does not."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.waiting import joined


@contextmanager
def listing_models(status: int) -> Iterator[tuple[str, list[str]]]:
    """Its address, and what it was asked: method, path, key."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            key = self.headers.get("x-api-key", "")
            asked.append(f"{self.command} {self.path} {key}".strip())
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        joined(thread)
        server.server_close()
