"""The dependency tables that keep name and specifier apart: Poetry's in pyproject.toml, and a Pipfile's.

An entry is a specifier, a table with a ``version``, or (Poetry) a list of such tables, one a condition.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fallback_plugins.pypi.manifests.requirements import (
    FROM_ELSEWHERE,
    Declaration,
    poetry_specifier_in,
    specifier_in,
)

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class TableEntry:
    """One specifier of a table: the keys that lead to it, the package's name as written, its value."""

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
_NO_CATEGORIES = frozenset({"source", "requires", "scripts", "pipenv"})

#: Keys of an entry that say when it holds.
_CONDITIONS = ("python", "platform", "markers")

#: Keys of an entry that take it from elsewhere than a registry.
_ELSEWHERE = frozenset({"git", "path", "url", "file", "hg", "svn", "ref"})


def poetry_entries(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Every dependency of ``[tool.poetry]``, its groups too; ``python`` is none."""
    poetry = _table(_table(document.get("tool")).get("poetry"))
    tables: list[tuple[Keys, Any]] = [
        (("tool", "poetry", key), poetry.get(key)) for key in ("dependencies", "dev-dependencies")
    ]
    for group, content in _table(poetry.get("group")).items():
        inside = _table(content).get("dependencies")
        tables.append((("tool", "poetry", "group", group, "dependencies"), inside))
    for keys, table in tables:
        for name, entry in _table(table).items():
            if name != "python":
                yield from _entries((*keys, name), name, entry, poetry_specifier_in)


def pipfile_entries(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Every dependency of a Pipfile, in each of its categories."""
    for category, table in document.items():
        if category not in _NO_CATEGORIES:
            for name, entry in _table(table).items():
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
            yield TableEntry(keys, name, "", Declaration((), FROM_ELSEWHERE))
            return
        version, extras = entry.get("version"), entry.get("extras")
        written = version if isinstance(version, str) else ""
        yield TableEntry(
            (*keys, "version"),
            name,
            written,
            replace(read(written), marker=" ".join(_texts(entry, *_CONDITIONS))),
            tuple(item for item in extras if isinstance(item, str))
            if isinstance(extras, list)
            else (),
        )


def _texts(entry: Mapping[str, Any], *keys: str) -> Iterator[str]:
    return (value for key in keys if isinstance(value := entry.get(key), str))


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
