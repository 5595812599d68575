"""A uv project (lock, manifest, workspace members) brought out of an advisory's reach by the real uv."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.bumping import unsupported
from fallback_plugins.ladder import ProjectFix, Strategy
from fallback_plugins.pypi import lock_edit, uv_files
from fallback_plugins.pypi.force import refuse_direct
from fallback_plugins.pypi.lock_edit import State, not_admitting, strategy
from fallback_plugins.pypi.uv_climb import UvClimber, UvFiles
from fallback_plugins.pypi.uv_lock import (
    foreign_source,
    package_tables,
    read_tree,
)
from fallback_plugins.tree import Node, Tree
from fallback_tier.advisory import Advisory
from fallback_tier.errors import RecipeError, RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.outcome import Outline
from fallback_tier.repo import RepoContext


@dataclass
class UvProject:
    """uv.lock with the manifests it was made from; without them, the lock alone is edited."""

    repo: RepoContext
    clients: ClientRunner
    path: str

    @property
    def manifests(self) -> frozenset[str]:
        """The lock, the pyproject.toml beside it, and those of its local packages."""
        return frozenset({self.path, self._root, *self._paths})

    def outline(self, advisory: Advisory) -> Outline:
        """What the lock and the manifests tell. Raises RecipeError, RepositoryError."""
        return lock_edit.outline(
            advisory, self.path, self._tree, self._first_step, self._unsupported
        )

    def climb(self, advisory: Advisory) -> ProjectFix | None:
        """As ``ladder.Project`` says: in-range refresh, direct bump, parent bump, override."""
        if not lock_edit.affected_versions(self._tree, advisory):
            return None
        climber = self._climber(advisory)
        if self._root in self._manifests:
            return self._climbed(advisory, climber, climber.strategies)
        climber.check_rebuilt()
        alone = strategy(LadderStep.LOCK_EDIT, climber.refresh)
        return self._climbed(advisory, climber, [alone])

    def force(self, advisory: Advisory) -> ProjectFix | None:
        """The override rung alone, for what no manifest of the project asks for."""
        affected = lock_edit.affected_versions(self._tree, advisory)
        if not affected:
            return None
        refuse_direct(affected, self._tree, self._manifests)
        if self._root not in self._manifests:
            raise uv_files.missing(
                self.path, f"{self._root}, where an override stands, is missing."
            )
        climber = self._climber(advisory)
        return self._climbed(advisory, climber, [strategy(LadderStep.OVERRIDE, climber.override)])

    def _climber(self, advisory: Advisory) -> UvClimber:
        files = UvFiles(self.path, self._text, self._root, self._manifests, self._tree)
        climber = UvClimber(files, advisory, self.clients, offline=self.repo.settings.offline)
        climber.check_readable()
        return climber

    def _climbed(
        self,
        advisory: Advisory,
        climber: UvClimber,
        strategies: Sequence[Strategy[Mapping[str, str]]],
    ) -> ProjectFix | None:
        start = State({self.path: self._text, **self._manifests}, self._tree)
        fix = lock_edit.climb(advisory, self.path, start, strategies)
        return fix and replace(fix, notes=tuple(climber.releases.notes))

    @cached_property
    def _text(self) -> str:
        return self.repo.read_text(self.path)

    @cached_property
    def _tree(self) -> Tree:
        return read_tree(self.path, self._text)

    @property
    def _root(self) -> str:
        return posixpath.join(posixpath.dirname(self.path), uv_files.MANIFEST)

    @cached_property
    def _paths(self) -> list[str]:
        """Manifests in the repository. A lock that can't be read accounts for its neighbour."""
        try:
            paths = list(uv_files.manifest_paths(self.path, self._text))
        except (RecipeError, RepositoryError):
            paths = []
        return [path for path in dict.fromkeys([self._root, *paths]) if self.repo.has(path)]

    @cached_property
    def _manifests(self) -> dict[str, str]:
        return {path: self.repo.read_text(path) for path in self._paths}

    def _first_step(self, package: str, version: str) -> LadderStep:
        if self._root not in self._manifests:
            return LadderStep.LOCK_EDIT
        excluded = not_admitting(self._manifests, package, version)
        return LadderStep.DIRECT_BUMP if excluded else LadderStep.LOCK_REFRESH

    def _unsupported(self, node: Node) -> RecipeError | None:
        kind = self._foreign.get(node.name)
        if kind is None:
            return None
        return unsupported(f"{self.path} takes {node.name} from a {kind}, not a registry.")

    @cached_property
    def _foreign(self) -> dict[str, str]:
        tables = package_tables(self.path, self._text)
        return {table["name"]: kind for table in tables if (kind := foreign_source(table))}
