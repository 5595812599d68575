"""What the manifests of one project ask for, as lines that uv may read."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.commands import Command, install_commands, script_metadata
from fallback_plugins.pypi.manifests.indexes import has_own_index
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set
from fallback_plugins.pypi.manifests.markers import alternatives
from fallback_plugins.pypi.manifests.metadata import (
    REQUIRES,
    in_setup_cfg,
    in_setup_py,
    only_defines,
    own_name,
    setup_call,
)
from fallback_plugins.pypi.manifests.pyproject import (
    TableEntry,
    in_other_arrays,
    of_extra,
    parse_toml,
    pipfile_entries,
    poetry_entries,
    requirement_arrays,
    table_of,
    texts,
    value_at,
)
from fallback_plugins.pypi.manifests.requirements import (
    at_least,
    clean,
    includes,
    logical_lines,
    names_an_index,
    names_in_reference,
    reference_in,
    requirement_in,
    requirement_lines,
    unresolvable,
)
from fallback_plugins.pypi.resolving.uv_client import Wanted
from fallback_plugins.pypi.surveying.survey import HATCH_FILES, setup_cfg_requirements
from fallback_plugins.shared.resolution import Unresolved
from fallback_plugins.shared.tree import grouped
from fallback_tier.errors import RecipeError

_Item = TypeVar("_Item")

_TRUSTED = re.compile(r"[ \t]*--trusted-host\b")

_EXTRAS_OF_FOLDER = re.compile(r"\[(?P<extras>[\w\s,.-]*)\]")

#: Names of requirements files in setup.py: those are resolved by themselves.
_REQUIREMENTS_NAMED = re.compile(
    r"""['"][\w./-]*(?:requirements|constraints|reqs)[\w./-]*\.(?:txt|in)['"]"""
)

#: What an extra of a project requires of the project itself: its other extras.
_WITH_EXTRAS = r"\s*{name}\s*\["

_CONSTRAINTS_NAME = re.compile(r"(?:^|[/_.-])constraints?\b", re.IGNORECASE)

#: Arrays of ``[tool.uv]`` that ask for nothing by themselves.
_UV_CONSTRAINTS = ("tool", "uv", "constraint-dependencies")
_UV_OVERRIDES = ("tool", "uv", "override-dependencies")
_OF_BUILDS = ("tool", "uv", "build-constraint-dependencies")


@dataclass(frozen=True)
class Reading:
    """How manifests are read for uv.

    ``folder_lines``: requirement lines of a folder of the repository with these extras (``-e ./lib[x]``);
    raises RecipeError. ``skipped``: collects what uv can't be given; None: the first such thing is raised.
    ``closed``: what a skipped line brings in is in the files, too. ``folders``: by each folder that was
    read, the texts of its metadata by their names in it, and what they require.
    """

    folder_lines: Callable[[str, Sequence[str]], Sequence[str]] | None = None
    skipped: list[Unresolved] | None = None
    closed: bool = False
    folders: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = field(default_factory=dict)

    def clean(self, path: str, lines: Iterable[str]) -> list[str]:
        """Return each line in a normal form. Raises RecipeError."""
        return [line for one in lines for line in self.each(path, one, self._requirement)]

    def each(
        self, path: str, item: _Item, read: Callable[[str, _Item], str | Sequence[str]]
    ) -> Sequence[str]:
        """The lines that one item of a file becomes. Raises RecipeError."""
        try:
            found = read(path, item)
        except RecipeError as error:
            if self.skipped is None:
                raise
            names = _names(item) if self.closed and isinstance(item, str) else frozenset()
            self.skipped.append(_skipped(path, error, names))
            return ()
        return (found,) if isinstance(found, str) else found

    def requirements(self, path: str, text: str) -> list[str]:
        """The lines of a requirements file, with those of the folders that it installs."""
        return [one for line in logical_lines(text) for one in self.each(path, line, self._line)]

    def command(self, path: str, command: Command) -> Wanted:
        """What an install command installs; if it names a source of its own, its packages are skipped.
        Raises RecipeError."""
        if not command.has_source:
            return Wanted(tuple(self.clean(path, command.requirements)))
        error = unresolvable(path, "an install command that names an index or a folder of its own")
        if self.skipped is None:
            raise error
        names = frozenset().union(*map(_names, command.requirements))
        self.skipped.append(_skipped(path, error, names))
        return Wanted(())

    def _requirement(self, path: str, line: str) -> Sequence[str]:
        asked = requirement_in(line)
        place = _folder_in(asked.url or "") if asked is not None else ""
        if asked is None or not place or self.folder_lines is None:
            return (clean(path, line),)
        return self.folder_lines(_beside(path, place), sorted(asked.extras))

    def _line(self, path: str, line: str) -> Sequence[str]:
        about_registries = names_an_index(line) or _TRUSTED.match(line) is not None
        if self.skipped is not None and about_registries:
            return ()  # which registry is asked is decided for the whole set
        place = _folder_in(reference_in(line))
        if not place or self.folder_lines is None:
            return tuple(requirement_lines(path, line))
        extras = _EXTRAS_OF_FOLDER.search(line)
        names = extras["extras"].split(",") if extras else ()
        return self.folder_lines(_beside(path, place), names)


