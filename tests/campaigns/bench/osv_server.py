"""One OSV record behind OSV's query interface, on loopback, for peers that ask a server.

Prints its port, then serves until it is killed. Run as a process of its own: it must not share one
with the harness, whose size is the floor of every peak.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    """POST of {"package": {"name": …}, "version": …} → the record, if it lists that version."""

    protocol_version = "HTTP/1.1"
    record: dict[str, Any]

    def do_POST(self) -> None:
        """Answer a query."""
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = any(
            query["package"]["name"] == entry["package"]["name"]
            and query["version"] in entry["versions"]
            for entry in self.record["affected"]
        )
        body = json.dumps({"vulns": [self.record]} if found else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


def main() -> None:
    """Serve the record of the file that is named on the command line."""
    _Handler.record = json.loads(Path(sys.argv[1]).read_text())
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        sys.stdout.write(f"{server.server_port}\n")
        sys.stdout.flush()
        server.serve_forever()


if __name__ == "__main__":
    main()
