"""Poetry's own words for versions: read as PEP 440, and written as Poetry writes them into its lock."""

import re
from collections.abc import Iterator

from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from fallback_plugins.pypi.manifests.requirements import poetry_specifier_in

_OR = re.compile(r"\|\|?")

#: A bound with a wildcard (``>=3.5.*``), as old releases have it: Poetry reads the bound.
_BOUND_WITH_WILDCARD = re.compile(r"([<>]=?[ \t]*[0-9][0-9.]*)\.\*")


def alternatives(constraint: str) -> tuple[SpecifierSet, ...] | None:
    """A constraint of Poetry's as PEP 440 sets, any of which is enough; None: it can't be read."""
    found = []
    for part in _OR.split(constraint):
        declaration = poetry_specifier_in(_BOUND_WITH_WILDCARD.sub(r"\1", part.strip()))
        if declaration.refusal:
            return None
        try:
            found.append(SpecifierSet(declaration.pep440))
        except InvalidSpecifier:
            return None
    return tuple(found)


def admits(constraint: str, version: str) -> bool:
    """Does a constraint of Poetry's accept the version (pre-releases too)? False: it can't be read."""
    sets = alternatives(constraint)
    return sets is not None and any(one.contains(version, prereleases=True) for one in sets)


def is_same(constraint: str, specifier: SpecifierSet) -> bool:
    """Does a constraint of Poetry's say what a PEP 440 set says, as far as it can be seen?"""
    return constraint in {in_dependencies(specifier), in_extras(specifier)} or alternatives(
        constraint
    ) == (specifier,)


def in_dependencies(specifier: SpecifierSet) -> str:
    """As ``[package.dependencies]`` has it: an excluded version splits the range (``||``)."""
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
        return _joined(clauses)
    parts = []
    for clause in excluded:
        end, following = _around(clause)
        parts.append(",".join([*start, end]))
        start = [following]
    parts.append(",".join([*start, *high]))
    return " || ".join(parts)


def in_extras(specifier: SpecifierSet) -> str:
    """As ``[package.extras]`` has it between parentheses: in the order of the versions."""
    return _joined(_sorted(specifier))


def _joined(clauses: list[Specifier]) -> str:
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
    """Does every exclusion split the range? One outside of it, or beside ``==``, splits nothing."""
    within = SpecifierSet(",".join(ends))
    return len(ends) == len(bounds) and all(
        within.contains(clause.version.removesuffix(".*"), prereleases=True)
        and not any(end.strip("<>=") == clause.version for end in ends)
        for clause in excluded
    )


def _around(clause: Specifier) -> tuple[str, str]:
    """What ends before an excluded version, and what begins after it."""
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
