"""A server on loopback that lists models, or says that it does not."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.fakes.serving import listening


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

    with listening(Handler) as address:
        yield address, asked
