"""A lock with the manifests that it was made from, as one Project of the ladder, and the steps over it.

A lock of uv is made by the real uv. Locks of Poetry and pipenv are edited: their clients aren't run, since
they would build (ADR-0017).
"""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Generic, TypeVar

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
from fallback_plugins.pypi.resolving.registry import (
    PackageIndex,
    Releases,
    ages_of,
    as_options,
    lowest_safe,
)
from fallback_plugins.pypi.strategies.all_strategies import State as State
from fallback_plugins.pypi.strategies.all_strategies import Step, cheapest_first
from fallback_plugins.pypi.strategies.direct import not_raised, places_of
from fallback_plugins.pypi.surveying.deciding import DecidedByLock, LockStep
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, only_affected
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import FREE, Terms, no_override, unsupported, use_bump
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    PROJECT,
    ProjectFix,
    Reached,
    ResultRules,
    Strategy,
    blocked,
    does_not_apply,
    left_behind,
    ordered,
)
from fallback_plugins.shared.ladder import Resolution as Ladder
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    unlisted,
    unversioned,
)
from fallback_plugins.shared.tree import DependencyTree, Node, cleared_paths, grouped
from fallback_tier.advisory import Advisory, sort_key
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Move, Outline
from fallback_tier.repo import RepoContext

#: One way to remove an affected version: (state, package) → the new state. Raises RecipeError if it fails.
StepFunction = Callable[[State, str], State]


def affected_versions(tree: DependencyTree, advisory: Advisory) -> dict[str, tuple[str, ...]]:
    """Return the affected versions in a tree, lowest first, by package."""
    versions_by_package = grouped(
        (node.name, node.version) for node in tree.affected(advisory, ECOSYSTEM)
    )
    order = partial(sort_key, ECOSYSTEM)
    return {
        name: tuple(sorted(dict.fromkeys(versions), key=order))
        for name, versions in versions_by_package.items()
    }


def one_by_one(
    take: StepFunction,
    refusal: Callable[[State, str], RecipeError | None] = lambda _at, _package: None,
) -> Step:
    """Return a step over a Python lock that fixes one package at a time, with all of its copies."""

    def attempt(state: State, packages: tuple[str, ...]) -> Reached[Mapping[str, str]]:
        (package,) = packages
        after = take(state, package)
        return Reached(after, {package: _raised(state.tree, after.tree, package)})

    return Step(attempt, refusal, together=False)


def resolve(
    advisory: Advisory,
    path: str,
    start: State,
    strategies: Iterable[Strategy[Mapping[str, str]]],
    ages: Ages | None = None,
) -> ProjectFix:
    """Return a fix of every affected package by the cheapest step that succeeds.

    What no step fixes is in ``left``.
    """
    ladder = Ladder(ResultRules(ECOSYSTEM, advisory, ages=ages), start)
    ladder.run(strategies)
    end = ladder.at
    changed = {name: text for name, text in end.files.items() if text != start.files.get(name)}
    return ProjectFix(
        changed, ladder.moves(path), ladder.lefts(path), before=start.tree, after=end.tree
    )


def declared(texts: Mapping[str, str], package: str) -> Iterator[str]:
    """Yield the paths of the manifests that require a package."""
    return (path for path, text in texts.items() if _installed_strings(path, text, package))


def _installed_strings(path: str, text: str, package: str) -> tuple[TableEntry, ...]:
    """Return the ``requirement_strings`` that some Python of the project installs."""
    return tuple(
        entry
        for entry in requirement_strings(path, text, package)
        if not is_excluded(path, text, entry.declaration.marker)
    )


def asked_for(texts: Mapping[str, str]) -> Iterator[tuple[str, str, TableEntry]]:
    """Yield all requirements of manifests: path, canonical name, and the entry."""
    for path, text in texts.items():
        for name, strings in strings_by_name(path, text).items():
            yield from ((path, name, string) for string in strings)


