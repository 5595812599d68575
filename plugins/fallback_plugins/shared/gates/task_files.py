"""Task runners' files as data: YAML, JSON, TOML and INI within limits; what tox, nox, make and just run.

Files are untrusted: nothing is executed, and what can't be read, or exceeds a limit, is empty.
"""

import ast
import configparser
import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, product
from typing import Any

from fallback_plugins.shared.gates.expressions import (
    UNKNOWN,
    Scope,
    dig,
    items,
    mapping,
    text_of,
    truth,
)
from fallback_plugins.shared.gates.shell_commands import MAX_SCRIPT_CHARS
from fallback_tier.errors import RepositoryError
from fallback_tier.repo import RepoContext

#: Characters of one file that are read: CI files and task files of large projects have up to 200,000.
MAX_FILE_CHARS = 500_000

#: Nested lists and mappings of a YAML file: real CI files have up to 15.
MAX_YAML_DEPTH = 40

#: Characters of YAML that are read for a folder: the CI of large monorepos has about 1,000,000.
MAX_YAML_CHARS = 4_000_000

#: Values of a YAML file: the largest public workflows have about 10,000.
MAX_YAML_VALUES = 50_000

#: Uses of anchors in a YAML file: large CircleCI files have about 200.
MAX_YAML_ALIASES = 1_000

#: Characters of a line of a Makefile or justfile: longer ones are lists of files.
MAX_LINE_CHARS = 2_000

#: Targets that one rule of a Makefile makes, and targets that one needs.
MAX_TARGETS = 50

#: Tasks of one file: a large manifest has about 150 scripts.
MAX_TASKS = 500

#: Statements of a nox session that are followed: long ones have about 60, with their helpers.
MAX_NOX_STATEMENTS = 200

#: Environments that one line of tox may name by braces, such as ``py{310,311}-{a,b}``.
MAX_TOX_ENVS = 500


@dataclass(frozen=True)
class Task:
    """What a runner does for a name. ``folder``: relative to the runner's file."""

    name: str
    lines: tuple[str, ...]
    folder: str = "."
    env: Mapping[str, str] = field(default_factory=dict)


class Files:
    """A repository's files, parsed once."""

    def __init__(self, repo: RepoContext) -> None:
        self._repo, self._yaml_chars = repo, 0
        self._cache: dict[tuple[object, str], Any] = {}

    def text(self, path: str) -> str:
        """Return a file's text; empty if there is none, or none that is read."""
        if (key := ("text", path)) not in self._cache:
            try:
                text = self._repo.read_text(path) if self._repo.has(path) else ""
            except RepositoryError:
                text = ""
            self._cache[key] = text.removeprefix("\ufeff") if len(text) <= MAX_FILE_CHARS else ""
        return self._cache[key]  # type: ignore[no-any-return]

    def parsed(self, parse: Callable[[str], Any], path: str) -> Any:
        """Return what a function makes of a file's text."""
        if (key := (parse, path)) not in self._cache:
            self._cache[key] = parse(self.text(path))
        return self._cache[key]

    def json(self, path: str) -> Mapping[str, Any]:
        """Return a JSON object; empty if there is none."""
        return mapping(self.parsed(_loaded(json.loads), path))

    def toml(self, path: str) -> Mapping[str, Any]:
        """Return a TOML document; empty if there is none."""
        return mapping(self.parsed(_loaded(tomllib.loads), path))

    def ini(self, path: str) -> dict[str, dict[str, Any]]:
        """Return the sections of a file; none if there is none."""
        return self.parsed(ini_sections, path)  # type: ignore[no-any-return]

    def yaml(self, path: str) -> Any:
        """Return a YAML document whose scalars are texts; None if there is none, or it exceeds a limit."""
        if (parsed_yaml, path) not in self._cache:
            self._yaml_chars += len(self.text(path))
        return self.parsed(parsed_yaml, path) if self._yaml_chars <= MAX_YAML_CHARS else None


