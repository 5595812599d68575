"""What every Python project with a lock has in common: its steps are resolved one after the other."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.pypi.manifests.pyproject import (
    TableEntry,
    is_excluded,
    replace_requirement,
    requirement_strings,
    strings_by_name,
)
from fallback_plugins.pypi.manifests.requirements import Declaration, apply_edits, edits_for
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import (
    PROJECT,
    Position,
    ProjectFix,
    Reached,
    Resolution,
    ResultRules,
    Strategy,
    blocked,
    does_not_apply,
)
from fallback_plugins.shared.tree import DependencyTree, grouped
from fallback_tier.advisory import Advisory, sort_key
from fallback_tier.errors import RecipeError

#: The project's texts by path, and the tree that its lock holds.
State = Position[Mapping[str, str]]

#: One way to bring a package out of reach. Raises RecipeError where it doesn't serve.
StepFunction = Callable[[State, str], State]


def affected_versions(tree: DependencyTree, advisory: Advisory) -> dict[str, tuple[str, ...]]:
    """The affected versions that a tree holds, lowest first, by package."""
    found = grouped((node.name, node.version) for node in tree.affected(advisory, ECOSYSTEM))
    order = partial(sort_key, ECOSYSTEM)
    return {
        name: tuple(sorted(dict.fromkeys(versions), key=order)) for name, versions in found.items()
    }


def strategy(
    step: LadderStep,
    ladder_step: StepFunction,
    refusal: Callable[[State, str], RecipeError | None] = lambda _at, _package: None,
) -> Strategy[Mapping[str, str]]:
    """A step over a Python lock: one package at a time, and all of its copies."""

    def attempt(at: State, packages: tuple[str, ...]) -> Reached[Mapping[str, str]]:
        (package,) = packages
        after = ladder_step(at, package)
        return Reached(after, {package: _raised(at.tree, after.tree, package)})

    return Strategy(step, attempt, refusal, together=False)


def resolve(
    advisory: Advisory,
    path: str,
    start: State,
    strategies: Iterable[Strategy[Mapping[str, str]]],
    ages: Ages | None = None,
) -> ProjectFix:
    """Every affected package brought out of reach by the cheapest step that serves.

    What no step fixes is in ``left``.
    """
    resolving = Resolution(ResultRules(ECOSYSTEM, advisory, ages=ages), start)
    resolving.run(strategies)
    at = resolving.at
    changed = {name: text for name, text in at.files.items() if text != start.files.get(name)}
    return ProjectFix(
        changed, resolving.moves(path), resolving.lefts(path), before=start.tree, after=at.tree
    )


def declared(texts: Mapping[str, str], package: str) -> Iterator[str]:
    """Paths of the manifests that ask for a package."""
    return (path for path, text in texts.items() if installed_strings(path, text, package))


def installed_strings(path: str, text: str, package: str) -> tuple[TableEntry, ...]:
    """``requirement_strings`` that some Python of the project installs."""
    return tuple(
        it
        for it in requirement_strings(path, text, package)
        if not is_excluded(path, text, it.declaration.marker)
    )


def asked_for(texts: Mapping[str, str]) -> Iterator[tuple[str, str, TableEntry]]:
    """All that manifests ask for: path, canonical name, and how it is written."""
    for path, text in texts.items():
        for name, strings in strings_by_name(path, text).items():
            yield from ((path, name, string) for string in strings)


def not_admitting(
    texts: Mapping[str, str], package: str, version: str, line: str = ""
) -> tuple[str, str] | None:
    """The first manifest whose words exclude the version, with those words; None: all admit it. ``line``:
    only words that admit this version count."""
    for path, text in texts.items():
        for string in installed_strings(path, text, package):
            if line and not string.declaration.admits(line):
                continue
            if not string.declaration.admits(version):
                return path, string.declaration.specifier
    return None


def excluded_by(path: str, specifier: str, package: str, version: str) -> RecipeError:
    """The typed refusal of a manifest's own words."""
    return blocked(package, version, parent=PROJECT, spec=specifier, where=path)


def required_by_others(
    state: State, package: str, problem: str, place: Callable[[str], str]
) -> RecipeError:
    """The refusal to try a step for what the project does not require itself. ``place``: the file that
    declares a package."""
    asking = (one for node in state.tree.of(package) for one in state.tree.dependents(node.key))
    parent, ask = next(asking, (None, None))
    if parent is None or ask is None:
        return unsupported(problem)
    return does_not_apply(problem, package, parent.label, ask.spec, place(parent.name))


def raised(
    texts: Mapping[str, str], package: str, version: str | Callable[[Declaration], str | None]
) -> dict[str, str]:
    """The manifests with every declaration of a package that excludes the version raised to it.

    Those that admit it stay: beside a lock that is enough. ``version``: one for all, or a function that
    returns the version of a declaration's release line, None if it stays. Raises RecipeError: one can't be
    raised.
    """
    version_of = version if callable(version) else _always(version)
    changed: dict[str, str] = {}
    for path, text in texts.items():
        for string in installed_strings(path, text, package):
            target = version_of(string.declaration)
            if target is None or string.declaration.admits(target):
                continue
            edits = None if string.declaration.refusal else edits_for(string.declaration, target)
            if edits is None:
                spec = f"{string.declaration.specifier} (not one version or bound to raise)"
                raise blocked(package, target, parent=PROJECT, spec=spec, where=path)
            new = apply_edits(string.value, edits)
            text = replace_requirement(path, text, string.keys, new)
        if text != texts[path]:
            changed[path] = text
    return changed


def _always(version: str) -> Callable[[Declaration], str]:
    return lambda _declaration: version


def all_raised(texts: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, str]:
    """All of the manifests, with each of these packages ``raised`` to its version. Raises RecipeError."""
    edited = dict(texts)
    for package, version in versions.items():
        edited |= raised(edited, package, version)
    return edited


def admits(specifier: str, version: str) -> bool:
    """Does a PEP 440 specifier accept the version (pre-releases too)? False: it can't be read."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def new_and_gone(path: str, before: DependencyTree, after: DependencyTree) -> Iterator[str]:
    """What the lock holds more, or no more, than before."""
    new = [
        node.label for name, nodes in after.by_name.items() if not before.of(name) for node in nodes
    ]
    if new:
        yield f"{path} gains what the new releases need: {', '.join(sorted(new))}."
    gone = sorted(before.by_name.keys() - after.by_name.keys())
    if gone:
        yield f"{path} no longer holds what nothing requires any more: {', '.join(gone)}."


def _raised(before: DependencyTree, after: DependencyTree, package: str) -> tuple[str, ...]:
    """Other packages that went up with the fix, asking or asked for, as ``name version``."""
    return tuple(
        f"{name} {now}"
        for name in sorted(before.by_name.keys() - {package})
        if (now := after.highest(ECOSYSTEM, name)) is not None
        and now != before.highest(ECOSYSTEM, name)
    )
