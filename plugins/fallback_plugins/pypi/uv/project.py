"""A uv project (lock, manifest, workspace members) brought out of an advisory's reach by the real uv."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.locks import uv_files
from fallback_plugins.pypi.locks.uv_lock import (
    declared,
    foreign_source,
    package_tables,
    read_tree,
)
from fallback_plugins.pypi.manifests.groups import table_of, tables, texts
from fallback_plugins.pypi.manifests.pyproject import parse_toml
from fallback_plugins.pypi.manifests.requirements import requirement_in
from fallback_plugins.pypi.resolving.releases import Releases
from fallback_plugins.pypi.strategies.locked_project import LockedProject
from fallback_plugins.pypi.surveying.out_of_step import LockStep, asked_in_arrays
from fallback_plugins.pypi.uv.uv_resolver import UvResolver
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.resolution import Resolution
from fallback_plugins.shared.tree import DependencyTree, Node, grouped
from fallback_tier.errors import RecipeError, RepositoryError


@dataclass
class UvProject(LockedProject):
    """uv.lock with the manifests it was made from; without them, the lock alone is edited."""

    _CLIENT = "uv"
    _INSTALL = "uv sync"

    @property
    def manifests(self) -> frozenset[str]:
        """The lock, the pyproject.toml beside it, and those of its local packages."""
        return super().manifests.union(self._paths)

    @cached_property
    def step(self) -> LockStep:
        """The lock with what the arrays of its manifests ask for: in every case, or otherwise than the
        lock's own record of them has it."""
        tables = package_tables(self.path, self.text)
        held = grouped((table["name"], str(table.get("version", ""))) for table in tables)
        known = [
            (canonicalize_name(it["name"]), SpecifierSet(it.get("specifier", "")))
            for table in tables
            for it in declared(table)
        ]
        asked = asked_in_arrays(self.texts, self._members, known)
        return LockStep(self.path, "uv lock", held, asked)

    @cached_property
    def resolution(self) -> Resolution:
        """As ``PythonProject`` says: unknown, too, if the lock was made under other rules, or lacks the
        project itself, which uv locks as a package."""
        found = super().resolution
        own = table_of(self._manifest_document, "project") if self.declares else {}
        name = own.get("name")
        if isinstance(name, str) and canonicalize_name(name) not in self.step.held:
            return found.doubted(
                f"{self.path} has no entry of {name}, the project of {self.manifest}, so what is"
                " installed is unknown.",
                "Run `uv lock`, commit what it writes, and try again.",
            )
        if not self.declares or self._rules_recorded == self._rules_asked:
            return found
        return found.doubted(
            f"{self.manifest} constrains or overrides packages otherwise than {self.path} was made"
            " with, so what is installed is unknown.",
            "Run `uv lock`, commit what it writes, and try again.",
        )

    @property
    def _rules_recorded(self) -> set[tuple[str, str, SpecifierSet]]:
        manifest = table_of(parse_toml(self.path, self.text), "manifest")
        return _rules(
            (key, f"{it.get('name')}{it.get('specifier', '')}")
            for key in ("constraint", "override")
            for it in tables(manifest.get(f"{key}s"))
        )

    @property
    def _rules_asked(self) -> set[tuple[str, str, SpecifierSet]]:
        uv = table_of(self._manifest_document, "tool", "uv")
        return _rules(
            (key, line)
            for key in ("constraint", "override")
            for line in texts(uv.get(f"{key}-dependencies"))
        )

    @property
    def _manifest_document(self) -> Mapping[str, Any]:
        return parse_toml(self.manifest, self.texts[self.manifest])

    @property
    def _members(self) -> set[str]:
        """The manifests of the workspace. Of another local package, extras and groups are not locked."""
        names = parse_toml(self.path, self.text).get("manifest", {}).get("members", ())
        local: Mapping[str, Mapping[str, Any]] = {}
        with suppress(
            RecipeError
        ):  # one that lies outside of the repository: said when it is resolved
            local = uv_files.manifest_paths(self.path, self.text)
        return {self.manifest} | {path for path, table in local.items() if table["name"] in names}

    def _check_forced(self, packages: Iterable[str]) -> None:
        super()._check_forced(packages)
        if not self.declares:
            raise uv_files.missing(
                self.path,
                f"{self.manifest}, where an override stands, is missing.",
                kind="manifest_missing",
            )

    @cached_property
    def tree(self) -> DependencyTree:
        """The lock as a tree; its members are roots."""
        return read_tree(self.path, self.text)

    @cached_property
    def _paths(self) -> list[str]:
        """Manifests in the repository. A lock that can't be read accounts for its neighbour."""
        try:
            paths = list(uv_files.manifest_paths(self.path, self.text))
        except (RecipeError, RepositoryError):
            paths = []
        return [path for path in dict.fromkeys([self.manifest, *paths]) if self.repo.has(path)]

    @cached_property
    def texts(self) -> dict[str, str]:
        """The manifests in the repository."""
        return {path: self.repo.read_text(path) for path in self._paths}

    def _resolver(self, releases: Releases) -> UvResolver:
        return UvResolver(self, releases)

    def _refusal(self, node: Node) -> RecipeError | None:
        kind = self._foreign.get(node.name)
        if kind is None:
            return None
        return unsupported(f"{self.path} takes {node.name} from a {kind}, not a registry.")

    @cached_property
    def _foreign(self) -> dict[str, str]:
        tables = package_tables(self.path, self.text)
        return {table["name"]: kind for table in tables if (kind := foreign_source(table))}


def _rules(lines: Iterable[tuple[str, str]]) -> set[tuple[str, str, SpecifierSet]]:
    """Constraints and overrides by name; what can't be read is left out."""
    asked = ((key, requirement_in(line)) for key, line in lines)
    return {(key, canonicalize_name(it.name), it.specifier) for key, it in asked if it is not None}
