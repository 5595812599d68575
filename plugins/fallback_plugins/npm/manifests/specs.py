"""npm's version specs: what one requires, and the same spec raised to another version."""

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import takewhile

from semantic_version import Version as SemVer

from fallback_tier.advisory.versions import is_major_step, is_orderable

_NUMBER = r"(0|[1-9][0-9]{0,8})"
_PLAIN_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_PLAIN_RANGE = re.compile(rf"([~^]?){_PLAIN_VERSION.pattern}")

#: One comparator with a version: what can be raised without changing its meaning. A bare "1.2" is
#: an x-range, not a version; ">= 1.2" is a floor.
_SIMPLE = re.compile(
    r"(?P<operator>[\^~]|>=|=|)(?P<gap>\s*v?)"
    r"(?P<version>\d+(?:\.\d+){0,2}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)"
)
_FULL = re.compile(r"\d+\.\d+\.\d+")

#: "1", "1.2", "1.x", "~1.2.x": raised, it becomes a caret or tilde range of the same width.
_WILDCARD = re.compile(r"[\^~]?\s*v?\d+(?P<minor>\.\d+)?(\.[xX*])*")

#: A dist-tag ("latest", "next"): neither a number, nor a wildcard, nor a word of the range grammar.
_TAG = re.compile(r"(?![vV]\d|[xX]$)[A-Za-z][A-Za-z0-9_-]*")

_ALIAS = "npm:"

#: Prefixes of specs that name a folder or an archive of the repository itself.
LOCAL = ("file:", "link:", "portal:")

#: A lock can call a package anything; to npm a URL, a path or an option is not just a name.
_NAME = re.compile(r"(?:@[\w~][\w.~-]*/)?[\w~!'()*][\w.~!'()*-]*", re.ASCII)

#: A version as npm cleans one: ``v1.2.3``, ``=1.2.3``, ``1.2.3beta``, and what a build adds.
_LOOSE = re.compile(r"[v=\s]*0*(\d+)\.0*(\d+)\.0*(\d+)-?([0-9A-Za-z.-]*)(?:\+.*)?\s*")

_Bound = tuple[str, SemVer]
_COMPARE: Mapping[str, Callable[[SemVer, SemVer], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARATOR = re.compile(r"(~>|>=|<=|[<>=~^]?)(\S+)")
_HYPHEN = re.compile(r"(\S+) - (\S+)")
_PARTS = ("major", "minor", "patch")
#: A version of which numbers can be missing or wildcards.
_PARTIAL = re.compile(
    r"[v=]*(?P<major>0|[1-9]\d*|[xX*])(?:\.(?P<minor>0|[1-9]\d*|[xX*])(?:\.(?P<patch>0|[1-9]\d*|[xX*])"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?)?)?"
)

#: Spec prefixes that name something else than a version of this package.
_FOREIGN = (
    (_ALIAS, "an alias"),
    ("workspace:", "a workspace"),
    ("catalog:", "a catalog entry"),
    ("file:", "a local folder"),
    ("link:", "a local folder"),
    ("portal:", "a local folder"),
    ("patch:", "a patched package"),
    ("http:", "a URL"),
    ("https:", "a URL"),
)


def split_alias(spec: str) -> tuple[str, str]:
    """Split ``npm:real@^1`` into (``npm:real@``, ``^1``), and any other spec into ("", itself)."""
    if not spec.startswith(_ALIAS):
        return "", spec
    at = spec.find("@", len(_ALIAS) + 1)
    return (spec + "@", "") if at < 0 else (spec[: at + 1], spec[at + 1 :])


def is_package_name(text: str) -> bool:
    """Return whether it is a name, not a URL, path or option that npm would take for one."""
    return _NAME.fullmatch(text) is not None


def plain_version(version: str) -> str:
    """Return a version as a registry has it, without build metadata; any other text as it is."""
    match = _LOOSE.fullmatch(version)
    if match is None:
        return version
    release, pre = ".".join(match.groups()[:3]), match[4]
    return f"{release}-{pre}" if pre else release


def foreign(spec: str) -> str | None:
    """Return what the spec names instead of a version range (a folder, a URL …), or None. An alias names
    its package's range."""
    text = split_alias(spec)[1]
    for prefix, what in _FOREIGN:
        if text.startswith(prefix):
            return what
    # git URLs (git+ssh://, git://), and the user/repo shorthand.
    return "a git repository or path" if "/" in text or text.startswith("git") else None


def is_tag(spec: str) -> bool:
    """Return whether the spec is a dist-tag instead of a range."""
    return _TAG.fullmatch(spec) is not None


def floor(spec: str) -> str | None:
    """Return the version that the spec starts from; None if it isn't one simple comparator."""
    match = _simple(split_alias(spec)[1])
    return match["version"] if match else None


def raised(spec: str, version: str) -> str | None:
    """Return the spec with its version replaced, operator, spacing and alias kept; None: not simple."""
    alias, text = split_alias(spec)
    match = _simple(text)
    if match:
        return f"{alias}{match['operator']}{match['gap']}{version}"
    wildcard = _WILDCARD.fullmatch(text)
    if wildcard is None:
        return None
    return f"{alias}{'~' if wildcard['minor'] else '^'}{version}"


