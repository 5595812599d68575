"""Version order and package names, per ecosystem.

Comparison is the libraries' (``packaging`` for PEP 440, ``semantic_version`` for SemVer 2.0.0);
ranges are ours (``ranges``). Build metadata and PEP 440 local labels don't order: a local build of
an affected version is affected.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from fallback_tier.errors import AdvisoryError

if TYPE_CHECKING:
    from semantic_version import Version as SemVer

NPM = "npm"
PYPI = "PyPI"

#: (0, text): not a version of the ecosystem, below all that are. (1, key): the library's own key.
SortKey = tuple[int, Any]

#: npm's own tolerance: surrounding blanks, "=" and "v" before the number.
_LOOSE_PREFIX = re.compile(r"[\s=v]+")

#: A fourth number would silently become build metadata, that is, equal to the first three.
_FOUR_NUMBERS = re.compile(r"\d+\.\d+\.\d+\.")

#: A release as nearly all are published. The library takes ten times as long over one, and a lock
#: has thousands; what does not look like this is left to it.
_PLAIN_SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", re.ASCII)

#: In place of pre-release identifiers: above every one of them.
_RELEASE = ((2, ""),)


def canonical_name(ecosystem: str, name: str) -> str:
    """The name that identifies a package: PEP 503 for PyPI, as it is for npm."""
    return canonicalize_name(name) if base_ecosystem(ecosystem) == PYPI else name


def base_ecosystem(ecosystem: str) -> str:
    """OSV allows a suffix (``Debian:12``); what stands before it decides the rules."""
    return ecosystem.partition(":")[0]


@lru_cache(maxsize=65_536)
def sort_key(ecosystem: str, version: str) -> SortKey:
    """A key whose order is total, also over texts that aren't versions (they sort below all).

    Raises AdvisoryError where the ecosystem's order is not known.
    """
    base = base_ecosystem(ecosystem)
    try:
        if base == PYPI:
            parsed = Version(version)
            return 1, parsed if parsed.local is None else Version(parsed.public)
        if base == NPM:
            return 1, _semver_key(version)
    except (InvalidVersion, ValueError):
        return 0, version
    raise AdvisoryError(
        f"Versions of ecosystem {ecosystem!r} can't be ordered.",
        next_step=f"Ecosystems that can be: {NPM}, {PYPI}.",
    )


def _semver_key(version: str) -> tuple[Any, ...]:
    """SemVer 2.0.0, section 11, as tuples: numeric identifiers are below the others."""
    plain = _PLAIN_SEMVER.fullmatch(version)
    if plain:
        return (*map(int, plain.groups()), _RELEASE)
    parsed = _semver(version)
    identifiers = tuple((0, int(it)) if it.isdigit() else (1, it) for it in parsed.prerelease)
    return parsed.major, parsed.minor, parsed.patch, identifiers or _RELEASE


def _semver(version: str) -> "SemVer":
    from semantic_version import Version as SemVer

    text = _LOOSE_PREFIX.sub("", version, count=1) if version[:1] in " =v\t" else version
    if _FOUR_NUMBERS.match(text):
        raise ValueError(version)
    return SemVer.coerce(text.strip())


def is_orderable(ecosystem: str, version: str) -> bool:
    """Is this text a version of the ecosystem (not a URL, a tag, a range)?"""
    return sort_key(ecosystem, version)[0] == 1


def compare_versions(ecosystem: str, left: str, right: str) -> int:
    """-1, 0 or 1, as ``left`` is below, equal to or above ``right``."""
    a, b = sort_key(ecosystem, left), sort_key(ecosystem, right)
    return (a > b) - (a < b)


def successor(ecosystem: str, version: str) -> str:
    """The lowest version above this one: nothing that the ecosystem can order lies between.

    For ranges that begin *after* a version; OSV's ``introduced`` is inclusive. Raises AdvisoryError
    where the text is no version.
    """
    if not is_orderable(ecosystem, version):
        raise AdvisoryError(
            f"{version!r} is not a version of ecosystem {ecosystem!r}.",
            next_step="Look at the range that names it.",
        )
    if base_ecosystem(ecosystem) == PYPI:
        return _pep440_successor(Version(version))
    parsed = _semver(version)
    if parsed.prerelease:
        return f"{parsed.truncate('prerelease')}.0"
    return f"{parsed.major}.{parsed.minor}.{parsed.patch + 1}-0"


def next_line(ecosystem: str, version: str) -> str:
    """Where the release line (the first two numbers) after this version's begins, pre-releases included.

    For what can be ordered.
    """
    if base_ecosystem(ecosystem) == PYPI:
        parsed = Version(version)
        return f"{parsed.epoch}!{parsed.major}.{parsed.minor + 1}.dev0"
    semver = _semver(version)
    return f"{semver.major}.{semver.minor + 1}.0-0"


def _pep440_successor(version: Version) -> str:
    base = version.public
    if version.dev is not None:
        return f"{base.rpartition('.dev')[0]}.dev{version.dev + 1}"
    if version.post is not None:
        return f"{base.rpartition('.post')[0]}.post{version.post + 1}.dev0"
    return f"{base}.post0.dev0"


def is_major_step(ecosystem: str, old: str, new: str) -> bool:
    """Does the step from one version to a higher one announce changes that break its users?

    SemVer: another major version, below 1.0 another minor one. PEP 440 promises nothing; there the first
    number is what projects use for it. False where one of them is no version.
    """
    if not (is_orderable(ecosystem, old) and is_orderable(ecosystem, new)):
        return False
    if base_ecosystem(ecosystem) == PYPI:
        return Version(old).major != Version(new).major
    left, right = _semver(old), _semver(new)
    if left.major or right.major:
        return bool(left.major != right.major)
    return bool(left.minor != right.minor)


@lru_cache(maxsize=65_536)
def is_prerelease(ecosystem: str, version: str) -> bool:
    """Is this a pre-release (alpha, rc, dev …) by the ecosystem's rules?"""
    rank, _ = sort_key(ecosystem, version)
    if not rank:
        return False
    if base_ecosystem(ecosystem) == PYPI:
        return Version(version).is_prerelease
    return bool(_semver(version).prerelease)