def not_admitting(
    texts: Mapping[str, str], package: str, version: str, line: str = ""
) -> tuple[str, str] | None:
    """Return the first manifest that excludes the version, with its specifier; None if all admit it.
    ``line``: if not empty, only specifiers that admit this version count."""
    for path, text in texts.items():
        for string in _installed_strings(path, text, package):
            if line and not string.declaration.admits(line):
                continue
            if not string.declaration.admits(version):
                return path, string.declaration.specifier
    return None


def excluded_by(path: str, specifier: str, package: str, version: str) -> RecipeError:
    """Return the refusal to move to a version that a manifest's own specifier excludes."""
    return blocked(package, version, parent=PROJECT, spec=specifier, where=path)


def required_by_others(
    state: State, package: str, problem: str, file_of: Callable[[str], str]
) -> RecipeError:
    """Return the refusal to try a step for a package that the project does not require itself. ``file_of``:
    returns the file that declares a package."""
    dependents = (
        dependent
        for node in state.tree.of(package)
        for dependent in state.tree.dependents(node.key)
    )
    parent, ask = next(dependents, (None, None))
    if parent is None or ask is None:
        return unsupported(problem)
    return does_not_apply(problem, package, parent.label, ask.spec, file_of(parent.name))


def raised(
    texts: Mapping[str, str], package: str, version: str | Callable[[Declaration], str | None]
) -> dict[str, str]:
    """Return the changed manifests, with every declaration of a package that excludes the version raised to
    it.

    Declarations that admit it stay, which is enough with a lock. ``version``: one for all, or a function
    that returns the version for a declaration's release line, or None to leave it. Raises RecipeError if
    one can't be raised.
    """
    version_of = version if callable(version) else lambda _declaration: version
    changed: dict[str, str] = {}
    for path, text in texts.items():
        for string in _installed_strings(path, text, package):
            target = version_of(string.declaration)
            if target is None or string.declaration.admits(target):
                continue
            edits = None if string.declaration.refusal else edits_for(string.declaration, target)
            if edits is None:
                raise not_raised(path, package, target, string.declaration)
            new = apply_edits(string.value, edits)
            text = replace_requirement(path, text, string.keys, new)
        if text != texts[path]:
            changed[path] = text
    return changed


def all_raised(texts: Mapping[str, str], versions: Mapping[str, str]) -> dict[str, str]:
    """Return all manifests, with each of these packages ``raised`` to its version. Raises RecipeError."""
    edited = dict(texts)
    for package, version in versions.items():
        edited |= raised(edited, package, version)
    return edited


def admits(specifier: str, version: str) -> bool:
    """Return whether a PEP 440 specifier admits the version (pre-releases too); False if it can't be
    read."""
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:
        return False


def _new_and_gone(path: str, before: DependencyTree, after: DependencyTree) -> Iterator[str]:
    """Yield a sentence on what the lock gains, and one on what it loses."""
    new = [
        node.label for name, nodes in after.by_name.items() if not before.of(name) for node in nodes
    ]
    if new:
        yield f"{path} gains what the new releases need: {', '.join(sorted(new))}."
    gone = sorted(before.by_name.keys() - after.by_name.keys())
    if gone:
        yield f"{path} no longer holds what nothing requires any more: {', '.join(gone)}."


def _raised(before: DependencyTree, after: DependencyTree, package: str) -> tuple[str, ...]:
    """Return the other packages that changed with the fix, as ``name version``."""
    return tuple(
        f"{name} {now}"
        for name in sorted(before.by_name.keys() - {package})
        if (now := after.highest(ECOSYSTEM, name)) is not None
        and now != before.highest(ECOSYSTEM, name)
    )


#: Returns whether the declaration of a package may be raised.
MayRaise = Callable[[str], bool]

ProjectT = TypeVar("ProjectT", bound="LockedProject")