@lru_cache(maxsize=16_384)  # one resolution checks the same few ranges again and again
def admits(spec: str, version: str) -> bool:
    """Return whether npm's range accepts the version. False also if it can't be read (a tag)."""
    text = split_alias(spec)[1]
    plain, release = _PLAIN_RANGE.fullmatch(text), _PLAIN_VERSION.fullmatch(version)
    if plain and release:
        return _plainly_admits(plain, release)
    read, number = _range(text), _version(version)
    return (
        read is not None and number is not None and any(_holds(bounds, number) for bounds in read)
    )


def excludes(spec: str, version: str) -> bool:
    """Return whether npm's range excludes the version. False if it can't be read, or is not a range."""
    text = split_alias(spec)[1].strip()
    if foreign(spec) or is_tag(text) or text in {"", "*"}:
        return False
    is_readable = _PLAIN_RANGE.fullmatch(text) is not None or _range(text) is not None
    return is_readable and _is_version(version) and not admits(spec, version)


def _plainly_admits(plain: re.Match[str], release: re.Match[str]) -> bool:
    """Return whether a range of the form ``^1.2.3``, ``~1.2.3`` or ``1.2.3`` admits a release. Nearly all
    ranges of a lock are of that form: parsing each would take a quarter of a plan's time. A test compares
    this function with the library."""
    operator, *numbers = plain.groups()
    major, minor, patch = floor = tuple(map(int, numbers))
    wanted = tuple(map(int, release.groups()))
    if not operator:
        return wanted == floor
    if operator == "~" or (not major and minor):
        return floor <= wanted < (major, minor + 1)
    return floor <= wanted < ((major + 1,) if major else (0, 0, patch + 1))


def compatible(version: str, other: str) -> bool:
    """Return whether both have the same major version; below 1.0, the same minor."""
    return _is_version(version) and _is_version(other) and not is_major_step("npm", version, other)


def _is_version(text: str) -> bool:
    return _PLAIN_VERSION.fullmatch(text) is not None or _version(text) is not None


@lru_cache(maxsize=16_384)
def _range(spec: str) -> tuple[tuple[_Bound, ...], ...] | None:
    """Return the alternatives of a range, each as bounds that all must hold; None if it can't be read.

    As node-semver's README defines ranges. The library's own reader of them (semantic_version.NpmSpec)
    treats pre-releases differently: to it, ``1.1.0-rc.1`` admits 1.1.0.
    """
    alternatives = []
    for text in spec.split("||"):
        words = re.sub(r"(~>|[<>=~^v]+)\s+(?=[\dvxX*=])", r"\1", " ".join(text.split()))
        hyphen = _HYPHEN.fullmatch(words)
        pairs = (
            [(">=", hyphen[1]), ("<=", hyphen[2])] if hyphen else _COMPARATOR.findall(words or "*")
        )
        bounds: list[_Bound] = []
        for sign, partial in pairs:
            match = _PARTIAL.fullmatch(partial)
            if match is None:
                return None
            bounds += _bounds(sign, match)
        alternatives.append(tuple(bounds))
    return tuple(alternatives)


def _bounds(sign: str, partial: re.Match[str]) -> list[_Bound]:
    """Return one comparator's bounds. Upper ends exclude their own pre-releases."""
    parts = takewhile(lambda part: part is not None and part.isdigit(), partial.group(*_PARTS))
    numbers = [int(part) for part in parts]
    count = len(numbers)
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    floor = SemVer(f"{major}.{minor}.{patch}")
    if count == 3 and partial["pre"]:
        floor = SemVer(f"{floor}-{partial['pre']}")
    ceilings = {1: (major + 1, 0, 0), 2: (major, minor + 1, 0), 3: (major, minor, patch + 1)}
    if not count:
        return [] if sign not in {"<", ">"} else [("<", SemVer("0.0.0-0"))]

    def below(width: int) -> _Bound:
        return "<", SemVer("{}.{}.{}-0".format(*ceilings[width]))

    match sign:
        case "^":
            width = 1 if major or count == 1 else 2 if minor or count == 2 else 3
            return [(">=", floor), below(width)]
        case "~" | "~>":
            return [(">=", floor), below(min(count, 2))]
        case "" | "=":
            return [("=", floor)] if count == 3 else [(">=", floor), below(count)]
        case _ if count == 3 or sign == ">=":
            return [(sign, floor)]
        case ">":
            return [(">=", SemVer("{}.{}.{}".format(*ceilings[count])))]
        case "<=":
            return [below(count)]
        case _:
            return [("<", SemVer(f"{floor}-0"))]


def _holds(bounds: tuple[_Bound, ...], version: SemVer) -> bool:
    """Return whether bounds admit a version; a pre-release, only if a bound names one of its release."""
    if not all(_COMPARE[sign](version, bound) for sign, bound in bounds):
        return False
    release = version.truncate()
    return not version.prerelease or any(
        bound.prerelease and bound.truncate() == release for _, bound in bounds
    )


@lru_cache(maxsize=16_384)
def _version(version: str) -> SemVer | None:
    try:
        return SemVer(version) if is_orderable("npm", version) else None
    except ValueError:
        return None


def _simple(spec: str) -> re.Match[str] | None:
    match = _SIMPLE.fullmatch(spec)
    if match is None or (match["operator"] in {"", "="} and not _FULL.match(match["version"])):
        return None
    return match
