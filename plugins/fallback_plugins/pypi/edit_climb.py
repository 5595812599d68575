"""The rungs over a lock whose own client isn't run, since it would build (ADR-0017): Poetry's, pipenv's."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.bumping import unsupported
from fallback_plugins.ladder import Strategy
from fallback_plugins.pypi import lock_edit
from fallback_plugins.pypi.lock_edit import State, not_admitting, strategy
from fallback_plugins.pypi.releases import Releases
from fallback_plugins.pypi.scratch_lock import PackageIndex
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner

#: May the declaration of this package be raised?
MayRaise = Callable[[str], bool]


class EditClimber(ABC):
    """One climb. Such a lock has no override: a refresh, a direct and a parent bump are all there is."""

    #: The rung without a manifest: nothing can be raised, the lock alone is edited.
    ALONE: ClassVar = LadderStep.LOCK_EDIT

    def __init__(
        self,
        path: str,
        manifest: str,
        advisory: Advisory,
        clients: ClientRunner,
        releases: Releases,
    ) -> None:
        self._path = path
        self._manifest = manifest
        self._advisory = advisory
        self.releases = releases
        self._index = PackageIndex(clients)

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


def first_step(texts: Mapping[str, str], package: str, version: str) -> LadderStep:
    """The rung that the files foretell."""
    if not texts:
        return EditClimber.ALONE
    excluded = not_admitting(texts, package, version)
    return LadderStep.DIRECT_BUMP if excluded else LadderStep.LOCK_REFRESH
