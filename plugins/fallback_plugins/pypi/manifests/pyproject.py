"""Requirements of a pyproject.toml (PEP 621, PEP 735, Poetry's tables, uv's arrays) and a Pipfile, and
exact edits.

Tables of Poetry and of a Pipfile separate name and specifier: an entry is a specifier, a table with a
``version``, or (Poetry) a list of such tables, each with a condition.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.kinds import Kind, kind_of
from fallback_plugins.pypi.manifests.markers import can_hold, supported
from fallback_plugins.pypi.manifests.requirements import (
    Declaration,
    declaration_in,
    from_elsewhere,
    poetry_specifier_in,
    requirement_in,
    specifier_in,
)
from fallback_plugins.shared.bumping import unreadable, unsupported
from fallback_plugins.shared.tree import grouped
from fallback_tier.errors import RecipeError
from fallback_tier.files import inputs

#: Groups, extras and requirements files of real projects include each other at most this deep.
MAX_DEPTH = 8


def of_group(groups: Mapping[str, Any], name: str, depth: int = 0) -> Iterator[str]:
    """Yield a dependency group's requirements, with those that it includes (PEP 735)."""
    content = groups.get(name)
    for item in content if isinstance(content, list) and depth < MAX_DEPTH else ():
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict) and isinstance(item.get("include-group"), str):
            yield from of_group(groups, item["include-group"], depth + 1)


def of_extra(extras: Mapping[str, Any], name: str, project: str, depth: int = 0) -> Iterator[str]:
    """Yield an extra's requirements, with those of the project's extras in it (``lib[async]``)."""
    extras_by_name = {canonicalize_name(key): value for key, value in extras.items()}
    for line in texts(extras_by_name.get(canonicalize_name(name)) if name else None):
        requirement = requirement_in(line)
        own_extras: list[str] = []
        if (
            requirement
            and project
            and canonicalize_name(requirement.name) == canonicalize_name(project)
        ):
            own_extras = [
                extra
                for extra in sorted(requirement.extras)
                if canonicalize_name(extra) in extras_by_name
            ]
        if requirement and own_extras and not requirement.specifier and depth < MAX_DEPTH:
            for extra in own_extras:
                yield from of_extra(extras, extra, project, depth + 1)
        else:
            yield line


def texts(value: object) -> list[str]:
    """Return the strings of a list; none if it is not a list."""
    return [line for line in value if isinstance(line, str)] if isinstance(value, list) else []


def tables(value: object) -> list[Mapping[str, Any]]:
    """Return the tables of a list; none if it is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def table_of(document: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a table within tables; empty if there is none."""
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class TableEntry:
    """One specifier in a table, or requirement in an array: the keys that lead to it, the package's name as
    written, its value."""

    keys: Keys
    name: str
    value: str
    declaration: Declaration
    extras: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The same in PEP 508's grammar, without its condition."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}{self.declaration.pep440}"


#: Tables of a Pipfile that aren't dependencies; every other table is a category of them.
NO_CATEGORIES = frozenset({"source", "requires", "scripts", "pipenv"})

#: Keys of an entry that state its condition.
_CONDITIONS = ("python", "platform", "markers")

#: Keys of an entry that take it from elsewhere than a registry, and those of them that have the address.
_ELSEWHERE = frozenset({"git", "path", "url", "file", "hg", "svn", "ref"})
_PLACES = ("path", "url", "file")

#: Poetry's tables that ``poetry_entries`` reads.
POETRY_TABLES = tuple(
    ("tool", "poetry", name) for name in ("dependencies", "dev-dependencies", "group")
)


def _by_name(entries: Iterable[TableEntry]) -> dict[str, tuple[TableEntry, ...]]:
    """Return entries by canonical name, in their order."""
    return grouped((str(canonicalize_name(entry.name)), entry) for entry in entries)


