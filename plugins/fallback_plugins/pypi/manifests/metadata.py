"""Project metadata, read from a project's own files without running its build.

Programs and their tests read their own version and plugins when they run (``importlib.metadata``); some
import a file that only a build writes. Building the project would run its code outside the sandbox, but its
manifests state enough to write the records that installers write (core metadata, entry points
specification).

A setup.py is parsed, never run. Its call of ``setup()`` is read as far as it consists of literals: texts,
lists and tables, names with one such value, and entries added to a table before it is passed
(``setup(**about)``). Computed values are left out.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.pyproject import parse_toml, table_of, texts
from fallback_plugins.shared.identity import texts as shown
from fallback_tier.errors import RecipeError

#: Files in which a project states its name, version, entry points and dependencies.
METADATA_FILES = ("pyproject.toml", "setup.cfg", "setup.py")

#: Version of a project that computes its version, if no tag states it: older than every release.
_DYNAMIC_VERSION = "0"

_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[\w.!+-]+")
_TAGGED = re.compile(r"(\d+(?:\.\d+)+\w*)$")
_PROGRAM_NAME = re.compile(r"\w[\w.-]*")
_TARGET = re.compile(r"\s*(?P<module>[\w.]+)\s*:\s*(?P<first>\w+)(?P<rest>[\w.]*)\s*(?:\[.*\])?\s*")
_SCRIPTS = {"scripts": "console_scripts", "gui-scripts": "gui_scripts"}

#: Settings that name the file to which build tools write the computed version (setuptools-scm, hatch-vcs).
_VERSION_FILES = (
    ("setuptools_scm", "version_file"),
    ("setuptools_scm", "write_to"),
    ("hatch", "build", "hooks", "vcs", "version-file"),
)

#: A short form of the module that setuptools-scm writes.
_VERSION_MODULE = (
    "__version__ = version = {version!r}\n__version_tuple__ = version_tuple = {parts!r}\n"
)


#: A program as an installer writes it for a relocatable environment: a shell starts it, and Python reads
#: its first line as two adjacent string literals.
_PROGRAM = """\
#!/bin/sh
"exec" "${{0%/*}}/python" "$0" "$@"
from {module} import {first}
raise SystemExit({first}{rest}())
"""


@dataclass(frozen=True)
class Stated:
    """Metadata that one file states about its project. ``points``: entry points, group → lines
    ``name = target``; ``hides_its_name``: it has a name that can't be read."""

    name: object = None
    version: object = None
    python: object = None
    points: Mapping[str, list[str]] = field(default_factory=dict)
    requires: Sequence[str] = ()
    tests_require: Sequence[str] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    classifiers: object = ()
    hides_its_name: bool = False


def in_pyproject(text: str) -> Iterator[Stated]:
    """Yield the metadata of ``[project]``, of Poetry's table and flit's. Raises RecipeError: not TOML."""
    document = parse_toml("pyproject.toml", text)
    project = table_of(document, "project")
    yield Stated(
        project.get("name"),
        project.get("version"),
        project.get("requires-python"),
        _points_of(project, "entry-points"),
        requires=texts(project.get("dependencies")),
        extras=table_of(project, "optional-dependencies"),
        links=shown(*table_of(project, "urls").values()),
        classifiers=project.get("classifiers"),
    )
    poetry = table_of(document, "tool", "poetry")
    poetry_dependencies = table_of(poetry, "dependencies")
    pages = (poetry.get(page) for page in ("repository", "homepage", "documentation"))
    yield Stated(
        poetry.get("name"),
        poetry.get("version"),
        poetry_dependencies.get("python"),
        _points_of(poetry, "plugins"),
        requires=[name for name, spec in poetry_dependencies.items() if isinstance(spec, str)],
        links=shown(*pages, *table_of(poetry, "urls").values()),
        classifiers=poetry.get("classifiers"),
    )
    flit = table_of(document, "tool", "flit", "metadata")
    name, page = flit.get("dist-name") or flit.get("module"), flit.get("home-page")
    yield Stated(name, python=flit.get("requires-python"), links=shown(page))


