"""Which exact versions of a package a manifest or lock file holds."""

import json
from collections.abc import Iterator
from typing import Any

from packaging.utils import canonicalize_name

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.pyproject import BOM, parse_toml, requirement_strings
from fallback_plugins.pypi.manifests.requirements import Declaration, declarations
from fallback_tier.errors import RecipeError

#: Locks that are TOML with one table a package: the name of their array.
_TOML_LOCKS = {
    Kind.UV_LOCK: "package",
    Kind.POETRY_LOCK: "package",
    Kind.PDM_LOCK: "package",
    Kind.PYLOCK: "packages",
}

#: Where a uv.lock says that an entry is a folder of the repository.
_LOCAL = frozenset({"editable", "virtual", "directory"})


def pinned_versions(path: str, text: str, package: str) -> tuple[str, ...]:
    """Exact versions of ``package`` in one file, as written, in its order, each once.

    Requirements files and pyproject.toml: ``==`` pins (a range pins nothing). uv.lock, poetry.lock,
    pdm.lock, pylock.toml, Pipfile.lock: the locked versions. Any other file: none. Raises
    RecipeError where the file can't be parsed.
    """
    kind = kind_of(path)
    if kind is Kind.REQUIREMENTS:
        found = _pins(declarations(text, package))
    elif kind is Kind.PYPROJECT:
        strings = requirement_strings(path, text, package)
        found = _pins(tuple(string.declaration for string in strings))
    elif kind in _TOML_LOCKS:
        found = _toml_lock(parse_toml(path, text).get(_TOML_LOCKS[kind]), package)
    elif kind is Kind.PIPFILE_LOCK:
        found = _pipfile_lock(path, text, package)
    else:
        found = iter(())
    return tuple(dict.fromkeys(found))


def _pins(places: tuple[Declaration, ...]) -> Iterator[str]:
    return (place.pin.version for place in places if place.pin is not None)


def _toml_lock(tables: Any, package: str) -> Iterator[str]:
    wanted = canonicalize_name(package)
    for table in tables if isinstance(tables, list) else ():
        if not isinstance(table, dict):
            continue
        name, version = table.get("name"), table.get("version")
        if not isinstance(name, str) or not isinstance(version, str):
            continue
        if canonicalize_name(name) == wanted and not _is_local(table.get("source")):
            yield version


def _is_local(source: Any) -> bool:
    """The project's own entry, or a folder of it: no registry gave that version."""
    return isinstance(source, dict) and not _LOCAL.isdisjoint(source)


def _pipfile_lock(path: str, text: str, package: str) -> Iterator[str]:
    try:
        lock = json.loads(text.removeprefix(BOM))
    except (ValueError, RecursionError) as error:
        raise RecipeError(
            RefusalReason.RECIPE_UNSUPPORTED,
            f"{path!r} is not JSON: {error}.",
            next_step="Make a new one with `pipenv lock`.",
        ) from error
    wanted = canonicalize_name(package)
    if not isinstance(lock, dict):
        raise RecipeError(
            RefusalReason.RECIPE_UNSUPPORTED,
            f"{path!r} is not a JSON object.",
            next_step="Make a new one with `pipenv lock`.",
        )
    for section in lock.values():
        for name, entry in section.items() if isinstance(section, dict) else ():
            version = entry.get("version") if isinstance(entry, dict) else None
            if isinstance(version, str) and canonicalize_name(name) == wanted:
                yield version.lstrip("=")
