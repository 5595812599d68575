"""The requirements in one project's manifests, as lines that uv can read."""

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

#: Matches names of requirements files in setup.py; these files are resolved by themselves.
_REQUIREMENTS_NAMED = re.compile(
    r"""['"][\w./-]*(?:requirements|constraints|reqs)[\w./-]*\.(?:txt|in)['"]"""
)

#: Matches a requirement of a project on itself, by which one extra includes others.
_WITH_EXTRAS = r"\s*{name}\s*\["

_CONSTRAINTS_NAME = re.compile(r"(?:^|[/_.-])constraints?\b", re.IGNORECASE)

#: Arrays of ``[tool.uv]`` that require nothing by themselves.
_UV_CONSTRAINTS = ("tool", "uv", "constraint-dependencies")
_UV_OVERRIDES = ("tool", "uv", "override-dependencies")
_OF_BUILDS = ("tool", "uv", "build-constraint-dependencies")


@dataclass(frozen=True)
class Reading:
    """Reads manifests for uv.

    ``folder_lines``: returns the requirement lines of a folder of the repository with these extras, as for
    ``-e ./lib[x]``; raises RecipeError. ``skipped``: collects what uv can't resolve; if None, the first
    such thing raises. ``closed``: the files also list what a skipped line brings in. ``folders``: for each
    folder that was read, the texts of its metadata files by name, and the lines that they require.
    """

    folder_lines: Callable[[str, Sequence[str]], Sequence[str]] | None = None
    skipped: list[Unresolved] | None = None
    closed: bool = False
    folders: Mapping[str, tuple[Mapping[str, str], Sequence[str]]] = field(default_factory=dict)

    def clean(self, path: str, lines: Iterable[str]) -> list[str]:
        """Return the lines in a normal form, with those of folders that they install. Raises
        RecipeError."""
        return [line for item in lines for line in self.each(path, item, self._requirement)]

    def each(
        self, path: str, item: _Item, read: Callable[[str, _Item], str | Sequence[str]]
    ) -> Sequence[str]:
        """Return the lines that ``read`` makes of one item of a file; none if the item is skipped. Raises
        RecipeError."""
        try:
            result = read(path, item)
        except RecipeError as error:
            if self.skipped is None:
                raise
            names = _names(item) if self.closed and isinstance(item, str) else frozenset()
            self.skipped.append(_skipped(path, error, names))
            return ()
        return (result,) if isinstance(result, str) else result

    def requirements(self, path: str, text: str) -> list[str]:
        """Return the lines of a requirements file, with those of the folders that it installs."""
        return [
            requirement
            for line in logical_lines(text)
            for requirement in self.each(path, line, self._line)
        ]

    def command(self, path: str, command: Command) -> Wanted:
        """Return what an install command installs; if it names its own index or folder, its packages are
        skipped. Raises RecipeError."""
        if not command.has_source:
            return Wanted(tuple(self.clean(path, command.requirements)))
        error = unresolvable(path, "an install command that names an index or a folder of its own")
        if self.skipped is None:
            raise error
        names = frozenset().union(*map(_names, command.requirements))
        self.skipped.append(_skipped(path, error, names))
        return Wanted(())

    def _requirement(self, path: str, line: str) -> Sequence[str]:
        requirement = requirement_in(line)
        folder = _folder_in(requirement.url or "") if requirement is not None else ""
        if requirement is None or not folder or self.folder_lines is None:
            return (clean(path, line),)
        return self.folder_lines(_beside(path, folder), sorted(requirement.extras))

    def _line(self, path: str, line: str) -> Sequence[str]:
        about_registries = names_an_index(line) or _TRUSTED.match(line) is not None
        if self.skipped is not None and about_registries:
            return ()  # the registry is chosen for all files together
        folder = _folder_in(reference_in(line))
        if not folder or self.folder_lines is None:
            return tuple(requirement_lines(path, line))
        extras = _EXTRAS_OF_FOLDER.search(line)
        names = extras["extras"].split(",") if extras else ()
        return self.folder_lines(_beside(path, folder), names)


def _skipped(path: str, error: RecipeError, names: frozenset[str]) -> Unresolved:
    reason, step = error.problem, error.next_step
    return Unresolved(subject=path, reason=reason, next_step=step, names=names)


def _folder_in(reference: str) -> str:
    """Return the path of a reference to a folder or an archive; empty for an address, or without one."""
    return "" if "://" in reference else reference.removeprefix("file:")


def _beside(path: str, folder: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), folder))


