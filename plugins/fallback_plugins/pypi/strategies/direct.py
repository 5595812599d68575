"""The direct bump over texts: every place that asks for an affected version is raised, nothing else.

No client decides here. A registry is asked for two things only, and only where it may be: whether the
chosen release was yanked, and the hashes of a hash-pinned one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fallback_audit.vocabulary import BlockerKind
from fallback_plugins.pypi.manifests.kinds import IN_OTHER_TEXT, Kind
from fallback_plugins.pypi.manifests.pyproject import (
    not_plain,
    parse_toml,
    replace_requirements,
    value_at,
    written_as,
)
from fallback_plugins.pypi.manifests.requirements import (
    Declaration,
    Edit,
    apply_edits,
    edits_for,
    hash_edit,
)
from fallback_plugins.pypi.surveying.deciding import decided_by
from fallback_plugins.pypi.surveying.survey import (
    ECOSYSTEM,
    Place,
    current_of,
    highest_named,
    mentioned,
    only_affected,
    places_in,
)
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import PROJECT, blocked
from fallback_plugins.shared.tree import grouped
from fallback_tier.advisory import Advisory, compare_versions, is_affected, sort_key
from fallback_tier.advisory.ranges import admits_affected
from fallback_tier.advisory.versions import is_orderable
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Blocker

#: Chooses a version: (package, current, acceptable) → the lowest safe one. Raises RecipeError.
_Choose = Callable[[str, str, Callable[[str], bool]], str]

#: New hashes of one release: (package, version) → ``sha256:…``. Raises RecipeError, ToolError.
Hashes = Callable[[str, str], Sequence[str]]

_LINES = frozenset({Kind.REQUIREMENTS, Kind.SETUP_CFG}) | IN_OTHER_TEXT


@dataclass(frozen=True)
class Bump:
    """One package's places in one project, and the version that each that moves is raised to."""

    package: str
    affected: tuple[Place, ...]
    targets: Mapping[Place, str]


def held(places: Iterable[Place]) -> tuple[str, ...]:
    """Return the versions that places require, or the ranges if none can be read, lowest first."""
    shown = {_spec(it) or "any version" if it.current is None else it.current for it in places}
    return tuple(sorted(shown, key=lambda version: sort_key(ECOSYSTEM, version)))


def places_of(texts: Mapping[str, str], package: str) -> tuple[Place, ...]:
    """Every place of these texts that asks for the package; what has been compiled from one of them into
    another is decided there. Raises RecipeError."""
    named = frozenset({package})
    places = tuple(
        place
        for path, text in sorted(texts.items())
        if mentioned(text, named)
        for place in places_in(path, text, package)
    )
    pinned = {place.path for place in places if not place.is_range}
    decided = {source for source, target in decided_by(texts).items() if target in pinned}
    return tuple(
        replace(place, decided=place.path in decided and not place.blocker) for place in places
    )


def place_of(texts: Mapping[str, str], package: str, other: str) -> str:
    """Return the file that requires a package; ``other`` if none does, or none can be read."""
    with suppress(RecipeError):
        return next((place.path for place in places_of(texts, package)), other)
    return other


def affected_places(advisory: Advisory, places: Sequence[Place], package: str) -> tuple[Place, ...]:
    """Those that hold, or can't be shown not to hold, an affected version."""
    return tuple(place for place in places if _is_affected(advisory, place, package))


def is_unaffected(advisory: Advisory, place: Place, package: str) -> bool:
    """Return whether a place holds in every case (no marker, extra, group), for safe versions alone."""
    asked = place.asked
    matcher = advisory.matcher(ECOSYSTEM, package)
    main = (("project", "dependencies"), ("tool", "poetry", "dependencies"), ("packages",))
    is_main = any(place.keys[: len(one)] == one for one in main)
    if asked is None or asked.marker or not (is_main or place.kind is Kind.REQUIREMENTS):
        return False
    if asked.taken:
        return matcher is None or not matcher.covers(asked.taken)
    if asked.refusal:
        return False
    own = [clause.version.removesuffix(".*") for clause in asked.clauses]
    bounded = any(clause.operator not in {"!=", "<", "<="} for clause in asked.clauses)
    candidates = (*own, *(f"{one}.1" for one in own), *(matcher.named if matcher else ()))
    admitted = [*filter(asked.admits, candidates)]
    above = admits_affected(advisory, ECOSYSTEM, package, asked.admits)
    covered = matcher is not None and any(map(matcher.covers, admitted))
    return bounded and bool(admitted) and not above and not covered


