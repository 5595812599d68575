"""A project's metadata in its own files, read without running its build.

Programs ask for their own version and plugins (``importlib.metadata``), and their tests with them; some
import a file that only a build writes. Building the project would run its code outside the sandbox; what
its manifests say is enough to write the records that installers write (core metadata, entry points
specification).

A setup.py is parsed, never run. Its call of ``setup()`` is read as far as it is written out: texts, lists
and tables, names with one such value, and what is put into a table before it is passed
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

#: Where a version is computed at build time and no tag tells it: older than every release.
_DYNAMIC_VERSION = "0"

_PROJECT_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"[\w.!+-]+")
_TAGGED = re.compile(r"(\d+(?:\.\d+)+\w*)$")
_PROGRAM_NAME = re.compile(r"\w[\w.-]*")
_TARGET = re.compile(r"\s*(?P<module>[\w.]+)\s*:\s*(?P<first>\w+)(?P<rest>[\w.]*)\s*(?:\[.*\])?\s*")
_SCRIPTS = {"scripts": "console_scripts", "gui-scripts": "gui_scripts"}

#: Where build tools are told to write the version that they compute (setuptools-scm, hatch-vcs).
_VERSION_FILES = (
    ("setuptools_scm", "version_file"),
    ("setuptools_scm", "write_to"),
    ("hatch", "build", "hooks", "vcs", "version-file"),
)

#: What setuptools-scm writes, in short.
_VERSION_MODULE = (
    "__version__ = version = {version!r}\n__version_tuple__ = version_tuple = {parts!r}\n"
)


#: A program as an installer writes it, for an environment that may be moved: a shell starts it, and its
#: first line is two texts side by side to Python.
_PROGRAM = """\
#!/bin/sh
"exec" "${{0%/*}}/python" "$0" "$@"
from {module} import {first}
raise SystemExit({first}{rest}())
"""


@dataclass(frozen=True)
class Stated:
    """What one file says of its project. ``points``: entry points, group → lines ``name = target``;
    ``hides_its_name``: it has a name, and nobody can read it here."""

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
    asked = table_of(poetry, "dependencies")
    pages = (poetry.get(page) for page in ("repository", "homepage", "documentation"))
    yield Stated(
        poetry.get("name"),
        poetry.get("version"),
        asked.get("python"),
        _points_of(poetry, "plugins"),
        requires=[name for name, spec in asked.items() if isinstance(spec, str)],
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
    """Files of ``NAME-VERSION.dist-info`` by relative path; none where the project has no name.

    ``manifests``: texts of pyproject.toml, setup.cfg and setup.py, by these names; ``tag``: the newest tag,
    which tells a version that is computed.
    """
    own, name = _own(manifests), own_name(manifests)
    if not name:
        return {}
    version = own.version
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        version = version_of(tag)
    folder = f"{canonicalize_name(name).replace('-', '_')}-{version}.dist-info"
    points = "\n".join(
        line for group, found in own.points.items() if found for line in (f"[{group}]", *found, "")
    )
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/entry_points.txt": points,
    }


def own_scripts(manifests: Mapping[str, str]) -> dict[str, str]:
    """The project's own programs by name, to lie beside an environment's Python: its tests call them.

    What is no plain name, or no function of a module, is left out. ``manifests``: as ``own_metadata``.
    """
    own = _own(manifests)
    found = {}
    for line in (line for group in _SCRIPTS.values() for line in own.points.get(group, ())):
        name, _, target = (part.strip() for part in line.partition("="))
        function = _TARGET.fullmatch(target)
        if function is not None and _PROGRAM_NAME.fullmatch(name):
            found[name] = _PROGRAM.format(**function.groupdict())
    return found


def asked_python(manifests: Mapping[str, str]) -> str:
    """The Pythons that it asks for (``>=3.8``), as PEP 440 or Poetry writes it; empty: it says none."""
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
    found = _TAGGED.search(tag)
    return found[1] if found else _DYNAMIC_VERSION


def _own(manifests: Mapping[str, str]) -> Stated:
    """What the first file that names the project says, setup.py and setup.cfg together; nothing, if none
    names it."""
    named = (one for one in _stated(manifests) if isinstance(one.name, str))
    return next((one for one in named if _PROJECT_NAME.fullmatch(str(one.name))), Stated())


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
        {group: [line for line in found if "=" in line] for group, found in points.items()},
    )


def _points_of(table: Mapping[str, Any], plugins: str) -> dict[str, list[str]]:
    scripts = {group: table.get(key) for key, group in _SCRIPTS.items()}
    groups = {**scripts, **table_of(table, plugins)}
    return {
        group: [f"{name} = {target}" for name, target in found.items() if isinstance(target, str)]
        for group, found in groups.items()
        if isinstance(found, dict)
    }


#: What text that is not today's Python raises.
_UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)

#: Names followed from one to the next: nobody writes longer chains.
_MAX_HOPS = 5

#: Longer, and it is no setup script that a person wrote (characters).
_MAX_CHARS = 200_000

#: Scripts whose calls are kept, by their texts: a project has one, at either commit.
_CACHED_CALLS = 16

#: The keywords by which a project requires packages.
REQUIRES = ("install_requires", "extras_require")

#: Functions that only put lists together.
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

#: In a table, that it has entries which can't be read (``{**made()}``).
_HIDDEN = "**"

#: Methods that change a list in place, and a value that can't be read.
_CHANGES = frozenset({"append", "extend", "insert", "update"})
_UNKNOWN = ast.Constant(value=None)

#: Of one text that is put together: a name or an address (characters).
_MAX_TEXT_CHARS = 1_000


@dataclass(frozen=True)
class SetupCall:
    """The keywords of the call. ``hides_its_name``: it has a name, which can't be read here. ``is_whole``:
    each keyword is in the text. What another call of the script requires otherwise is left out."""

    keywords: Mapping[str, Any] = field(default_factory=dict)
    hides_its_name: bool = False
    is_whole: bool = True

    @property
    def required(self) -> tuple[Any, Any]:
        """What it requires, and with its extras; None: nothing that can be read."""
        return self.keywords.get(REQUIRES[0]), self.keywords.get(REQUIRES[1])


def setup_call(text: str) -> SetupCall:
    """The outermost call of ``setup`` that has a name, otherwise the outermost one; empty if there is none.

    Text that is not today's Python hides its name.
    """
    with suppress(*_UNPARSED):
        if len(text) <= _MAX_CHARS:
            return _call_in(text)
    return SetupCall(hides_its_name=True, is_whole=False)


def only_defines(text: str) -> bool:
    """Return whether a file builds nothing if it runs: a package's module that is called setup.py.

    It only imports, defines and assigns, and imports neither setuptools nor distutils nor a ``setup``.
    """
    try:
        tree = ast.parse(text)
    except _UNPARSED:
        return False
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported += [it.name for it in node.names]
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
            return not any(isinstance(it, ast.Call) for it in ast.walk(node))
    return False


@lru_cache(maxsize=_CACHED_CALLS)
def _call_in(text: str) -> SetupCall:
    """The same, read once. What is raised is not kept: how deep may be read depends on who asks."""
    tree = ast.parse(text)
    known = _assigned(tree)
    calls = [
        _read(node, known)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.keywords and _called(node) == "setup"
    ]
    named = (call for call in calls if call.hides_its_name or "name" in call.keywords)
    chosen = next(named, calls[0] if calls else SetupCall())
    whole = all(call.is_whole for call in calls)
    agree = all(call.required == chosen.required for call in calls)
    left = {it: value for it, value in chosen.keywords.items() if agree or it not in REQUIRES}
    return replace(chosen, keywords=left, is_whole=whole)


def _called(call: ast.Call) -> str:
    """The last part of the name of what is called; empty if it has none."""
    return getattr(call.func, "id", "") or getattr(call.func, "attr", "")


def _read(call: ast.Call, known: Mapping[str, Any]) -> SetupCall:
    found: dict[str, Any] = {}
    hides = False
    for keyword in call.keywords:
        value = _value(keyword.value, known)
        if keyword.arg is not None:
            found[keyword.arg] = value
            hides = hides or (keyword.arg == "name" and not isinstance(value, str))
        elif isinstance(value, dict):
            found = {**value, **found}
        else:
            hides = True
    is_whole = not hides and _HIDDEN not in found
    found |= {word: _lines(found[word]) for word in REQUIRES if word in found}
    reported = {name: value for name, value in found.items() if value is not None}
    hides = ("name" not in reported) and (not is_whole or "name" in found)
    return SetupCall(reported, hides, is_whole)


def _lines(value: Any) -> Any:
    """Requirements as lists: setuptools takes a text of several lines as well."""
    if isinstance(value, dict):
        return {extra: _lines(one) for extra, one in value.items()}
    return value.splitlines() if isinstance(value, str) else value


def _assigned(tree: ast.Module) -> dict[str, Any]:
    """Name → the one value that it is given; a name that is given several has none."""
    given: dict[str, list[ast.expr]] = {}
    put: dict[str, list[tuple[str, ast.expr]]] = {}
    for node in ast.walk(tree):
        for name, value in _assignments(node):
            given.setdefault(name, []).append(value)
        for name, key, value in _entries(node):
            put.setdefault(name, []).append((key, value))
    otherwise = {name for name, number in _bound(tree).items() if number > len(given.get(name, ()))}
    known: dict[str, Any] = {}
    for _ in range(_MAX_HOPS):
        before, known = known, {}
        for name, values in given.items():
            if name not in otherwise:  # the same in every place, as in the branches of an ``if``
                first, *others = (_value(value, before) for value in values)
                known[name] = first if all(other == first for other in others) else None
    for name, values in _added(tree):
        listed, more = known.get(name), [_value(value, known) for value in values]
        whole = isinstance(listed, list) and all(isinstance(it, str | list) for it in more)
        # What is added under a condition may be there.
        flat = [one for it in more for one in (it if isinstance(it, list) else [it])]
        known[name] = [*chain(listed or (), flat)] if whole else None
    for name, entries in put.items():
        for entry in entries:
            table = known.get(name)
            if isinstance(table, dict):
                made = _table([entry], known)
                # What is put in the place of a list under a condition may not be there.
                before = {key: _lines(table.get(key)) for key in made}
                both = [it for it in made if isinstance(made[it], list) and before[it]]
                known[name] = table | made | {it: _flat([before[it], made[it]]) for it in both}
    return known


def _bound(tree: ast.Module) -> Counter[str]:
    """How often each name is given a value, by an import or a loop too; not what is added to a list."""
    added = {id(node.target) for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}
    stored = (
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in added
    )
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    return Counter((*stored, *(it.asname or it.name for it in imports)))


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.For(target=target, iter=value):
            # Each is taken for all that it may be.
            yield from ((it.id, value) for it in ast.walk(target) if isinstance(it, ast.Name))


def _added(tree: ast.Module) -> Iterator[tuple[str, list[ast.expr]]]:
    """What is added to a list of a name: ``needs += […]``, ``needs.append(…)``."""
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
    """``about["name"] = …`` and ``about.update(name=…)``; unknown: what is changed in place, or has a
    computed key."""
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
            func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=more, keywords=words
        ):
            yield from ((name, _HIDDEN, one) for one in more)
            yield from ((name, word.arg or _HIDDEN, word.value) for word in words)


def _value(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """A text, a list or a table of texts; None where it is computed."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)):
            table = known.get(name)
            return table.get(key) if isinstance(table, dict) else None
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            parts = [_value(left, known), _value(right, known)]
            lists = [it for it in parts if isinstance(it, list)]
            return [*chain.from_iterable(lists)] if len(lists) == len(parts) else _joined(parts)
        case ast.JoinedStr(values=parts):
            return _joined([_value(part, known) for part in parts])
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _value(value, known)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [one for element in elements for one in _elements(element, known)]
        case ast.Dict(keys=keys, values=values):
            return _table(zip(map(_key, keys), values, strict=True), known)
        case ast.Call(func=ast.Name(id="dict"), args=copied, keywords=keywords):
            named = [(one.arg or _HIDDEN, one.value) for one in keywords]
            return _table([*((_HIDDEN, one) for one in copied), *named], known)
        case ast.Call(func=ast.Name(id=name), args=[ast.Set() | ast.List() as inner]) if (
            name in _GATHERS
        ):
            return _value(inner, known)
        case _:
            return _gathered(node, known)


