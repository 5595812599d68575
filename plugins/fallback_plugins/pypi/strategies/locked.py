"""A lock with the manifests that it was made from, as one Project of the ladder, and the steps over it.

uv's lock is made by the real uv. Poetry's and pipenv's are edited: their clients aren't run, since they
would build (ADR-0017).
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

#: One way to bring a package out of reach. Raises RecipeError if it doesn't serve.
StepFunction = Callable[[State, str], State]


def affected_versions(tree: DependencyTree, advisory: Advisory) -> dict[str, tuple[str, ...]]:
    """Return the affected versions in a tree, lowest first, by package."""
    found = grouped((node.name, node.version) for node in tree.affected(advisory, ECOSYSTEM))
    order = partial(sort_key, ECOSYSTEM)
    return {
        name: tuple(sorted(dict.fromkeys(versions), key=order)) for name, versions in found.items()
    }


def one_by_one(
    take: StepFunction,
    refusal: Callable[[State, str], RecipeError | None] = lambda _at, _package: None,
) -> Step:
    """Return a step over a Python lock: one package at a time, and all of its copies."""

    def attempt(at: State, packages: tuple[str, ...]) -> Reached[Mapping[str, str]]:
        (package,) = packages
        after = take(at, package)
        return Reached(after, {package: _raised(at.tree, after.tree, package)})

    return Step(attempt, refusal, together=False)


def resolve(
    advisory: Advisory,
    path: str,
    start: State,
    strategies: Iterable[Strategy[Mapping[str, str]]],
    ages: Ages | None = None,
) -> ProjectFix:
    """Bring every affected package out of reach by the cheapest step that serves.

    What no step fixes is in ``left``.
    """
    resolving = Ladder(ResultRules(ECOSYSTEM, advisory, ages=ages), start)
    resolving.run(strategies)
    at = resolving.at
    changed = {name: text for name, text in at.files.items() if text != start.files.get(name)}
    return ProjectFix(
        changed, resolving.moves(path), resolving.lefts(path), before=start.tree, after=at.tree
    )


def declared(texts: Mapping[str, str], package: str) -> Iterator[str]:
    """Yield the paths of the manifests that require a package."""
    return (path for path, text in texts.items() if _installed_strings(path, text, package))


def _installed_strings(path: str, text: str, package: str) -> tuple[TableEntry, ...]:
    """``requirement_strings`` that some Python of the project installs."""
    return tuple(
        it
        for it in requirement_strings(path, text, package)
        if not is_excluded(path, text, it.declaration.marker)
    )


def asked_for(texts: Mapping[str, str]) -> Iterator[tuple[str, str, TableEntry]]:
    """Yield all requirements of manifests: path, canonical name, and the entry."""
    for path, text in texts.items():
        for name, strings in strings_by_name(path, text).items():
            yield from ((path, name, string) for string in strings)


def not_admitting(
    texts: Mapping[str, str], package: str, version: str, line: str = ""
) -> tuple[str, str] | None:
    """Return the first manifest that excludes the version, with its specifier; None: all admit it.
    ``line``: only specifiers that admit this version count."""
    for path, text in texts.items():
        for string in _installed_strings(path, text, package):
            if line and not string.declaration.admits(line):
                continue
            if not string.declaration.admits(version):
                return path, string.declaration.specifier
    return None


def excluded_by(path: str, specifier: str, package: str, version: str) -> RecipeError:
    """Return the refusal by a manifest's own specifier."""
    return blocked(package, version, parent=PROJECT, spec=specifier, where=path)


def required_by_others(
    state: State, package: str, problem: str, place: Callable[[str], str]
) -> RecipeError:
    """Return the refusal to try a step for a package that the project does not require itself. ``place``:
    the file that declares a package."""
    asking = (one for node in state.tree.of(package) for one in state.tree.dependents(node.key))
    parent, ask = next(asking, (None, None))
    if parent is None or ask is None:
        return unsupported(problem)
    return does_not_apply(problem, package, parent.label, ask.spec, place(parent.name))