def installs_folders(file: tuple[str, str]) -> bool:
    """Return whether a file (its path and text) installs a folder of the repository."""
    path, text = file
    lines = logical_lines(text) if kind_in_set(path) is Kind.REQUIREMENTS else ()
    if kind_in_set(path) is Kind.PYPROJECT and "file:" in text:
        with suppress(RecipeError):
            arrays = requirement_arrays(parse_toml(path, text))
            requirements = (requirement_in(line) for _, line in arrays)
            return any(
                _folder_in(requirement.url or "")
                for requirement in requirements
                if requirement is not None
            )
    return any(_folder_in(reference_in(line)) for line in lines)


def _names(line: str) -> frozenset[str]:
    """Return the names of packages that a line may install; empty if it may be any."""
    requirement, reference = requirement_in(line.strip()), reference_in(line)
    if requirement is not None:
        return frozenset({canonicalize_name(requirement.name)})
    return names_in_reference(reference) if reference else frozenset()


#: Refuses a manifest with anything that uv can't resolve.
_STRICT = Reading()


def wanted(texts: Mapping[str, str], reading: Reading = _STRICT) -> Wanted:
    """Return what these texts require. Raises RecipeError for what is not resolved outside the sandbox."""

    def missing_include(path: str, included_path: str) -> Sequence[str]:
        raise unresolvable(path, f"an include that is no requirements file ({included_path})")

    constraint_paths = constraint_files(texts)
    parts = []
    for path, text in sorted(texts.items()):
        if reading.skipped is None and has_own_index(path, text):
            raise unresolvable(path, "an index or a folder of its own")
        if kind_in_set(path) is Kind.REQUIREMENTS:
            for included_path, _ in includes(path, text):
                if included_path not in texts:
                    reading.each(path, included_path, missing_include)
        part = _wanted_in(path, text, reading)
        parts.append(Wanted((), part.requirements) if path in constraint_paths else part)
    return joined(parts)


def joined(parts: Iterable[Wanted]) -> Wanted:
    """Return the lines of all parts together."""
    all_parts = [*parts]
    return Wanted(
        tuple(line for part in all_parts for line in part.requirements),
        tuple(line for part in all_parts for line in part.constraints),
        tuple(line for part in all_parts for line in part.overrides),
    )


def project_lines(manifests: Mapping[str, str], extras: Sequence[str]) -> tuple[str, ...]:
    """Return what a project's metadata requires with these extras.

    ``manifests``: texts of pyproject.toml, setup.cfg and setup.py, by these names. Raises RecipeError if
    the project's build computes what it requires.
    """
    document = parse_toml("pyproject.toml", manifests.get("pyproject.toml", ""))
    project = table_of(document, "project")
    config = in_setup_cfg(manifests.get("setup.cfg", ""))
    script = in_setup_py(manifests.get("setup.py", ""))
    lines = [
        *texts(project.get("dependencies")),
        *(
            entry.requirement
            for entry in poetry_entries(document)
            if entry.keys[2] == "dependencies"
        ),
        *(*config.requires, *script.requires),
    ]
    if not lines or extras:
        _check_declares(manifests)
    optional = table_of(project, "optional-dependencies")
    extra_requirements = {**config.extras, **script.extras, **optional}
    for extra in extras:
        lines += of_extra(extra_requirements, extra.strip(), own_name(manifests))
    return tuple(lines)


def _check_declares(manifests: Mapping[str, str]) -> None:
    """Raise RecipeError if a project's build computes its dependencies.

    ``manifests``: as in ``project_lines``. Files that metadata or setup.py name are read by themselves.
    """
    document = parse_toml("pyproject.toml", manifests.get("pyproject.toml", ""))
    call, script = setup_call(manifests.get("setup.py", "")), manifests.get("setup.py", "")
    check_dynamic("pyproject.toml", document, manifests)
    if not call.is_whole and None in call.required and "**" in script:
        raise unresolvable("setup.py", "keywords that it computes (`**`)")
    if _REQUIREMENTS_NAMED.search(script) or only_defines(script):
        return
    for keyword, value in zip(REQUIRES, call.required, strict=True):
        lists = value.values() if isinstance(value, dict) else [value]
        is_read = all(
            isinstance(items, list) and len(texts(items)) == len(items) for items in lists
        )
        if keyword in script and not is_read:
            raise unresolvable("setup.py", f"dependencies that it computes (`{keyword}`)")


