"""Order of versions, and OSV's range algorithm, written a second time: the judge's own.

The product has both too; a judge that shared them would share their mistakes.
"""

import re
from functools import cache
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from semantic_version import Version as Semver

_NPM = re.compile(r"v?(\d+(?:\.\d+){0,2})([-+].*)?")


@cache
def order(ecosystem: str, version: str) -> Any:
    """A key that sorts like the ecosystem does; None for what has no place in the order."""
    if ecosystem == "PyPI":
        try:
            return Version(version)
        except InvalidVersion:
            return None
    match = _NPM.fullmatch(version.strip())
    if match is None:
        return None
    core = [*match[1].split("."), "0", "0"][:3]
    try:
        return Semver(".".join(str(int(part)) for part in core) + (match[2] or ""))
    except ValueError:
        return None


def canonical(ecosystem: str, name: str) -> str:
    """A package's name as it is compared."""
    return str(canonicalize_name(name)) if ecosystem == "PyPI" else name


def affecting(
    advisories: list[dict[str, Any]], ecosystem: str, name: str, version: str
) -> set[str]:
    """Identifiers of the records that cover this version."""
    return {
        record["id"]
        for record in advisories
        for entry in record.get("affected") or ()
        if _names(entry, ecosystem, name) and _covers(entry, ecosystem, version)
    }


def _names(entry: dict[str, Any], ecosystem: str, name: str) -> bool:
    package = entry.get("package") or {}
    base = str(package.get("ecosystem", "")).partition(":")[0]
    return base == ecosystem and canonical(ecosystem, package["name"]) == canonical(ecosystem, name)


def _covers(entry: dict[str, Any], ecosystem: str, version: str) -> bool:
    at = order(ecosystem, version)
    listed = entry.get("versions") or ()
    if version in listed:
        return True
    if at is None:
        return False
    if any(order(ecosystem, one) == at for one in listed):
        return True
    return any(
        _in_range(span["events"], ecosystem, at)
        for span in entry.get("ranges") or ()
        if span["type"] in {"SEMVER", "ECOSYSTEM"}
    )


def _in_range(events: list[dict[str, str]], ecosystem: str, at: Any) -> bool:
    """The last bound that the version has passed decides. ``0`` is before everything."""
    bounds = [
        (kind, None if text == "0" else order(ecosystem, text))
        for event in events
        for kind, text in event.items()
    ]
    inside = False
    for kind, bound in sorted(bounds, key=lambda one: (one[1] is not None, one[1] or at)):
        if bound is None or (kind == "introduced" and bound <= at):
            inside = inside or kind == "introduced"
        elif (kind in {"fixed", "limit"} and bound <= at) or (
            kind == "last_affected" and bound < at
        ):
            inside = False
    return inside