@lru_cache
def _loaded(load: Callable[[str], Any]) -> Callable[[str], Any]:
    def loaded(text: str) -> Any:
        try:
            return load(text) if text else {}
        except (ValueError, RecursionError):
            return {}

    return loaded


def ini_sections(text: str) -> dict[str, dict[str, Any]]:
    """Return the sections of an INI text; none if it can't be read."""
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except (
        configparser.Error,
        ValueError,
        AttributeError,
    ):  # a line continues a key without a value
        return {}
    return {name: dict(parser[name]) for name in parser.sections()}


def parsed_yaml(text: str) -> Any:
    """Return a document whose scalars are texts, with merge keys applied; None for anything else.

    It is measured before anything is made of it: depth, values, uses of anchors. Never raises.
    """
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    depth = values = aliases = 0
    try:
        for event in yaml.parse(text, Loader=loader) if len(text) <= MAX_FILE_CHARS else ():
            values += 1
            aliases += isinstance(event, yaml.AliasEvent)
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_YAML_DEPTH or values > MAX_YAML_VALUES or aliases > MAX_YAML_ALIASES:
                return None
        return _merged(yaml.load(text, Loader=loader), [MAX_YAML_VALUES]) if values else None  # noqa: S506 (makes only text, lists and dicts)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError):
        return None


def _merged(value: Any, left: list[int], depth: int = 0) -> Any:
    """Return a copy with ``<<`` applied, of so many values at most: aliases may multiply."""
    left[0] -= 1
    if left[0] < 0 or depth > 2 * MAX_YAML_DEPTH:
        raise ValueError
    if isinstance(value, list):
        return [_merged(one, left, depth + 1) for one in value]
    if not isinstance(value, dict):
        return value
    found: dict[Any, Any] = {}
    for base in items(value.get("<<")) or [value.get("<<")]:
        found = {**mapping(_merged(base, left, depth + 1)), **found}
    return found | {key: _merged(one, left, depth + 1) for key, one in value.items() if key != "<<"}


# -- tox ---------------------------------------------------------------------------------------------------

_FACTORS = re.compile(r"(?P<factors>[\w.{}!,-]+)\s*:(?:\s+|$)(?P<rest>.*)$")
PYTHON_FACTOR = re.compile(r"(?:py|pypy|cpython)?-?(\d)\.?(\d*)t?|(?:py|pypy|python)\d?")
_LATER_FACTOR = re.compile(
    r"postgres\w*|pg\d*|mysql|mariadb|mssql|oracle|redis|rabbit\w*|elasticsearch\d*|opensearch\d*|mongo\w*|integration"
    r"|functional|e2e|smoke|dev|main|master|min\w*|lowest|pypy\d*\.?\d*|docs?|bench\w*|perf|nightly|.*main|\d+\.\d+t|py\d+t"
)  # fmt: skip
#: What tox puts in for a name, besides {posargs} and {env:…}. Braces of a shell are written as controls.
_TOX_VALUES = {
    **dict.fromkeys(("envpython", "env_python", "basepython"), "python"),
    **dict.fromkeys(("envbindir", "env_bin_dir"), "."),
    **dict.fromkeys(
        ("envsitepackagesdir", "env_site_packages_dir"),
        "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')",
    ),
    "/": "/",
    "": ":",
}
_TOX_TEMPORARY = "$\x01TMPDIR:-/tmp\x02/tox"


