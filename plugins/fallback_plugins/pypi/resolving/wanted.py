"""What the manifests of one project ask for, as lines that uv may read."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.groups import table_of
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set
from fallback_plugins.pypi.manifests.poetry_tables import (
    TableEntry,
    pipfile_entries,
    poetry_entries,
)
from fallback_plugins.pypi.manifests.pyproject import parse_toml, requirement_arrays
from fallback_plugins.pypi.manifests.requirements_files import (
    clean,
    includes,
    is_closed,
    names_an_index,
    requirement_lines,
    unresolvable,
)
from fallback_plugins.pypi.resolving.uv_client import Wanted
from fallback_plugins.pypi.surveying.survey import setup_cfg_requirements
from fallback_plugins.shared.tree import grouped
from fallback_tier.errors import RecipeError

_CONSTRAINTS_NAME = re.compile(r"(?:^|[/_.-])constraints?\b", re.IGNORECASE)

#: Settings of ``[tool.uv]`` that say where packages come from.
_OF_UV = frozenset({"index", "index-url", "extra-index-url", "find-links", "no-index", "sources"})

#: Arrays of ``[tool.uv]`` that ask for nothing by themselves.
_UV_CONSTRAINTS = ("tool", "uv", "constraint-dependencies")
_UV_OVERRIDES = ("tool", "uv", "override-dependencies")


def wanted(texts: Mapping[str, str]) -> Wanted:
    """What these texts ask for. Raises RecipeError, naming what is not resolved outside the sandbox."""
    constraining = _constraint_files(texts)
    found = Wanted(())
    for path, text in sorted(texts.items()):
        if has_own_index(path, text):
            raise unresolvable(path, "an index or a folder of its own")
        if kind_in_set(path) is Kind.REQUIREMENTS:
            for other, _ in includes(path, text):
                if other not in texts:
                    raise unresolvable(path, f"an include that is no requirements file ({other})")
        part = _wanted_in(path, text)
        if path in constraining:
            part = Wanted((), part.requirements)
        found = Wanted(
            found.requirements + part.requirements,
            found.constraints + part.constraints,
            found.overrides + part.overrides,
        )
    return found


def has_own_index(path: str, text: str) -> bool:
    """Does a manifest say where its packages come from? Then no other registry's word on them counts.

    One ``[[source]]`` of a Pipfile is what pipenv writes into each.
    """
    kind = kind_in_set(path)
    if kind is Kind.REQUIREMENTS:
        return names_an_index(text)
    if kind not in {Kind.PIPFILE, Kind.PYPROJECT}:
        return False
    try:
        document = parse_toml(path, text)
    except RecipeError:
        return False
    sources = document.get("source")
    if kind is Kind.PIPFILE:
        return isinstance(sources, list) and len(sources) > 1
    return bool(_OF_UV & table_of(document, "tool", "uv").keys()) or any(
        table_of(document, "tool", name).get("source") for name in ("poetry", "pdm")
    )


def leaves_transitives_open(texts: Mapping[str, str]) -> bool:
    """May these files install what they don't name?

    A compiled or hash-pinned set names everything; constraints, and files without requirements, install
    nothing. What can't be read may.
    """
    constraining = _constraint_files(texts)
    if any(
        is_closed(text)
        for path, text in texts.items()
        if kind_in_set(path) is Kind.REQUIREMENTS and path not in constraining
    ):
        return False
    try:
        return bool(wanted(texts).requirements)
    except RecipeError:
        return True


def loosened(
    asked: Wanted, floors: Mapping[str, str], held: Mapping[str, str], free: Collection[str]
) -> Wanted:
    """The same set with room to move: ``floors`` take the place of what is asked of those packages,
    ``held`` pins others, and no constraint binds what has a floor or is ``free``."""

    def moved(line: str) -> str:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in floors:
            return with_specifier(requirement, f">={floors[name]}")
        return with_specifier(requirement, f"=={held[name]}") if name in held else line

    def binds(line: str) -> bool:
        return name_of(line) not in {*floors, *free}

    return replace(
        asked,
        requirements=tuple(dict.fromkeys(map(moved, asked.requirements))),
        constraints=tuple(filter(binds, asked.constraints)),
    )


def name_of(line: str) -> str:
    """The canonical name of what a line of a set asks for."""
    return canonicalize_name(Requirement(line).name)


def with_specifier(requirement: Requirement, specifier: str) -> str:
    """The requirement with another specifier; extras and marker stay."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{specifier}{marker}"


def constraints_file(texts: Mapping[str, str]) -> str | None:
    """The constraints file of a set, if it has one."""
    return min(_constraint_files(texts), default=None)


def _constraint_files(texts: Mapping[str, str]) -> frozenset[str]:
    included = [
        (other, constrains)
        for path, text in texts.items()
        if kind_in_set(path) is Kind.REQUIREMENTS
        for other, constrains in includes(path, text)
    ]
    required = {other for other, constrains in included if not constrains}
    named = {path for path in texts if _CONSTRAINTS_NAME.search(path)}
    constraining = {other for other, constrains in included if constrains} & texts.keys()
    return frozenset((constraining | named) - required)


def _wanted_in(path: str, text: str) -> Wanted:
    match kind_in_set(path):
        case Kind.REQUIREMENTS:
            return Wanted(tuple(requirement_lines(path, text)))
        case Kind.SETUP_CFG:
            return Wanted(tuple(clean(path, line) for line in setup_cfg_requirements(text)))
        case Kind.PIPFILE:
            return Wanted(tuple(_from_tables(path, pipfile_entries(parse_toml(path, text)))))
        case Kind.PYPROJECT:
            return _from_pyproject(path, text)
    return Wanted(())


def _from_pyproject(path: str, text: str) -> Wanted:
    document = parse_toml(path, text)
    own = canonicalize_name(str(table_of(document, "project").get("name", "")))
    arrays = ((keys[:-1], clean(path, value)) for keys, value in requirement_arrays(document))
    lines = grouped((keys, line) for keys, line in arrays if name_of(line) != own)
    constraints, overrides = lines.pop(_UV_CONSTRAINTS, ()), lines.pop(_UV_OVERRIDES, ())
    asked = (line for array in lines.values() for line in array)
    return Wanted((*asked, *_from_tables(path, poetry_entries(document))), constraints, overrides)


def _from_tables(path: str, entries: Iterator[TableEntry]) -> Iterator[str]:
    """One line a package: of several conditions (another Python) only the first is resolved here."""
    seen: set[str] = set()
    for entry in entries:
        name = canonicalize_name(entry.name)
        if name in seen:
            continue
        seen.add(name)
        if entry.declaration.refusal:
            raise unresolvable(path, entry.name)
        yield clean(path, entry.requirement)