def in_setup_cfg(text: str) -> Stated:
    """Return setup.cfg's metadata, as far as it can be read."""
    parser = read(text)
    if parser is None:
        return Stated(hides_its_name=True)
    metadata, options = dict(items(parser, "metadata")), dict(items(parser, "options"))
    version = metadata.get("version", "")
    pages = (line.partition("=")[2].strip() for line in lines(metadata.get("project_urls")))
    extras = items(parser, "options.extras_require")
    return Stated(
        metadata.get("name"),
        None if version.startswith(("attr:", "file:")) else version,
        options.get("python_requires"),
        {group: lines(value) for group, value in items(parser, "options.entry_points")},
        requires=requirements(options.get("install_requires")),
        tests_require=lines(options.get("tests_require")),
        extras={name: requirements(value) for name, value in extras},
        links=shown(*map(metadata.get, ("url", "home_page", "home-page")), *pages),
        classifiers=lines(metadata.get("classifiers", metadata.get("classifier"))),
    )


def in_setup_py(text: str) -> Stated:
    """Return what setup.py passes to ``setup()``, as far as it is written out."""
    call = setup_call(text)
    keywords = call.keywords
    tables = {
        key: value if isinstance(value := keywords.get(key), dict) else {}
        for key in ("entry_points", "extras_require", "project_urls")
    }
    return Stated(
        keywords.get("name"),
        keywords.get("version"),
        keywords.get("python_requires"),
        {group: texts(points) for group, points in tables["entry_points"].items()},
        requires=texts(keywords.get("install_requires")),
        tests_require=texts(keywords.get("tests_require")),
        extras=tables["extras_require"],
        links=shown(keywords.get("url"), *tables["project_urls"].values()),
        classifiers=keywords.get("classifiers"),
        hides_its_name=call.hides_its_name,
    )


def own_name(manifests: Mapping[str, str]) -> str:
    """Return a project's own name; empty if it can't be read."""
    return str(_own(manifests).name or "")


def own_metadata(manifests: Mapping[str, str], tag: str = "") -> dict[str, str]:
    """Return files of ``NAME-VERSION.dist-info`` by relative path; none if the project has no name.

    ``manifests``: texts of pyproject.toml, setup.cfg and setup.py, by these names; ``tag``: the newest tag,
    which gives the version of a project that computes it.
    """
    stated, name = _own(manifests), own_name(manifests)
    if not name:
        return {}
    version = stated.version
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        version = version_of(tag)
    folder = f"{canonicalize_name(name).replace('-', '_')}-{version}.dist-info"
    points = "\n".join(
        line
        for group, entries in stated.points.items()
        if entries
        for line in (f"[{group}]", *entries, "")
    )
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/entry_points.txt": points,
    }


def own_scripts(manifests: Mapping[str, str]) -> dict[str, str]:
    """Return the project's own programs by name, to be installed next to an environment's Python, since its
    tests call them.

    An invalid program name, and a target that is not a module's function, is left out. ``manifests``: as
    for ``own_metadata``.
    """
    stated = _own(manifests)
    scripts = {}
    for line in (line for group in _SCRIPTS.values() for line in stated.points.get(group, ())):
        name, _, target = (part.strip() for part in line.partition("="))
        function = _TARGET.fullmatch(target)
        if function is not None and _PROGRAM_NAME.fullmatch(name):
            scripts[name] = _PROGRAM.format(**function.groupdict())
    return scripts


def asked_python(manifests: Mapping[str, str]) -> str:
    """Return the Pythons that a project requires (``>=3.8``), in PEP 440's or Poetry's notation; empty if
    it states none."""
    python = _own(manifests).python
    return python if isinstance(python, str) else ""


def has_dynamic_version(manifests: Mapping[str, str]) -> bool:
    """Return whether the project's version is computed when it is built."""
    return any(f"-{_DYNAMIC_VERSION}.dist-info/" in path for path in own_metadata(manifests))


