"""Which exact versions of a package a manifest or lock file holds."""

from collections.abc import Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.locks.pipfile_lock import parsed_lock
from fallback_plugins.pypi.manifests.groups import table_of, tables
from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_strings
from fallback_plugins.pypi.manifests.requirements import (
    Declaration,
    declarations,
    requirement_in,
)

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
        found = _toml_lock(path, text, package)
    elif kind is Kind.PIPFILE_LOCK:
        found = _pipfile_lock(path, text, package)
    else:
        found = iter(())
    return tuple(dict.fromkeys(found))


def _pins(places: tuple[Declaration, ...]) -> Iterator[str]:
    return (place.pin.version for place in places if place.pin is not None)


def locked_in_toml(path: str, text: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, version and table of each package of a lock in TOML that has both. Raises RecipeError."""
    kind = kind_of(path)
    for table in tables(parse_toml(path, text).get(_TOML_LOCKS[kind]) if kind else None):
        name, version = table.get("name"), table.get("version")
        if isinstance(name, str) and isinstance(version, str):
            yield name, version, table


def unversioned_in_toml(path: str, text: str) -> frozenset[str]:
    """Canonical names of packages that a lock in TOML lists without a version, and that are no folder of
    the repository. Raises RecipeError."""
    kind = kind_of(path)
    return frozenset(
        str(canonicalize_name(table["name"]))
        for table in tables(parse_toml(path, text).get(_TOML_LOCKS[kind]) if kind else None)
        if isinstance(table.get("name"), str)
        and not isinstance(table.get("version"), str)
        and not table.keys() & {"path", "editable", "directory"}
    )


def unlisted_in_toml(path: str, text: str) -> frozenset[str]:
    """Canonical names of packages that those of a pdm.lock or pylock.toml require in every case, and that
    it does not list. Raises RecipeError."""
    kind = kind_of(path)
    packages = [*tables(parse_toml(path, text).get(_TOML_LOCKS[kind]) if kind else None)]
    listed = {str(canonicalize_name(str(table.get("name", "")))) for table in packages}
    required = {name for table in packages for name in _required(table)}
    return frozenset(required - listed)


def _required(table: Mapping[str, Any]) -> Iterator[str]:
    """Of pdm.lock, requirements; of pylock.toml, tables that name packages of it (PEP 751)."""
    asked = table.get("dependencies")
    for one in asked if isinstance(asked, list) else ():
        if isinstance(one, dict) and isinstance(one.get("name"), str):
            yield str(canonicalize_name(one["name"]))
        elif isinstance(one, str):
            requirement = requirement_in(one)
            if requirement is not None and requirement.marker is None:
                yield str(canonicalize_name(requirement.name))


def _toml_lock(path: str, text: str, package: str) -> Iterator[str]:
    """Not the project's own entry, or a folder of it: no registry gave that version."""
    wanted = canonicalize_name(package)
    for name, version, table in locked_in_toml(path, text):
        source = table_of(table, "source")
        # Other people's code, below ``vendor``, is not a project of the repository.
        own = any(kind_of(f"{source[key]}/pyproject.toml") for key in _LOCAL if key in source)
        if canonicalize_name(name) == wanted and not own:
            yield version


def _pipfile_lock(path: str, text: str, package: str) -> Iterator[str]:
    wanted = canonicalize_name(package)
    for section in parsed_lock(path, text).values():
        for name, entry in section.items() if isinstance(section, dict) else ():
            version = entry.get("version") if isinstance(entry, dict) else None
            if isinstance(version, str) and canonicalize_name(name) == wanted:
                yield version.lstrip("=")
