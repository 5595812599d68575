"""What real registries answered: bodies in a folder outside git, a list of them in git.

The list says which releases the tests need, and until when releases are seen: a version that came
out later is left out of every page, so that a run next year resolves what today's did. Neither the
list nor a page as it is served names a host.
"""

import hashlib
import json
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from packaging.tags import sys_tags
from packaging.utils import parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parents[2]
LISTED = Path(__file__).with_name("recorded.txt")
STORE = ROOT / ".registry"

NPM, PYPI = "npm", "pypi"

#: What clients read of a package's page; the rest (readme, people, other tools' settings) is most
#: of its bytes.
_OF_VERSION = (
    *(
        "name",
        "version",
        "deprecated",
        "dist",
        "engines",
        "os",
        "cpu",
        "libc",
        "bin",
        "directories",
    ),
    *("dependencies", "optionalDependencies", "devDependencies", "peerDependencies"),
    *("peerDependenciesMeta", "bundleDependencies", "bundledDependencies", "_hasShrinkwrap"),
    *("scripts", "hasInstallScript", "funding", "license"),
)
_OF_FILE = frozenset({"filename", "url", "hashes", "requires-python", "yanked"})
_OF_DIST = ("tarball", "shasum", "integrity")


#: What this machine installs.
_PLATFORMS = frozenset(tag.platform for tag in sys_tags())


class Entry(NamedTuple):
    """One recorded answer: a package's page (no version), or a file of one of its releases."""

    kind: str
    name: str
    version: str = ""

    def __str__(self) -> str:
        return " ".join(self).rstrip()


class Listed(NamedTuple):
    """The committed list."""

    #: No release after this moment (UTC, ISO 8601) exists for the tests.
    until: str
    entries: frozenset[Entry]

    @classmethod
    def read(cls, path: Path = LISTED) -> Self:
        head, *lines = (line for line in path.read_text().splitlines() if line[:1] != "#")
        return cls(head.removeprefix("until "), frozenset(Entry(*line.split()) for line in lines))

    def versions(self, registry: str, name: str) -> frozenset[str]:
        """The releases of a package of which a file is listed."""
        return frozenset(entry.version for entry in self.entries if entry[:2] == (registry, name))

    def write(self, path: Path = LISTED) -> None:
        head = ["# Written by `make record-registry`.", f"until {self.until}"]
        path.write_text("\n".join([*head, *sorted(map(str, self.entries))]) + "\n")


@dataclass(frozen=True)
class Store:
    """The folder with the bodies."""

    root: Path = STORE

    @cached_property
    def stamp(self) -> Path:
        return self.root / ".stamp"

    def problem(self, listed: Path = LISTED) -> str | None:
        """Why nothing can be replayed from here; None where everything listed is here."""
        if self.stamp.is_file() and self.stamp.read_text() == listed.read_text():
            return None
        return "the registries' answers are not recorded here: `make test` does it where it can"

    def open(self, until: str) -> None:
        """Keep the files, which never change; forget pages that were cut at another moment."""
        mark = self.root / "until"
        self.stamp.unlink(missing_ok=True)
        if mark.is_file() and mark.read_text() == until:
            return
        for page in (*self.root.glob("npm/*/page.json"), *self.root.glob("pypi/*/page.json")):
            page.unlink()
        self.root.mkdir(parents=True, exist_ok=True)
        mark.write_text(until)

    def page(self, registry: str, name: str) -> Any:
        """The JSON of a package's page; None: the registry has no such package. LookupError: not
        recorded."""
        path = self._place(registry, name) / "page.json"
        if not path.is_file():
            raise LookupError(path)
        return json.loads(path.read_bytes())

    def add_page(self, registry: str, name: str, page: Any) -> None:
        _write(self._place(registry, name) / "page.json", json.dumps(page).encode())

    def file(self, registry: str, name: str, file: str) -> bytes:
        """LookupError: not recorded."""
        path = self._place(registry, name) / file
        if not path.is_file():
            raise LookupError(path)
        return path.read_bytes()

    def other_wheel(self, name: str, file: str) -> bytes | None:
        """Another recorded wheel of the release, for a wheel of another platform: a resolution for every
        platform reads the metadata of any, and a wheel is installed only where it fits. None: none."""
        if not file.endswith(".whl") or _PLATFORMS & {
            it.platform for it in parse_wheel_filename(file)[3]
        }:
            return None
        entry = entry_of(PYPI, name, file)
        wheels = sorted(self._place(PYPI, name).glob("*.whl"))
        found = (it for it in wheels if entry_of(PYPI, name, it.name) == entry)
        return next((it.read_bytes() for it in found), None)

    def add_file(self, registry: str, name: str, file: str, body: bytes) -> None:
        _write(self._place(registry, name) / file, body)

    def lacking(self, entries: Iterable[Entry]) -> list[Entry]:
        """Those of ``entries`` that are not here."""
        return sorted(set(entries) - self.entries())

    def entries(self) -> set[Entry]:
        """All that is here."""
        return {
            entry_of(registry, place.parent.name.replace("%2F", "/"), place.name)
            for registry in (NPM, PYPI)
            for place in (self.root / registry).glob("*/*")
            if place.suffix != ".part"
        }

    def _place(self, registry: str, name: str) -> Path:
        return self.root / registry / quote(name, safe="@")