def version_files(manifests: Mapping[str, str], tag: str = "") -> dict[str, str]:
    """Return modules that a build would write the version to, by path in the project."""
    tool = table_of(parse_toml("pyproject.toml", manifests.get("pyproject.toml", "")), "tool")
    paths = [table_of(tool, *keys[:-1]).get(keys[-1]) for keys in _VERSION_FILES]
    scm = setup_call(manifests.get("setup.py", "")).keywords.get("use_scm_version")
    paths += [scm.get(key) for key in ("version_file", "write_to")] if isinstance(scm, dict) else []
    version = version_of(tag)
    parts = tuple(int(part) if part.isdigit() else part for part in version.split("."))
    text = _VERSION_MODULE.format(version=version, parts=parts)
    return {path: text for path in texts(paths) if path.endswith(".py")}


def version_of(tag: str) -> str:
    """Return the version in a tag (``v2.3.0``, ``lib-2.3.0``)."""
    match = _TAGGED.search(tag)
    return match[1] if match else _DYNAMIC_VERSION


def _own(manifests: Mapping[str, str]) -> Stated:
    """Return the metadata of the first file that names the project, with setup.py and setup.cfg as one;
    empty metadata if none names it."""
    with_name = (stated for stated in _stated(manifests) if isinstance(stated.name, str))
    return next(
        (stated for stated in with_name if _PROJECT_NAME.fullmatch(str(stated.name))), Stated()
    )


def _stated(manifests: Mapping[str, str]) -> Iterator[Stated]:
    with suppress(RecipeError):
        yield from in_pyproject(manifests.get("pyproject.toml", ""))
    script = in_setup_py(manifests.get("setup.py", ""))
    config = in_setup_cfg(manifests.get("setup.cfg", ""))
    points = {**config.points, **script.points}
    yield Stated(
        script.name or config.name,
        script.version or config.version,
        script.python or config.python,
        {group: [line for line in entries if "=" in line] for group, entries in points.items()},
    )


def _points_of(table: Mapping[str, Any], plugins: str) -> dict[str, list[str]]:
    scripts = {group: table.get(key) for key, group in _SCRIPTS.items()}
    groups = {**scripts, **table_of(table, plugins)}
    return {
        group: [f"{name} = {target}" for name, target in targets.items() if isinstance(target, str)]
        for group, targets in groups.items()
        if isinstance(targets, dict)
    }


#: Errors raised for text that is not valid Python for this interpreter.
UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)

#: Names followed from one to the next; real scripts have no longer chains.
_MAX_HOPS = 5

#: Limit (characters): a longer text was not written by a person as a setup script.
MAX_SETUP_CHARS = 200_000

#: Scripts whose parsed calls are cached, by their texts: a project has one at each of the two commits.
_CACHED_CALLS = 16

#: The keywords by which a project requires packages.
REQUIRES = ("install_requires", "extras_require")

#: Functions that only combine lists.
_GATHERS = frozenset(
    {"sum", "list", "set", "sorted", "tuple", "frozenset", "itertools", "chain", "from_iterable"}
    | {"values", "items", "keys", "union", "copy"}
)
_GATHERING = (
    ast.Call
    | ast.Name
    | ast.Tuple
    | ast.Attribute
    | ast.Subscript
    | ast.Starred
    | ast.expr_context
    | ast.ListComp
    | ast.SetComp
    | ast.GeneratorExp
    | ast.comprehension
    | ast.Compare
    | ast.cmpop
)
_CHOOSES = ast.Compare | ast.Subscript

#: Key of a table that has entries which can't be read (``{**made()}``).
_HIDDEN = "**"

#: Methods that change a list or table in place; such a value is unknown.
_CHANGES = frozenset({"append", "extend", "insert", "update"})
_UNKNOWN = ast.Constant(value=None)

#: Limit of one concatenated text, a name or an address (characters).
_MAX_TEXT_CHARS = 1_000


