"""Serves a ``Universe`` as npm's registry and as a Python index, on loopback only.

npm: packuments (full and abbreviated) and tarballs. Python: the simple index as HTML (PEP 503) and
as JSON (PEP 691), wheels and their metadata (PEP 658). Everything else is 404. Every request is
kept, so that a test can say what was asked.
"""

import hashlib
import html
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from tests.fakes.serving import serving
from tests.registry.universe import PypiRelease, Universe

_NPM_ABBREVIATED = "application/vnd.npm.install-v1+json"
_SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"

Answer = tuple[str, bytes]


class Request(NamedTuple):
    """What a client asked."""

    method: str
    path: str
    accept: str
    authorization: str = ""


@dataclass(frozen=True)
class Registry:
    """A registry that is being served."""

    url: str
    universe: Universe
    #: Folder of the clients' caches: empty at first, gone with the registry.
    scratch: Path
    requests: list[Request] = field(default_factory=list)
    #: Another server that its answers name for archives; empty: itself.
    archives_at: str = ""

    @property
    def npm_url(self) -> str:
        """Ends with a slash, as npm writes it."""
        return f"{self.url}/npm/"

    @property
    def pypi_url(self) -> str:
        """The simple index."""
        return f"{self.url}/pypi/simple"

    @property
    def environ(self) -> Mapping[str, str]:
        """To put over ``os.environ``: each client asks this registry only, with a fresh cache and
        nobody's configuration. An empty value: the variable is to be unset."""
        npm = {
            "registry": self.npm_url,
            "cache": str(self.scratch / "npm"),
            "userconfig": str(self.scratch / "no-npmrc"),
            "globalconfig": str(self.scratch / "no-global-npmrc"),
            "fetch_retries": "0",
            "audit": "false",
            "fund": "false",
            "update_notifier": "false",
        }
        # npm reads both spellings, and which of two wins is nobody's promise.
        spellings = {f"npm_config_{name}": value for name, value in npm.items()}
        spellings |= {name.upper(): value for name, value in spellings.items()}
        return spellings | {
            "YARN_REGISTRY": self.npm_url,
            "YARN_CACHE_FOLDER": str(self.scratch / "yarn"),
            "UV_DEFAULT_INDEX": self.pypi_url,
            "UV_INDEX": "",
            "UV_INDEX_URL": "",
            "UV_EXTRA_INDEX_URL": "",
            "UV_FIND_LINKS": "",
            "UV_INDEX_STRATEGY": "first-index",
            "UV_CACHE_DIR": str(self.scratch / "uv"),
            "UV_NO_CONFIG": "1",
            "UV_EXCLUDE_NEWER": "",
            "UV_OFFLINE": "",
            "UV_HTTP_RETRIES": "0",
            "UV_PYTHON_DOWNLOADS": "never",
            "PIP_INDEX_URL": self.pypi_url,
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": "/dev/null",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def paths(self) -> list[str]:
        """The paths asked so far."""
        return [request.path for request in self.requests]

    def answer(self, path: str, accept: str) -> Answer | None:
        """(content type, body) for a path; None where nothing is there."""
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["npm", *rest]:
                return self._npm("/".join(rest), abbreviated=_NPM_ABBREVIATED in accept)
            case ["pypi", "simple"]:
                return self._projects(as_json=_SIMPLE_JSON in accept)
            case ["pypi", "simple", name]:
                return self._project(name, as_json=_SIMPLE_JSON in accept)
            case ["pypi", "files", file]:
                return self._file(file)
        return None

    def _npm(self, rest: str, *, abbreviated: bool) -> Answer | None:
        name, is_tarball, file = rest.partition("/-/")
        if is_tarball:
            tarball = self.universe.npm_tarball(name, file)
            return None if tarball is None else ("application/octet-stream", tarball)
        document = self.universe.packument(
            name, f"{self.archives_at or self.url}/npm/", abbreviated=abbreviated
        )
        if document is None:
            return None
        return (_NPM_ABBREVIATED if abbreviated else "application/json"), _json(document)

    def _projects(self, *, as_json: bool) -> Answer:
        names = sorted(self.universe.pypi_packages)
        if as_json:
            listed = [{"name": name} for name in names]
            return _SIMPLE_JSON, _json({"meta": {"api-version": "1.1"}, "projects": listed})
        return _page(f'<a href="/pypi/simple/{name}/">{name}</a>' for name in names)

    def _project(self, name: str, *, as_json: bool) -> Answer | None:
        files = self.universe.pypi_packages.get(canonicalize_name(name))
        if files is None:
            return None
        if not as_json:
            return _page(_link(release, self.archives_at) for release in files.values())
        document = {
            "meta": {"api-version": "1.1"},
            "name": canonicalize_name(name),
            "versions": sorted({_version(release) for release in files.values()}),
            "files": [_file_document(release, self.archives_at) for release in files.values()],
        }
        return _SIMPLE_JSON, _json(document)

    def _file(self, file: str) -> Answer | None:
        release = self.universe.pypi_file(file.removesuffix(".metadata"))
        if release is None or (file.endswith(".metadata") and release.metadata is None):
            return None
        if file.endswith(".metadata"):
            return "text/plain; charset=utf-8", (release.metadata or "").encode()
        return "application/octet-stream", release.content


@contextmanager
def serve(
    universe: Universe, *, pause_s: float = 0.0, token: str = "", archives_at: str = ""
) -> Iterator[Registry]:
    """Serve it from threads until the block ends. Releases added meanwhile are served too.

    ``pause_s``: before each wheel and tarball, so that what installs one takes its time. ``token``: what a
    request must bring as its bearer to be answered. ``archives_at``: the server that its answers name for
    archives.
    """
    with TemporaryDirectory(prefix="registry-") as scratch:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        registry = Registry(
            f"http://127.0.0.1:{server.server_port}",
            universe,
            Path(scratch),
            archives_at=archives_at,
        )
        server.RequestHandlerClass = type(
            "_Bound", (_Handler,), {"registry": registry, "pause_s": pause_s, "token": token}
        )
        with serving(server):
            yield registry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: Registry
    pause_s: float
    token: str

    def do_GET(self) -> None:
        accept, bearer = (self.headers.get(name, "") for name in ("Accept", "Authorization"))
        self.registry.requests.append(Request(self.command, self.path, accept, bearer))
        allowed = not self.token or bearer == f"Bearer {self.token}"
        asked = allowed and self.command != "POST"  # ``npm audit`` would send one
        answer = self.registry.answer(urlsplit(self.path).path, accept) if asked else None
        if self.path.endswith((".whl", ".tgz")):
            time.sleep(self.pause_s)
        kind, body = answer or ("application/json", b'{"error":"Not found"}')
        self.send_response(200 if answer else 404 if allowed else 401)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Vary", "Accept")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 (the base's name)

    def do_POST(self) -> None:
        """Nothing takes a body here."""
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
        """Say nothing."""


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def _page(links: Iterator[str]) -> Answer:
    body = "<!DOCTYPE html><html><body>\n" + "<br>\n".join(links) + "\n</body></html>\n"
    return "text/html; charset=utf-8", body.encode()


def _version(release: PypiRelease) -> str:
    return release.file.removesuffix(".tar.gz").split("-")[1]


def _metadata_hash(release: PypiRelease) -> str | None:
    if release.metadata is None:
        return None
    return hashlib.sha256(release.metadata.encode()).hexdigest()


def _file_document(release: PypiRelease, at: str) -> dict[str, Any]:
    metadata = _metadata_hash(release)
    return {
        "filename": release.file,
        "url": f"{at}/pypi/files/{release.file}",
        "hashes": {"sha256": release.sha256},
        "requires-python": release.requires_python,
        "size": len(release.content),
        **({"upload-time": release.published} if release.published else {}),
        "yanked": release.yanked if release.yanked is not None else False,
        "core-metadata": {"sha256": metadata} if metadata else False,
    }


def _link(release: PypiRelease, at: str) -> str:
    metadata = _metadata_hash(release)
    attributes = {
        "href": f"{at}/pypi/files/{release.file}#sha256={release.sha256}",
        "data-requires-python": release.requires_python,
        "data-yanked": release.yanked,
        "data-core-metadata": f"sha256={metadata}" if metadata else None,
    }
    reported = (f'{k}="{html.escape(v)}"' for k, v in attributes.items() if v is not None)
    return f"<a {' '.join(reported)}>{release.file}</a>"