class LockResolver(ABC, Generic[ProjectT]):
    """The steps of one resolution of a project with a lock."""

    #: Why the new lock is checked less than usual; empty if it is not.
    unchecked = ""

    def __init__(self, project: ProjectT, releases: Releases) -> None:
        self.releases = releases
        self._project = project
        self._path = project.path
        self._advisory = releases.advisory
        ages = as_options(releases.ages, excepting=True, own=True)
        self._index = PackageIndex(project.clients, ages)

    @property
    def strategies(self) -> list[Strategy[Mapping[str, str]]]:
        """Return the steps, cheapest first. Without a manifest nothing can be raised, and only the lock is
        edited. Raises RecipeError if no resolution can start from these files."""
        refresh = one_by_one(self._refresh)
        if not self._project.declares:
            return cheapest_first(edit=refresh)
        return cheapest_first(
            refresh=refresh,
            direct=one_by_one(self._direct, self._not_declared),
            parent=one_by_one(self._parent, self._no_parent),
            override=self._override,
        )

    @property
    def forced(self) -> list[Strategy[Mapping[str, str]]]:
        """Return only the override, if the client has overrides."""
        return cheapest_first(override=self._override)

    @property
    def _override(self) -> Step | None:
        return None

    @abstractmethod
    def _refresh(self, state: State, package: str) -> State: ...

    @abstractmethod
    def _direct(self, state: State, package: str) -> State: ...

    @abstractmethod
    def _not_declared(self, state: State, package: str) -> RecipeError | None:
        """Return why no declaration can be raised; None if one can."""

    @abstractmethod
    def _parent(self, state: State, package: str) -> State: ...

    def _no_parent(self, _state: State, _package: str) -> RecipeError | None:
        """Return why no parent can be raised; None if one can."""
        return None

    def notes_on(self, _fix: ProjectFix) -> Iterator[str]:
        """Yield the notes on a fix."""
        yield from self.releases.notes

    def _manifests(self, state: State) -> dict[str, str]:
        return {path: text for path, text in state.files.items() if path != self._path}

    def _place(self, state: State, package: str) -> str:
        """Return the path of the first manifest that requires a package; the lock's if none does."""
        return next(declared(self._manifests(state), package), self._path)


class EditResolver(LockResolver[ProjectT]):
    """The steps over a lock that is edited: a lock refresh, a direct and a parent bump, but no override."""

    @abstractmethod
    def _moved(self, state: State, package: str, may_raise: MayRaise) -> State:
        """Return the state with the package at its lowest safe version, and what has to move with it.
        Raises RecipeError."""

    def _refresh(self, state: State, package: str) -> State:
        return self._moved(state, package, lambda _: False)

    def _direct(self, state: State, package: str) -> State:
        return self._moved(state, package, lambda name: name == package)

    def _parent(self, state: State, package: str) -> State:
        return self._moved(state, package, lambda _: True)

    def _not_declared(self, state: State, package: str) -> RecipeError | None:
        if any(declared(self._manifests(state), package)):
            return None
        problem = f"{self._project.manifest} does not require {package}."
        return required_by_others(state, package, problem, partial(self._place, state))

    def _target(self, state: State, package: str) -> str:
        current = affected_versions(state.tree, self._advisory)[package][-1]
        return self.releases.lowest_safe(package, current)


def check_raises(
    texts: Mapping[str, str],
    versions: Mapping[str, str],
    may_raise: MayRaise,
    lines: Mapping[str, str] = NO_TEXTS,
) -> None:
    """Raise RecipeError if a manifest excludes a version, and its declaration may not be raised.

    ``lines``: installed versions by package; of these packages only declarations that admit that version
    count.
    """
    for name, version in versions.items():
        excluded = not_admitting(texts, name, version, lines.get(name, ""))
        if excluded and not may_raise(name):
            raise excluded_by(*excluded, name, version)