def _skipped(path: str, error: RecipeError, names: frozenset[str]) -> Unresolved:
    reason, step = error.problem, error.next_step
    return Unresolved(subject=path, reason=reason, next_step=step, names=names)


def _folder_in(reference: str) -> str:
    """The path of a reference to a folder or an archive; empty: it is an address, or none."""
    return "" if "://" in reference else reference.removeprefix("file:")


def _beside(path: str, place: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), place))


def installs_folders(file: tuple[str, str]) -> bool:
    """Does a file (its path and text) install a folder of the repository?"""
    path, text = file
    lines = logical_lines(text) if kind_in_set(path) is Kind.REQUIREMENTS else ()
    if kind_in_set(path) is Kind.PYPROJECT and "file:" in text:
        with suppress(RecipeError):
            found = requirement_arrays(parse_toml(path, text))
            asked = (requirement_in(line) for _, line in found)
            return any(_folder_in(it.url or "") for it in asked if it is not None)
    return any(_folder_in(reference_in(line)) for line in lines)


def _names(line: str) -> frozenset[str]:
    """The one package that a line may be; empty: it may be any."""
    asked, place = requirement_in(line.strip()), reference_in(line)
    if asked is not None:
        return frozenset({canonicalize_name(asked.name)})
    return names_in_reference(place) if place else frozenset()


#: Reads manifests that uv can be given whole.
_STRICT = Reading()


def wanted(texts: Mapping[str, str], reading: Reading = _STRICT) -> Wanted:
    """What these texts ask for. Raises RecipeError, naming what is not resolved outside the sandbox."""

    def missing_include(path: str, other: str) -> Sequence[str]:
        raise unresolvable(path, f"an include that is no requirements file ({other})")

    constraining = constraint_files(texts)
    parts = []
    for path, text in sorted(texts.items()):
        if reading.skipped is None and has_own_index(path, text):
            raise unresolvable(path, "an index or a folder of its own")
        if kind_in_set(path) is Kind.REQUIREMENTS:
            for other, _ in includes(path, text):
                if other not in texts:
                    reading.each(path, other, missing_include)
        part = _wanted_in(path, text, reading)
        parts.append(Wanted((), part.requirements) if path in constraining else part)
    return joined(parts)


def joined(parts: Iterable[Wanted]) -> Wanted:
    """All that the parts ask for."""
    each = [*parts]
    return Wanted(
        tuple(line for part in each for line in part.requirements),
        tuple(line for part in each for line in part.constraints),
        tuple(line for part in each for line in part.overrides),
    )


def project_lines(manifests: Mapping[str, str], extras: Sequence[str]) -> tuple[str, ...]:
    """What a project's metadata requires with these extras.

    ``manifests``: texts of pyproject.toml, setup.cfg and setup.py, by these names. Raises RecipeError if
    its build computes it.
    """
    document = parse_toml("pyproject.toml", manifests.get("pyproject.toml", ""))
    project = table_of(document, "project")
    config = in_setup_cfg(manifests.get("setup.cfg", ""))
    script = in_setup_py(manifests.get("setup.py", ""))
    found = [
        *texts(project.get("dependencies")),
        *(it.requirement for it in poetry_entries(document) if it.keys[2] == "dependencies"),
        *(*config.requires, *script.requires),
    ]
    if not found or extras:
        _check_declares(manifests)
    optional = table_of(project, "optional-dependencies")
    known = {**config.extras, **script.extras, **optional}
    for extra in extras:
        found += of_extra(known, extra.strip(), own_name(manifests))
    return tuple(found)


