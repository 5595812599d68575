"""The real registries, as this machine's npm and uv are configured. Only set-up talks to them."""

import gzip
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin

_UV = Path(sys.executable).with_name("uv")
_ATTEMPTS = 4
_TIMEOUT_S = 60.0


class UnreachableError(Exception):
    """No registry can be asked from here; says why."""


@dataclass(frozen=True)
class Upstream:
    """Where npm's packages and Python's are asked for; no slash at the end."""

    npm: str
    pypi: str

    @classmethod
    def discover(cls) -> "Upstream":
        """Ask the clients, with one small question each that only a registry can answer: no file of
        ours names one. Raises UnreachableError."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "one.in").write_text("iniconfig==2.0.0\n")
            _said(["npm", "view", "ms@2.1.3", "version"], folder)
            npm = _said(["npm", "config", "get", "registry"], folder)
            options = ["--quiet", "--no-deps", "--no-cache", "--no-header", "--emit-index-url"]
            compiled = _said([str(_UV), "pip", "compile", *options, "one.in"], folder)
        named = [line for line in compiled.splitlines() if line.startswith("--index-url ")]
        if not named:
            raise UnreachableError("uv names no index")
        return cls(npm.strip().rstrip("/"), named[0].removeprefix("--index-url ").rstrip("/"))

    def packument(self, name: str) -> Any:
        """An npm package's page; None: there is no such package."""
        body = self.get(f"{self.npm}/{quote(name, safe='@')}")
        return json.loads(body) if body else None

    def simple(self, name: str) -> Any:
        """A Python package's page as JSON (PEP 691), of which every index has the HTML (PEP 503)."""
        url = f"{self.pypi}/{name}/"
        body = self.get(url, "application/vnd.pypi.simple.v1+json, text/html;q=0.1")
        if not body:
            return None
        if body[:1] == b"{":
            page = json.loads(body)
        else:
            links = _Links()
            links.feed(body.decode())
            page = {"name": name, "files": links.files}
        for file in page["files"]:
            file["url"] = urljoin(url, file["url"])
        return page

    def get(self, url: str, accept: str = "*/*") -> bytes | None:
        """The body; None: there is no such thing. Raises OSError after some attempts."""
        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        request = urllib.request.Request(url, headers=headers)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                    body: bytes = answer.read()
                    packed = answer.headers.get("Content-Encoding") == "gzip"
                    return gzip.decompress(body) if packed else body
            except urllib.error.HTTPError as error:
                if error.code in {404, 405, 410}:
                    return None
                if attempt == _ATTEMPTS:
                    raise
            except OSError:
                if attempt == _ATTEMPTS:
                    raise
            time.sleep(0.5 * 2**attempt)
        raise AssertionError("unreachable")


class _Links(HTMLParser):
    """The files that a page of a Python index links to, as PEP 691 writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[dict[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        if tag != "a" or not (link := facts.get("href")):
            return
        url, _, fragment = link.partition("#")
        algorithm, _, digest = fragment.partition("=")
        file: dict[str, Any] = {
            "filename": unquote(url.rpartition("/")[2]),
            "url": url,
            "hashes": {algorithm: digest} if digest else {},
        }
        for name in ("requires-python", "yanked", "upload-time"):
            if f"data-{name}" in facts:
                file[name] = facts[f"data-{name}"] or name == "yanked"
        self.files.append(file)


def _said(command: list[str], folder: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnreachableError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise UnreachableError(f"{command[0]} reaches no registry: {done.stderr.strip()[-300:]}")
    return done.stdout
