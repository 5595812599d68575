"""The ecosystem of a package, by what scanners state: package URLs, types, file names.

The rules of the installed plugins decide (``ecosystem_rules``); an empty name means that no plugin has it.
"""

import re
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from fallback_tier.ecosystem_rules import installed_rules

#: ``pkg:npm/%40scope/name@1.2.3?qualifiers``
_PURL = re.compile(r"pkg:(?P<type>[a-z]+)/(?P<name>[^?#\s]+)@(?P<version>[^@?#\s]+)", re.IGNORECASE)


class Installed(NamedTuple):
    """One version of a package, as a report states it. ``ecosystem`` is empty if it doesn't state one."""

    ecosystem: str
    name: str
    version: str


def from_purl(url: str) -> Installed | None:
    """Return the package of a package URL, or None if it has no version or its ecosystem is not served."""
    match = _PURL.match(url)
    if match is None or not ecosystem_of_type(match["type"]):
        return None
    return Installed(
        ecosystem_of_type(match["type"]), unquote(match["name"]), unquote(match["version"])
    )


def ecosystem_of_type(kind: str) -> str:
    """Return OSV's name for a scanner's package type, or an empty one if no plugin has it."""
    package_type = kind.lower()
    return next(
        (name for name, rules in installed_rules() if package_type in rules.package_types), ""
    )


def ecosystem_of_file(path: str) -> str:
    """Return OSV's name of the ecosystem whose manifest, lock or metadata is at a path, or an empty one."""
    name = PurePosixPath(path).name
    return next((ecosystem for ecosystem, rules in installed_rules() if rules.owns_file(name)), "")