def _elements(node: ast.expr, known: Mapping[str, Any]) -> list[Any]:
    value = _value(node.value if isinstance(node, ast.Starred) else node, known)
    return value if isinstance(node, ast.Starred) and isinstance(value, list) else [value]


def _gathered(node: ast.expr, known: Mapping[str, Any]) -> list[str] | None:
    """The texts of the lists that an expression puts together (``sum(extras.values(), [])``), or of more;
    None if it may do anything else."""
    plain = {id(it) for at in ast.walk(node) if isinstance(at, _CHOOSES) for it in ast.walk(at)}
    nodes = [
        it
        for it in ast.walk(node)
        if not (isinstance(it, ast.List) and not it.elts)
        and not (isinstance(it, ast.Constant) and id(it) in plain)
    ]
    names = [it for it in nodes if isinstance(it, ast.Name)]
    loops = {it.id for it in names if isinstance(it.ctx, ast.Store)}
    used = {it.id for it in names} - loops - _GATHERS
    called = {_called(it) for it in nodes if isinstance(it, ast.Call)}
    found = _flat([known.get(name) for name in used])
    is_read = called <= _GATHERS and all(isinstance(it, _GATHERING) for it in nodes)
    return found if used and is_read and None not in found else None


def _flat(values: Iterable[Any]) -> list[Any]:
    """The texts in lists and tables; None for what can't be read of them."""
    found: list[Any] = []
    for value in values:
        inner = value.values() if isinstance(value, dict) else _lines(value)
        found += _flat(inner) if isinstance(value, dict) else inner if inner is not None else [None]
    return found


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
    return _HIDDEN


def _table(pairs: Iterable[tuple[str, ast.expr]], known: Mapping[str, Any]) -> dict[str, Any]:
    """A table with what other tables that can be read bring in (``{**about}``, ``dict(about)``)."""
    table: dict[str, Any] = {}
    for key, node in pairs:
        value = _value(node, known)
        is_copied = key == _HIDDEN and isinstance(value, dict)
        table |= value if is_copied else {key: None if key == _HIDDEN else value}
    return table


def _joined(parts: list[Any]) -> str | None:
    """Texts put together; None where one is no text, or the whole is longer than any name or address."""
    if not all(isinstance(part, str) for part in parts):
        return None
    return "".join(parts) if sum(map(len, parts)) <= _MAX_TEXT_CHARS else None


#: Files that are kept as they were read, by their texts: a project has two or three, at either commit.
_FILES = 16


@lru_cache(maxsize=_FILES)
def read(text: str) -> ConfigParser | None:
    """The file, without filling anything in; None where it can't be read. One for all who read the same
    text: nobody writes to it."""
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
