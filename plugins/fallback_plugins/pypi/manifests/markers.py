"""Environment markers and version constraints in Poetry's notation.

A marker is evaluated in every environment that it can distinguish: the Pythons that the project supports,
and for each other variable the values that it names and one that it doesn't.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod

from packaging.markers import InvalidMarker, Marker, UndefinedComparison
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from fallback_plugins.pypi.manifests.requirements import poetry_specifier_in

_OR = re.compile(r"\|\|?")

#: A bound with a wildcard (``>=3.5.*``), as in old releases: Poetry ignores the wildcard.
_BOUND_WITH_WILDCARD = re.compile(r"([<>]=?[ \t]*[0-9][0-9.]*)\.\*")


def alternatives(constraint: str) -> tuple[SpecifierSet, ...] | None:
    """Return a Poetry constraint as PEP 440 sets, any of which is enough; None if it can't be read."""
    sets = []
    for part in _OR.split(constraint):
        declaration = poetry_specifier_in(_BOUND_WITH_WILDCARD.sub(r"\1", part.strip()))
        if declaration.refusal:
            return None
        try:
            sets.append(SpecifierSet(declaration.pep440))
        except InvalidSpecifier:
            return None
    return tuple(sets)


def admits(constraint: str, version: str) -> bool:
    """Return whether a Poetry constraint admits a version (pre-releases too); False if unreadable."""
    sets = alternatives(constraint)
    return sets is not None and any(
        specifier_set.contains(version, prereleases=True) for specifier_set in sets
    )


def is_same(constraint: str, specifier: SpecifierSet) -> bool:
    """Return whether a Poetry constraint is equivalent to a PEP 440 set, as far as the texts show."""
    return constraint in {in_dependencies(specifier), in_extras(specifier)} or alternatives(
        constraint
    ) == (specifier,)


def in_dependencies(specifier: SpecifierSet) -> str:
    """Return a set in the form of ``[package.dependencies]``: an excluded version splits the range
    (``||``)."""
    clauses = _sorted(specifier)
    if not clauses:
        return "*"
    if len(clauses) == 1 and clauses[0].operator in {"==", "==="}:
        only = clauses[0]
        return str(only) if only.version.endswith(".*") else only.version
    excluded = [clause for clause in clauses if clause.operator == "!="]
    bounds = [text for clause in clauses if clause not in excluded for text in _bounds(clause)]
    start = [text for text in bounds if text.startswith(">")]
    high = [text for text in bounds if text.startswith("<")]
    if not excluded or not bounds or not _lie_within(excluded, [*start, *high], bounds):
        return _joined_clauses(clauses)
    parts = []
    for clause in excluded:
        end, following = _around(clause)
        parts.append(",".join([*start, end]))
        start = [following]
    parts.append(",".join([*start, *high]))
    return " || ".join(parts)


def in_extras(specifier: SpecifierSet) -> str:
    """Return a set in the form of ``[package.extras]`` within parentheses: ordered by version."""
    return _joined_clauses(_sorted(specifier))


def _joined_clauses(clauses: list[Specifier]) -> str:
    return ",".join(text for clause in clauses for text in _bounds(clause))


def _bounds(clause: Specifier) -> Iterator[str]:
    if clause.operator != "~=":
        yield str(clause)
        return
    release = [int(part) for part in clause.version.split(".") if part.isdigit()]
    ceiling = [*release[:-2], release[-2] + 1, 0] if len(release) > 1 else [release[0] + 1]
    yield f">={clause.version}"
    yield f"<{'.'.join(map(str, ceiling))}"


def _lie_within(excluded: list[Specifier], ends: list[str], bounds: list[str]) -> bool:
    """Return whether every exclusion splits the range. One outside of it, or together with ``==``, does
    not."""
    within = SpecifierSet(",".join(ends))
    return len(ends) == len(bounds) and all(
        within.contains(clause.version.removesuffix(".*"), prereleases=True)
        and not any(end.strip("<>=") == clause.version for end in ends)
        for clause in excluded
    )


def _around(clause: Specifier) -> tuple[str, str]:
    """Return the bounds below and above an excluded version."""
    if not clause.version.endswith(".*"):
        return f"<{clause.version}", f">{clause.version}"
    release = [int(part) for part in clause.version.removesuffix(".*").split(".")]
    following = ".".join(map(str, [*release[:-1], release[-1] + 1]))
    return f"<{clause.version.removesuffix('.*')}.dev0", f">={following}.dev0"


def _sorted(specifier: SpecifierSet) -> list[Specifier]:
    def order(clause: Specifier) -> tuple[bool, Version, str]:
        try:
            return False, Version(clause.version.removesuffix(".*")), clause.operator
        except InvalidVersion:
            return True, Version("0"), str(clause)

    return sorted(specifier, key=order)


#: When something is needed: if any of these markers holds; the empty one always does.
Condition = tuple[str, ...]
ALWAYS: Condition = ("",)
NEVER: Condition = ()

#: Pythons for which a marker is evaluated, as far as the project supports them.
_MINORS = ("2.7", *(f"3.{minor}" for minor in range(5, 16)))

#: Patch version that represents the last release of a minor version.
_LAST_PATCH = 99

#: Most environments that are tried: real markers have dozens. With more of them, a marker counts as
#: possibly true.
_MAX_TRIED = 5000

