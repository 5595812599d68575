"""Reader of task runners' files: YAML, JSON, TOML and INI within limits; the commands of tox, nox,
make, just.

Files are untrusted: nothing is executed, and a file that can't be read, or exceeds a limit, counts as
empty.
"""

import ast
import configparser
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
    texts,
    truth,
)
from fallback_plugins.shared.gates.shell_commands import MAX_SCRIPT_CHARS
from fallback_tier.errors import RepositoryError
from fallback_tier.files.inputs import parse_toml
from fallback_tier.repo import RepoContext

MAX_FILE_CHARS = 500_000  # CI files and task files of large projects have up to 200,000
MAX_YAML_DEPTH = 40  # lists and mappings within each other: real CI files have up to 15
MAX_YAML_CHARS = 4_000_000  # for a folder: the CI of large monorepos has about 1,000,000
MAX_YAML_VALUES = 50_000  # of a file: the largest public workflows have about 10,000
MAX_YAML_ALIASES = 1_000  # uses of anchors in a file: large CircleCI files have about 200
MAX_LINE_CHARS = 2_000  # of a Makefile or justfile: longer lines are lists of files
MAX_TARGETS = 50  # that one rule makes, and that one target needs
MAX_TASKS = 500  # of one file: a large manifest has about 150 scripts
MAX_NOX_STATEMENTS = 2_000  # of all sessions, with their helpers: large noxfiles have about 500
MAX_TOX_ENVS = 500  # that one line names by braces, such as ``py{310,311}-{a,b}``


@dataclass(frozen=True)
class Task:
    """The commands that a runner has under a name. ``folder``: relative to the runner's file."""

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
        """Return a file's text; empty if the file doesn't exist, can't be read or is too long."""
        if (key := ("text", path)) not in self._cache:
            try:
                text = self._repo.read_text(path) if self._repo.has(path) else ""
            except RepositoryError:
                text = ""
            self._cache[key] = text.removeprefix("\ufeff") if len(text) <= MAX_FILE_CHARS else ""
        return self._cache[key]  # type: ignore[no-any-return]

    def parsed(self, parse: Callable[[str], Any], path: str) -> Any:
        """Return a function's result for a file's text, computed once."""
        if (key := (parse, path)) not in self._cache:
            self._cache[key] = parse(self.text(path))
        return self._cache[key]

    def json(self, path: str) -> dict[str, Any]:
        """Return a JSON object; empty if there is none."""
        return self.parsed(_json_table, path)  # type: ignore[no-any-return]

    def toml(self, path: str) -> dict[str, Any]:
        """Return a TOML document; empty if there is none."""
        return self.parsed(_toml_table, path)  # type: ignore[no-any-return]

    def yaml(self, path: str) -> Any:
        """Return a YAML document whose scalars are texts; None if there is none, or it exceeds a limit."""
        if (parsed_yaml, path) not in self._cache:
            self._yaml_chars += len(self.text(path))
        return self.parsed(parsed_yaml, path) if self._yaml_chars <= MAX_YAML_CHARS else None


