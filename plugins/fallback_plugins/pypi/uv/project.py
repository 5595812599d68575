"""A uv project (lock, manifest, workspace members) brought out of an advisory's reach by the real uv."""

import posixpath
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.pypi.locks import uv_files
from fallback_plugins.pypi.locks.uv_lock import (
    foreign_source,
    package_tables,
    read_tree,
)
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.resolving.releases import Releases
from fallback_plugins.pypi.strategies import lock_edit
from fallback_plugins.pypi.strategies.force import refuse_direct
from fallback_plugins.pypi.strategies.lock_edit import State, not_admitting
from fallback_plugins.pypi.surveying.out_of_step import LockStep, asked_in_arrays
from fallback_plugins.pypi.uv.locking import UvFiles
from fallback_plugins.pypi.uv.uv_resolver import UvResolver
from fallback_plugins.shared.bumping import FREE, Terms, unsupported
from fallback_plugins.shared.ladder import ProjectFix, ordered
from fallback_plugins.shared.tree import DependencyTree, Node
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
    terms: Terms = FREE

    @property
    def manifests(self) -> frozenset[str]:
        """The lock, the pyproject.toml beside it, and those of its local packages."""
        return frozenset({self.path, self._root, *self._paths})

    def outline(self, advisory: Advisory) -> Outline:
        """What the lock and the manifests tell. Raises RecipeError, RepositoryError."""
        self._step.check(advisory)
        return lock_edit.outline(
            advisory, self.path, self._tree, self._first_step, self._unsupported
        )

    def resolve(self, advisory: Advisory) -> ProjectFix | None:
        """As ``ladder.Project`` says: in-range refresh, direct bump, parent bump, override."""
        self._step.check(advisory)
        affected = lock_edit.affected_versions(self._tree, advisory)
        if not affected:
            return None
        forced = self.terms.choice is not None and self.terms.choice.forced
        if forced:
            self._check_forced(affected)
        files = UvFiles(self.path, self._text, self._root, self._manifests, self._tree)
        may_ask = not self.repo.settings.offline
        asked = Releases.of(advisory, self.terms, self.clients, may_ask=may_ask)
        resolver = UvResolver(files, self.clients, asked)
        start = State({self.path: self._text, **self._manifests}, self._tree)
        ladder = resolver.forced if forced else resolver.strategies
        strategies = ordered(ladder, self.repo.settings.prefer, self.terms.left_out)
        fix = lock_edit.resolve(advisory, self.path, start, strategies)
        return fix and replace(fix, notes=tuple(asked.notes))

    def doubt(self) -> RecipeError | None:
        """As ``PythonProject`` says."""
        return self._step.doubt()

    @cached_property
    def _step(self) -> LockStep:
        held: dict[str, list[str]] = {}
        for table in package_tables(self.path, self._text):
            held.setdefault(table["name"], []).append(str(table.get("version", "")))
        asked = asked_in_arrays(self._manifests, self._members)
        return LockStep(self.path, "uv lock", held, asked)

    @property
    def _members(self) -> set[str]:
        """The manifests of the workspace. Of another local package, extras and groups are not locked."""
        names = parse_toml(self.path, self._text).get("manifest", {}).get("members", ())
        local: Mapping[str, Mapping[str, Any]] = {}
        with suppress(
            RecipeError
        ):  # one that lies outside of the repository: said when it is resolved
            local = uv_files.manifest_paths(self.path, self._text)
        return {self._root} | {path for path, table in local.items() if table["name"] in names}

    def _check_forced(self, affected: Iterable[str]) -> None:
        """An override is for what no manifest of the project asks for. Raises RecipeError."""
        refuse_direct(affected, self._tree, self._manifests)
        if self._root not in self._manifests:
            raise uv_files.missing(
                self.path, f"{self._root}, where an override stands, is missing."
            )

    @cached_property
    def _text(self) -> str:
        return self.repo.read_text(self.path)

    @cached_property
    def _tree(self) -> DependencyTree:
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