@dataclass
class LockedProject(DecidedByLock, ABC):
    """One lock, with its manifests that are in the repository."""

    repo: RepoContext
    clients: ClientRunner
    path: str
    terms: Terms = FREE

    #: The file name of the manifest next to the lock.
    _MANIFEST: ClassVar = "pyproject.toml"

    #: The client that wrote the lock, and the command by which it installs.
    _CLIENT: ClassVar[str]
    _INSTALL: ClassVar[str]

    @property
    def manifests(self) -> frozenset[str]:
        """Return the paths of the lock and of the manifest next to it: no other project resolves them."""
        return frozenset({self.path, self.manifest})

    @property
    def manifest(self) -> str:
        """Return the path of the manifest, whether or not it is in the repository."""
        return posixpath.join(posixpath.dirname(self.path), self._MANIFEST)

    @cached_property
    def text(self) -> str:
        """Return the lock's text."""
        return self.repo.read_text(self.path)

    @cached_property
    def texts(self) -> dict[str, str]:
        """Return the manifest's text by path, if it is in the repository."""
        return {self.manifest: self.repo.read_text(self.manifest)} if self.declares else {}

    @property
    def declares(self) -> bool:
        """Return whether the manifest is in the repository."""
        return self.repo.has(self.manifest)

    @cached_property
    def ages(self) -> Ages:
        """Return the project's age rules. Raises RepositoryError."""
        return ages_of(self.repo, self.clients, self.path)

    @property
    @abstractmethod
    def step(self) -> LockStep:
        """Return the lock with what the manifests require; without that if its hash shows that it is in
        step."""

    @property
    @abstractmethod
    def tree(self) -> DependencyTree:
        """Return the locked packages."""

    @abstractmethod
    def _refusal(self, node: Node) -> RecipeError | None:
        """Return why a package of the lock can't be moved; None if it can."""

    @abstractmethod
    def _resolver(self, releases: Releases) -> LockResolver[Any]: ...

    def outline(self, advisory: Advisory) -> Outline:
        """Return what lock and manifests show: for each affected package the first step, or why there is
        none.

        Raises RecipeError, RepositoryError.
        """
        self.step.check(advisory)
        moves: list[Move] = []
        left: list[Left] = []
        affected = affected_versions(self.tree, advisory)
        for name, versions in affected.items():
            problems = (
                self._refusal(node) for node in self.tree.of(name) if node.version in versions
            )
            error = next((problem for problem in problems if problem), None)
            try:
                if error:
                    raise error
                target = lowest_safe(advisory, name, versions[-1])
            except RecipeError as refusal:
                manifest = self.path
                left.append(
                    left_behind(
                        advisory, ECOSYSTEM, name, versions, manifest=manifest, error=refusal
                    )
                )
                continue
            step = LadderStep.LOCK_EDIT
            if self.declares:
                excluded = not_admitting(self.texts, name, target)
                step = LadderStep.DIRECT_BUMP if excluded else LadderStep.LOCK_REFRESH
            moves.append(
                Move(package=name, manifest=self.path, step=step, before=versions, after=target)
            )
        return Outline(moves=tuple(moves), left=(*left, *self._declared_only(advisory, affected)))

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """Return the fix by the resolver's strategies, as ``ladder.Project`` specifies."""
        self.step.check(advisory)
        affected = affected_versions(self.tree, advisory)
        if not affected:
            declared_only = tuple(self._declared_only(advisory, affected))
            return ProjectFix({}, (), declared_only) if declared_only else None
        forced = self.terms.choice is not None and self.terms.choice.forced
        if forced:
            self._check_forced(affected)
        may_ask = not self.repo.settings.offline
        releases = Releases.of(advisory, self.terms, self.clients, self.ages, may_ask=may_ask)
        resolver = self._resolver(releases)
        ladder = resolver.forced if forced else resolver.strategies
        start = State({self.path: self.text, **self.texts}, self.tree)
        strategies = ordered(ladder, self.repo.settings.prefer, self.terms.left_out)
        fix = resolve(advisory, self.path, start, strategies, self.ages)
        return self._with_notes(fix, resolver)

    def _declared_only(self, advisory: Advisory, held: Collection[str]) -> Iterator[Left]:
        """Yield packages of which a manifest admits affected versions only, and the lock holds none: the
        requirement is for an environment that the lock is not for, such as by its marker. ``held``: the
        packages of which the lock holds an affected version."""
        packages = [package for package in advisory.packages(ECOSYSTEM) if package not in held]
        places = [
            (package, place) for package in packages for place in places_of(self.texts, package)
        ]
        for package, place in places:
            elsewhere = place.keys[:2] == ("tool", "uv") or place.keys[:1] == ("build-system",)
            declaration = None if elsewhere else place.asked
            if (
                declaration
                and not declaration.refusal
                and only_affected(advisory, package, declaration)
            ):
                error = unsupported(
                    f"{place.path} requires {package} {declaration.pep440}, which {self.path} does not"
                    " hold, and which admits affected versions only."
                )
                versions = [place.current] if place.current else []
                yield left_behind(
                    advisory, ECOSYSTEM, package, versions, manifest=place.path, error=error
                )

    @cached_property
    def resolution(self) -> Resolution:
        """Return what the install command installs: what the lock holds, if it is in step.

        Raises RecipeError, RepositoryError for a file that can't be read.
        """
        files = (self.path, *sorted(self.texts))
        command = InstallCommand(client=self._CLIENT, files=files, label=self._INSTALL)
        missing = self.tree.unlisted - self.step.held.keys() - self._conditional
        unknown = (
            *unversioned(self.path, self.step.unversioned),
            *unlisted(self.path, missing),
        )
        resolution = Resolution.of_tree(
            ECOSYSTEM, command, ResolvedBy.LOCK, self.tree, unresolved=unknown
        )
        doubt = self.step.doubt()
        return resolution.doubted(doubt.problem, doubt.next_step) if doubt else resolution

    @property
    def _conditional(self) -> frozenset[str]:
        """Return the names that locked packages require under a condition: a lock may leave these out."""
        return frozenset()

    def _check_forced(self, packages: Iterable[str]) -> None:
        """Raise RecipeError for a package that the project requires, constrains or overrides itself."""
        for package in packages:
            path = next(declared(self.texts, package), None)
            if path is not None or package in self.tree.asked:
                raise use_bump(package, f"declared in {path or self.path}")

    def _with_notes(self, fix: ProjectFix, resolver: LockResolver[Any]) -> ProjectFix:
        return replace(fix, notes=tuple(resolver.notes_on(fix)))