@dataclass(frozen=True)
class SetupCall:
    """Keywords of a ``setup()`` call. ``hides_its_name``: it has a name that can't be read.
    ``is_whole``: each keyword is in the text. Requirements are left out if the script's calls differ in
    them."""

    keywords: Mapping[str, Any] = field(default_factory=dict)
    hides_its_name: bool = False
    is_whole: bool = True

    @property
    def required(self) -> tuple[Any, Any]:
        """Its ``install_requires`` and ``extras_require``; None if missing or not readable."""
        return self.keywords.get(REQUIRES[0]), self.keywords.get(REQUIRES[1])


def setup_call(text: str) -> SetupCall:
    """Return the outermost call of ``setup`` that has a name, otherwise the outermost one; empty if there
    is none.

    Text that is not valid Python for this interpreter hides its name.
    """
    with suppress(*UNPARSED):
        if len(text) <= MAX_SETUP_CHARS:
            return _call_in(text)
    return SetupCall(hides_its_name=True, is_whole=False)


def only_defines(text: str) -> bool:
    """Return whether a file builds nothing if it runs: a package's module that is called setup.py.

    It only imports, defines and assigns, and imports neither setuptools nor distutils nor a ``setup``.
    """
    try:
        tree = ast.parse(text)
    except UNPARSED:
        return False
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            imported.append(node.module or "")
    builders = {"setup", "setuptools", "distutils"}
    return all(map(_only_defines, tree.body)) and builders.isdisjoint(
        name.split(".")[0] for name in imported
    )


def _only_defines(node: ast.stmt) -> bool:
    """Return whether a statement imports, defines, is a text, is for type checkers, or assigns what is not
    a call."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef():
            return True
        case ast.Expr(value=ast.Constant()) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Assign() | ast.AnnAssign():
            return not any(isinstance(child, ast.Call) for child in ast.walk(node))
    return False


@lru_cache(maxsize=_CACHED_CALLS)
def _call_in(text: str) -> SetupCall:
    """Return what ``setup_call`` returns, cached. Errors are not cached: the recursion limit that a text
    hits depends on the caller's stack depth."""
    tree = ast.parse(text)
    known_values = _assigned(tree)
    calls = [
        _read(node, known_values)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.keywords and _called(node) == "setup"
    ]
    with_name = (call for call in calls if call.hides_its_name or "name" in call.keywords)
    chosen = next(with_name, calls[0] if calls else SetupCall())
    whole = all(call.is_whole for call in calls)
    agree = all(call.required == chosen.required for call in calls)
    keywords = {
        keyword: value
        for keyword, value in chosen.keywords.items()
        if agree or keyword not in REQUIRES
    }
    return replace(chosen, keywords=keywords, is_whole=whole)


def _called(call: ast.Call) -> str:
    """Return the last part of the called name; empty if there is no name."""
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def _read(call: ast.Call, known_values: Mapping[str, Any]) -> SetupCall:
    values: dict[str, Any] = {}
    hides = False
    for keyword in call.keywords:
        value = _value(keyword.value, known_values)
        if keyword.arg is not None:
            values[keyword.arg] = value
            hides = hides or (keyword.arg == "name" and not isinstance(value, str))
        elif isinstance(value, dict):
            values = {**value, **values}
        else:
            hides = True
    is_whole = not hides and _HIDDEN not in values
    values |= {keyword: _lines(values[keyword]) for keyword in REQUIRES if keyword in values}
    readable = {name: value for name, value in values.items() if value is not None}
    hides = ("name" not in readable) and (not is_whole or "name" in values)
    return SetupCall(readable, hides, is_whole)


def _lines(value: Any) -> Any:
    """Return requirements as lists: setuptools also takes a text of several lines."""
    if isinstance(value, dict):
        return {extra: _lines(inner) for extra, inner in value.items()}
    return value.splitlines() if isinstance(value, str) else value