def raised(
    texts: Mapping[str, str], package: str, version: str | Callable[[Declaration], str | None]
) -> dict[str, str]:
    """Return the changed manifests, with every declaration of a package that excludes the version raised to
    it.

    Those that admit it stay: with a lock that is enough. ``version``: one for all, or a function that
    returns the version of a declaration's release line, None if it stays. Raises RecipeError if one can't
    be raised.
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
    """Return whether a PEP 440 specifier admits the version (pre-releases too). False: it can't be read."""
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


#: May the declaration of this package be raised?
MayRaise = Callable[[str], bool]

ProjectT = TypeVar("ProjectT", bound="LockedProject")


class LockResolver(ABC, Generic[ProjectT]):
    """The steps of one resolution of a project with a lock."""

    #: Why what it says of the new lock is less than usual; empty: it is not.
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
        """Cheapest first. Without a manifest nothing can be raised, the lock alone is edited. Raises
        RecipeError: no resolution can begin from these files."""
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
        """The override alone, if the client has one."""
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
        """Return why no declaration can be raised; None: one can."""

    @abstractmethod
    def _parent(self, state: State, package: str) -> State: ...

    def _no_parent(self, _state: State, _package: str) -> RecipeError | None:
        """Return why no parent can be raised; None: one can."""
        return None

    def notes_on(self, _fix: ProjectFix) -> Iterator[str]:
        """Yield what is to be said beside a fix."""
        yield from self.releases.notes

    def _manifests(self, state: State) -> dict[str, str]:
        return {path: text for path, text in state.files.items() if path != self._path}

    def _place(self, state: State, package: str) -> str:
        """Return the first manifest that requires a package; the lock if none does."""
        return next(declared(self._manifests(state), package), self._path)


class EditResolver(LockResolver[ProjectT]):
    """The steps over a lock that is edited: a refresh, a direct and a parent bump. There is no override."""

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
        held = affected_versions(state.tree, self._advisory)[package][-1]
        return self.releases.lowest_safe(package, held)


def check_raises(
    texts: Mapping[str, str],
    versions: Mapping[str, str],
    may_raise: MayRaise,
    lines: Mapping[str, str] = NO_TEXTS,
) -> None:
    """Raise RecipeError if a manifest excludes a version, and its declaration may not be raised.

    ``lines``: the installed version of packages of which only the declarations that admit it count.
    """
    for name, version in versions.items():
        excluded = not_admitting(texts, name, version, lines.get(name, ""))
        if excluded and not may_raise(name):
            raise excluded_by(*excluded, name, version)