@dataclass(frozen=True)
class Tox:
    """A tox configuration: sections of an INI file, or tables of TOML as such sections."""

    file: str
    names: tuple[str, ...]
    sections: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of_ini(cls, file: str, sections: Mapping[str, Mapping[str, Any]]) -> "Tox":
        """Return what an INI file configures."""
        core = sections.get("tox:tox") or sections.get("tox", {})
        names = tox_names(str(core.get("envlist") or core.get("env_list") or ""))
        return cls(
            file, names or ("py", *(it[8:] for it in sections if it[:8] == "testenv:")), sections
        )

    @classmethod
    def of_toml(cls, file: str, table: Mapping[str, Any]) -> "Tox":
        """Return what tables of TOML configure."""
        envs = {f"testenv:{name}": mapping(it) for name, it in mapping(table.get("env")).items()}
        names = [it for it in items(table.get("env_list")) if isinstance(it, str)]
        sections = {"testenv": mapping(table.get("env_run_base")), **envs}
        return cls(file, tuple(names or ["py", *mapping(table.get("env"))]), sections)

    def task(self, name: str, posargs: Sequence[str], given: Mapping[str, str]) -> Task:
        """Return what an environment runs, with its factors applied; its name is that of its section."""
        section = f"testenv:{name}"
        if section not in self.sections:  # [testenv:py{310,311}-lint]
            named = (it for it in islice(self.sections, MAX_TOX_ENVS) if it.startswith("testenv:"))
            section = next((it for it in named if name in tox_names(it[8:])), "testenv")
        table = {**self.sections.get("testenv", {}), **self.sections.get(section, {})}
        is_python = all(map(PYTHON_FACTOR.fullmatch, name.split("-")))
        variables = dict(self._pairs(table.get("setenv") or table.get("set_env"), name))
        known = {**given, **variables}

        def filled(text: str, root: str) -> str:
            for _ in range(4):  # values within values
                text = self._referenced(text)
                replaced = re.sub(r"\{([^{}\n]*)\}", lambda it: value(it[1], root), text)
                if replaced == text:
                    break
                text = replaced[:MAX_SCRIPT_CHARS]
            return text

        def value(key: str, root: str) -> str:
            first, _, rest = key.partition(":")
            if first.strip() == "posargs":
                return quoted(posargs) if posargs else rest.strip()
            if first == "env":
                return str(known.get(rest.partition(":")[0], rest.partition(":")[2]))
            if first in ("toxinidir", "tox_root", "config_dir"):
                return root
            if first in ("envname", "env_name"):
                return name
            is_temporary = "dir" in first and first not in _TOX_VALUES
            return _TOX_TEMPORARY if is_temporary else _TOX_VALUES.get(first, "")

        folder = filled(str(table.get("changedir") or table.get("change_dir") or "."), ".")
        root = "." if folder.startswith("/") else posixpath.relpath(".", folder or ".")
        env = {key: filled(text, folder) for key, text in variables.items()}
        lines = [
            line
            for key in ("commands_pre", "commands")
            for line in self._commands(table.get(key), name, posargs, lambda it: filled(it, root))
        ]
        label = "[testenv]" if section == "testenv" and is_python else f"[testenv:{name}]"
        env = {key: text for key, text in env.items() if not re.search(r"[{$`]", text)}
        return Task(label, tuple(filter(str.strip, lines)), folder, env)

    def _commands(
        self, value: Any, name: str, posargs: Sequence[str], filled: Callable[[str], str]
    ) -> Iterator[str]:
        for command in items(value):
            words: list[Any] = []
            for word in items(command):
                usual = dig(word, "default")
                given = list(posargs) or items(usual) or [usual]
                words += given if dig(word, "replace") == "posargs" else [word]
            yield quoted(filled(it) for it in words if it and text_of(it))
        if isinstance(value, str):
            text = re.sub(r"[ \t]*\\[ \t]*\n\s*", " ", self._referenced(value))
            for line in self._applying(text, name):
                yield filled(re.sub(r"^\s*[-!]\s+", "", line))  # a failure is let pass

    def _applying(self, text: str, name: str) -> Iterator[str]:
        """Yield the lines whose factor condition (``py310,py311-!django:``) holds for an environment."""
        factors = set(name.split("-"))
        for line in map(str.strip, text.splitlines()):
            match = None if line.startswith("{posargs") else _FACTORS.match(line)
            for option in tox_names(match["factors"], 64) if match else ("",):
                wanted = [it for it in re.split(r"-(?!$)", option) if it]
                if all((it.lstrip("!") in factors) is not it.startswith("!") for it in wanted):
                    line = match["rest"] if match else line
                    yield from [line] if line and not line.startswith(("#", ";")) else []
                    break

    def _referenced(self, text: str, depth: int = 0) -> str:
        """Return a text with ``{[section]key}`` replaced."""

        def other(match: re.Match[str]) -> str:
            value = self.sections.get(match[1], {}).get(match[2], "")
            return self._referenced(str(value), depth + 1) if depth < 3 else ""

        text = text[:MAX_SCRIPT_CHARS]
        return re.sub(r"\{\[([^\]\n{}]+)\](\w+)\}", other, text, count=20)[:MAX_SCRIPT_CHARS]

    def _pairs(self, value: Any, name: str) -> Iterator[tuple[str, str]]:
        yield from ((str(key), it) for key, it in mapping(value).items() if isinstance(it, str))
        for line in self._applying(self._referenced(value), name) if isinstance(value, str) else ():
            key, equals, text = line.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", key.strip()):
                yield key.strip(), text.strip()[:1_000]