def poetry_entries(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Yield the dependencies of ``[tool.poetry]`` and of its groups, without ``python``."""
    poetry = ("tool", "poetry")
    groups = table_of(document, *poetry, "group")
    inside = ((*poetry, "group", group, "dependencies") for group in groups)
    for keys in ((*poetry, "dependencies"), (*poetry, "dev-dependencies"), *inside):
        for name, entry in table_of(document, *keys).items():
            if name != "python":
                yield from _entries((*keys, name), name, entry, poetry_specifier_in)


def pipfile_entries(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Yield the dependencies in all categories of a Pipfile."""
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
            elsewhere = from_elsewhere(canonicalize_name(name), *places)
            yield TableEntry(keys, name, "", elsewhere)
            return
        version = entry.get("version")
        written = version if isinstance(version, str) else ""
        marker = " ".join(texts([entry.get(key) for key in _CONDITIONS]))
        declaration = replace(read(written), marker=marker)
        extras = tuple(texts(entry.get("extras")))
        yield TableEntry((*keys, "version"), name, written, declaration, extras)


#: Byte order mark at the beginning of a file, as some editors write it: kept, but not part of the content.
BOM = "\ufeff"

#: Quotes of a one-line TOML string; requirement strings need no escapes.
_QUOTES = ('"', "'")

#: The settings of ``[tool.uv]`` that affect the resolution. The others say where uv writes, what it starts
#: and where it gets keys: a target's manifest must not decide that for this machine.
_UV_SETTINGS = frozenset(
    {"conflicts", "constraint-dependencies", "default-groups", "dependency-groups"}
    | {"dependency-metadata", "dev-dependencies", "environments", "exclude-dependencies"}
    | {"exclude-newer", "exclude-newer-package", "extra-index-url", "fork-strategy", "index"}
    | {"index-strategy", "index-url", "managed", "override-dependencies", "package", "prerelease"}
    | {"required-environments", "resolution", "sources", "workspace"}
)

#: Parsed documents that are cached. One bump reads two locks five times, and a lock is megabytes.
_DOCUMENTS = 8

#: Manifests whose requests are cached: one resolution reads many packages of the same few files.
_MANIFESTS = 32

_NAME = re.compile(r"[ \t]*([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)")

#: A module that does not exist, which a build would try to import.
NO_BACKEND = "fallback_tier_builds_nothing"


#: Arrays of requirements that each build installs again (``*``: any key).
_BUILD_ARRAYS = (
    ("build-system", "requires"),
    ("tool", "hatch", "build", "dependencies"),
    ("tool", "hatch", "build", "targets", "*", "dependencies"),
    ("tool", "uv", "build-constraint-dependencies"),
)
#: Arrays of requirements that other commands than the project's own install: its build's, and those of the
#: environments of pdm, hatch and rye.
OTHER_ARRAYS = (
    *_BUILD_ARRAYS,
    ("tool", "pdm", "dev-dependencies", "*"),
    ("tool", "hatch", "envs", "*", "dependencies"),
    ("tool", "hatch", "envs", "*", "extra-dependencies"),
    ("tool", "rye", "dev-dependencies"),
)


#: The arrays of ``[tool.uv]`` with requirement strings.
UV_ARRAYS = ("constraint-dependencies", "override-dependencies", "dev-dependencies")


#: Arrays of requirements that the project itself, and its groups, install (``*``: any key).
_ARRAYS = (
    ("project", "dependencies"),
    ("project", "optional-dependencies", "*"),
    ("dependency-groups", "*"),
    *(("tool", "uv", key) for key in UV_ARRAYS),
)

#: Keys of ``[tool.uv]`` that change which release of a package is used, or from where.
UV_RULES = frozenset(
    {"sources", "constraint-dependencies", "override-dependencies", "exclude-dependencies"}
    | {"index", "index-url", "extra-index-url", "find-links", "no-index"}
)


def parse_toml(path: str, text: str) -> Mapping[str, Any]:
    """Return the document, without a byte order mark. Raises RecipeError, naming the file, if it isn't
    TOML."""
    try:
        return _parsed(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(
            path, f"is not TOML: {error}", "Repair the file first.", kind="not_toml"
        ) from error


@lru_cache(maxsize=_DOCUMENTS)
def _parsed(text: str) -> Mapping[str, Any]:
    return inputs.parse_toml(text.removeprefix(BOM))


def requirement_strings(path: str, text: str, package: str) -> tuple[TableEntry, ...]:
    """Return the file's requirements of the package: PEP 621, dependency groups, Poetry's tables, uv's
    arrays; for a Pipfile its tables.

    In tables ``value`` is only the specifier, in Poetry's own grammar in Poetry's.
    """
    return strings_by_name(path, text).get(canonicalize_name(package), ())


@lru_cache(maxsize=_MANIFESTS)
def strings_by_name(path: str, text: str) -> Mapping[str, tuple[TableEntry, ...]]:
    """Return a file's requirements by canonical name, read once for all packages."""
    document = parse_toml(path, text)
    if kind_of(path) is Kind.PIPFILE:
        return _by_name(pipfile_entries(document))
    return _by_name(chain(_in_arrays(requirement_arrays(document)), poetry_entries(document)))


def is_excluded(path: str, text: str, marker: str) -> bool:
    """Return whether a marker excludes every Python that the file's project supports. Python 2 is not one,
    unless the project states it."""
    if not marker:
        return False
    document = parse_toml(path, text) if kind_of(path) is Kind.PYPROJECT else {}
    stated = (
        table_of(document, "project").get("requires-python"),
        table_of(document, "tool", "poetry", "dependencies").get("python"),
    )
    python = next((value for value in stated if isinstance(value, str) and value.strip()), ">=3")
    return bool(supported(python)) and not can_hold(marker.strip(), python)


def other_requirements(path: str, text: str, package: str) -> tuple[TableEntry, ...]:
    """Return the file's requirements of the package in ``OTHER_ARRAYS``, of a build's only pins, since a
    build installs the newest release of a range. Raises RecipeError."""
    document, wanted = parse_toml(path, text), canonicalize_name(package)
    return tuple(
        entry for entry in in_other_arrays(document) if canonicalize_name(entry.name) == wanted
    )


def in_other_arrays(document: Mapping[str, Any]) -> Iterator[TableEntry]:
    """Yield each requirement of ``OTHER_ARRAYS``, of a build's only pins."""
    for pattern in OTHER_ARRAYS:
        for entry in _in_arrays(_strings_at(document, pattern)):
            if entry.declaration.pin or pattern not in _BUILD_ARRAYS:
                yield entry


def _strings_at(
    value: Any, pattern: tuple[str, ...], keys: Keys = ()
) -> Iterator[tuple[Keys, str]]:
    if not pattern and isinstance(value, list):
        yield from (
            ((*keys, index), item) for index, item in enumerate(value) if isinstance(item, str)
        )
    elif pattern and isinstance(value, dict):
        for key in value if pattern[0] == "*" else filter(value.__contains__, pattern[:1]):
            yield from _strings_at(value[key], pattern[1:], (*keys, key))


def _in_arrays(arrays: Iterable[tuple[Keys, str]]) -> Iterator[TableEntry]:
    for keys, value in arrays:
        name = _NAME.match(value)
        declaration = declaration_in(value, name[1]) if name else None
        if name and declaration:
            yield TableEntry(keys, name[1], value, declaration)


def foreign_sources(path: str, text: str, package: str) -> tuple[str, ...] | None:
    """Return where ``[tool.uv.sources]`` takes the package from: addresses and paths, without members of
    the workspace and other registries. None if it does not list the package."""
    sources = table_of(parse_toml(path, text), "tool", "uv", "sources")
    wanted = canonicalize_name(package)
    entries = [source for name, source in sources.items() if canonicalize_name(name) == wanted]
    listed = [
        table
        for entry in entries
        for table in tables(entry if isinstance(entry, list) else [entry])
    ]
    places = (texts([table.get(key) for key in ("path", "url", "git")]) for table in listed)
    return tuple(address for addresses in places for address in addresses) if entries else None


def replace_requirement(path: str, text: str, keys: tuple[str | int, ...], new: str) -> str:
    """Return the text with one requirement string replaced, and every other byte kept.

    The position is found by trying: the right occurrence is the one whose replacement changes exactly this
    value of the parsed document. Raises RecipeError if there is none (an escaped string).
    """
    document = parse_toml(path, text)
    old = value_at(document, keys)
    wanted = deepcopy(document)
    value_at(wanted, keys[:-1])[keys[-1]] = new
    for literal in written_as(old):
        position = text.find(literal)
        while position >= 0:
            candidate = text[: position + 1] + new + text[position + 1 + len(old) :]
            if _parses_to(candidate, wanted):
                return candidate
            position = text.find(literal, position + 1)
    raise not_plain(path, old)


def replace_requirements(path: str, text: str, new: Mapping[tuple[str | int, ...], str]) -> str:
    """Do ``replace_requirement`` for many strings: those that occur only once are all tried together."""
    document = parse_toml(path, text)
    wanted = deepcopy(document)
    spots: dict[int, tuple[int, str]] = {}
    once: set[tuple[str | int, ...]] = set()
    for keys, value in new.items():
        literals = [literal for literal in written_as(value_at(document, keys)) if literal in text]
        if len(literals) == 1 and text.count(literals[0]) == 1:
            start = text.index(literals[0]) + 1
            spots[start] = (start + len(literals[0]) - 2, value)
            value_at(wanted, keys[:-1])[keys[-1]] = value
            once.add(keys)
    parts, position = [], 0
    for start, (end, value) in sorted(spots.items()):
        parts += [text[position:start], value]
        position = end
    candidate = "".join([*parts, text[position:]])
    if not _parses_to(candidate, wanted):
        candidate, once = text, set()
    for keys, value in new.items():
        if keys not in once:
            candidate = replace_requirement(path, candidate, keys, value)
    return candidate


def written_as(value: str) -> tuple[str, ...]:
    """Return the ways in which a plain string may be written in a file."""
    return tuple(f"{quote}{value}{quote}" for quote in _QUOTES)


def not_plain(path: str, value: str) -> RecipeError:
    """Return the refusal of a string that is escaped, or written over several lines."""
    problem = f"The requirement {value!r} of {path!r} is not written as a plain string."
    return unsupported(problem, f"Write it in {path} as one plain string.", kind="not_plain")


def harmless(path: str, manifest: str) -> str:
    """Return the manifest as uv may read it outside the sandbox, in scratch folders only.

    ``[tool.uv]`` keeps only settings that affect the resolution: ``compile-bytecode`` starts the
    environment's Python (and every ``.pth`` file in it), ``pip.target`` and ``cache-dir`` write to the
    folders that they name (measured). The build backend becomes one that does not exist.

    ``--no-build`` is not enough: uv builds the project itself nevertheless if its metadata is dynamic, with
    whatever backend and requirements it names (measured, uv 0.13), and that would run outside the sandbox.
    uv.lock records none of this, so a lock stays the project's. Raises RecipeError for text that is not
    TOML.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    parse_toml(path, manifest)
    try:
        document = tomlkit.parse(manifest.removeprefix(BOM))
    except TOMLKitError as error:
        raise unsupported(f"{path} is TOML that can't be written again: {error}.") from error
    uv: Any = table_of(document, "tool", "uv")
    for key in [key for key in uv if key not in _UV_SETTINGS]:
        del uv[key]
    dynamic = "dynamic" in table_of(document, "project")
    if "build-system" in document or uv.get("package") or dynamic:
        document["build-system"] = {"requires": [], "build-backend": NO_BACKEND}
    written = tomlkit.dumps(document)
    written_document = parse_toml(path, written)
    settings = table_of(written_document, "tool", "uv")
    backend = table_of(written_document, "build-system").get("build-backend", NO_BACKEND)
    if not _UV_SETTINGS.issuperset(settings) or backend != NO_BACKEND:
        raise unsupported(f"{path} is written in a way that its settings can't be taken out of.")
    return written


def asking_nothing(path: str, manifest: str) -> str:
    """Return a manifest with only what a lock was made for: names, no requirements and no sources.

    Raises RecipeError for text that is not TOML.
    """
    import tomlkit

    document = parse_toml(path, manifest)
    project, groups = table_of(document, "project"), table_of(document, "dependency-groups")
    stated = {key: project[key] for key in ("name", "requires-python") if key in project}
    extras: dict[str, Any] = {name: [] for name in table_of(project, "optional-dependencies")}
    workspace = table_of(document, "tool", "uv", "workspace")
    bare: dict[str, Any] = {"dependency-groups": {name: [] for name in groups}}
    if stated:
        bare["project"] = {**stated, "version": "0", "optional-dependencies": extras}
    if workspace and not any(".." in str(pattern) for pattern in workspace.get("members", ())):
        bare["tool"] = {"uv": {"workspace": workspace}}
    return tomlkit.dumps(bare)


def requirement_arrays(document: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Yield each requirement of the dependency arrays, with the keys that lead to it."""
    for pattern in _ARRAYS:
        yield from _strings_at(document, pattern)


def value_at(document: Any, keys: tuple[str | int, ...]) -> Any:
    """Return the value that these keys lead to."""
    for key in keys:
        document = document[key]
    return document


def _parses_to(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return inputs.parse_toml(text.removeprefix(BOM)) == wanted
    except ValueError:
        return False
