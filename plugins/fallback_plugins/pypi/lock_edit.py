"""What every Python project with a lock has in common: its rungs are climbed one after the other."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import LadderStep, RefusalReason
from fallback_plugins.ladder import ProjectFix, Tried, left_behind
from fallback_plugins.pypi.manifests import Kind, kind_of
from fallback_plugins.pypi.poetry_tables import pipfile_entries
from fallback_plugins.pypi.pyproject import (
    RequirementString,
    parse_toml,
    replace_requirement,
    strings_by_name,
)
from fallback_plugins.pypi.releases import lowest_safe
from fallback_plugins.pypi.resolver import resolver_failed
from fallback_plugins.pypi.rewrite import apply_edits, edits_for
from fallback_plugins.pypi.survey import ECOSYSTEM
from fallback_plugins.tree import Node, Tree, downgraded
from fallback_tier.advisory import Advisory, sort_key
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Left, Move, Outline

#: Manifests whose requests are kept: one climb asks about many packages of the same few files.
_MANIFESTS = 16


@dataclass(frozen=True)
class State:
    """The project's texts by path, and the tree that its lock holds."""

    texts: Mapping[str, str]
    tree: Tree


#: One way to bring a package out of reach. Raises RecipeError where it doesn't serve.
Rung = Callable[[State, str], State]


def affected_versions(tree: Tree, advisory: Advisory) -> dict[str, tuple[str, ...]]:
    """The affected versions that a tree holds, lowest first, by package."""
    found: dict[str, dict[str, None]] = {}
    for node in tree.affected(advisory, ECOSYSTEM):
        found.setdefault(node.name, {})[node.version] = None
    return {name: _sorted(versions) for name, versions in found.items()}


def climb(
    advisory: Advisory, path: str, start: State, rungs: Sequence[tuple[LadderStep, Rung]]
) -> ProjectFix | None:
    """Every affected package brought out of reach by the cheapest rung that serves; None: none is.

    Rung by rung, so that one that clears several packages is not climbed twice. What no rung mends is in
    ``left``.
    """
    held = affected_versions(start.tree, advisory)
    if not held:
        return None
    tried = {name: Tried() for name in held}
    moves: list[Move] = []
    state = start
    for step, rung in rungs:
        for name in held:
            if name not in affected_versions(state.tree, advisory):
                continue
            try:
                after = rung(state, name)
                _check(advisory, state.tree, after.tree, name)
            except RecipeError as error:
                tried[name].no(step, error)
                continue
            cleared = affected_versions(state.tree, advisory).keys() - affected_versions(
                after.tree, advisory
            )
            raised_too = _raised(state.tree, after.tree, cleared)
            moves += [
                Move(
                    package=one,
                    manifest=path,
                    step=step,
                    before=held[one],
                    after=highest_of(after.tree, one),
                    raised=raised_too,
                    declined=tried[one].declined,
                )
                for one in held
                if one in cleared
            ]
            state = after
    left = tuple(
        left_behind(
            advisory,
            ECOSYSTEM,
            package=name,
            versions=versions,
            manifest=path,
            error=_refusal(tried[name]),
            tried=tried[name],
        )
        for name, versions in affected_versions(state.tree, advisory).items()
    )
    changed = {at: text for at, text in state.texts.items() if text != start.texts.get(at)}
    return ProjectFix(changed, tuple(moves), left, before=start.tree, after=state.tree)


def outline(
    advisory: Advisory,
    path: str,
    tree: Tree,
    step_of: Callable[[str, str], LadderStep],
    refusal_of: Callable[[Node], RecipeError | None],
) -> Outline:
    """What the lock alone tells: per affected package the first rung, or why there is none."""
    moves: list[Move] = []
    left: list[Left] = []
    for name, versions in affected_versions(tree, advisory).items():
        problems = (refusal_of(node) for node in tree.of(name) if node.version in versions)
        error = next((problem for problem in problems if problem), None)
        try:
            if error:
                raise error
            target = lowest_safe(advisory, name, versions[-1], lambda _: True)
        except RecipeError as refusal:
            left.append(
                left_behind(
                    advisory,
                    ECOSYSTEM,
                    package=name,
                    versions=versions,
                    manifest=path,
                    error=refusal,
                    tried=Tried(),
                )
            )
            continue
        moves.append(
            Move(
                package=name,
                manifest=path,
                step=step_of(name, target),
                before=versions,
                after=target,
            )
        )
    return Outline(moves=tuple(moves), left=tuple(left))