def plan_bump(
    advisory: Advisory, places: Sequence[Place], package: str, choose: _Choose
) -> Bump | None:
    """What the direct bump of one package would be; None: no place is affected.

    Places of one release line get the same version: those under the same marker, unless pins to different
    versions in one file show that they are never installed together. Raises RecipeError: a place can't be
    raised, or there is no version to raise it to.
    """
    affected = affected_places(advisory, places, package)
    if not affected:
        return None
    for place in affected:
        if place.blocker:
            raise _blocked(place, package)
    # ``!=`` stays: a version that one names isn't chosen.
    clauses = (it for place in places if place.declaration for it in place.declaration.clauses)
    excluding = [clause for clause in clauses if clause.operator == "!="]
    targets: dict[Place, str] = {}
    lines = {place: _line(place, places) for place in affected}
    for marker, pin in dict.fromkeys(lines.values()):
        group = [place for place in affected if lines[place] == (marker, pin)]
        current = max(
            (_current(advisory, place, package) for place in group),
            key=lambda version: sort_key(ECOSYSTEM, version),
        )
        version = choose(package, current, lambda it: all(one.admits(it) for one in excluding))
        targets |= dict.fromkeys(group, version)
        in_the_way = (it for it in places if _is_in_the_way(it, version, marker, pin))
        targets |= dict.fromkeys(in_the_way, version)
    for place, version in targets.items():
        _edits(place, package, version)
    # What only had to admit the version, and did not, is told with those that held another.
    return Bump(package, (*affected, *(it for it in targets if it.decided)), targets)


def plan_raise(texts: Mapping[str, str], package: str, version: str) -> Mapping[Place, str]:
    """The places that a package is raised in, to a version that was chosen already.

    Places that ask for that much stay. Raises RecipeError: one can't be raised.
    """
    targets = {}
    for place in places_of(texts, package):
        current = place.current
        lower = current is not None and compare_versions(ECOSYSTEM, current, version) < 0
        below = lower and not place.decided
        if place.blocker:
            raise _blocked(place, package)
        if below or not (place.declaration and place.declaration.admits(version)):
            _edits(place, package, version)
            targets[place] = version
    return targets


@dataclass(frozen=True)
class Changes:
    """What bumps do to texts, at the places of the texts as they are: edits of files of lines, new strings
    of the others (by the keys that lead to them)."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    values: dict[str, dict[tuple[str | int, ...], str]] = field(default_factory=dict)

    def add(self, other: "Changes") -> None:
        """Those of another package, too."""
        for path, edits in other.edits.items():
            self.edits.setdefault(path, []).extend(edits)
        for path, values in other.values.items():
            self.values.setdefault(path, {}).update(values)

    def made(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The texts after them; those that aren't touched are left out. Raises RecipeError."""
        made = {path: apply_edits(texts[path], tuple(it)) for path, it in self.edits.items()}
        for path, values in self.values.items():
            made[path] = replace_requirements(path, texts[path], values)
        return made


def raised(
    texts: Mapping[str, str], package: str, targets: Mapping[Place, str], hashes: Hashes
) -> dict[str, str]:
    """The texts after a bump; those that it doesn't touch are left out. Raises RecipeError, ToolError."""
    return changes(texts, package, targets, hashes).made(texts)


def changes(
    texts: Mapping[str, str], package: str, targets: Mapping[Place, str], hashes: Hashes
) -> Changes:
    """What a bump would do, so that many can be made at once. Raises RecipeError, ToolError."""
    new = Changes()
    for path in dict.fromkeys(place.path for place in targets):
        here = {place: version for place, version in targets.items() if place.path == path}
        text = texts[path]
        if next(iter(here)).kind in _LINES:
            edits = new.edits[path] = []
            for place, version in here.items():
                edits += _edits(place, package, version)
                if place.declaration and place.declaration.hashes:
                    edits.append(hash_edit(text, place.declaration, hashes(package, version)))
        else:
            new.values[path] = {
                place.keys: _value(path, text, place, package, version)
                for place, version in here.items()
            }
    return new