@dataclass
class LockedProject(DecidedByLock, ABC):
    """One lock, and the manifests of it that are in the repository."""

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
        """The paths of the lock and of the manifest next to it: no other project resolves them."""
        return frozenset({self.path, self.manifest})

    @property
    def manifest(self) -> str:
        """The path of the manifest, whether it is in the repository or not."""
        return posixpath.join(posixpath.dirname(self.path), self._MANIFEST)

    @cached_property
    def text(self) -> str:
        """The lock's text."""
        return self.repo.read_text(self.path)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The manifest's text by path, if it is in the repository."""
        return {self.manifest: self.repo.read_text(self.manifest)} if self.declares else {}

    @property
    def declares(self) -> bool:
        """Whether the manifest is in the repository."""
        return self.repo.has(self.manifest)

    @cached_property
    def ages(self) -> Ages:
        """The project's rules on the age of releases. Raises RepositoryError."""
        return ages_of(self.repo, self.clients, self.path)

    @property
    @abstractmethod
    def step(self) -> LockStep:
        """The lock with what the manifests require; with no request if its hash shows that it is theirs."""

    @property
    @abstractmethod
    def tree(self) -> DependencyTree:
        """The locked packages."""

    @abstractmethod
    def _refusal(self, node: Node) -> RecipeError | None:
        """Return why a package of the lock can't be moved; None: it can."""

    @abstractmethod
    def _resolver(self, releases: Releases) -> LockResolver[Any]: ...

    def outline(self, advisory: Advisory) -> Outline:
        """Return what lock and manifests show: per affected package the first step, or why there is none.

        Raises RecipeError, RepositoryError.
        """
        self.step.check(advisory)
        moves: list[Move] = []
        left: list[Left] = []
        affected = affected_versions(self.tree, advisory)
        for name, versions in affected.items():
            problems = (self._refusal(it) for it in self.tree.of(name) if it.version in versions)
            error = next((problem for problem in problems if problem), None)
            try:
                if error:
                    raise error
                target = lowest_safe(advisory, name, versions[-1])
            except RecipeError as refusal:
                place = self.path
                left.append(
                    left_behind(advisory, ECOSYSTEM, name, versions, manifest=place, error=refusal)
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
        """As ``ladder.Project`` says, by the resolver's strategies."""
        self.step.check(advisory)
        affected = affected_versions(self.tree, advisory)
        if not affected:
            only = tuple(self._declared_only(advisory, affected))
            return ProjectFix({}, (), only) if only else None
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
        """Yield packages of which the lock holds no affected version, and a manifest admits no other: for
        an environment that the lock is not for, as a marker shows. ``held``: packages with an affected
        version."""
        packages = [one for one in advisory.packages(ECOSYSTEM) if one not in held]
        places = [(one, place) for one in packages for place in places_of(self.texts, one)]
        for package, place in places:
            elsewhere = place.keys[:2] == ("tool", "uv") or place.keys[:1] == ("build-system",)
            asked = None if elsewhere else place.asked
            if asked and not asked.refusal and only_affected(advisory, package, asked):
                error = unsupported(
                    f"{place.path} requires {package} {asked.pep440}, which {self.path} does not hold,"
                    " and which admits affected versions only."
                )
                versions = [place.current] if place.current else []
                yield left_behind(
                    advisory, ECOSYSTEM, package, versions, manifest=place.path, error=error
                )

    @cached_property
    def resolution(self) -> Resolution:
        """What the install command installs: what the lock holds, if it answers what its manifests ask for.

        Raises RecipeError, RepositoryError for a file that can't be read.
        """
        files = (self.path, *sorted(self.texts))
        command = InstallCommand(client=self._CLIENT, files=files, label=self._INSTALL)
        missing = self.tree.unlisted - self.step.held.keys() - self._conditional
        unknown = (
            *unversioned(self.path, self.step.unversioned),
            *unlisted(self.path, missing),
        )
        found = Resolution.of_tree(
            ECOSYSTEM, command, ResolvedBy.LOCK, self.tree, unresolved=unknown
        )
        doubt = self.step.doubt()
        return found.doubted(doubt.problem, doubt.next_step) if doubt else found

    @property
    def _conditional(self) -> frozenset[str]:
        """Names that locked packages require under a condition: a lock may leave these out."""
        return frozenset()

    def _check_forced(self, packages: Iterable[str]) -> None:
        """Raise RecipeError for a package that the project requires, constrains or overrides itself."""
        for package in packages:
            place = next(declared(self.texts, package), None)
            if place is not None or package in self.tree.asked:
                raise use_bump(package, f"declared in {place or self.path}")

    def _with_notes(self, fix: ProjectFix, resolver: LockResolver[Any]) -> ProjectFix:
        return replace(fix, notes=tuple(resolver.notes_on(fix)))


class EditedProject(LockedProject):
    """A project whose lock is edited, with the manifest next to it if there is one."""

    #: Does the lock keep a tree, which can be shown where the manifest is there?
    _HAS_TREE: ClassVar[bool]

    #: What holds for a lock that could not be held against its manifest.
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
        # The tree is not known, or not shown to be one that the manifest admits.
        return replace(fix, notes=tuple(notes), before=None, after=None, cleared=cleared)
