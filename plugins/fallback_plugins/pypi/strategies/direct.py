"""The direct bump over texts: it raises every place that requires an affected version, and nothing else.

No client resolves anything here. A registry is queried, if that is allowed, for two things only: whether
the chosen release was yanked, and the hashes of a hash-pinned one.
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

#: Kind of the refusal of a place that can't be changed.
NOT_EDITABLE = "not_editable"

_LINES = frozenset({Kind.REQUIREMENTS, Kind.SETUP_CFG, Kind.SETUP_PY}) | IN_OTHER_TEXT


@dataclass(frozen=True)
class Bump:
    """One package's affected places in one project, and the version that each changed place is raised
    to."""

    package: str
    affected: tuple[Place, ...]
    targets: Mapping[Place, str]


def held(places: Iterable[Place]) -> tuple[str, ...]:
    """Return the versions that places require, or the ranges if none can be read, lowest first."""
    labels = {
        _spec(place) or "any version" if place.current is None else place.current
        for place in places
    }
    return tuple(sorted(labels, key=lambda version: sort_key(ECOSYSTEM, version)))


def places_of(texts: Mapping[str, str], package: str) -> tuple[Place, ...]:
    """Return every place in these texts that requires the package. A place in a source file is ``decided``
    if the file that was compiled from it pins the package. Raises RecipeError."""
    names = frozenset({package})
    places = tuple(
        place
        for path, text in sorted(texts.items())
        if mentioned(text, names)
        for place in places_in(path, text, package)
    )
    pinned = {place.path for place in places if not place.is_range}
    decided = {source for source, target in decided_by(texts).items() if target in pinned}
    return tuple(
        replace(place, decided=place.path in decided and not place.blocker) for place in places
    )


def place_of(texts: Mapping[str, str], package: str, default: str) -> str:
    """Return the path of the first file that requires a package; ``default`` if none does, or one can't be
    parsed."""
    with suppress(RecipeError):
        return next((place.path for place in places_of(texts, package)), default)
    return default


def affected_places(advisory: Advisory, places: Sequence[Place], package: str) -> tuple[Place, ...]:
    """Return the places that hold an affected version, or of which it can't be ruled out."""
    return tuple(place for place in places if _is_affected(advisory, place, package))


def is_unaffected(advisory: Advisory, place: Place, package: str) -> bool:
    """Return whether a place applies in every case (no marker, extra, group) and admits only safe
    versions."""
    declaration = place.asked
    matcher = advisory.matcher(ECOSYSTEM, package)
    main = (("project", "dependencies"), ("tool", "poetry", "dependencies"), ("packages",))
    is_main = any(place.keys[: len(prefix)] == prefix for prefix in main)
    if (
        declaration is None
        or declaration.marker
        or not (is_main or place.kind is Kind.REQUIREMENTS)
    ):
        return False
    if declaration.taken:
        return matcher is None or not matcher.covers(declaration.taken)
    if declaration.refusal:
        return False
    bounds = [clause.version.removesuffix(".*") for clause in declaration.clauses]
    bounded = any(clause.operator not in {"!=", "<", "<="} for clause in declaration.clauses)
    candidates = (*bounds, *(f"{bound}.1" for bound in bounds), *(matcher.named if matcher else ()))
    admitted = [*filter(declaration.admits, candidates)]
    above = admits_affected(advisory, ECOSYSTEM, package, declaration.admits)
    covered = matcher is not None and any(map(matcher.covers, admitted))
    return bounded and bool(admitted) and not above and not covered


def plan_bump(
    advisory: Advisory, places: Sequence[Place], package: str, choose: _Choose
) -> Bump | None:
    """Return the direct bump of one package, or None if no place is affected.

    Places of one release line get the same version: those under the same marker, unless pins to different
    versions in one file show that they are never installed together. Raises RecipeError if a place can't be
    raised, or there is no version to raise it to.
    """
    affected = affected_places(advisory, places, package)
    if not affected:
        return None
    for place in affected:
        if place.blocker:
            raise _blocked(place, package)
    # ``!=`` clauses stay, so a version that they exclude isn't chosen.
    clauses = (
        clause for place in places if place.declaration for clause in place.declaration.clauses
    )
    excluding = [clause for clause in clauses if clause.operator == "!="]
    targets: dict[Place, str] = {}
    lines = {place: _line(place, places) for place in affected}
    for marker, pin in dict.fromkeys(lines.values()):
        group = [place for place in affected if lines[place] == (marker, pin)]
        current = max(
            (_current(advisory, place, package) for place in group),
            key=lambda version: sort_key(ECOSYSTEM, version),
        )
        version = choose(
            package,
            current,
            lambda candidate: all(clause.admits(candidate) for clause in excluding),
        )
        targets |= dict.fromkeys(group, version)
        in_the_way = (place for place in places if _is_in_the_way(place, version, marker, pin))
        targets |= dict.fromkeys(in_the_way, version)
    for place, version in targets.items():
        _edits(place, package, version)
    # Decided places that did not admit the version are reported with the affected ones.
    return Bump(package, (*affected, *(place for place in targets if place.decided)), targets)


def plan_raise(texts: Mapping[str, str], package: str, version: str) -> Mapping[Place, str]:
    """Return the places in which a package is raised to an already chosen version, with that version.

    Places that already require that version or a higher one stay. Raises RecipeError if one can't be
    raised.
    """
    targets = {}
    for place in places_of(texts, package):
        if place.blocker:
            raise _blocked(place, package)
        current = place.current
        if current is not None and compare_versions(ECOSYSTEM, current, version) >= 0:
            continue
        pins = current is not None and not place.decided
        if pins or not (place.declaration and place.declaration.admits(version)):
            _edits(place, package, version)
            targets[place] = version
    return targets


