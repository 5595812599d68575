"""The steps over a lock whose own client isn't run, since it would build (ADR-0017): Poetry's, pipenv's."""

import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.pypi.resolving.releases import Releases
from fallback_plugins.pypi.resolving.scratch_lock import PackageIndex
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.force import refuse_force
from fallback_plugins.pypi.strategies.lock_edit import State, not_admitting, strategy
from fallback_plugins.pypi.surveying.out_of_step import LockStep
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.bumping import FREE, Terms, unsupported
from fallback_plugins.shared.ladder import ProjectFix, Strategy, ordered
from fallback_plugins.shared.tree import DependencyTree, Node, cleared_paths
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Outline
from fallback_tier.repo import RepoContext

#: May the declaration of this package be raised?
MayRaise = Callable[[str], bool]


class EditResolver(ABC):
    """One resolution. Such a lock has no override: a refresh, a direct and a parent bump are all there
    is."""

    #: The step without a manifest: nothing can be raised, the lock alone is edited.
    ALONE: ClassVar = LadderStep.LOCK_EDIT

    def __init__(self, project: "EditedProject", advisory: Advisory) -> None:
        self._path = project.path
        self._manifest = project.manifest
        self._advisory = advisory
        may_ask = not project.repo.settings.offline
        self.releases = Releases.of(advisory, project.terms, project.clients, may_ask=may_ask)
        #: Why what it says of the new lock is less than usual; empty: it is not.
        self.unchecked = ""
        self._index = PackageIndex(project.clients)

    def strategies(self, *, declares: bool) -> list[Strategy[Mapping[str, str]]]:
        """Cheapest first. ``declares``: the manifest is in the repository."""
        if not declares:
            return [strategy(self.ALONE, self._refresh)]
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
        return unsupported(f"{self._manifest} does not ask for {package}.")

    def _parent(self, state: State, package: str) -> State:
        """Every declaration that stands in the way may be raised."""
        return self._moved(state, package, lambda _: True)

    def _target(self, state: State, package: str) -> str:
        held = lock_edit.affected_versions(state.tree, self._advisory)[package][-1]
        return self.releases.lowest_safe(package, held)

    def _manifests(self, state: State) -> dict[str, str]:
        return {path: text for path, text in state.files.items() if path != self._path}


def check_raises(
    texts: Mapping[str, str], versions: Mapping[str, str], may_raise: MayRaise
) -> None:
    """Raises RecipeError where a manifest excludes a version, and its declaration may not be raised."""
    for name, version in versions.items():
        excluded = not_admitting(texts, name, version)
        if excluded and not may_raise(name):
            raise lock_edit.excluded_by(*excluded, name, version)


@dataclass
class EditedProject(ABC):
    """Such a lock, with the manifest beside it where there is one. Implements most of ``PythonProject``."""

    repo: RepoContext
    clients: ClientRunner
    path: str
    terms: Terms = FREE

    #: The manifest's file name, and the client that wrote the lock.
    _MANIFEST: ClassVar[str]
    _CLIENT: ClassVar[str]

    #: Does the lock keep a tree, which can be shown where the manifest is there?
    _HAS_TREE: ClassVar[bool]

    #: What holds for a lock that could not be held against its manifest.
    _ALL_THE_SAME: ClassVar[str] = ""

    @property
    def manifests(self) -> frozenset[str]:
        """The lock and the manifest beside it."""
        return frozenset({self.path, self.manifest})

    @property
    def manifest(self) -> str:
        """Where the manifest lies, or would lie."""
        return posixpath.join(posixpath.dirname(self.path), self._MANIFEST)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The manifest, where it is in the repository."""
        known = self.repo.has(self.manifest)
        return {self.manifest: self.repo.read_text(self.manifest)} if known else {}

    @property
    @abstractmethod
    def step(self) -> LockStep:
        """The lock beside what the manifest asks for; nothing, where its hash says that it is of it."""

    @property
    @abstractmethod
    def _tree(self) -> DependencyTree: ...

    @property
    @abstractmethod
    def _lock_text(self) -> str: ...

    @abstractmethod
    def _refusal(self, node: Node) -> RecipeError | None:
        """Why a package of the lock can't be moved."""

    @abstractmethod
    def _resolver(self, advisory: Advisory) -> EditResolver: ...

    def outline(self, advisory: Advisory) -> Outline:
        """What lock and manifest tell. Raises RecipeError, RepositoryError."""
        self.step.check(advisory)
        return lock_edit.outline(advisory, self.path, self._tree, self._first_step, self._refusal)

    def resolve(self, advisory: Advisory) -> ProjectFix | None:
        """As ``ladder.Project`` says: refresh, direct and parent bump; there is no override."""
        self.step.check(advisory)
        if not lock_edit.affected_versions(self._tree, advisory):
            return None
        if self.terms.choice and self.terms.choice.forced:
            return refuse_force(advisory, self._tree, self.texts, self._CLIENT)
        resolver = self._resolver(advisory)
        start = State({self.path: self._lock_text, **self.texts}, self._tree)
        ladder = resolver.strategies(declares=bool(self.texts))
        strategies = ordered(ladder, self.repo.settings.prefer, self.terms.left_out)
        fix = lock_edit.resolve(advisory, self.path, start, strategies)
        if fix is None or fix.before is None or fix.after is None:
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
                f"{self.manifest} is not in this repository: what it asks for could not be compared "
                f"with the new lock.{self._ALL_THE_SAME}"
            )
        cleared = cleared_paths(fix.before, fix.after, advisory, ECOSYSTEM, self.path)
        # The tree is not known, or not shown to be one that the manifest admits.
        return replace(fix, notes=tuple(notes), before=None, after=None, cleared=cleared)

    def doubt(self) -> RecipeError | None:
        """As ``PythonProject`` says."""
        return self.step.doubt()

    def _first_step(self, package: str, version: str) -> LadderStep:
        """The step that the files foretell."""
        if not self.texts:
            return EditResolver.ALONE
        excluded = not_admitting(self.texts, package, version)
        return LadderStep.DIRECT_BUMP if excluded else LadderStep.LOCK_REFRESH
