"""OSV's API on loopback: records by identifier in their published shape, or failures."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fakes.serving import listening

_PATH = "/v1/vulns/"


@dataclass
class OsvApi:
    """What it has, and what was requested. ``failures``: statuses to answer with first, by identifier;
    ``failure_body``: what comes with them."""

    records: dict[str, Any]
    url: str = ""
    requests: list[str] = field(default_factory=list)
    failures: dict[str, list[int]] = field(default_factory=dict)
    failure_body: bytes = b"{}"
    together: threading.Barrier | None = None

    def answer(self, path: str) -> tuple[int, bytes]:
        name = path.removeprefix(_PATH)
        self.requests.append(name)
        if self.together is not None:
            self.together.wait()
        if self.failures.get(name):
            return self.failures[name].pop(0), self.failure_body
        if name not in self.records:
            # As the server says it, with gRPC's code.
            return HTTPStatus.NOT_FOUND, b'{"code":5,"message":"Bug not found."}'
        record = self.records[name]
        return HTTPStatus.OK, record if isinstance(record, bytes) else json.dumps(record).encode()


@contextmanager
def osv_api(records: Mapping[str, Any]) -> Iterator[OsvApi]:
    """Serve these records by identifier while this lasts."""
    api = OsvApi(dict(records))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = api.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    with listening(Handler) as url:
        api.url = url
        yield api
