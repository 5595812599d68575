"""Dependency groups (PEP 735) and extras, with those that they include."""

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.requirements import requirement_in

#: Groups, extras and requirements files include each other no deeper in any real project.
MAX_DEPTH = 8


def of_group(groups: Mapping[str, Any], name: str, depth: int = 0) -> Iterator[str]:
    """A dependency group with those that it includes (PEP 735)."""
    content = groups.get(name)
    for item in content if isinstance(content, list) and depth < MAX_DEPTH else ():
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict) and isinstance(item.get("include-group"), str):
            yield from of_group(groups, item["include-group"], depth + 1)


def of_extra(extras: Mapping[str, Any], name: str, project: str, depth: int = 0) -> Iterator[str]:
    """An extra with those of the project's own that it names (``lib[async]``)."""
    known = {canonicalize_name(key): value for key, value in extras.items()}
    for line in texts(known.get(canonicalize_name(name)) if name else None):
        asked = requirement_in(line)
        own: list[str] = []
        if asked and project and canonicalize_name(asked.name) == canonicalize_name(project):
            own = [extra for extra in sorted(asked.extras) if canonicalize_name(extra) in known]
        if asked and own and not asked.specifier and depth < MAX_DEPTH:
            for extra in own:
                yield from of_extra(extras, extra, project, depth + 1)
        else:
            yield line


def texts(value: object) -> list[str]:
    """The texts of a list."""
    return [line for line in value if isinstance(line, str)] if isinstance(value, list) else []


def tables(value: object) -> list[Mapping[str, Any]]:
    """The tables of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def table_of(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """A table within tables; empty where there is none."""
    found: Any = document
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