def check_dynamic(path: str, document: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Raise RecipeError if a build computes the dependencies of a pyproject.toml and no file that is read
    lists them, or if a value that has to be a list of dependencies is not one. ``metadata``: the texts of
    the project's metadata files, and of ``hatch_hook``, by path from its folder."""
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
        _check_computed(path, document, metadata, key)


def _check_computed(
    path: str, document: Mapping[str, Any], metadata: Mapping[str, str], key: str
) -> None:
    backend = str(table_of(document, "build-system").get("build-backend", "setuptools"))
    if backend.startswith("setuptools"):
        read = not {"setup.cfg", "setup.py"}.isdisjoint(metadata)
        read = read or bool(table_of(document, "tool", "setuptools", "dynamic", key))
    elif backend.startswith("hatchling"):
        table_key = "files" if key == "dependencies" else key
        read = bool(table_of(document, *HATCH_FILES).get(table_key))
        read = (
            read or _REQUIREMENTS_NAMED.search(metadata.get(hatch_hook(document), "")) is not None
        )
    else:
        read = backend.startswith("poetry") and bool(
            table_of(document, "tool", "poetry", "dependencies")
        )
    if not read:
        raise unresolvable(path, f"{key} that its build computes (`dynamic`)")


def hatch_hook(document: Mapping[str, Any]) -> str:
    """Return the path of the script by which hatch computes metadata; empty if there is none."""
    hooks = table_of(document, "tool", "hatch", "metadata", "hooks")
    return str(table_of(hooks, "custom").get("path", "hatch_build.py")) if "custom" in hooks else ""


def loosened(
    original: Wanted, floors: Mapping[str, str], pins: Mapping[str, str], free: Collection[str]
) -> Wanted:
    """Return the lines with room to move: ``floors`` are lower bounds in place of those packages' ranges,
    and ``pins`` fix others. Constraints on packages that have a floor or are ``free`` are left out."""

    def with_room(line: str) -> str:
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name in floors:
            return _with_specifier(requirement, f">={at_least(floors[name])}")
        return _with_specifier(requirement, f"=={pins[name]}") if name in pins else line

    def binds(line: str) -> bool:
        return name_of(line) not in {*floors, *free}

    return replace(
        original,
        requirements=tuple(dict.fromkeys(map(with_room, original.requirements))),
        constraints=tuple(filter(binds, original.constraints)),
    )


def name_of(line: str) -> str:
    """Return the canonical name of the package that a requirement line is for."""
    return canonicalize_name(Requirement(line).name)


def _with_specifier(requirement: Requirement, specifier: str) -> str:
    """Return the requirement with another specifier; extras and marker stay."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}{specifier}{marker}"


def constraint_files(texts: Mapping[str, str]) -> frozenset[str]:
    """Return the files that only constrain what others install: by their names, or by how they are
    included."""
    included = [
        (included_path, constrains)
        for path, text in texts.items()
        if kind_in_set(path) is Kind.REQUIREMENTS
        for included_path, constrains in includes(path, text)
    ]
    required = {path for path, constrains in included if not constrains}
    named_as_constraints = {path for path in texts if _CONSTRAINTS_NAME.search(path)}
    included_as_constraints = {path for path, constrains in included if constrains} & texts.keys()
    return frozenset((included_as_constraints | named_as_constraints) - required)


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
            return joined(
                reading.command(path, command) for command in install_commands(path, text)
            )
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
    own_extras = _WITH_EXTRAS.format(name=re.escape(str(call.get("name"))))
    return [line for group in groups for line in texts(group) if not re.match(own_extras, line)]


def _from_pyproject(path: str, text: str, reading: Reading) -> Wanted:
    document = parse_toml(path, text)
    project_name = canonicalize_name(str(table_of(document, "project").get("name", "")))
    entries = ((entry.keys, entry.value) for entry in in_other_arrays(document))
    arrays = (
        (keys[:-1], line)
        for keys, value in (*requirement_arrays(document), *entries)
        for line in reading.clean(path, [value])
    )
    lines = grouped((keys, line) for keys, line in arrays if name_of(line) != project_name)
    constraints, overrides = lines.pop(_UV_CONSTRAINTS, ()), lines.pop(_UV_OVERRIDES, ())
    lines.pop(_OF_BUILDS, None)  # they bind only what a build takes anyway
    requirements = (line for array in lines.values() for line in array)
    poetry = _from_tables(path, document, poetry_entries(document), reading)
    return Wanted((*requirements, *poetry), constraints, overrides)


def _from_tables(
    path: str, document: Mapping[str, Any], entries: Iterator[TableEntry], reading: Reading
) -> Iterator[str]:
    """Yield one line per entry, with its condition as a marker (PEP 508)."""

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
    """Return an entry's condition as a marker; empty if it always holds, or the condition can't be read."""
    parts = [f"({table['markers']})"] if isinstance(table.get("markers"), str) else []
    if isinstance(table.get("platform"), str) and '"' not in table["platform"]:
        parts.append(f'sys_platform == "{table["platform"]}"')
    pythons = alternatives(table["python"]) if isinstance(table.get("python"), str) else None
    clauses = [
        " and ".join(
            f'python_full_version {clause.operator} "{clause.version}"' for clause in alternative
        )
        for alternative in pythons or ()
    ]
    if clauses and all(clauses):
        parts.append(" or ".join(f"({clause})" for clause in clauses))
    return " and ".join(f"({part})" for part in parts)