def _is_affected(advisory: Advisory, place: Place, package: str) -> bool:
    if place.decided:
        return False
    if place.current is not None and is_affected(advisory, ECOSYSTEM, package, place.current):
        return True
    declaration = place.declaration or place.asked
    if declaration is not None and declaration.choices:
        choices = (
            replace(place, declaration=it, current=current_of(it)) for it in declaration.choices
        )
        return any(_is_affected(advisory, one, package) for one in choices)
    if declaration is None or declaration.refusal:
        return place.current is None
    return declaration.pin is None and (
        admits_affected(advisory, ECOSYSTEM, package, declaration.admits)
        or only_affected(advisory, package, declaration)
    )


def _current(advisory: Advisory, place: Place, package: str) -> str:
    """The version that a place must be raised above."""
    declaration = place.declaration
    if place.current is not None and is_affected(advisory, ECOSYSTEM, package, place.current):
        return place.current
    admits = declaration.admits if declaration else lambda _: True
    named = highest_named(advisory, package, admits) or place.current
    own = (
        clause.version.removesuffix(".*") for clause in (declaration.clauses if declaration else ())
    )
    return named or next((it for it in own if is_orderable(ECOSYSTEM, it)), "0")


def _line(place: Place, places: Sequence[Place]) -> tuple[str, str | None]:
    """Return the marker and the pin that decide a place's version: its own pin, or the highest one under
    the same marker that its range admits; None unless one file has several pins under that marker."""
    marker = _marker(place)
    of_files = grouped(
        (it.path, pin) for it in places if _marker(it) == marker and (pin := _pin(it))
    )
    pins = {pin for found in of_files.values() if len(set(found)) > 1 for pin in found}
    own = [pin for pin in pins if pin == _pin(place) or (place.is_range and place.admits(pin))]
    return marker, max(own, key=lambda version: sort_key(ECOSYSTEM, version), default=None)


def _pin(place: Place) -> str | None:
    return None if place.is_range or place.decided else place.current


def _is_in_the_way(place: Place, version: str, marker: str, pin: str | None) -> bool:
    """An unaffected place that does not admit the version, and asks for less."""
    declaration = place.declaration
    if declaration is None or declaration.refusal or _marker(place) not in {"", marker}:
        return False
    if pin is not None and _pin(place) not in {None, pin}:
        return False  # another line: the two were never installed together
    if declaration.admits(version):
        return False
    return place.current is None or compare_versions(ECOSYSTEM, place.current, version) < 0


def _blocked(place: Place, package: str) -> RecipeError:
    """The refusal of a place that can't be raised."""
    problem = f"{place.path} requires {package}{_spec(place)}, but {place.blocker}."
    constraint = f"{package} {_spec(place).strip()}".strip()
    kind = BlockerKind.CONFLICT
    blocker = Blocker(kind=kind, package=PROJECT, constraint=constraint, file=place.path)
    step = f"Write {package} in {place.path} as one requirement of a registry's release."
    return unsupported(problem, step, blocker)


def _edits(place: Place, package: str, version: str) -> tuple[Edit, ...]:
    declaration = place.declaration or Declaration(())
    edits = edits_for(declaration, version)
    if edits is None:
        raise not_raised(place.path, package, version, declaration)
    return edits


def not_raised(path: str, package: str, version: str, declaration: Declaration) -> RecipeError:
    """Return the refusal of a declaration that no edit raises to a version."""
    spec = f"{declaration.specifier} (not one version or bound to raise)"
    return blocked(package, version, parent=PROJECT, spec=spec, where=path)


def _value(path: str, text: str, place: Place, package: str, version: str) -> str:
    """The new string of a TOML file. Its declaration's spans are of the string alone."""
    value = value_at(parse_toml(path, text), place.keys)
    if not any(literal in text for literal in written_as(value)):
        raise not_plain(path, value)
    return apply_edits(value, _edits(place, package, version))


def _marker(place: Place) -> str:
    return place.declaration.marker if place.declaration else ""


def _spec(place: Place) -> str:
    if place.declaration is not None and not place.declaration.taken:
        return place.declaration.specifier
    return f" {place.current}" if place.current else ""
