"""What peers ask about vulnerabilities, answered on loopback from the case's own advisories.

``npm audit`` sends a list of packages to its registry: everything else that npm asks there is passed on
to the real one. ``pnpm audit`` sends a tree to the older interface. ``pip-audit`` asks OSV's query
interface.
"""

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.campaigns.recipes_bench.versions import affecting
from tests.fakes.serving import serving

_BULK = "/-/npm/v1/security/advisories/bulk"
_TREE = "/-/npm/v1/security/audits"
_OSV = "/v1/query"
_TIMEOUT_S = 60

Record = Mapping[str, Any]


@contextmanager
def serve_advisories(records: Sequence[Record], npm: str) -> Iterator[str]:
    """Where it listens, until the block ends. ``npm``: the real registry."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    bound = {"records": [dict(one) for one in records], "npm": npm.rstrip("/")}
    server.RequestHandlerClass = type("_Bound", (_Handler,), bound)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    records: Sequence[dict[str, Any]]
    npm: str

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        if self.path == _BULK:
            self._send(200, json.dumps(bulk(self.records, json.loads(body))).encode())
        elif self.path in {_TREE, f"{_TREE}/quick"}:
            self._send(200, json.dumps(tree_audit(self.records, json.loads(body))).encode())
        elif self.path == _OSV:
            self._send(200, json.dumps(osv(self.records, json.loads(body))).encode())
        else:
            self._send(404, b"{}")

    def do_GET(self) -> None:
        """A page of the real registry."""
        headers = {"Accept": self.headers.get("Accept", "*/*")}
        request = urllib.request.Request(f"{self.npm}{self.path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reported:
                self._send(200, reported.read(), reported.headers.get("Content-Type", ""))
        except urllib.error.HTTPError as error:
            self._send(error.code, b"{}")
        except OSError as error:
            self._send(502, json.dumps({"error": str(error)}).encode())

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


def bulk(records: Sequence[Record], asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """What a registry answers: by package, the advisories that cover one of the versions asked about."""
    found: dict[str, Any] = {}
    for name, versions in asked.items():
        for number, record in enumerate(records, start=1):
            if any(affecting([dict(record)], "npm", name, version) for version in versions):
                reported = {
                    "id": number,
                    "url": f"https://example.invalid/{record['id']}",
                    "title": record.get("summary", ""),
                    "severity": "high",
                    "vulnerable_versions": _range(record, name),
                    "cwe": [],
                    "cvss": {"score": 7.5, "vectorString": None},
                }
                found.setdefault(name, []).append(reported)
    return found


def tree_audit(records: Sequence[Record], tree: Mapping[str, Any]) -> dict[str, Any]:
    """What a registry answers for a tree of dependencies: one advisory for each range of a record, as the
    public database has them, with the copies that it covers."""
    found: dict[str, Any] = {}
    copies = sorted(set(_copies(tree)))
    for record in records:
        for one in _one_range_each(record):
            name = one["affected"][0]["package"]["name"]
            hit = [
                {"version": version, "paths": [path]}
                for path, at, version in copies
                if at == name and affecting([one], "npm", name, version)
            ]
            events = one["affected"][0].get("ranges", [{"events": []}])[0]["events"]
            fixed = [event["fixed"] for event in events if "fixed" in event]
            number = len(found) + 1
            if hit:
                found[str(number)] = {
                    "id": number,
                    "module_name": name,
                    "findings": hit,
                    "vulnerable_versions": _range(one, name),
                    "patched_versions": f">={fixed[0]}" if fixed else "<0.0.0",
                    "title": record.get("summary", ""),
                    "url": f"https://example.invalid/{record['id']}",
                    "severity": "high",
                    "cves": [],
                    "cwe": "",
                    "github_advisory_id": record["id"],
                }
    counts = dict.fromkeys(("info", "low", "moderate", "critical"), 0) | {"high": len(found)}
    metadata = {"vulnerabilities": counts, "totalDependencies": len(copies)}
    return {"actions": [], "advisories": found, "muted": [], "metadata": metadata}


def _copies(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    """Path, name and version of each copy below."""
    for name, copy in tree.get("dependencies", {}).items():
        path = f"{above}>{name}" if above else name
        if copy.get("version"):
            yield path, name, copy["version"]
        yield from _copies(copy, path)


def _one_range_each(record: Record) -> Iterator[dict[str, Any]]:
    for entry in record["affected"]:
        if not entry.get("ranges"):
            yield {**record, "affected": [entry]}
        for one in entry.get("ranges", ()):
            yield {**record, "affected": [{"package": entry["package"], "ranges": [one]}]}


def osv(records: Sequence[Record], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What OSV answers for one package at one version."""
    name, version = asked["package"]["name"], asked["version"]
    found = [one for one in records if affecting([dict(one)], "PyPI", name, version)]
    return {"vulns": found} if found else {}


def _range(record: Record, name: str) -> str:
    """As npm writes a range: ``>=1 <2 || >=3``."""
    spans = []
    for entry in record["affected"]:
        if entry["package"]["name"] != name:
            continue
        for one in entry.get("ranges", ()):
            bounds: list[str] = []
            for event in one["events"]:
                if "introduced" in event:
                    bounds.append(f">={event['introduced']}")
                elif "fixed" in event:
                    bounds[-1] += f" <{event['fixed']}"
                elif "last_affected" in event:
                    bounds[-1] += f" <={event['last_affected']}"
            spans += bounds
        spans += [] if entry.get("ranges") else list(entry.get("versions", ()))
    return " || ".join(spans) or "*"