def _check_declares(manifests: Mapping[str, str]) -> None:
    """Raises RecipeError if a project's dependencies are computed by its build.

    ``manifests``: as for ``project_lines``. Files that metadata or setup.py name are read by themselves.
    """
    document = parse_toml("pyproject.toml", manifests.get("pyproject.toml", ""))
    call, script = setup_call(manifests.get("setup.py", "")), manifests.get("setup.py", "")
    check_dynamic("pyproject.toml", document, manifests)
    if not call.is_whole and None in call.required and "**" in script:
        raise unresolvable("setup.py", "keywords that it computes (`**`)")
    if _REQUIREMENTS_NAMED.search(script) or only_defines(script):
        return
    for word, value in zip(REQUIRES, call.required, strict=True):
        lists = value.values() if isinstance(value, dict) else [value]
        is_read = all(isinstance(it, list) and len(texts(it)) == len(it) for it in lists)
        if word in script and not is_read:
            raise unresolvable("setup.py", f"dependencies that it computes (`{word}`)")


def check_dynamic(path: str, document: Mapping[str, Any], beside: Mapping[str, str]) -> None:
    """Raises RecipeError if a build computes the dependencies of a pyproject.toml, and no file that is read
    says them, or if something else is where a list of them belongs. ``beside``: texts of its
    metadata files, and of ``hatch_hook``, by path from its folder."""
    project = table_of(document, "project")
    lists = {
        "project.dependencies": project.get("dependencies", []),
        **table_of(project, "optional-dependencies"),
        **table_of(document, "dependency-groups"),
    }
    for key, value in lists.items():
        if not isinstance(value, list):
            raise unresolvable(path, f"{key} that is no list")
    for key in {"dependencies", "optional-dependencies"}.intersection(
        texts(project.get("dynamic"))
    ):
        _check_computed(path, document, beside, key)


def _check_computed(
    path: str, document: Mapping[str, Any], beside: Mapping[str, str], key: str
) -> None:
    backend = str(table_of(document, "build-system").get("build-backend", "setuptools"))
    if backend.startswith("setuptools"):
        read = not {"setup.cfg", "setup.py"}.isdisjoint(beside)
        read = read or bool(table_of(document, "tool", "setuptools", "dynamic", key))
    elif backend.startswith("hatchling"):
        own = "files" if key == "dependencies" else key
        read = bool(table_of(document, *HATCH_FILES).get(own))
        read = read or _REQUIREMENTS_NAMED.search(beside.get(hatch_hook(document), "")) is not None
    else:
        read = backend.startswith("poetry") and bool(
            table_of(document, "tool", "poetry", "dependencies")
        )
    if not read:
        raise unresolvable(path, f"{key} that its build computes (`dynamic`)")


def hatch_hook(document: Mapping[str, Any]) -> str:
    """The path of the script by which hatch computes metadata; empty: there is none."""
    hooks = table_of(document, "tool", "hatch", "metadata", "hooks")
    return str(table_of(hooks, "custom").get("path", "hatch_build.py")) if "custom" in hooks else ""


def loosened(
    asked: Wanted, floors: Mapping[str, str], held: Mapping[str, str], free: Collection[str]
) -> Wanted:
    """The same set with room to move: ``floors`` take the place of what is asked of those packages,
    ``held`` pins others, and no constraint binds what has a floor or is ``free``."""

    def moved(line: str) -> str:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in floors:
            return _with_specifier(requirement, f">={at_least(floors[name])}")
        return _with_specifier(requirement, f"=={held[name]}") if name in held else line

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