@lru_cache(maxsize=1_000)
def tox_names(text: str, most: int = MAX_TOX_ENVS) -> tuple[str, ...]:
    """Return the environments of a list, with braces expanded."""
    found: list[str] = []
    for line in re.split(r"[\n,](?![^{]*\})", text[:MAX_SCRIPT_CHARS]):
        line = re.sub(r"\s*#.*", "", line).strip()
        pattern = re.sub(r"\{[^{}]*\}", "\0", line)
        if not line or re.search(r"[{}]", pattern) or pattern.count("\0") > 12:
            continue
        for values in product(*(part.split(",") for part in re.findall(r"\{([^{}]*)\}", line))):
            name = pattern
            for value in values:
                name = name.replace("\0", value.strip(), 1)
            found.append(name.strip("-").replace(" ", ""))
            if len(found) >= most:
                return tuple(found)
    return tuple(dict.fromkeys(found))


def by_preference(names: Iterable[str]) -> list[str]:
    """Return environments in the order in which they are taken: none with services, the newest Python."""

    def key(name: str) -> tuple[int, tuple[int, ...]]:
        factors = name.split("-")
        versions = (re.fullmatch(r"(?:py)?(\d)\.?(\d+)", factor) for factor in factors)
        newest = next(
            (-int(it[1]), -int(it[2])) if it else () for it in [*filter(None, versions), None]
        )
        return sum(bool(_LATER_FACTOR.fullmatch(factor)) for factor in factors), newest or (0, 0)

    return sorted(names, key=key)


# -- nox ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """A session of nox. ``runs``: a task per command. ``is_default``: plain ``nox`` runs it."""

    name: str
    runs: tuple[Task, ...]
    is_default: bool


def nox_sessions(text: str, posargs: Sequence[str]) -> dict[str, Session]:
    """Return the sessions of a noxfile, read as a syntax tree; none if it can't be read."""
    try:
        return _sessions(ast.parse(text), posargs)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _sessions(tree: ast.Module, posargs: Sequence[str]) -> dict[str, Session]:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            values[ast.unparse(node.targets[0])] = Scope(values).value(node.value)
    defaults = values.get("nox.options.sessions")
    found: dict[str, Session] = {}
    for function in islice(functions.values(), MAX_TASKS):
        for decorator in function.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if not ast.unparse(call.func if call else decorator).endswith("session"):
                continue
            named = {
                it.arg: Scope(values).value(it.value) for it in (call.keywords if call else ())
            }
            name = str(named.get("name") or function.name)
            reader = _SessionReader(name, functions, posargs)
            reader.read(function, dict(values), 0)
            is_default = not isinstance(defaults, list) or name in defaults
            found[name] = Session(name, tuple(reader.runs), is_default)
            found.setdefault(function.name, found[name])
    return found


