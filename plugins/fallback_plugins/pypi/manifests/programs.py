"""The install commands that notebooks and Python programs start, as lines of a shell (ADR-0115).

Nothing is run: a program is read as a syntax tree. Texts count as far as they are written out, also under a
name that has one value.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from fallback_plugins.shared.commands import SHELL_CELL, code_cells

#: What a program must hold to install packages.
_INSTALLS = re.compile(r"pip3?\b|pip_|piplite|uv\b|requirements *=|packages_to_install")

#: Functions that run a process, or a client's own main function; functions that install what they get;
#: arguments that take requirements, and those that take a command.
_PROCESS = re.compile(
    r"(?:\w+_)?(?:run|call|check|popen|system|get(?:status)?output|main|shell|sh|bash|exec|spawn|execute|sudo"
    r"|local|cmd|command|subprocess)(?:_\w+|[vlpe]+)?",
    re.IGNORECASE,
)
_INSTALLER = re.compile(r"(?:\w+_)?pip_install(?:_packages)?")
_BROWSERS_CLIENTS = frozenset({"micropip", "piplite"})
_REQUIREMENTS = frozenset(
    {"requirements", "pip_requirements", "extra_pip_requirements", "pip_packages"}
    | {"packages_to_install", "pip"}
)
_COMMANDS = frozenset({"args", "cmd", "command", "commands"})
_VERBS = frozenset({"install", "download", "wheel"})

#: Texts whose commands are kept: a survey and a resolution ask for those of the same programs.
_TEXTS = 32

#: Longest name of a function that is looked at (characters).
_MAX_NAME = 100

#: What stands for a computed part of a text.
_COMPUTED = "{}"

#: A notebook's commands of a shell: ``!pip install``, ``%pip install``.
_MAGIC = re.compile(
    r"^(?P<indent>[ \t]*)(?:!|%(?=(?:pip|uv|sx|system)\b))[ \t]*(?P<command>.*)", re.MULTILINE
)
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")

#: What a text that can't be read raises.
_UNREADABLE = (
    *(SyntaxError, ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError),
)


@lru_cache(maxsize=_TEXTS)
def started_commands(path: str, text: str) -> str:
    """Return the install commands that a notebook (by ``path``) or a Python program starts, one a line. Of
    what can't be parsed each line may be one: its text."""
    if not _INSTALLS.search(text):
        return ""
    read = _of_notebook if path.endswith(".ipynb") else _of_program
    with suppress(*_UNREADABLE):
        return "\n".join(dict.fromkeys(read(text)))
    return text


def _of_notebook(text: str) -> Iterator[str]:
    for source in code_cells(text):
        if SHELL_CELL.match(source):
            yield source
            continue
        source = _CONTINUED.sub(" ", source)
        yield from (match["command"] for match in _MAGIC.finditer(source))
        with suppress(*_UNREADABLE):
            yield from [*_of_program(_MAGIC.sub(r"\g<indent>pass", source))]


def _of_program(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    program = _Program(tree)
    return filter(None, map(program.command, ast.walk(tree)))


class _Program:
    """Reads a program's calls and tables. ``values``: the words of each name that is assigned once."""

    def __init__(self, tree: ast.AST) -> None:
        self.values: dict[str, list[str]] = {}
        found: dict[str, list[str]] = {}
        several: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        words = self.words(node.value)
                        if found.setdefault(target.id, words) != words:
                            several.add(target.id)
        self.values = {name: words for name, words in found.items() if name not in several}

    def command(self, node: ast.AST) -> str:
        """Return the command that a call, a list or a table has packages installed by; empty: none."""
        match node:
            case ast.Dict():
                entries = zip(node.keys, node.values, strict=True)
                named = [value for key, value in entries if _is(key, "pip")]
                return _installing(it for value in named for it in self._listed(value))
            case ast.List() | ast.Tuple():
                words = self.words(node)
                return " ".join(words) if "pip" in words and not _VERBS.isdisjoint(words) else ""
            case ast.Call():
                return self._call(node)
        return ""

    def _call(self, node: ast.Call) -> str:
        name, owner = _name(node.func), ""
        if isinstance(node.func, ast.Attribute):
            owner = _name(node.func.value)
        words = [it for argument in node.args for it in self.words(argument)]
        if _INSTALLER.fullmatch(name) or (name == "install" and owner in _BROWSERS_CLIENTS):
            return _installing(words)
        required = [it.value for it in node.keywords if it.arg in _REQUIREMENTS]
        if required:
            return _installing(it for value in required for it in self._listed(value))
        if not _PROCESS.fullmatch(name):
            return ""
        words += [
            it for one in node.keywords if one.arg in _COMMANDS for it in self.words(one.value)
        ]
        if "main" in name and words and words[0] in _VERBS:
            words = ["pip", *words]
        return " ".join(it.replace("\n", " ; ") for it in words)

    def _listed(self, node: ast.expr) -> list[str]:
        """The requirements of a list, or of a table's ``packages``."""
        if isinstance(node, ast.Dict):
            entries = zip(node.keys, node.values, strict=True)
            return [it for key, one in entries if _is(key, "packages") for it in self.words(one)]
        return self.words(node)

    def words(self, node: ast.expr) -> list[str]:
        """Return the texts of a list, or one text, with ``{…}`` for what is computed."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                found = [it for item in items for it in self.words(item)]
            case ast.Starred(value=value):
                found = self.words(value)
            case ast.BinOp(
                left=ast.List() | ast.Name() as left, op=ast.Add(), right=ast.List() as right
            ):
                found = [*self.words(left), *self.words(right)]
            case ast.BinOp(left=ast.List() as left, op=ast.Add(), right=right):
                found = [*self.words(left), *self.words(right)]
            case ast.Name(id=name) if name in self.values:
                found = self.values[name]
            case _:
                found = [self._text(node)]
        return [it for it in found if it and it != _COMPUTED]

    def _text(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(map(self._text, parts))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._text(left) + self._text(right)
            case ast.BinOp(left=left, op=ast.Mod()):
                return self._text(left)
            case ast.Call(func=ast.Attribute(value=value, attr="format" | "split" | "strip")):
                return self._text(node.args[0] if _is_module(value) and node.args else value)
            case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name):
                known = self.values.get(name, ())
                return known[0] if len(known) == 1 else f"{{{name}}}"
        return _COMPUTED


def _is_module(node: ast.expr) -> bool:
    """Return whether ``split`` is shlex's function, not a text's method."""
    return isinstance(node, ast.Name) and node.id == "shlex"


def _is(key: ast.expr | None, text: str) -> bool:
    return isinstance(key, ast.Constant) and key.value == text


def _name(node: ast.expr) -> str:
    """The last part of a name; empty for a longer one than anybody writes."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name if len(name) <= _MAX_NAME else ""


def _installing(requirements: Iterable[str]) -> str:
    quoted = " ".join(f"'{it}'" for it in requirements if "'" not in it)
    return f"pip install {quoted}" if quoted else ""