def _assigned(tree: ast.Module) -> dict[str, Any]:
    """Return the one value that each name is assigned; None for a name with several values."""
    assigned: dict[str, list[ast.expr]] = {}
    entries_by_name: dict[str, list[tuple[str, ast.expr]]] = {}
    for node in ast.walk(tree):
        for name, value in _assignments(node):
            assigned.setdefault(name, []).append(value)
        for name, key, value in _entries(node):
            entries_by_name.setdefault(name, []).append((key, value))
    rebound = {
        name for name, number in _bound(tree).items() if number > len(assigned.get(name, ()))
    }
    known_values: dict[str, Any] = {}
    for _ in range(_MAX_HOPS):
        before, known_values = known_values, {}
        for name, values in assigned.items():
            if name not in rebound:  # the same value each time, as in the branches of an ``if``
                first, *others = (_value(value, before) for value in values)
                known_values[name] = first if all(other == first for other in others) else None
    for name, values in _added(tree):
        current, added = known_values.get(name), [_value(value, known_values) for value in values]
        is_whole = isinstance(current, list) and all(
            isinstance(value, str | list) for value in added
        )
        # Entries that are added under a condition may be in the list, so they count.
        flat = [
            entry for value in added for entry in (value if isinstance(value, list) else [value])
        ]
        known_values[name] = [*chain(current or (), flat)] if is_whole else None
    for name, entries in entries_by_name.items():
        for entry in entries:
            table = known_values.get(name)
            if isinstance(table, dict):
                added_table = _table([entry], known_values)
                # A list that is replaced under a condition may remain, so both lists count.
                before = {key: _lines(table.get(key)) for key in added_table}
                merged = [
                    key for key in added_table if isinstance(added_table[key], list) and before[key]
                ]
                known_values[name] = (
                    table
                    | added_table
                    | {key: _flat([before[key], added_table[key]]) for key in merged}
                )
    return known_values


def _bound(tree: ast.Module) -> Counter[str]:
    """Count how often each name is bound, also by imports and loops, but not additions to a list."""
    added = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    stored = (
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in added
    )
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    return Counter((*stored, *(alias.asname or alias.name for alias in imports)))


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.For(target=target, iter=value):
            # The loop variable may be any element: its value is the whole iterable.
            yield from (
                (child.id, value) for child in ast.walk(target) if isinstance(child, ast.Name)
            )


def _added(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield what is added to a named list: ``needs += […]``, ``needs.append(…)``."""
    for node in ast.walk(tree):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                yield name, [value]
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "insert"),
                args=values,
            ):
                yield name, values[-1:]


def _entries(node: ast.AST) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield (name, key, value) for ``about["name"] = …`` and ``about.update(name=…)``. The value is unknown
    if it is changed in place or its key is computed."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=key)], value=value):
            yield name, _key(key), value if _key(key) != _HIDDEN else _UNKNOWN
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name), slice=key)):
            yield name, _key(key), _UNKNOWN
        case ast.Call(
            func=ast.Attribute(value=ast.Subscript(value=ast.Name(id=name), slice=key), attr=attr)
        ) if attr in _CHANGES:
            yield name, _key(key), _UNKNOWN
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="setdefault")):
            yield name, _HIDDEN, _UNKNOWN
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="update"),
            args=tables,
            keywords=keywords,
        ):
            yield from ((name, _HIDDEN, table) for table in tables)
            yield from ((name, keyword.arg or _HIDDEN, keyword.value) for keyword in keywords)


def _value(node: ast.expr, known_values: Mapping[str, Any]) -> Any:
    """Return a text, or a list or table of texts; None if it is computed."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return known_values.get(name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)):
            table = known_values.get(name)
            return table.get(key) if isinstance(table, dict) else None
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_value(left, known_values), _value(right, known_values)]
            lists = [part for part in parts if isinstance(part, list)]
            return [*chain.from_iterable(lists)] if len(lists) == len(parts) else _joined(parts)
        case ast.JoinedStr(values=parts):
            return _joined([_value(part, known_values) for part in parts])
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _value(value, known_values)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [value for element in elements for value in _elements(element, known_values)]
        case ast.Dict(keys=keys, values=values):
            return _table(zip(map(_key, keys), values, strict=True), known_values)
        case ast.Call(func=ast.Name(id="dict"), args=copied, keywords=keywords):
            entries = [(keyword.arg or _HIDDEN, keyword.value) for keyword in keywords]
            return _table([*((_HIDDEN, table) for table in copied), *entries], known_values)
        case ast.Call(func=ast.Name(id=name), args=[ast.Set() | ast.List() as inner]) if (
            name in _GATHERS
        ):
            return _value(inner, known_values)
        case _:
            return _gathered(node, known_values)


