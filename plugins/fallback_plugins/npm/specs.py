"""npm's version specs: what one asks for, and the same ask raised to another version."""

import re

from semantic_version import NpmSpec
from semantic_version import Version as SemVer

#: One comparator with a version: what can be raised without changing its meaning. A bare "1.2" is
#: an x-range, not a version; ">= 1.2" is a floor.
_SIMPLE = re.compile(
    r"(?P<operator>[\^~]|>=|=|)(?P<gap>\s*v?)"
    r"(?P<version>\d+(?:\.\d+){0,2}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)"
)
_FULL = re.compile(r"\d+\.\d+\.\d+")

#: Spec prefixes that name something else than a version of this package.
_FOREIGN = (
    ("npm:", "an alias"),
    ("workspace:", "a workspace"),
    ("catalog:", "a catalog entry"),
    ("file:", "a local folder"),
    ("link:", "a local folder"),
    ("portal:", "a local folder"),
    ("patch:", "a patched package"),
    ("http:", "a URL"),
    ("https:", "a URL"),
)


def foreign(spec: str) -> str | None:
    """What the spec names instead of a version range (an alias, a URL …), if anything."""
    for prefix, what in _FOREIGN:
        if spec.startswith(prefix):
            return what
    # git URLs (git+ssh://, git://), and the user/repo shorthand.
    return "a git repository or path" if "/" in spec or spec.startswith("git") else None


def floor(spec: str) -> str | None:
    """The version that the spec starts from; None where it isn't one simple comparator."""
    match = _simple(spec)
    return match["version"] if match else None


def raised(spec: str, version: str) -> str | None:
    """The spec with its version replaced, operator and spacing kept; None: not a simple one."""
    match = _simple(spec)
    return f"{match['operator']}{match['gap']}{version}" if match else None


def admits(spec: str, version: str) -> bool:
    """Does npm's range accept the version? False also where the range can't be read (a tag)."""
    text = re.sub(r"([<>=~^])\s+", r"\1", " ".join(spec.split()))
    try:
        return bool(NpmSpec(text or "*").match(SemVer(version)))
    except ValueError:
        return False


def _simple(spec: str) -> re.Match[str] | None:
    match = _SIMPLE.fullmatch(spec)
    if match is None or (match["operator"] in {"", "="} and not _FULL.match(match["version"])):
        return None
    return match