@dataclass(frozen=True)
class Changes:
    """The changes of bumps, by positions in the original texts: edits of line-based files, and new strings
    of other files by the keys that lead to them."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    values: dict[str, dict[tuple[str | int, ...], str]] = field(default_factory=dict)

    def add(self, other: "Changes") -> None:
        """Add the changes of another package."""
        for path, edits in other.edits.items():
            self.edits.setdefault(path, []).extend(edits)
        for path, values in other.values.items():
            self.values.setdefault(path, {}).update(values)

    def made(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the changed texts by path. Raises RecipeError."""
        edited = {
            path: apply_edits(texts[path], tuple(edits)) for path, edits in self.edits.items()
        }
        for path, values in self.values.items():
            edited[path] = replace_requirements(path, texts[path], values)
        return edited


def raised(
    texts: Mapping[str, str], package: str, targets: Mapping[Place, str], hashes: Hashes
) -> dict[str, str]:
    """Return the texts that a bump changes, by path. Raises RecipeError, ToolError."""
    return changes(texts, package, targets, hashes).made(texts)


def changes(
    texts: Mapping[str, str], package: str, targets: Mapping[Place, str], hashes: Hashes
) -> Changes:
    """Return a bump's changes, so that many can be applied at once. Raises RecipeError, ToolError."""
    new = Changes()
    for path in dict.fromkeys(place.path for place in targets):
        targets_in_file = {
            place: version for place, version in targets.items() if place.path == path
        }
        text = texts[path]
        if next(iter(targets_in_file)).kind in _LINES:
            edits = new.edits[path] = []
            for place, version in targets_in_file.items():
                edits += _edits(place, package, version)
                if place.declaration and place.declaration.hashes:
                    edits.append(hash_edit(text, place.declaration, hashes(package, version)))
        else:
            new.values[path] = {
                place.keys: _value(path, text, place, package, version)
                for place, version in targets_in_file.items()
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
            replace(place, declaration=choice, current=current_of(choice))
            for choice in declaration.choices
        )
        return any(_is_affected(advisory, choice, package) for choice in choices)
    if declaration is None or declaration.refusal:
        return place.current is None
    return declaration.pin is None and (
        admits_affected(advisory, ECOSYSTEM, package, declaration.admits)
        or only_affected(advisory, package, declaration)
    )


def _current(advisory: Advisory, place: Place, package: str) -> str:
    """Return the version that a place must be raised above."""
    declaration = place.declaration
    if place.current is not None and is_affected(advisory, ECOSYSTEM, package, place.current):
        return place.current
    admits = declaration.admits if declaration else lambda _: True
    highest = highest_named(advisory, package, admits) or place.current
    bounds = (
        clause.version.removesuffix(".*") for clause in (declaration.clauses if declaration else ())
    )
    return highest or next((bound for bound in bounds if is_orderable(ECOSYSTEM, bound)), "0")


def _line(place: Place, places: Sequence[Place]) -> tuple[str, str | None]:
    """Return the release line of a place: its marker, and a pin if any file has several pins under that
    marker, otherwise None. The pin is its own, or the highest of them that its range admits."""
    marker = _marker(place)
    pins_by_file = grouped(
        (place.path, pin) for place in places if _marker(place) == marker and (pin := _pin(place))
    )
    pins = {
        pin for file_pins in pins_by_file.values() if len(set(file_pins)) > 1 for pin in file_pins
    }
    candidates = [
        pin for pin in pins if pin == _pin(place) or (place.is_range and place.admits(pin))
    ]
    return marker, max(candidates, key=lambda version: sort_key(ECOSYSTEM, version), default=None)


def _pin(place: Place) -> str | None:
    return None if place.is_range or place.decided else place.current


def _is_in_the_way(place: Place, version: str, marker: str, pin: str | None) -> bool:
    """Return whether a place does not admit the version and requires a lower one, so that it must move
    too."""
    declaration = place.declaration
    if declaration is None or declaration.refusal or _marker(place) not in {"", marker}:
        return False
    if pin is not None and _pin(place) not in {None, pin}:
        return False  # another release line: the two are never installed together
    if declaration.admits(version):
        return False
    return place.current is None or compare_versions(ECOSYSTEM, place.current, version) < 0


def _blocked(place: Place, package: str) -> RecipeError:
    """Return the refusal of a place that can't be raised."""
    problem = f"{place.path} requires {package}{_spec(place)}, but {place.blocker}."
    constraint = f"{package} {_spec(place).strip()}".strip()
    kind = BlockerKind.CONFLICT
    blocker = Blocker(kind=kind, package=PROJECT, constraint=constraint, file=place.path)
    step = f"Write {package} in {place.path} as one requirement of a registry's release."
    return unsupported(problem, step, blocker, kind=NOT_EDITABLE)


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
    """Return the new string in a TOML file. Its declaration's spans are positions in that string."""
    value = value_at(parse_toml(path, text), place.keys)
    if not any(literal in text for literal in written_as(value)):
        raise not_plain(path, value)
    return apply_edits(value, _edits(place, package, version))


def _marker(place: Place) -> str:
    return place.declaration.marker if place.declaration else ""


def _spec(place: Place) -> str:
    declaration = place.declaration or place.asked
    if declaration is not None and declaration.clauses and not declaration.taken:
        return declaration.specifier
    return f" {place.current}" if place.current else ""