class _SessionReader:
    """Follows a session's statements in order, with those of functions that get the session."""

    def __init__(
        self, name: str, functions: Mapping[str, ast.FunctionDef], posargs: Sequence[str]
    ) -> None:
        self._name = name
        self.runs: list[Task] = []
        self._functions, self._left = functions, MAX_NOX_STATEMENTS
        self._session: dict[str, Any] = {"posargs": list(posargs), "env": {}}
        self._folder = "."

    def read(self, function: ast.FunctionDef, values: dict[str, Any], depth: int) -> None:
        """Collect the runs of a function, whose first argument is the session."""
        arguments = function.args.args
        defaults = zip(reversed(arguments), reversed(function.args.defaults), strict=False)
        named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        for argument, default in (*defaults, *named):
            values.setdefault(argument.arg, Scope(values).value(default))
        values[arguments[0].arg if arguments else "session"] = self._session
        self._block(function.body, values, depth)

    def _block(self, body: Sequence[ast.stmt], values: dict[str, Any], depth: int) -> None:
        for node in body:
            self._left -= 1
            if self._left < 0:
                return
            match node:
                case ast.If(test=test, body=then, orelse=otherwise):
                    is_true = Scope(values).value(test)
                    if is_true is UNKNOWN:
                        before = dict(values)
                        self._block(otherwise, values, depth)
                        self._block(then, before, depth)
                        changed = {it for it in before if before[it] is not values.get(it)}
                        values.update(dict.fromkeys(changed, UNKNOWN))
                    else:
                        self._block(then if truth(is_true) else otherwise, values, depth)
                case ast.With(items=managers, body=inner):
                    folder = self._folder
                    self._calls(managers, values, depth)
                    self._block(inner, values, depth)
                    self._folder = folder
                case ast.For(body=inner) | ast.While(body=inner) | ast.Try(body=inner):
                    self._block(inner, values, depth)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    values[name] = Scope(values).value(value)
                    self._calls([value], values, depth)
                case ast.Assign(targets=[ast.Subscript(value=table, slice=key)], value=value):
                    scope = Scope(values)
                    if scope.value(table) is self._session["env"] and isinstance(
                        scope.value(key), str
                    ):
                        self._session["env"][scope.value(key)] = scope.value(value)
                case ast.FunctionDef() | ast.ClassDef():
                    pass
                case _:
                    self._calls([node], values, depth)

    def _calls(self, nodes: Iterable[ast.AST], values: dict[str, Any], depth: int) -> None:
        scope = Scope(values)
        for call in (it for outer in nodes for it in ast.walk(outer) if isinstance(it, ast.Call)):
            arguments = scope.value(ast.List(call.args))
            named = {it.arg: scope.value(it.value) for it in call.keywords if it.arg}
            match call.func:
                case ast.Attribute(value=owner, attr="run" | "run_always") if (
                    scope.value(owner) is self._session
                ):
                    words = [it for it in arguments if isinstance(it, str)]
                    env = {**self._session["env"], **mapping(named.get("env"))}
                    env = {key: it for key, it in env.items() if isinstance(it, str)}
                    if words and words[0] == arguments[0] and self._folder:
                        self.runs.append(Task(self._name, (quoted(words),), self._folder, env))
                case ast.Attribute(value=owner, attr="chdir" | "cd") if (
                    scope.value(owner) is self._session and arguments
                ):
                    self._folder = arguments[0] if isinstance(arguments[0], str) else ""
                case ast.Name(id=name) if name in self._functions and self._session in arguments:
                    if depth < 3:
                        parameters = [it.arg for it in self._functions[name].args.args]
                        outer = {it: value for it, value in values.items() if it not in parameters}
                        own = dict(zip(parameters, arguments, strict=False))
                        self.read(self._functions[name], {**outer, **own, **named}, depth + 1)
                case ast.Attribute(attr="notify") if arguments and depth < 3:
                    if (other := self._functions.get(str(arguments[0]))) is not None:
                        self.read(other, dict(values), depth + 1)


