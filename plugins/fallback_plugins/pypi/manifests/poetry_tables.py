"""The dependency tables that keep name and specifier apart: Poetry's in pyproject.toml, and a Pipfile's.

An entry is a specifier, a table with a ``version``, or (Poetry) a list of such tables, one a condition.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of, texts
from fallback_plugins.pypi.manifests.requirements import (
    Declaration,
    from_elsewhere,
    poetry_specifier_in,
    specifier_in,
)
from fallback_plugins.shared.tree import grouped

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class TableEntry:
    """One specifier of a table, or requirement of an array: the keys that lead to it, the package's name as
    written, its value."""

    keys: Keys
    name: str
    value: str
    declaration: Declaration
    extras: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The same in PEP 508's words, without its condition."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.declaration.pep440}"


#: Sections of a Pipfile that aren't dependencies; every other table is a category of them.
NO_CATEGORIES = frozenset({"source", "requires", "scripts", "pipenv"})

#: Keys of an entry that say when it holds.
_CONDITIONS = ("python", "platform", "markers")

#: Keys of an entry that take it from elsewhere than a registry, and those of them that say from where.
_ELSEWHERE = frozenset({"git", "path", "url", "file", "hg", "svn", "ref"})
_PLACES = ("path", "url", "file")

#: Tables of Poetry's that ``poetry_entries`` reads.
POETRY_TABLES = tuple(
    ("tool", "poetry", name) for name in ("dependencies", "dev-dependencies", "group")
)


def by_name(entries: Iterable[TableEntry]) -> dict[str, tuple[TableEntry, ...]]:
    """Entries by canonical name, in their order."""
    return grouped((str(canonicalize_name(entry.name)), entry) for entry in entries)


def poetry_entries(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Every dependency of ``[tool.poetry]``, its groups too; ``python`` is none."""
    poetry = ("tool", "poetry")
    groups = table_of(document, *poetry, "group")
    inside = ((*poetry, "group", group, "dependencies") for group in groups)
    for keys in ((*poetry, "dependencies"), (*poetry, "dev-dependencies"), *inside):
        for name, entry in table_of(document, *keys).items():
            if name != "python":
                yield from _entries((*keys, name), name, entry, poetry_specifier_in)


def pipfile_entries(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Every dependency of a Pipfile, in each of its categories."""
    for category in document:
        if category not in NO_CATEGORIES:
            for name, entry in table_of(document, category).items():
                yield from _entries((category, name), name, entry, specifier_in)


def _entries(
    keys: Keys, name: str, entry: Any, read: Callable[[str], Declaration]
) -> Iterator[TableEntry]:
    if isinstance(entry, str):
        yield TableEntry(keys, name, entry, read(entry))
    elif isinstance(entry, list):
        for index, item in enumerate(entry):
            yield from _entries((*keys, index), name, item, read)
    elif isinstance(entry, dict):
        if _ELSEWHERE.intersection(entry):
            places = texts([entry.get(key) for key in _PLACES])
            found = from_elsewhere(canonicalize_name(name), *places)
            yield TableEntry(keys, name, "", found)
            return
        version = entry.get("version")
        written = version if isinstance(version, str) else ""
        marker = " ".join(texts([entry.get(key) for key in _CONDITIONS]))
        declaration = replace(read(written), marker=marker)
        extras = tuple(texts(entry.get("extras")))
        yield TableEntry((*keys, "version"), name, written, declaration, extras)
