"""What a Poetry project itself asks for: by package, in which group, and whether in every case."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of
from fallback_plugins.pypi.manifests.poetry_tables import Keys, poetry_entries
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_arrays, value_at
from fallback_plugins.pypi.manifests.requirements import Declaration, declaration_in, requirement_in

MAIN = "main"
_DEV = "dev"


@dataclass(frozen=True)
class Root:
    """One request. ``always``: it is no option and has no condition. ``in_table``: of Poetry's own."""

    name: str
    group: str
    declaration: Declaration
    always: bool
    in_table: bool = True
    extras: frozenset[str] = frozenset()


def roots(path: str, text: str) -> tuple[Root, ...]:
    """What a pyproject.toml asks of Poetry. Raises RecipeError for text that is no TOML."""
    document = parse_toml(path, text)
    return (*_from_tables(document), *_from_arrays(document))


def _from_tables(document: Mapping[str, Any]) -> Iterator[Root]:
    for entry in poetry_entries(document):
        keys = entry.keys
        table = value_at(document, keys[:-1] if keys[-1] == "version" else keys)
        optional = isinstance(table, dict) and table.get("optional") is True
        yield Root(
            canonicalize_name(entry.name),
            _group_of(keys),
            entry.declaration,
            not optional and not entry.declaration.marker,
            extras=frozenset(map(canonicalize_name, entry.extras)),
        )


def _group_of(keys: Keys) -> str:
    if keys[2] == "group":
        return canonicalize_name(str(keys[3]))
    return _DEV if keys[2] == "dev-dependencies" else MAIN


def _from_arrays(document: Mapping[str, Any]) -> Iterator[Root]:
    own = canonicalize_name(str(table_of(document, "project").get("name", "")))
    for keys, line in requirement_arrays(document):
        if keys[0] == "tool":
            continue
        requirement = requirement_in(line)
        if requirement is None or canonicalize_name(requirement.name) == own:
            continue
        in_group = keys[0] == "dependency-groups"
        yield Root(
            canonicalize_name(requirement.name),
            canonicalize_name(str(keys[1])) if in_group else MAIN,
            declaration_in(line, requirement.name) or Declaration(()),
            requirement.marker is None and keys[1] != "optional-dependencies",
            in_table=False,
            extras=frozenset(map(canonicalize_name, requirement.extras)),
        )
