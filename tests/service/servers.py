"""Servers over TLS that a service has around it: git's own HTTP backend, and a proxy that ends TLS."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from tests.fakes.serving import serving
from tests.service.tls import Certificate
from tests.waiting import PATIENCE_S


@contextmanager
def serving_git(root: Path, tls: Certificate) -> Iterator[str]:
    """``git http-backend`` over the repositories below ``root``; the address of the root."""

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._run(b"")

        def do_POST(self) -> None:
            self._run(self.rfile.read(int(self.headers["Content-Length"])))

        def _run(self, content: bytes) -> None:
            parts = urlsplit(self.path)
            env = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_GLOBAL": os.devnull,
                "PATH_INFO": parts.path,
                "QUERY_STRING": parts.query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(content)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            done = subprocess.run(
                ["git", "http-backend"], input=content, env=env, capture_output=True, check=True
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(fields.pop("Status", "200").split(" ")[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    with _listening(Backend, tls) as address:
        yield address


@contextmanager
def proxied(target: str, tls: Certificate, client: str) -> Iterator[str]:
    """A proxy before ``target`` that ends TLS, and says that every request comes from ``client``; what a
    client itself says of that is behind it, as proxies have it."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def do_DELETE(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            headers = {name: value for name, value in self.headers.items() if name != "Connection"}
            said = headers.pop("X-Forwarded-For", "")
            headers["X-Forwarded-For"] = f"{said}, {client}" if said else client
            headers["X-Forwarded-Proto"] = "https"
            with (
                httpx2.Client(timeout=PATIENCE_S, trust_env=False) as onward,
                onward.stream(
                    self.command,
                    target + self.path,
                    content=self.rfile.read(length),
                    headers=headers,
                ) as answer,
            ):
                self.send_response(answer.status_code)
                for name, value in answer.headers.multi_items():
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Connection", "close")
                self.end_headers()
                for piece in answer.iter_raw():
                    self.wfile.write(piece)
                    self.wfile.flush()
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Nobody reads it."""

    with _listening(Proxy, tls) as address:
        yield address


@contextmanager
def _listening(handler: type[BaseHTTPRequestHandler], tls: Certificate) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.chain, tls.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield f"https://127.0.0.1:{server.server_address[1]}"