class EditedProject(LockedProject):
    """A project whose lock is edited, with the manifest next to it if there is one."""

    #: Whether the lock has a tree, which can be shown if the manifest is in the repository.
    _HAS_TREE: ClassVar[bool]

    #: A sentence on a lock that could not be compared with its manifest.
    _ALL_THE_SAME: ClassVar[str] = ""

    def _check_forced(self, packages: Iterable[str]) -> None:
        super()._check_forced(packages)
        raise no_override(
            f"{self._CLIENT}, which {self.path} is locked by, has no overrides.",
            kind="no_overrides",
        )

    def _with_notes(self, fix: ProjectFix, resolver: LockResolver[Any]) -> ProjectFix:
        if fix.before is None or fix.after is None:
            return fix
        notes = [
            *resolver.releases.notes,
            *_new_and_gone(self.path, fix.before, fix.after),
        ]
        if resolver.unchecked:
            notes.append(resolver.unchecked)
        if self.texts and self._HAS_TREE:
            return replace(fix, notes=tuple(notes))
        if not self.texts:
            notes.append(
                f"{self.manifest} is not in this repository: what it requires could not be compared "
                f"with the new lock.{self._ALL_THE_SAME}"
            )
        advisory = resolver.releases.advisory
        cleared = cleared_paths(fix.before, fix.after, advisory, ECOSYSTEM, self.path)
        # The tree is unknown, or nothing shows that the manifest admits it.
        return replace(fix, notes=tuple(notes), before=None, after=None, cleared=cleared)