def declared(texts: Mapping[str, str], package: str) -> Iterator[tuple[str, str, bool]]:
    """Where manifests ask for a package: path, specifier, and whether it can be edited as text."""
    for path, text in texts.items():
        for string in _strings(path, text, package):
            yield path, string.declaration.specifier, string.declaration.refusal is None


def not_admitting(texts: Mapping[str, str], package: str, version: str) -> tuple[str, str] | None:
    """The first manifest whose words exclude the version, with those words; None: all admit it."""
    for path, text in texts.items():
        for string in _strings(path, text, package):
            if not string.declaration.admits(version):
                return path, string.declaration.specifier
    return None


def excluded_by(path: str, specifier: str, package: str, version: str) -> RecipeError:
    """The typed refusal of a manifest's own words."""
    return RecipeError(
        RefusalReason.BLOCKED_BY_CONSTRAINT,
        f"{path} asks for {package} {specifier}, which does not admit {version}.",
        next_step="Raise the declaration.",
    )


def raised(texts: Mapping[str, str], package: str, version: str) -> dict[str, str]:
    """The manifests with every declaration of a package that excludes the version raised to it.

    Those that admit it stay: beside a lock that is enough. Raises RecipeError: one can't be raised.
    """
    changed: dict[str, str] = {}
    for path, text in texts.items():
        for string in _strings(path, text, package):
            if string.declaration.admits(version):
                continue
            edits = None if string.declaration.refusal else edits_for(string.declaration, version)
            if edits is None:
                raise RecipeError(
                    RefusalReason.BLOCKED_BY_CONSTRAINT,
                    f"{path} asks for {package} {string.declaration.specifier}, which does not admit"
                    f" {version} and can't be raised as text.",
                    next_step="Change that line by hand.",
                )
            new = apply_edits(string.value, edits)
            text = replace_requirement(path, text, string.keys, new)
        if text != texts[path]:
            changed[path] = text
    return changed


def admits(specifier: str, version: str) -> bool:
    """Does a PEP 440 specifier accept the version (pre-releases too)? False: it can't be read."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def highest_of(tree: Tree, package: str) -> str | None:
    """The highest version of a package that a tree holds."""
    versions = _sorted({node.version: None for node in tree.of(canonicalize_name(package))})
    return versions[-1] if versions else None


def _strings(path: str, text: str, package: str) -> tuple[RequirementString, ...]:
    """Where a manifest asks for the package, Pipfile or pyproject.toml."""
    return _asked(path, text).get(package, ())


@lru_cache(maxsize=_MANIFESTS)
def _asked(path: str, text: str) -> Mapping[str, tuple[RequirementString, ...]]:
    """All that a manifest asks for, by canonical name: read once for any number of packages."""
    if kind_of(path) is not Kind.PIPFILE:
        return strings_by_name(path, text)
    found: dict[str, list[RequirementString]] = {}
    for entry in pipfile_entries(parse_toml(path, text)):
        string = RequirementString(entry.keys, entry.value, entry.declaration)
        found.setdefault(canonicalize_name(entry.name), []).append(string)
    return {name: tuple(strings) for name, strings in found.items()}


def _check(advisory: Advisory, before: Tree, after: Tree, package: str) -> None:
    """What no rung may do. Raises RecipeError."""
    old, new = affected_versions(before, advisory), affected_versions(after, advisory)
    if package in new:
        held = ", ".join(new[package])
        raise resolver_failed(f"It would leave {package} {held} in {after.source}.")
    for name, versions in new.items():
        added = [version for version in versions if version not in old.get(name, ())]
        if added:
            raise resolver_failed(f"It would bring {name} {added[0]}, which is itself affected.")
    lower = downgraded(before, after, ECOSYSTEM)
    if lower:
        raise resolver_failed(f"It is no pure upgrade: {lower}.")


def _raised(before: Tree, after: Tree, cleared: Iterable[str]) -> tuple[str, ...]:
    """Other packages that went up with the fix, asking or asked for, as ``name version``."""
    return tuple(
        f"{name} {now}"
        for name in sorted(before.by_name.keys() - set(cleared))
        if (now := highest_of(after, name)) is not None and now != highest_of(before, name)
    )


def _refusal(tried: Tried) -> RecipeError:
    """The most telling of what was said: a named constraint, else the last."""
    for error in tried.errors:
        if error.reason is RefusalReason.BLOCKED_BY_CONSTRAINT:
            return error
    return tried.errors[-1]


def _sorted(versions: Mapping[str, None]) -> tuple[str, ...]:
    return tuple(sorted(versions, key=lambda version: sort_key(ECOSYSTEM, version)))