_COMPARED = re.compile(
    r"""(?P<name>[a-z_]+) (?:not in|in|[<>=!~]+) "(?P<value>[^"]*)"|"""
    r""""(?P<part>[^"]*)" (?:not in|in|[<>=!~]+) (?P<whole>[a-z_]+)"""
)
#: Variables that are compared as versions: for an environment without a named value they get a version,
#: too.
_VERSIONS = frozenset({"platform_release", "platform_version", "implementation_version"})
_EXTRA_ALONE = re.compile(r"""^extra == ["'][^"']*["']$""")
_EXTRA = re.compile(r"""extra == ["'](?P<extra>[^"']+)["']""")


@lru_cache(maxsize=4096)
def can_hold(marker: str, python: str) -> bool:
    """Return whether the marker holds on any platform, for any Python of the project (in Poetry's
    notation)."""
    truths = _truths((marker,), python)
    return truths is None or any(holds for (holds,) in truths)


def supported(python: str) -> tuple[str, ...]:
    """Return the first and the last release of each Python that the project supports (``3.9.0``)."""
    return tuple(full for _, full in _pythons(python, ()))


def either(terms: Sequence[str], python: str) -> Condition:
    """Return the terms without those that another one implies: any of them is enough."""
    needed: list[str] = []
    for term in dict.fromkeys(terms):
        if not can_hold(term, python) or any(
            _implies((term,), (other_term,), python) for other_term in needed
        ):
            continue
        needed = [
            other_term for other_term in needed if not _implies((other_term,), (term,), python)
        ] + [term]
    return ALWAYS if _implies(ALWAYS, tuple(needed), python) else tuple(needed)


def both(condition: Condition, marker: str, python: str) -> Condition:
    """Return the condition that requires both a condition and a marker."""
    return either([_joined(term, marker, python) for term in condition], python)


def same(first: Condition, second: Condition, python: str) -> bool:
    """Return whether two conditions hold in the same environments."""
    return _implies(first, second, python) and _implies(second, first, python)


def written(condition: Condition) -> str:
    """Return a condition as one marker; empty if it always holds."""
    return " or ".join(condition)


def extras_in(marker: str) -> list[str]:
    """Return the extras that a marker names."""
    return _EXTRA.findall(marker)


def without_extras(marker: str) -> str:
    """Return what a marker requires of the environment, without extras; empty if extras are mixed into it
    in another way."""
    if "extra" not in marker:
        return marker
    if " or " in marker:
        return ""
    return " and ".join(
        part for part in marker.split(" and ") if not _EXTRA_ALONE.match(part.strip("()"))
    )


def _joined(term: str, marker: str, python: str) -> str:
    marker = _reduced(marker, python)
    if not term or not marker:
        return term or marker
    if _implies((term,), (marker,), python):
        return term
    if _implies((marker,), (term,), python):
        return marker
    return " and ".join(f"({part})" if " or " in part else part for part in (term, marker))


def _reduced(marker: str, python: str) -> str:
    """Return a marker without the parts that hold on every Python of the project."""
    if " or " in marker or "(" in marker:
        return marker
    parts = marker.split(" and ")
    return " and ".join(part for part in parts if not _implies(ALWAYS, (part,), python))


@lru_cache(maxsize=4096)
def _implies(premise: Condition, conclusion: Condition, python: str) -> bool:
    """Return whether the conclusion holds wherever the premise does; False also if there is too much to
    try."""
    if premise == conclusion or "" in conclusion:
        return True
    markers = (*premise, *conclusion)
    truths = _truths(markers, python)
    if truths is None:
        return False
    return all(any(row[len(premise) :]) for row in truths if any(row[: len(premise)]))


def _truths(markers: Sequence[str], python: str) -> list[tuple[bool, ...]] | None:
    """Return which of the markers hold, for every environment that they distinguish; None if there are too
    many."""
    try:
        parsed = [Marker(marker) if marker else None for marker in markers]
    except InvalidMarker:
        return None
    values: dict[str, set[str]] = {}
    for match in _COMPARED.finditer(" ".join(str(marker) for marker in parsed if marker)):
        name, value = match["name"] or match["whole"], match["value"] or match["part"] or ""
        values.setdefault(name, set()).update([value, *re.split(r"[ ,]+", value)])
    full_versions = tuple(sorted(values.pop("python_full_version", ())))
    values.pop("python_version", None)
    choices = [
        [*sorted(named_values), "0" if name in _VERSIONS else ""]
        for name, named_values in values.items()
    ]
    pythons = _pythons(python, full_versions)
    if len(pythons) * prod(map(len, choices)) > _MAX_TRIED:
        return None
    return [
        tuple(marker is None or _holds(marker, environment) for marker in parsed)
        for version, full in pythons
        for chosen in product(*choices)
        for environment in [
            {
                "extra": "",
                **dict(zip(values, chosen, strict=True)),
                "python_version": version,
                "python_full_version": full,
            }
        ]
    ]


def _holds(marker: Marker, environment: dict[str, str]) -> bool:
    try:
        return marker.evaluate(environment)
    except (InvalidVersion, UndefinedComparison):
        return True  # leave nothing out that may be needed


@lru_cache(maxsize=64)
def _pythons(constraint: str, named_versions: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the Pythons that a Poetry constraint admits, as (3.9, 3.9.0): the first and last release of
    each minor version, and the releases around the named ones."""
    return tuple(
        (minor, full)
        for minor in _MINORS
        for full in sorted(_releases(minor, named_versions))
        if admits(constraint, full)
    )


def _releases(minor: str, named_versions: tuple[str, ...]) -> Iterator[str]:
    patches = {0, _LAST_PATCH}
    for full in named_versions:
        head, _, patch = full.rpartition(".")
        if head == minor and patch.isdigit():
            patches |= {max(int(patch) - 1, 0), int(patch), int(patch) + 1}
    return (f"{minor}.{patch}" for patch in patches)
