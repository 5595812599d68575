"""Poetry's content-hash: by which a lock knows the manifest that it was made from."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from fallback_plugins.pypi.manifests.groups import table_of
from fallback_plugins.pypi.manifests.pyproject import parse_toml

_FIRST = ("dependencies", "dev-dependencies", "source", "extras")
_LEGACY = ("dependencies", "source", "extras", "dev-dependencies")
_PROJECT = ("requires-python", "dependencies", "optional-dependencies")


def content_hash(path: str, before: str, after: str, found: str) -> str | None:
    """The hash of ``after``, made as the one that was ``found`` for ``before``; None: none of the ways
    that Poetry has had of hashing gives that one. Raises RecipeError for text that is no TOML."""
    old, new = parse_toml(path, before), parse_toml(path, after)
    for relevant in _WAYS:
        if _digest(relevant(old)) == found:
            return _digest(relevant(new))
    return None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def _before_groups(document: Mapping[str, Any]) -> Mapping[str, Any]:
    poetry = _poetry(document)
    return {key: poetry.get(key) for key in _FIRST}


def _with_groups(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Poetry 1.2 to 1.8: groups count where there are any."""
    poetry = _poetry(document)
    groups = {"group": poetry["group"]} if poetry.get("group") is not None else {}
    return {**{key: poetry.get(key) for key in _LEGACY}, **groups}


def _without_dev(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Poetry 1.x without the old development table, where there is none."""
    content = dict(_with_groups(document))
    if content["dev-dependencies"] is None:
        del content["dev-dependencies"]
    return content


def _with_project(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Poetry 2: ``[project]`` counts; then empty tables of Poetry's own don't."""
    project = table_of(document, "project")
    relevant = {key: project[key] for key in _PROJECT if project.get(key) is not None}
    if not relevant:
        return _with_groups(document)
    poetry = _poetry(document)
    own = {key: poetry[key] for key in (*_LEGACY, "group") if poetry.get(key) is not None}
    return {"project": relevant, "tool": {"poetry": own}}


def _with_dependency_groups(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Poetry 2.2 and later: PEP 735 groups count too."""
    groups = document.get("dependency-groups")
    content = _with_project(document)
    if not groups:
        return content
    if "project" in content:
        return {**content, "dependency-groups": groups}
    return {"dependency-groups": groups, "tool": {"poetry": content}}


def _poetry(document: Mapping[str, Any]) -> Mapping[str, Any]:
    return table_of(document, "tool", "poetry")


_WAYS: tuple[Callable[[Mapping[str, Any]], Mapping[str, Any]], ...] = (
    _with_groups,
    _before_groups,
    _without_dev,
    _with_project,
    _with_dependency_groups,
)
