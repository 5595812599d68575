"""A lock with the manifests that it was made from, as one Project of the ladder.

uv's lock is made by the real uv. Poetry's and pipenv's are edited: their clients aren't run, since they
would build (ADR-0017).
"""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.pypi.resolving.releases import Releases, ages_of, as_options, lowest_safe
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.direct import places_of
from fallback_plugins.pypi.strategies.lock_edit import State, not_admitting, strategy
from fallback_plugins.pypi.surveying.deciding import DecidedByLock, LockStep
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM, only_affected
from fallback_plugins.shared.ages import Ages
from fallback_plugins.shared.bumping import FREE, Terms, no_override, unsupported, use_bump
from fallback_plugins.shared.ladder import (
    NO_TEXTS,
    ProjectFix,
    Strategy,
    left_behind,
    ordered,
)
from fallback_plugins.shared.resolution import (
    InstallCommand,
    Resolution,
    ResolvedBy,
    unlisted,
    unversioned,
)
from fallback_plugins.shared.tree import DependencyTree, Node, cleared_paths
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Left, Move, Outline
from fallback_tier.repo import RepoContext

#: May the declaration of this package be raised?
MayRaise = Callable[[str], bool]

ProjectT = TypeVar("ProjectT", bound="LockedProject")


class LockResolver(ABC, Generic[ProjectT]):
    """One resolution of such a project."""

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
    @abstractmethod
    def strategies(self) -> list[Strategy[Mapping[str, str]]]:
        """Cheapest first. Raises RecipeError: no resolution can begin from these files."""

    @property
    def forced(self) -> list[Strategy[Mapping[str, str]]]:
        """The override alone; none without one."""
        return []

    def notes_on(self, _fix: ProjectFix) -> Iterator[str]:
        """Yield what is to be said beside a fix."""
        yield from self.releases.notes

    def _manifests(self, state: State) -> dict[str, str]:
        return {path: text for path, text in state.files.items() if path != self._path}


class EditResolver(LockResolver[ProjectT]):
    """Over a lock that is edited. It has no override: a refresh, a direct and a parent bump are all there
    is."""

    @property
    def strategies(self) -> list[Strategy[Mapping[str, str]]]:
        """Cheapest first. Without a manifest nothing can be raised, the lock alone is edited."""
        if not self._project.declares:
            return [strategy(LadderStep.LOCK_EDIT, self._refresh)]
        return [
            strategy(LadderStep.LOCK_REFRESH, self._refresh),
            strategy(LadderStep.DIRECT_BUMP, self._direct, self._not_declared),
            strategy(LadderStep.PARENT_BUMP, self._parent),
        ]

    @abstractmethod
    def _moved(self, state: State, package: str, may_raise: MayRaise) -> State:
        """The package at its lowest safe version, with what has to move with it. Raises RecipeError."""

    def _refresh(self, state: State, package: str) -> State:
        """Within what the manifest asks for."""
        return self._moved(state, package, lambda _: False)

    def _direct(self, state: State, package: str) -> State:
        """The package's own declaration may be raised."""
        return self._moved(state, package, lambda name: name == package)

    def _not_declared(self, state: State, package: str) -> RecipeError | None:
        if any(lock_edit.declared(self._manifests(state), package)):
            return None
        manifests = self._manifests(state)
        return lock_edit.required_by_others(
            state,
            package,
            f"{self._project.manifest} does not require {package}.",
            lambda name: next(lock_edit.declared(manifests, name), self._path),
        )

    def _parent(self, state: State, package: str) -> State:
        """Every declaration that stands in the way may be raised."""
        return self._moved(state, package, lambda _: True)

    def _target(self, state: State, package: str) -> str:
        held = lock_edit.affected_versions(state.tree, self._advisory)[package][-1]
        return self.releases.lowest_safe(package, held)


def check_raises(
    texts: Mapping[str, str],
    versions: Mapping[str, str],
    may_raise: MayRaise,
    lines: Mapping[str, str] = NO_TEXTS,
) -> None:
    """Raises RecipeError where a manifest excludes a version, and its declaration may not be raised.

    ``lines``: the installed version of packages of which only the declarations that admit it count.
    """
    for name, version in versions.items():
        excluded = not_admitting(texts, name, version, lines.get(name, ""))
        if excluded and not may_raise(name):
            raise lock_edit.excluded_by(*excluded, name, version)


