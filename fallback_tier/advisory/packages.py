"""Which ecosystem a package is of, as scanners let one tell: package URLs, types, file names."""

import re
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

from fallback_tier.advisory.versions import NPM, PYPI

#: Types as package URLs and scanners write them.
_ECOSYSTEMS = {"npm": NPM, "pypi": PYPI, "python": PYPI, "node": NPM, "javascript": NPM}

_NPM_FILES = frozenset(
    {"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml"}
)
_PYPI_FILES = frozenset(
    {
        "pyproject.toml",
        "uv.lock",
        "poetry.lock",
        "pdm.lock",
        "pylock.toml",
        "Pipfile",
        "Pipfile.lock",
        "setup.cfg",
        "METADATA",
        "PKG-INFO",
    }
)
_REQUIREMENTS = re.compile(r".*(?:requirements|constraints).*\.(?:txt|in)", re.IGNORECASE)

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
    return _ECOSYSTEMS.get(kind.lower(), "")


def ecosystem_of_file(path: str) -> str:
    """OSV's name of the ecosystem whose manifest, lock or metadata lies at a path; or empty."""
    name = PurePosixPath(path).name
    if name in _NPM_FILES:
        return NPM
    if name in _PYPI_FILES or _REQUIREMENTS.fullmatch(name):
        return PYPI
    return ""
