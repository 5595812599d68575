"""Which ecosystem a package is of, as scanners let one tell: package URLs, types, file names.

Those that have a plugin are asked (``ecosystem_rules``); what is of none is told by an empty name.
"""

import re
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from fallback_tier.ecosystem_rules import installed_rules

#: ``pkg:npm/%40scope/name@1.2.3?qualifiers``
_PURL = re.compile(r"pkg:(?P<type>[a-z]+)/(?P<name>[^?#\s]+)@(?P<version>[^@?#\s]+)", re.IGNORECASE)


class Installed(NamedTuple):
    """One version of a package, as a report states it. ``ecosystem`` is empty where it doesn't."""

    ecosystem: str
    name: str
    version: str


def from_purl(url: str) -> Installed | None:
    """The package of a package URL that has a version and is of an ecosystem that we know."""
    found = _PURL.match(url)
    if found is None or not ecosystem_of_type(found["type"]):
        return None
    return Installed(
        ecosystem_of_type(found["type"]), unquote(found["name"]), unquote(found["version"])
    )


def ecosystem_of_type(kind: str) -> str:
    """OSV's name for a scanner's package type; empty where it is none of ours."""
    message = kind.lower()
    return next((name for name, rules in installed_rules() if message in rules.package_types), "")


def ecosystem_of_file(path: str) -> str:
    """OSV's name of the ecosystem whose manifest, lock or metadata lies at a path; or empty."""
    name = PurePosixPath(path).name
    return next((found for found, rules in installed_rules() if rules.owns_file(name)), "")