def _with_specifier(requirement: Requirement, specifier: str) -> str:
    """The requirement with another specifier; extras and marker stay."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{specifier}{marker}"


def constraint_files(texts: Mapping[str, str]) -> frozenset[str]:
    """The files of a set that install nothing by themselves."""
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


def _wanted_in(path: str, text: str, reading: Reading) -> Wanted:
    match kind_in_set(path):
        case Kind.REQUIREMENTS:
            return Wanted(tuple(reading.requirements(path, text)))
        case Kind.SETUP_CFG:
            return Wanted(tuple(reading.clean(path, setup_cfg_requirements(text))))
        case Kind.SETUP_PY:
            return Wanted(tuple(reading.clean(path, _from_setup_py(path, text, reading))))
        case Kind.PIPFILE:
            document = parse_toml(path, text)
            return Wanted(tuple(_from_tables(path, document, pipfile_entries(document), reading)))
        case Kind.PYPROJECT:
            return _from_pyproject(path, text, reading)
        case Kind.SCRIPT:
            return Wanted(tuple(reading.clean(path, _from_script(path, text))))
        case Kind.COMMANDS | Kind.CI:
            return joined(reading.command(path, it) for it in install_commands(path, text))
    return Wanted(())


def _from_script(path: str, text: str) -> list[str]:
    document = parse_toml(path, script_metadata(text))
    if table_of(document, "tool", "uv"):
        raise unresolvable(path, "its own settings of uv")
    return texts(document.get("dependencies"))


def _from_setup_py(path: str, text: str, reading: Reading) -> list[str]:
    def check(_path: str, script: str) -> Sequence[str]:
        _check_declares({"setup.py": script})
        return ()

    reading.each(path, text, check)
    call = setup_call(text).keywords
    extras = call.get("extras_require")
    groups = [call.get("install_requires"), call.get("tests_require"), call.get("setup_requires")]
    groups += extras.values() if isinstance(extras, dict) else ()
    own = _WITH_EXTRAS.format(name=re.escape(str(call.get("name"))))
    return [line for group in groups for line in texts(group) if not re.match(own, line)]


def _from_pyproject(path: str, text: str, reading: Reading) -> Wanted:
    document = parse_toml(path, text)
    own = canonicalize_name(str(table_of(document, "project").get("name", "")))
    others = ((it.keys, it.value) for it in in_other_arrays(document))
    arrays = (
        (keys[:-1], line)
        for keys, value in (*requirement_arrays(document), *others)
        for line in reading.clean(path, [value])
    )
    lines = grouped((keys, line) for keys, line in arrays if name_of(line) != own)
    constraints, overrides = lines.pop(_UV_CONSTRAINTS, ()), lines.pop(_UV_OVERRIDES, ())
    lines.pop(_OF_BUILDS, None)  # they bind only what a build takes anyway
    asked = (line for array in lines.values() for line in array)
    poetry = _from_tables(path, document, poetry_entries(document), reading)
    return Wanted((*asked, *poetry), constraints, overrides)


def _from_tables(
    path: str, document: Mapping[str, Any], entries: Iterator[TableEntry], reading: Reading
) -> Iterator[str]:
    """One line per entry, with its condition in PEP 508's words."""

    def line(path: str, entry: TableEntry) -> str:
        if entry.declaration.refusal:
            raise unresolvable(path, entry.name)
        keys = entry.keys
        table = value_at(document, keys[:-1] if keys[-1] == "version" else keys)
        marker = _condition(table) if isinstance(table, dict) else ""
        return clean(path, entry.requirement + (f" ; {marker}" if marker else ""))

    for entry in entries:
        yield from reading.each(path, entry, line)


def _condition(table: Mapping[str, Any]) -> str:
    """When an entry of a table holds, as a marker; empty: always, or it can't be read."""
    parts = [f"({table['markers']})"] if isinstance(table.get("markers"), str) else []
    if isinstance(table.get("platform"), str) and '"' not in table["platform"]:
        parts.append(f'sys_platform == "{table["platform"]}"')
    pythons = alternatives(table["python"]) if isinstance(table.get("python"), str) else None
    clauses = [
        " and ".join(f'python_full_version {it.operator} "{it.version}"' for it in one)
        for one in pythons or ()
    ]
    if clauses and all(clauses):
        parts.append(" or ".join(f"({clause})" for clause in clauses))
    return " and ".join(f"({part})" for part in parts)