# -- make and just -----------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"(?:export\s+)?([\w.-]+)\s*(::?|\?|\+)?=\s*(.*)$")
_RULE = re.compile(r"([\w./%$({][\w./ %$(){}-]*):(?![:=]):?([^=#;]*)(?:;\s*([^#]*))?(?:#|$)")
_JUST_RULE = re.compile(r"@?([\w-]+)(?:\s[^:]*)?:(?!=)([^#;]*)()(?:#|$)")


def make_targets(text: str) -> dict[str, list[str]]:
    """Return the lines of each target of a Makefile, those of what it needs first; variables are put in."""
    return _targets(text, _RULE)


def just_recipes(text: str) -> dict[str, list[str]]:
    """Return the lines of each recipe of a justfile, those of what it needs first."""
    return _targets(text, _JUST_RULE)


def _targets(text: str, rule: re.Pattern[str]) -> dict[str, list[str]]:
    variables = {"MAKE": "make"}
    needs: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    current: list[str] = []

    def put_in(value: str) -> str:
        if rule is _JUST_RULE:
            return value
        value = re.sub(
            r"\$[({]([\w.-]+)[)}]", lambda it: variables.get(it[1], ""), value.replace("$$", "\1")
        )
        return value[:MAX_LINE_CHARS].replace("\1", "$")

    for line in re.sub(r"\\\n[ \t]*", " ", text).splitlines():
        is_recipe = line.startswith("\t") or (rule is _JUST_RULE and line.startswith(" "))
        if len(line) > MAX_LINE_CHARS or (is_recipe and not current):
            continue
        if is_recipe:
            command = re.sub(r"^[@+-]+\s*", "", line.strip())
            for name in current if command and not command.startswith("#") else ():
                lines[name].append(put_in(command).replace("$@", name))
            continue
        if line.strip() and not line.startswith((" ", "#")):
            current = []
        if rule is _RULE and (match := _VARIABLE.match(line)):
            value = put_in(match[3].partition(" #")[0].strip())
            before = variables.get(match[1], "") if match[2] == "+" else ""
            variables[match[1]] = f"{before} {value}".strip()[-MAX_LINE_CHARS:]
        elif match := rule.match(line):
            current = put_in(match[1]).split()[:MAX_TARGETS] if len(needs) < MAX_TASKS else []
            for name in current:
                needs.setdefault(name, []).extend(re.findall(r"[\w./%-]+", put_in(match[2])))
                lines.setdefault(name, []).extend([put_in(match[3])] if match[3] else [])

    def whole(name: str, seen: set[str]) -> list[str]:
        if name in seen or len(seen) > MAX_TARGETS or name not in needs:
            return []
        seen.add(name)
        return [line for other in needs[name] for line in whole(other, seen)] + lines[name]

    return {name: whole(name, set()) for name in needs if not name.startswith(".PHONY")}


# -- words and paths ---------------------------------------------------------------------------------------


def quoted(words: Iterable[Any]) -> str:
    """Return words as a shell reads them. Expansions that are one word stay expansions."""
    return " ".join(
        word if "$" in word and not re.search(r"[\s'\"`;&|<>()]", word) else shlex.quote(word)
        for word in map(str, words)
    )


def in_folder(folder: str, name: str) -> str:
    """Return a path of the repository."""
    return posixpath.normpath(posixpath.join(folder, name))


_ROOT = re.compile(
    r"(?:\$\{?(?:GITHUB_WORKSPACE|CI_PROJECT_DIR|TRAVIS_BUILD_DIR|PWD)\}?|\$\(pwd\)|~/project|~/repo)"
)


def joined(base: str, path: str) -> str | None:
    """Return a folder of the repository by a path from another; None: outside of it, or not literal."""
    path = _ROOT.sub(".", path, count=1) if _ROOT.match(path) else path
    if not path or re.match(r"/", path) or re.search(r"[$`*?\0~]", path) or len(path) > 1000:
        return None
    found = in_folder(base, path)
    return None if found.startswith("..") else found
