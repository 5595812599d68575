"""What Python projects install, for ``scan``: of a lock in step, or resolved by their client."""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.pyproject import parse_toml, table_of, texts
from fallback_plugins.pypi.projects import files_of, projects
from fallback_plugins.pypi.surveying.survey import ECOSYSTEM
from fallback_plugins.shared.inventory import FoundProject, installed, inventory_of, not_read
from fallback_plugins.shared.tree import Node
from fallback_tier.errors import RecipeError, RepositoryError, ToolError
from fallback_tier.execution import ClientRunner
from fallback_tier.inventory import InstalledPackage, Inventory
from fallback_tier.outcome import UnreadItem
from fallback_tier.repo import RepoContext


def inventory(repo: RepoContext, clients: ClientRunner) -> Inventory:
    """Return the packages of all projects. A project, or a part of one, that can't be read or resolved is
    in ``unread``."""
    return inventory_of(_found(repo, clients))


def _found(
    repo: RepoContext, clients: ClientRunner
) -> Iterator[InstalledPackage | UnreadItem | FoundProject]:
    for project in projects(repo, clients):
        is_outside = not repo.selects(files_of(project, repo))
        yield FoundProject(project.path, is_outside)
        if is_outside:
            continue
        try:
            resolution = project.resolution
            development = _development(repo, project.manifests)
        except (RecipeError, RepositoryError, ToolError) as error:
            yield not_read(project.path, error)
            continue
        for part in resolution.unresolved:
            yield UnreadItem(path=project.path, reason=part.reason, next_step=part.next_step)

        def development_of(_root: Node, names: Collection[str] = development) -> Collection[str]:
            return names

        yield from installed(resolution.tree, ECOSYSTEM, project.path, development_of)


def _development(repo: RepoContext, manifests: Collection[str]) -> frozenset[str]:
    """Return the names that the pyproject.toml files declare for development alone. Every other manifest (a
    requirements file) does not say what it is for. Raises RecipeError, RepositoryError."""
    development, others = set[str](), set[str]()
    for path in manifests:
        if posixpath.basename(path) != "pyproject.toml" or not repo.has(path):
            continue
        document = parse_toml(path, repo.read_text(path))
        project, poetry = table_of(document, "project"), table_of(document, "tool", "poetry")
        optional = table_of(project, "optional-dependencies")
        others |= _named(texts(project.get("dependencies")))
        others |= {it for one in optional.values() for it in _named(texts(one))}
        others |= {canonicalize_name(it) for it in table_of(poetry, "dependencies")}
        groups = table_of(document, "dependency-groups")
        development |= {it for one in groups.values() for it in _named(_strings(one))}
        development |= _named(texts(table_of(document, "tool", "uv").get("dev-dependencies")))
        development |= {canonicalize_name(it) for it in table_of(poetry, "dev-dependencies")}
        for group in table_of(poetry, "group").values():
            named: Mapping[str, Any] = group if isinstance(group, dict) else {}
            development |= {canonicalize_name(it) for it in table_of(named, "dependencies")}
    return frozenset(development - others)


def _strings(group: object) -> list[str]:
    """The requirements of a dependency group, without the tables that include others (PEP 735)."""
    return [it for it in group if isinstance(it, str)] if isinstance(group, list) else []


def _named(requirements: Collection[str]) -> set[str]:
    found = set[str]()
    for text in requirements:
        with suppress(InvalidRequirement):  # its own project says so
            found.add(canonicalize_name(Requirement(text).name))
    return found
