"""OSV's API on loopback: records by identifier in their published shape, or failures."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.fakes.serving import listening
from tests.waiting import PATIENCE_S

_PATH = "/v1/vulns/"

#: Of the server: https://google.github.io/osv.dev/post-v1-querybatch/.
MAX_QUERIES = 1_000


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
    #: Identifiers by ecosystem, name and version: what a batch of queries is answered with.
    affected: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    #: Instead of ``affected``, if there is one: the identifiers of an ecosystem, name and version.
    find: Callable[[str, str, str], list[str]] | None = None
    #: Identifiers on one page of an answer.
    page: int = 1_000
    batches: list[list[dict[str, Any]]] = field(default_factory=list)
    batch_failures: list[int] = field(default_factory=list)

    def answer_batch(self, body: bytes) -> tuple[int, bytes]:
        """As the server answers ``POST /v1/querybatch``: an identifier and a date, or an empty object."""
        queries = json.loads(body)["queries"]
        self.batches.append(queries)
        if self.batch_failures:
            return self.batch_failures.pop(0), self.failure_body
        if len(queries) > MAX_QUERIES:
            return HTTPStatus.BAD_REQUEST, b'{"code":3,"message":"Too many queries."}'
        results = []
        for query in queries:
            package = query["package"]
            key = package["ecosystem"], package["name"], query["version"]
            first = int(query.get("page_token", "0"))
            ids = self.affected.get(key, []) if self.find is None else self.find(*key)
            result: dict[str, Any] = {}
            if here := ids[first : first + self.page]:
                result["vulns"] = [{"id": it, "modified": "2026-01-01T00:00:00Z"} for it in here]
            if first + self.page < len(ids):
                result["next_page_token"] = str(first + self.page)
            results.append(result)
        return HTTPStatus.OK, json.dumps({"results": results}).encode()

    def answer(self, path: str) -> tuple[int, bytes]:
        name = path.removeprefix(_PATH)
        self.requests.append(name)
        if self.together is not None:
            self.together.wait(PATIENCE_S)
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
            self._send(*api.answer(self.path))

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._send(*api.answer_batch(self.rfile.read(length)))

        def _send(self, status: int, body: bytes) -> None:
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
