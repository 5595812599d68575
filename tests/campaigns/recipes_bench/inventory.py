"""What manifests and locks hold, read by the judge's own readers."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from tests.campaigns.recipes_bench.versions import canonical

_REQUIREMENT = re.compile(r"\s*(?P<text>[A-Za-z0-9][^#;\\]*?)\s*(?:;.*|#.*|\\.*|--hash.*)?$")
_YARN_HEAD = re.compile(r'^"?(?P<name>@?[^@"\s]+)@', re.MULTILINE)
_YARN_VERSION = re.compile(r'^  version:? "?(?P<version>[^"\n]+)"?$', re.MULTILINE)
_NPM_LOWEST = re.compile(
    r"(?P<operator>[\^~]|>=|=)?\s*v?(?P<version>\d+(?:\.\d+){0,2}(?:-[\w.-]+)?)"
)
_POETRY = re.compile(r"(?P<operator>\^|~|>=|~=|==|)\s*(?P<version>\d[\w.!+-]*)")

_NPM_SECTIONS = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_TOML_LOCKS = {"poetry.lock", "uv.lock", "pdm.lock"}


#: A case asks for the same few files again and again, and a lock takes 100 ms to read.
_KEPT = 16


@dataclass(frozen=True, order=True)
class Held:
    """One package in one file.

    ``version``: what a lock installs, what a declaration pins, or the lowest that it admits; empty where
    it names none. ``spec``: a declaration's own text, normalised; empty in a lock.
    """

    name: str
    version: str
    spec: str = ""
    pinned: bool = True


@lru_cache(maxsize=_KEPT)
def held(path: str, text: str) -> tuple[Held, ...]:
    """Everything that one file holds; empty for a file that is no manifest. Raises ValueError."""
    name = PurePosixPath(path).name
    if name == "package.json":
        return tuple(_package_json(json.loads(text)))
    if name == "package-lock.json":
        return tuple(_package_lock(json.loads(text)))
    if name == "yarn.lock":
        return tuple(_yarn(text))
    if name in _TOML_LOCKS:
        return tuple(_toml_lock(tomllib.loads(text)))
    if name == "pyproject.toml":
        return tuple(_pyproject(tomllib.loads(text)))
    if name.endswith((".txt", ".in")):
        return tuple(_requirements(text))
    return ()


def is_lock(path: str) -> bool:
    """Does this file say what is installed, rather than what is asked for?"""
    return PurePosixPath(path).name in {*_TOML_LOCKS, "package-lock.json", "yarn.lock"}


def _package_json(document: dict[str, Any]) -> Iterator[Held]:
    for section in _NPM_SECTIONS:
        for name, spec in (document.get(section) or {}).items():
            if isinstance(spec, str):
                yield _npm_declared(name, spec)


def _npm_declared(name: str, spec: str) -> Held:
    if spec.startswith("npm:"):
        name, _, spec = spec.removeprefix("npm:").rpartition("@")
    elif ":" in spec or "/" in spec:
        return Held(name, "", spec, pinned=False)
    found = _NPM_LOWEST.match(spec.strip())
    whole = found is not None and found.group() == spec.strip() and not found["operator"]
    return Held(name, found["version"] if found else "", spec.strip(), pinned=whole)


def _package_lock(document: dict[str, Any]) -> Iterator[Held]:
    for place, entry in (document.get("packages") or {}).items():
        if "node_modules/" in place and not entry.get("link") and "version" in entry:
            yield Held(entry.get("name") or place.rpartition("node_modules/")[2], entry["version"])
    yield from _nested(document.get("dependencies") or {})


def _nested(dependencies: dict[str, Any]) -> Iterator[Held]:
    for name, entry in dependencies.items():
        version = str(entry.get("version", ""))
        if version.startswith("npm:"):
            name, _, version = version.removeprefix("npm:").rpartition("@")
        yield Held(name, version)
        yield from _nested(entry.get("dependencies") or {})


def _yarn(text: str) -> Iterator[Held]:
    for entry in re.split(r"\n(?=\S)", text):
        head, version = _YARN_HEAD.search(entry), _YARN_VERSION.search(entry)
        if head and version and not entry.startswith(("#", "__metadata")):
            first = entry.split(":\n")[0].split(",")[0].strip('" ')
            alias = first.partition("@npm:")[2].rpartition("@")[0]
            yield Held(alias or head["name"], version["version"])


def _toml_lock(document: dict[str, Any]) -> Iterator[Held]:
    for package in document.get("package", ()):
        if "version" in package:
            yield Held(canonical("PyPI", package["name"]), package["version"])


def _requirements(text: str) -> Iterator[Held]:
    for line in text.splitlines():
        match = _REQUIREMENT.fullmatch(line)
        if match and not line.lstrip().startswith("-"):
            yield from _requirement(match["text"])


def _requirement(text: str) -> Iterator[Held]:
    try:
        parsed = Requirement(text.strip())
    except InvalidRequirement:
        return
    version, pinned = _lowest(parsed.specifier)
    yield Held(canonical("PyPI", parsed.name), version, str(parsed.specifier), pinned)


def _lowest(specifier: SpecifierSet) -> tuple[str, bool]:
    for one in specifier:
        if one.operator in {"==", "==="} and not one.version.endswith("*"):
            return one.version, True
    floors = [one.version for one in specifier if one.operator in {">=", "~="}]
    return (floors[0] if floors else ""), False


def _pyproject(document: dict[str, Any]) -> Iterator[Held]:
    project = document.get("project") or {}
    groups = [
        project.get("dependencies") or (),
        *(project.get("optional-dependencies") or {}).values(),
        *(document.get("dependency-groups") or {}).values(),
    ]
    for text in (one for group in groups for one in group if isinstance(one, str)):
        yield from _requirement(text.partition(";")[0])
    poetry = (document.get("tool") or {}).get("poetry") or {}
    tables = [poetry.get("dependencies") or {}, poetry.get("dev-dependencies") or {}]
    tables += [group.get("dependencies") or {} for group in (poetry.get("group") or {}).values()]
    for name, value in ((name, value) for table in tables for name, value in table.items()):
        yield from _poetry(name, value)


def _poetry(name: str, value: Any) -> Iterator[Held]:
    values: Iterable[Any] = value if isinstance(value, list) else (value,)
    for one in values:
        spec = one.get("version") if isinstance(one, dict) else one
        if not isinstance(spec, str) or name == "python":
            continue
        found = _POETRY.match(spec.strip())
        pinned = found is not None and found["operator"] in {"", "=="} and "," not in spec
        yield Held(canonical("PyPI", name), found["version"] if found else "", spec.strip(), pinned)