def _elements(node: ast.expr, known_values: Mapping[str, Any]) -> list[Any]:
    value = _value(node.value if isinstance(node, ast.Starred) else node, known_values)
    return value if isinstance(node, ast.Starred) and isinstance(value, list) else [value]


def _gathered(node: ast.expr, known_values: Mapping[str, Any]) -> list[str] | None:
    """Return the texts of the lists that an expression combines (``sum(extras.values(), [])``), or a
    superset; None if the expression may do anything else."""
    index_constants = {
        id(child)
        for chooser in ast.walk(node)
        if isinstance(chooser, _CHOOSES)
        for child in ast.walk(chooser)
    }
    nodes = [
        child
        for child in ast.walk(node)
        if not (isinstance(child, ast.List) and not child.elts)
        and not (isinstance(child, ast.Constant) and id(child) in index_constants)
    ]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    loops = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    used = {name.id for name in names} - loops - _GATHERS
    called = {_called(node) for node in nodes if isinstance(node, ast.Call)}
    values = _flat([known_values.get(name) for name in used])
    is_read = called <= _GATHERS and all(isinstance(node, _GATHERING) for node in nodes)
    return values if used and is_read and None not in values else None


def _flat(values: Iterable[Any]) -> list[Any]:
    """Return the texts in lists and tables, with None for each value that can't be read."""
    flat: list[Any] = []
    for value in values:
        inner = value.values() if isinstance(value, dict) else _lines(value)
        flat += _flat(inner) if isinstance(value, dict) else inner if inner is not None else [None]
    return flat


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
    return _HIDDEN


def _table(
    pairs: Iterable[tuple[str, ast.expr]], known_values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a table, merged with readable tables that it copies (``{**about}``, ``dict(about)``)."""
    table: dict[str, Any] = {}
    for key, node in pairs:
        value = _value(node, known_values)
        is_copied = key == _HIDDEN and isinstance(value, dict)
        table |= value if is_copied else {key: None if key == _HIDDEN else value}
    return table


def _joined(parts: list[Any]) -> str | None:
    """Return the texts concatenated; None if one is not a text, or the result is too long for a name or an
    address."""
    if not all(isinstance(part, str) for part in parts):
        return None
    return "".join(parts) if sum(map(len, parts)) <= _MAX_TEXT_CHARS else None


#: Parsed files that are cached, by their texts: a project has two or three at each of the two commits.
_FILES = 16


@lru_cache(maxsize=_FILES)
def read(text: str) -> ConfigParser | None:
    """Return the parsed file, without interpolation; None if it can't be read. All callers share the cached
    parser, so they must not change it."""
    parser = ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text.removeprefix("\ufeff"))
    except (ConfigParserError, AttributeError):  # a key without a value, and lines below it
        return None
    return parser


def parsed(text: str) -> ConfigParser:
    """Return the file's sections; none if it can't be read."""
    return read(text) or ConfigParser()


def items(parser: ConfigParser, section: str) -> Iterator[tuple[str, str]]:
    """Yield a section's keys and values; none if there is no such section."""
    for key, value in parser.items(section) if parser.has_section(section) else ():
        yield key, value or ""


def requirements(value: str | None) -> list[str]:
    """Return a value's requirements; none if it names files that have them."""
    return [] if (value or "").lstrip().startswith("file:") else lines(value)


def lines(value: str | None) -> list[str]:
    """Return a value's lines that are not blank."""
    return [line.strip() for line in (value or "").splitlines() if line.strip()]
