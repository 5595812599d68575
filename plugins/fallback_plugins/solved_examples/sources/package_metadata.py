"""What a package declares in its own metadata: licence, name and version."""

import json
from collections.abc import Iterator, Mapping
from email.parser import HeaderParser
from typing import Any

from fallback_tier.files.inputs import parse_toml

#: A name or an SPDX expression. Some packages put the whole text here; that is no name.
_MAX_CHARS = 200

_CLASSIFIER = "License :: OSI Approved :: "

#: Files that may declare it, the surest first. ``METADATA`` and ``PKG-INFO`` stand in folders of
#: their own name (``x.dist-info``, ``x.egg-info``).
MANIFESTS = ("package.json", "pyproject.toml", "METADATA", "PKG-INFO")


def declared_licence(files: Mapping[str, bytes]) -> str | None:
    """What ``files`` (content by path) declare, the manifest nearest the root first; None: nothing."""
    found = (_declared(name, content) for name, content in _nearest_first(files, MANIFESTS))
    return next(filter(None, found), None)


def declared_release(files: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Name and version of the package whose files these are; None: they don't say."""
    for name, content in _nearest_first(files, ("package.json", "METADATA", "PKG-INFO")):
        reported = _named(name, content)
        if all(isinstance(part, str) and part for part in reported):
            return reported
    return None


def _nearest_first(
    files: Mapping[str, bytes], names: tuple[str, ...]
) -> Iterator[tuple[str, bytes]]:
    """The files of these names, in the order of the names, those nearest the root first."""
    paths = sorted(files, key=lambda path: (path.count("/"), path))
    for name in names:
        yield from ((name, files[path]) for path in paths if path.rpartition("/")[2] == name)


def _named(name: str, content: bytes) -> tuple[Any, Any]:
    text = content.decode("utf-8", "replace")
    if name != "package.json":
        headers = HeaderParser().parsestr(text)
        return headers["Name"], headers["Version"]
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    return (
        (manifest.get("name"), manifest.get("version"))
        if isinstance(manifest, dict)
        else (None,) * 2
    )


def _declared(name: str, content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
        match name:
            case "package.json":
                reported = _of_npm(json.loads(text))
            case "pyproject.toml":
                reported = _of_project(parse_toml(text))
            case _:
                reported = _of_metadata(text)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, not TOML
        return None
    reported = reported.strip() if isinstance(reported, str) else ""
    return reported if 0 < len(reported) <= _MAX_CHARS and "\n" not in reported else None


def _of_npm(manifest: Any) -> Any:
    if not isinstance(manifest, dict):
        return None
    reported = manifest.get("license") or manifest.get("licenses")
    if isinstance(reported, list):  # before 2015: [{"type": "MIT", "url": …}]
        reported = reported[0] if len(reported) == 1 else None
    return reported.get("type") if isinstance(reported, dict) else reported


def _of_project(document: dict[str, Any]) -> Any:
    project, tool = document.get("project"), document.get("tool")
    reported = project.get("license") if isinstance(project, dict) else None
    if isinstance(reported, dict):
        reported = reported.get("text")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    return reported or (poetry.get("license") if isinstance(poetry, dict) else None)


def _of_metadata(text: str) -> str | None:
    headers = HeaderParser().parsestr(text)
    reported = headers["License-Expression"] or headers["License"] or ""
    if reported.strip() and "\n" not in reported and reported.strip() != "UNKNOWN":
        return reported
    named = [
        one.removeprefix(_CLASSIFIER)
        for one in headers.get_all("Classifier", ())
        if one.startswith(_CLASSIFIER)
    ]
    return named[0] if len(named) == 1 else None
