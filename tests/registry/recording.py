"""npm's registry and a Python index on loopback, out of recorded answers.

Replay (the default) answers from a ``Store`` and from nothing else; what was not recorded is 404,
says so, and is kept in ``missing``: the test run fails with it. With an ``Upstream`` (set-up and
``make record-registry`` only) an answer that is not in the store is asked for, checked against the
hash that its page promised, and stored.

npm lies at the root: npm itself drops a registry's path when it moves a lock's URLs to it. The
index is under ``/-/``, where no npm package can be.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from tests.fakes.serving import serving
from tests.registry.server import Registry
from tests.registry.store import (
    NPM,
    PYPI,
    Entry,
    Listed,
    Store,
    check_npm,
    check_pypi,
    cut_packument,
    cut_simple,
    entry_of,
)
from tests.registry.universe import Universe
from tests.registry.upstream import Upstream

#: Nothing listens there (discard): a call that goes past the loopback registry ends at once.
DEAD = "http://127.0.0.1:9"

_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
_FULL_PACKUMENT = "application/json"
_FILE = "application/octet-stream"

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")

#: Where a lock says that a package came from.
_NPM_URL = re.compile(r"https?://[^/\s\"]+/((?:@[^/\s\"]+/)?[^/\s\"@]+/-/[^\s\"#]+\.tgz)")
_UV_INDEX = re.compile(r'registry = "https?://[^"]+"')
_UV_FILE = re.compile(r'url = "https?://[^"]+/([^"/]+\.(?:whl|tar\.gz|zip))"')

_NOTHING = Listed("", frozenset())

Answer = tuple[str, bytes]


class _AtRoot(Registry):
    @property
    def npm_url(self) -> str:
        return f"{self.url}/"

    @property
    def pypi_url(self) -> str:
        return f"{self.url}/-/simple"


def client_environ(url: str, scratch: Path) -> dict[str, str]:
    """To put over ``os.environ`` (empty: unset): clients ask ``url`` only, with fresh caches and
    nobody's configuration; whatever goes elsewhere meets a proxy that isn't there."""
    proxies = {f"{scheme}_proxy": DEAD for scheme in ("http", "https", "all")}
    proxies |= {name.upper(): value for name, value in proxies.items()}
    direct = dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1,localhost,::1")
    # A recorder answers when it has the whole file.
    patient = {"UV_HTTP_TIMEOUT": "120"}
    return {**_AtRoot(url, Universe(), scratch).environ, **proxies, **direct, **patient}


def at_registry(text: str, npm_url: str) -> str:
    """A lock of npm, yarn or uv whose URLs, which name a registry, name the recorded one instead."""

    def file(found: re.Match[str]) -> str:
        parse = parse_wheel_filename if found[1].endswith(".whl") else parse_sdist_filename
        return f'url = "{npm_url}-/files/{parse(found[1])[0]}/{found[1]}"'

    text = _NPM_URL.sub(lambda found: npm_url + found[1], text)
    text = _UV_INDEX.sub(f'registry = "{npm_url}-/simple"', text)
    return _UV_FILE.sub(file, text)


@dataclass
class Recording:
    """A registry that is being served, and what it was asked."""

    url: str
    store: Store
    scratch: Path
    upstream: Upstream | None = None
    #: Releases that a page must have, and until when it has others.
    listed: Listed = _NOTHING
    asked: set[Entry] = field(default_factory=set)
    #: Requests that the store has no answer for.
    missing: list[str] = field(default_factory=list)

    @property
    def environ(self) -> Mapping[str, str]:
        environ = client_environ(self.url, self.scratch)
        # Behind a recorder there is a network.
        return environ | {"UV_HTTP_RETRIES": "3"} if self.upstream else environ

    def take_missing(self) -> list[str]:
        """Those since the last time."""
        taken, self.missing[:] = [*self.missing], []
        return taken

    def answer(self, method: str, path: str) -> Answer | None:
        """(content type, body); None: there is no such thing. LookupError: not recorded."""
        if method not in {"GET", "HEAD"}:
            raise LookupError(path)
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["-", "simple", name]:
                return self._simple(canonicalize_name(name))
            case ["-", "files", name, file]:
                body = self._file(PYPI, name, file)
                return None if body is None else (_FILE, body)
            case ["-", *_]:
                raise LookupError(path)
            case parts:
                return self._npm("/".join(parts))

    def files_of(self, release: Entry) -> list[str]:
        """The wheels of a Python release, by its page."""
        page = self._known_page(PYPI, release.name) or {"files": ()}
        names = (file["filename"] for file in page["files"])
        return [
            it
            for it in names
            if it.endswith(".whl") and entry_of(PYPI, release.name, it) == release
        ]

    def _npm(self, rest: str) -> Answer | None:
        name, is_tarball, file = rest.partition("/-/")
        if is_tarball:
            # Old locks repeat the scope in front of the file.
            body = self._file(NPM, name, file.rpartition("/")[2])
            return None if body is None else (_FILE, body)
        page = self._page(NPM, name)
        if page is None:
            return None
        for version, facts in page["versions"].items():
            file = _tarball(name, version)
            facts["dist"]["tarball"] = f"{self.url}/{name}/-/{quote(file)}"
        return _FULL_PACKUMENT, json.dumps(page).encode()

    def _simple(self, name: str) -> Answer | None:
        page = self._page(PYPI, name)
        if page is None:
            return None
        for file in page["files"]:
            file["url"] = f"{self.url}/-/files/{name}/{quote(file['filename'])}"
        return _SIMPLE_JSON, json.dumps(page).encode()

    def _page(self, registry: str, name: str) -> Any:
        self.asked.add(Entry(registry, name))
        return self._known_page(registry, name)

    def _known_page(self, registry: str, name: str) -> Any:
        try:
            return self.store.page(registry, name)
        except LookupError:
            if self.upstream is None:
                raise
        keep = self.listed.versions(registry, name)
        if registry == NPM:
            found, cut = self.upstream.packument(name), cut_packument
        else:
            found, cut = self.upstream.simple(name), cut_simple
        page = found and cut(found, self.listed.until, keep)
        self.store.add_page(registry, name, page)
        return page

    def _file(self, registry: str, name: str, file: str) -> bytes | None:
        self.asked.add(entry_of(registry, name, file))
        try:
            return self.store.file(registry, name, file)
        except LookupError:
            if self.upstream is None:
                if registry == PYPI and (other := self.store.other_wheel(name, file)) is not None:
                    return other
                raise
        url, promised = self._promised(registry, name, file)
        body = self.upstream.get(url) if url else None
        if body is None:
            return None
        intact = check_npm(body, promised) if registry == NPM else check_pypi(body, promised)
        if not intact:
            raise OSError(f"{file} is not what its page promised")
        self.store.add_file(registry, name, file, body)
        return body

    def _promised(self, registry: str, name: str, file: str) -> tuple[str | None, Any]:
        """Where the real file is, and its hashes."""
        page = self._known_page(registry, name) or {}
        for version, facts in page.get("versions", {}).items():
            if _tarball(name, version) == file:
                return facts["dist"]["tarball"], facts["dist"]
        for one in page.get("files", ()):
            if one["filename"] == file:
                return one["url"], one["hashes"]
        return None, None


@contextmanager
def serve_recorded(
    store: Store, upstream: Upstream | None = None, listed: Listed = _NOTHING
) -> Iterator[Recording]:
    """Serve from a thread until the block ends: replay, or with ``upstream`` record."""
    with TemporaryDirectory(prefix="registry-") as scratch:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        url = f"http://127.0.0.1:{server.server_port}"
        recording = Recording(url, store, Path(scratch), upstream, listed)
        server.RequestHandlerClass = type("_Bound", (_Handler,), {"recording": recording})
        with serving(server):
            yield recording


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one packet
    recording: Recording

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        try:
            answer = self.recording.answer(self.command, path)
        except LookupError:
            self.recording.missing.append(f"{self.command} {path}")
            words = f"{self.command} {path} is not recorded: `make record-registry`"
            return self._send(404, "text/plain", words.encode())
        except (OSError, ValueError) as error:  # ValueError: a page that isn't one
            return self._send(502, "text/plain", str(error).encode())
        if answer is None:
            return self._send(404, _FULL_PACKUMENT, b'{"error":"Not found"}')
        kind, body = answer
        if kind == _FILE and (asked := _RANGE.fullmatch(self.headers.get("Range", ""))):
            start, end = _bounds(asked, len(body))
            where = f"bytes {start}-{end - 1}/{len(body)}"
            return self._send(206, kind, body[start:end], {"Content-Range": where})
        return self._send(200, kind, body)

    do_HEAD = do_GET  # noqa: N815 (the base's name)

    def do_POST(self) -> None:
        """Recorded for nobody: a client that sends something here was not told to be quiet."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()

    do_PUT = do_POST  # noqa: N815 (the base's name)

    def _send(
        self, status: int, kind: str, body: bytes, more: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Accept-Ranges": "bytes"}
        for name, value in {**headers, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


def _tarball(name: str, version: str) -> str:
    return f"{name.rpartition('/')[2]}-{version}.tgz"


def _bounds(asked: re.Match[str], size: int) -> tuple[int, int]:
    first, last = asked.groups()
    if not first:  # the last so many bytes
        return max(0, size - int(last)), size
    return min(int(first), size), min(int(last) + 1, size) if last else size