@dataclass
class LockedProject(DecidedByLock, ABC):
    """One lock, and the manifests of it that are in the repository. Implements ``PythonProject``."""

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
        """The lock and the manifest beside it."""
        return frozenset({self.path, self.manifest})

    @property
    def manifest(self) -> str:
        """Where the manifest lies, or would lie."""
        return posixpath.join(posixpath.dirname(self.path), self._MANIFEST)

    @cached_property
    def text(self) -> str:
        """The lock as it stands."""
        return self.repo.read_text(self.path)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The manifest, where it is in the repository."""
        return {self.manifest: self.repo.read_text(self.manifest)} if self.declares else {}

    @property
    def declares(self) -> bool:
        """Is the manifest in the repository?"""
        return self.repo.has(self.manifest)

    @cached_property
    def ages(self) -> Ages:
        """As ``PythonProject`` says."""
        return ages_of(self.repo, self.clients, self.path)

    @property
    @abstractmethod
    def step(self) -> LockStep:
        """The lock beside what the manifests ask for; nothing, where its hash says that it is of them."""

    @property
    @abstractmethod
    def tree(self) -> DependencyTree:
        """What the lock holds."""

    @abstractmethod
    def _refusal(self, node: Node) -> RecipeError | None:
        """Why a package of the lock can't be moved."""

    @abstractmethod
    def _resolver(self, releases: Releases) -> LockResolver[Any]: ...

    def outline(self, advisory: Advisory) -> Outline:
        """What lock and manifests tell: per affected package the first step, or why there is none.

        Raises RecipeError, RepositoryError.
        """
        self.step.check(advisory)
        moves: list[Move] = []
        left: list[Left] = []
        affected = lock_edit.affected_versions(self.tree, advisory)
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
            step = self._first_step(name, target)
            moves.append(
                Move(package=name, manifest=self.path, step=step, before=versions, after=target)
            )
        return Outline(moves=tuple(moves), left=(*left, *self._declared_only(advisory, affected)))

    def resolve(
        self, advisory: Advisory, _patched: Mapping[str, str] = NO_TEXTS, /
    ) -> ProjectFix | None:
        """As ``ladder.Project`` says, by the resolver's strategies."""
        self.step.check(advisory)
        affected = lock_edit.affected_versions(self.tree, advisory)
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
        fix = lock_edit.resolve(advisory, self.path, start, strategies, self.ages)
        return self._with_notes(fix, resolver)

    def _declared_only(self, advisory: Advisory, held: Collection[str]) -> Iterator[Left]:
        """Packages of which the lock holds no affected version (``held``: those of which it does), and a
        manifest admits no other: an environment that the lock is not for, as a marker tells."""
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
        """As ``PythonProject`` says: what the lock holds, if it answers what its manifests ask for."""
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

    def _first_step(self, package: str, version: str) -> LadderStep:
        """The step that the files foretell."""
        if not self.declares:
            return LadderStep.LOCK_EDIT
        excluded = not_admitting(self.texts, package, version)
        return LadderStep.DIRECT_BUMP if excluded else LadderStep.LOCK_REFRESH

    def _check_forced(self, packages: Iterable[str]) -> None:
        """Raises RecipeError for a package that the project asks for, constrains or overrides itself."""
        for package in packages:
            place = next(lock_edit.declared(self.texts, package), None)
            if place is not None or package in self.tree.asked:
                raise use_bump(package, f"declared in {place or self.path}")

    def _with_notes(self, fix: ProjectFix, resolver: LockResolver[Any]) -> ProjectFix:
        """The fix with what is to be said beside it."""
        return replace(fix, notes=tuple(resolver.notes_on(fix)))


class EditedProject(LockedProject):
    """One whose lock is edited, with the manifest beside it where there is one."""

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
            *lock_edit.new_and_gone(self.path, fix.before, fix.after),
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
