"""Who gets which version of what, in the npm family's locks: the judge's own reader.

A lock can hold several copies of a package, and a copy that nobody asks for any more is no downgrade.
One that answers the same dependent with a lower version is.
"""

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

#: (who asks, for which package) → the versions that it gets.
Edges = dict[tuple[str, str], set[str]]

_YARN_ENTRY = re.compile(
    r'^(?P<head>"?[^\s#].*):\n(?:  .*\n)*?  version:? "?(?P<version>[^"\n]+)', re.MULTILINE
)


def edges(path: str, text: str) -> Edges:
    """Empty for a file that is no such lock."""
    name = PurePosixPath(path).name
    if name == "yarn.lock":
        found = _yarn(text)
    elif name == "package-lock.json":
        lock = json.loads(text)
        found = _packages(lock["packages"]) if "packages" in lock else _tree(lock, [lock])
    else:
        return {}
    collected: Edges = {}
    for dependent, package, version in found:
        collected.setdefault((dependent, package), set()).add(version)
    return collected


def _yarn(text: str) -> Iterator[tuple[str, str, str]]:
    """A key says what was asked: whoever asks the same gets the same."""
    for entry in _YARN_ENTRY.finditer(text):
        for key in entry["head"].split(","):
            asked = key.strip(' "')
            yield asked, asked.rpartition("@")[0], entry["version"]


def _packages(packages: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for place, entry in packages.items():
        name = entry.get("name") or place.rpartition("node_modules/")[2]
        dependent = f"{name} {entry.get('version', '')}" if place else "the project"
        for section in ("dependencies", "devDependencies", "optionalDependencies"):
            for asked in entry.get(section) or ():
                if answer := _nearest(packages, place, asked):
                    yield dependent, asked, str(answer.get("version", ""))


def _nearest(packages: dict[str, Any], place: str, asked: str) -> dict[str, Any] | None:
    """As Node looks for it: in the dependent's own node_modules, then in each one above."""
    while True:
        at = f"{place}/node_modules/{asked}" if place else f"node_modules/{asked}"
        if at in packages:
            return dict(packages[at])
        if not place:
            return None
        place = place.rpartition("/node_modules/")[0] if "/node_modules/" in place else ""


def _tree(node: dict[str, Any], above: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Version 1 of the format: packages nested in packages."""
    for name, entry in (node.get("dependencies") or {}).items():
        scopes = [*above, entry]
        for asked in entry.get("requires") or ():
            held = [scope["dependencies"] for scope in reversed(scopes) if "dependencies" in scope]
            answer = next((names[asked] for names in held if asked in names), None)
            if answer is not None:
                yield f"{name} {entry.get('version', '')}", asked, str(answer.get("version", ""))
        yield from _tree(entry, scopes)