def _json_table(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        return mapping(json.loads(text))
    return {}


def _toml_table(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        return parse_toml(text)
    return {}


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

    Depth, values and uses of anchors are counted before the document is built. Never raises.
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


def _merged(value: Any, budget: list[int], depth: int = 0) -> Any:
    """Return a copy with ``<<`` applied. Raises ValueError if it has more values than ``budget``, since
    aliases can multiply them."""
    # A long text counts as several values.
    budget[0] -= 1 + (len(value) // 100 if isinstance(value, str) else 0)
    if budget[0] < 0 or depth > 2 * MAX_YAML_DEPTH:
        raise ValueError
    if isinstance(value, list):
        return [_merged(item, budget, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    merged: dict[Any, Any] = {}
    for base in items(value.get("<<")) or [value.get("<<")]:
        merged = {**mapping(_merged(base, budget, depth + 1)), **merged}
    return merged | {
        key: _merged(item, budget, depth + 1) for key, item in value.items() if key != "<<"
    }


# -- tox ---------------------------------------------------------------------------------------------------

_FACTORS = re.compile(r"(?P<factors>[\w.{}!,-]+)\s*:(?:\s+|$)(?P<rest>.*)$")
PYTHON_FACTOR = re.compile(r"(?:py|pypy|cpython)?-?(\d)\.?(\d*)t?|(?:py|pypy|python)\d?")
_LATER_FACTOR = re.compile(
    r"postgres\w*|pg\d*|mysql|mariadb|mssql|oracle|redis|rabbit\w*|elasticsearch\d*|opensearch\d*|mongo\w*|integration"
    r"|functional|e2e|smoke|dev|main|master|min\w*|lowest|pypy\d*\.?\d*|docs?|bench\w*|perf|nightly|.*main|\d+\.\d+t|py\d+t"
)  # fmt: skip
#: Replacements by name, other than {posargs} and {env:…}. A shell's braces are written as control
#: characters.
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
        """Return the configuration in sections of an INI file."""
        core = sections.get("tox:tox") or sections.get("tox", {})
        names = tox_names(str(core.get("envlist") or core.get("env_list") or ""))
        return cls(
            file,
            names or ("py", *(section[8:] for section in sections if section[:8] == "testenv:")),
            sections,
        )

    @classmethod
    def of_toml(cls, file: str, table: Mapping[str, Any]) -> "Tox":
        """Return the configuration in tables of TOML."""
        envs = {f"testenv:{name}": mapping(env) for name, env in mapping(table.get("env")).items()}
        names = [name for name in items(table.get("env_list")) if isinstance(name, str)]
        sections = {"testenv": mapping(table.get("env_run_base")), **envs}
        return cls(file, tuple(names or ["py", *mapping(table.get("env"))]), sections)

    def task(self, name: str, posargs: Sequence[str], outer_env: Mapping[str, str]) -> Task:
        """Return the commands of an environment, with its factors applied, under the name of its
        section."""
        section = f"testenv:{name}"
        if section not in self.sections:  # [testenv:py{310,311}-lint]
            env_sections = (
                section
                for section in islice(self.sections, MAX_TOX_ENVS)
                if section.startswith("testenv:")
            )
            section = next(
                (section for section in env_sections if name in tox_names(section[8:])), "testenv"
            )
        table = {**self.sections.get("testenv", {}), **self.sections.get(section, {})}
        is_python = all(map(PYTHON_FACTOR.fullmatch, name.split("-")))
        variables = dict(self._pairs(table.get("setenv") or table.get("set_env"), name))
        environment = {**outer_env, **variables}

        def filled(text: str, root: str) -> str:
            for _ in range(4):  # values within values
                text = self._referenced(text)
                replaced = re.sub(r"\{([^{}\n]*)\}", lambda match: value(match[1], root), text)
                if replaced == text:
                    break
                text = replaced[:MAX_SCRIPT_CHARS]
            return text

        def value(key: str, root: str) -> str:
            first, _, rest = key.partition(":")
            if first.strip() == "posargs":
                return quoted(posargs) if posargs else rest.strip()
            if first == "env":
                return str(environment.get(rest.partition(":")[0], rest.partition(":")[2]))
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
            for line in self._commands(
                table.get(key), name, posargs, lambda text: filled(text, root)
            )
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
                default = dig(word, "default")
                replacement = list(posargs) or items(default) or [default]
                words += replacement if dig(word, "replace") == "posargs" else [word]
            yield quoted(filled(word) for word in words if word and text_of(word))
        if isinstance(value, str):
            text = re.sub(r"[ \t]*\\[ \t]*\n\s*", " ", self._referenced(value))
            for line in self._applying(text, name):
                # Without the marks of commands that may or must fail.
                yield filled(re.sub(r"^\s*[-!]\s+", "", line))

    def _applying(self, text: str, name: str) -> Iterator[str]:
        """Yield the lines whose factor condition (``py310,py311-!django:``) holds for an environment."""
        factors = set(name.split("-"))
        for line in map(str.strip, text.splitlines()):
            match = None if line.startswith("{posargs") else _FACTORS.match(line)
            for option in tox_names(match["factors"], 64) if match else ("",):
                wanted = [factor for factor in re.split(r"-(?!$)", option) if factor]
                if all(
                    (factor.lstrip("!") in factors) is not factor.startswith("!")
                    for factor in wanted
                ):
                    line = match["rest"] if match else line
                    yield from [line] if line and not line.startswith(("#", ";")) else []
                    break

    def _referenced(self, text: str, depth: int = 0) -> str:
        def referenced_value(match: re.Match[str]) -> str:
            value = self.sections.get(match[1], {}).get(match[2], "")
            return self._referenced(str(value), depth + 1) if depth < 3 else ""

        text = text[:MAX_SCRIPT_CHARS]
        return re.sub(r"\{\[([^\]\n{}]+)\](\w+)\}", referenced_value, text, count=20)[
            :MAX_SCRIPT_CHARS
        ]

    def _pairs(self, value: Any, name: str) -> Iterator[tuple[str, str]]:
        yield from (
            (str(key), text) for key, text in mapping(value).items() if isinstance(text, str)
        )
        for line in self._applying(self._referenced(value), name) if isinstance(value, str) else ():
            key, equals, text = line.partition("=")
            if equals and re.fullmatch(r"[A-Za-z_]\w*", key.strip()):
                yield key.strip(), text.strip()[:1_000]


@lru_cache(maxsize=1_000)
def tox_names(text: str, most: int = MAX_TOX_ENVS) -> tuple[str, ...]:
    """Return the environments of a list, with braces expanded."""
    names: list[str] = []
    for line in re.split(r"[\n,](?![^{]*\})", text[:MAX_SCRIPT_CHARS]):
        line = line.partition("#")[0].strip()
        pattern = re.sub(r"\{[^{}]*\}", "\0", line)
        if not line or re.search(r"[{}]", pattern) or pattern.count("\0") > 12:
            continue
        for values in product(*(part.split(",") for part in re.findall(r"\{([^{}]*)\}", line))):
            name = pattern
            for value in values:
                name = name.replace("\0", value.strip(), 1)
            names.append(name.strip("-").replace(" ", ""))
            if len(names) >= most:
                return tuple(names)
    return tuple(dict.fromkeys(names))


def by_preference(names: Iterable[str]) -> list[str]:
    """Return environments by preference: those with the fewest services and the like, then the newest
    Python."""

    def key(name: str) -> tuple[int, tuple[int, ...]]:
        factors = name.split("-")
        versions = (re.fullmatch(r"(?:py)?(\d)\.?(\d+)", factor) for factor in factors)
        newest = next(
            (-int(match[1]), -int(match[2])) if match else ()
            for match in [*filter(None, versions), None]
        )
        return sum(bool(_LATER_FACTOR.fullmatch(factor)) for factor in factors), newest or (0, 0)

    return sorted(names, key=key)


# -- nox ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=20)
def nox_sessions(text: str, posargs: tuple[str, ...]) -> dict[str, tuple[Task, ...]]:
    """Return the tasks of each session of a noxfile, and under "" those that plain ``nox`` runs; empty
    if the file can't be read. It is read as a syntax tree."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return _sessions(ast.parse(text), posargs)
    return {}


def _sessions(tree: ast.Module, posargs: Sequence[str]) -> dict[str, tuple[Task, ...]]:
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            values[ast.unparse(node.targets[0])] = Scope(values).value(node.value)
    defaults = values.get("nox.options.sessions")
    sessions: dict[str, tuple[Task, ...]] = {"": ()}
    remaining = MAX_NOX_STATEMENTS
    for function in islice(functions.values(), MAX_TASKS):
        for decorator in map(ast.unparse, function.decorator_list):
            if match := re.match(r"(?:\w+\.)*session\b(?:.*\bname='([^']+)')?", decorator):
                name = match[1] or function.name
                reader = _SessionReader(name, functions, dict(values), posargs, remaining)
                reader.read(function, 0)
                remaining = reader.left
                is_default = not isinstance(defaults, list) or name in defaults
                sessions |= {function.name: tuple(reader.runs), name: tuple(reader.runs)}
                sessions[""] += sessions[name] if is_default else ()
    return sessions


class _SessionReader(ast.NodeVisitor):
    """Reader of a session's statements in order, with those of functions that are passed the session."""

    def __init__(
        self, name: str, functions: Any, values: dict[str, Any], posargs: Sequence[str], budget: int
    ) -> None:
        self.runs, self.left = list[Task](), budget
        self._name, self._functions, self._values = name, functions, values
        self._session: dict[str, Any] = {"posargs": list(posargs), "env": {}}
        self._folder, self._depth = ".", 0

    def _value(self, node: ast.AST | None) -> Any:
        return Scope(self._values).value(node)

    def read(self, function: ast.FunctionDef, depth: int) -> None:
        """Collect the runs of a function, whose first argument is the session."""
        parameters, first = function.args, [*function.args.args, ast.arg("session")][0].arg
        with_defaults = [
            *zip(reversed(parameters.args), reversed(parameters.defaults), strict=False)
        ]
        for argument, default in (
            *with_defaults,
            *zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
        ):
            self._values.setdefault(argument.arg, self._value(default))
        self._values[first], self._depth = self._session, depth
        for node in function.body:
            self.visit(node)

    def visit(self, node: ast.AST) -> None:
        """Visit a node, unless the limit of statements is reached."""
        self.left -= isinstance(node, ast.stmt)
        if self.left >= 0:
            super().visit(node)

    def visit_If(self, node: ast.If) -> None:
        """Follow the branch that is taken; both if that isn't known."""
        is_true = self._value(node.test)
        is_unknown = is_true is UNKNOWN
        before = dict(self._values)
        for inner in node.orelse if is_unknown or not truth(is_true) else ():
            self.visit(inner)
        after, self._values = self._values, before if is_unknown else self._values
        for inner in node.body if is_unknown or truth(is_true) else ():
            self.visit(inner)
        same = {name: value for name, value in after.items() if self._values.get(name) is value}
        self._values = {**dict.fromkeys({*after, *self._values}, UNKNOWN), **same}

    def visit_With(self, node: ast.With) -> None:
        folder = self._folder
        self.generic_visit(node)
        self._folder = folder

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Skip a function: only its calls count."""

    def visit_Assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        match node.targets[0]:
            case ast.Name(id=name):
                self._values[name] = value
            case ast.Subscript(value=table, slice=key):
                if self._value(table) is self._session["env"]:
                    self._session["env"][str(self._value(key))] = value
        self.visit(node.value)

    def visit_Call(self, call: ast.Call) -> None:
        """Collect a run, or follow a function that is passed the session."""
        arguments = self._value(ast.List(call.args))
        keywords = {
            keyword.arg: self._value(keyword.value) for keyword in call.keywords if keyword.arg
        }
        method = call.func if isinstance(call.func, ast.Attribute) else None
        if method and self._value(method.value) is self._session and arguments:
            words = [argument for argument in arguments if isinstance(argument, str)]
            if method.attr in ("run", "run_always") and words[:1] == arguments[:1] and self._folder:
                env = texts({**self._session["env"], **mapping(keywords.get("env"))})
                self.runs.append(Task(self._name, (quoted(words),), self._folder, env))
            elif method.attr in ("chdir", "cd"):
                self._folder = text_of(arguments[0])
        function = self._functions.get(ast.unparse(call.func))
        if (
            function
            and self._depth < 3
            and any(argument is self._session for argument in arguments)
        ):
            outer, depth = self._values, self._depth
            parameters = [parameter.arg for parameter in function.args.args]
            bound = dict(zip(parameters, arguments, strict=False))
            inherited = {name: value for name, value in outer.items() if name not in parameters}
            self._values = {**inherited, **bound, **keywords}
            self.read(function, depth + 1)
            self._values, self._depth = outer, depth
        self.generic_visit(call)


# -- make and just -----------------------------------------------------------------------------------------

_VARIABLE = re.compile(r"(?:export\s+)?([\w.-]+)\s*(::?|\?|\+)?=\s*(.*)$")
_RULE = re.compile(r"([\w./%$({][\w./ %$(){}-]*):(?![:=]):?([^=#;]*)(?:;\s*([^#]*))?(?:#|$)")
_JUST_RULE = re.compile(r"@?([\w-]+)(?:\s[^:]*)?:(?!=)([^#;]*)()(?:#|$)")


def make_targets(text: str) -> dict[str, list[str]]:
    """Return the lines of each target of a Makefile, those of its prerequisites first; variables are
    replaced."""
    return _targets(text, _RULE)


def just_recipes(text: str) -> dict[str, list[str]]:
    """Return the lines of each recipe of a justfile, those of its dependencies first."""
    return _targets(text, _JUST_RULE)


def _targets(text: str, rule: re.Pattern[str]) -> dict[str, list[str]]:
    variables = {"MAKE": "make"}
    needs: dict[str, list[str]] = {}
    lines: dict[str, list[str]] = {}
    current: list[str] = []

    def expanded(value: str) -> str:
        if rule is _JUST_RULE:
            return value
        value = re.sub(
            r"\$[({]([\w.-]+)[)}]",
            lambda match: variables.get(match[1], ""),
            value.replace("$$", "\1"),
        )
        return value[:MAX_LINE_CHARS].replace("\1", "$")

    for line in re.sub(r"\\\n[ \t]*", " ", text).splitlines():
        is_recipe = line.startswith("\t") or (rule is _JUST_RULE and line.startswith(" "))
        if len(line) > MAX_LINE_CHARS or (is_recipe and not current):
            continue
        if is_recipe:
            command = re.sub(r"^[@+-]+\s*", "", line.strip())
            filled = expanded(command) if command and not command.startswith("#") else ""
            for name in current if filled else ():
                if len(lines[name]) < MAX_TASKS:
                    lines[name].append(filled.replace("$@", name))
            continue
        if line.strip() and not line.startswith((" ", "#")):
            current = []
        if rule is _RULE and (match := _VARIABLE.match(line)):
            value = expanded(match[3].partition(" #")[0].strip())
            before = variables.get(match[1], "") if match[2] == "+" else ""
            variables[match[1]] = f"{before} {value}".strip()[-MAX_LINE_CHARS:]
        elif match := rule.match(line):
            current = expanded(match[1]).split()[:MAX_TARGETS] if len(needs) < MAX_TASKS else []
            wanted = re.findall(r"[\w./%-]+", expanded(match[2]))[:MAX_TARGETS]
            for name in current:
                prerequisites = dict.fromkeys((*needs.get(name, ()), *wanted))
                needs[name] = [*prerequisites][:MAX_TARGETS]
                lines.setdefault(name, []).extend([expanded(match[3])] if match[3] else [])

    def all_lines(name: str, seen: set[str]) -> list[str]:
        if name in seen or len(seen) > MAX_TARGETS or name not in needs:
            return []
        seen.add(name)
        return [
            line for prerequisite in needs[name] for line in all_lines(prerequisite, seen)
        ] + lines[name]

    return {name: all_lines(name, set())[:MAX_TASKS] for name in needs if name != ".PHONY"}


# -- words and paths ---------------------------------------------------------------------------------------


def quoted(words: Iterable[Any]) -> str:
    """Return words as a shell reads them. Expansions that are one word stay expansions."""
    return " ".join(
        word if "$" in word and not re.search(r"[\s'\"`;&|<>()]", word) else shlex.quote(word)
        for word in map(str, words)
    )


def in_folder(folder: str, name: str) -> str:
    """Return the repository path of a name in a folder."""
    return posixpath.normpath(posixpath.join(folder, name))


_ROOT = re.compile(
    r"(?:\$\{?(?:GITHUB_WORKSPACE|CI_PROJECT_DIR|TRAVIS_BUILD_DIR|PWD)\}?|\$\(pwd\)|~/project|~/repo)"
)


def joined(base: str, path: str) -> str | None:
    """Return the repository's folder at a path relative to another folder; None if it is outside of the
    repository, or the path is not literal."""
    path = _ROOT.sub(".", path, count=1) if _ROOT.match(path) else path
    if not path or re.match(r"/", path) or re.search(r"[$`*?\0~]", path) or len(path) > 1000:
        return None
    folder = in_folder(base, path)
    return None if folder.startswith("..") else folder
