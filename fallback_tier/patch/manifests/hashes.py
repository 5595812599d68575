"""Which artifacts of a lock file, or of a requirements file, are named without a hash to know them by."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from fallback_tier.patch.manifests.sources import logical_lines

#: A digest as npm, pip, uv, Poetry, pdm and yarn classic write it. What they don't know they skip over.
_DIGEST = re.compile(r"sha(?:1|224|256|384|512)[-:=]\S{16,}")

#: In a key of a lock: what stands behind a package's name (``left@^1``, ``/@scope/left/1.0.0``).
_BEHIND_NAME = re.compile(r"(?<=[^/])@.*|/\d.*")

#: Where Pipfile.lock keeps no packages.
_META = "_meta"


def unhashed(path: str, document: Any) -> tuple[frozenset[str], bool]:
    """What has no hash, by name: another release of it needs none either; and whether anything has one."""
    name = PurePosixPath(path).name
    entries = list(_entries(name, document))
    return frozenset(what for what, known in entries if not known), any(k for _, k in entries)


def unhashed_lines(text: str) -> tuple[frozenset[str], bool]:
    """The same of a requirements file."""
    entries = [
        (re.split(r"[\s;=<>~!]", line)[0], "--hash=" in line)
        for line in logical_lines(text)
        if not line.startswith("-")
    ]
    return frozenset(what for what, known in entries if not known), any(k for _, k in entries)


def _entries(name: str, document: Any) -> Iterator[tuple[str, bool]]:
    if not isinstance(document, dict):
        return
    if name == "Pipfile.lock":
        for category, table in document.items():
            if category != _META and isinstance(table, dict):
                for package, entry in table.items():
                    yield from _of_pipfile(package, entry)
    elif name == "pnpm-lock.yaml":
        for key, entry in _tables(document.get("packages")):
            resolution = entry.get("resolution")
            if isinstance(resolution, dict) and not {"type", "directory"} & resolution.keys():
                yield _BEHIND_NAME.sub("", key), _is_digest(resolution.get("integrity"))
    elif name == "yarn.lock":
        yield from _of_yarn(document)
    elif name.endswith(".json"):
        yield from _of_npm(document.get("packages"), document.get("dependencies"))
    else:
        yield from _of_toml(document, "")


def _of_pipfile(package: str, entry: Any) -> Iterator[tuple[str, bool]]:
    if isinstance(entry, dict) and isinstance(entry.get("version"), str):
        hashes = entry.get("hashes")
        known = isinstance(hashes, list) and bool(hashes) and all(map(_is_digest, hashes))
        yield package, known


def _of_npm(packages: Any, dependencies: Any) -> Iterator[tuple[str, bool]]:
    """Of versions 2 and 3 (by folder), and of 1 (by name, one inside the other)."""
    for key, entry in _tables(packages):
        if "node_modules/" in key and not (entry.get("link") or entry.get("inBundle")):
            yield _named(key.rpartition("node_modules/")[2], entry)
    for key, entry in _tables(dependencies):
        if not entry.get("bundled") and not str(entry.get("version", "")).startswith("file:"):
            yield _named(key, entry)
        yield from _of_npm(None, entry.get("dependencies"))


def _named(name: str, entry: dict[str, Any]) -> tuple[str, bool]:
    return name, _is_digest(entry.get("integrity"))


def _of_yarn(document: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    for key, entry in _tables(document):
        name = _BEHIND_NAME.sub("", key.partition(", ")[0])
        if "resolved" in entry:  # classic
            yield name, _is_digest(entry.get("integrity"))
        elif "@npm:" in str(entry.get("resolution")) and "conditions" not in entry:
            yield name, bool(entry.get("checksum"))
        elif key != "__metadata" and "resolution" not in entry and "version" in entry:
            yield name, False


def _of_toml(data: Any, owner: str) -> Iterator[tuple[str, bool]]:
    """A table that names a file or an address has a hash; a list of files is not empty."""
    if isinstance(data, list):
        for value in data:
            yield from _of_toml(value, owner)
    if not isinstance(data, dict):
        return
    if isinstance(data.get("name"), str):
        owner = data["name"]
    if data.get("files") == []:
        yield owner, False
    if isinstance(what := data.get("url", data.get("file")), str) and "type" not in data:
        hashes = data.get("hashes")
        known = any(map(_is_digest, [data.get("hash"), data.get("checksum")])) or (
            isinstance(hashes, dict) and any(name.startswith("sha") for name in hashes)
        )
        yield owner or what, known
    for key, value in data.items():
        if key != "dependencies":  # by names: one may be called ``url``
            yield from _of_toml(value, owner)


def _tables(data: Any) -> list[tuple[str, dict[str, Any]]]:
    found = data.items() if isinstance(data, dict) else ()
    return [(key, value) for key, value in found if isinstance(value, dict)]


def _is_digest(value: Any) -> bool:
    """Is every word of it a digest of a kind that is known?"""
    words = value.split() if isinstance(value, str) else []
    return bool(words) and all(_DIGEST.match(word) for word in words)