def entry_of(registry: str, name: str, file: str) -> Entry:
    """Which entry a file of a package is."""
    if file == "page.json":
        return Entry(registry, name)
    if registry == NPM:
        unscoped = name.rpartition("/")[2]
        return Entry(NPM, name, file.removeprefix(f"{unscoped}-").removesuffix(".tgz"))
    parse = parse_wheel_filename if file.endswith(".whl") else parse_sdist_filename
    return Entry(PYPI, name, str(parse(file)[1]))


def cut_packument(page: dict[str, Any], until: str, keep: frozenset[str]) -> dict[str, Any]:
    """An npm page as it was at ``until``, with what clients read of it. ``keep``: versions that stay
    whatever the page says (a mirror gives the moment at which it first saw a release)."""
    times = page.get("time", {})
    versions = {
        version: {key: facts[key] for key in _OF_VERSION if key in facts}
        | {"dist": {key: facts["dist"][key] for key in _OF_DIST if key in facts["dist"]}}
        for version, facts in page["versions"].items()
        if version in keep or times.get(version, "") <= until
    }
    tags = {tag: version for tag, version in page["dist-tags"].items() if version in versions}
    if "latest" not in tags and versions:
        final = [version for version in versions if "-" not in version]
        tags["latest"] = max(final or versions, key=lambda version: times.get(version, ""))
    shown = {version: times[version] for version in versions if version in times}
    return {"name": page["name"], "dist-tags": tags, "versions": versions, "time": shown}


def cut_simple(page: dict[str, Any], until: str, keep: frozenset[str]) -> dict[str, Any]:
    """The same for a page of a Python index. No separate metadata (PEP 658), which not every index
    has: clients read it out of the wheels, so that what is listed holds for every machine."""
    files = [
        {key: value for key, value in file.items() if key in _OF_FILE}
        for file in page["files"]
        if _version_of(file["filename"]) in keep or file.get("upload-time", "") <= until
    ]
    return {"meta": {"api-version": "1.0"}, "name": page["name"], "files": files}


def _version_of(file: str) -> str | None:
    try:
        return entry_of(PYPI, "", file).version
    except ValueError:  # an egg, an installer
        return None


def check_npm(body: bytes, dist: dict[str, str]) -> bool:
    """Is this the tarball that the page promised?"""
    if integrity := dist.get("integrity"):
        for one in integrity.split():
            name, _, digest = one.partition("-")
            if name in hashlib.algorithms_guaranteed:
                return hashlib.new(name, body).digest() == b64decode(digest)
    return hashlib.sha1(body).hexdigest() == dist["shasum"]


def check_pypi(body: bytes, hashes: Any) -> bool:
    """Is this the file that the page promised? True where it promised none."""
    wanted = hashes.get("sha256") if isinstance(hashes, dict) else None
    return wanted is None or hashlib.sha256(body).hexdigest() == wanted


def _write(path: Path, body: bytes) -> None:
    """Whole or not at all; two requests for the same thing may meet here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{id(body):x}.part")
    part.write_bytes(body)
    part.replace(path)
