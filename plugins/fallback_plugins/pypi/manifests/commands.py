"""Requirements that are literals in another text: an install command's arguments, a script's own
metadata.

Only what is written out is read: a version that is a variable is not a literal. Of an install command's
arguments only pins are raised; what it installs is all that it names. Offsets are of the whole text, so
that an edit keeps every other byte.

Commands that notebooks and Python programs start are read as shell lines (ADR-0115). A program is read as
a syntax tree, never run; texts count as far as they are written out, also under a name that has one
value.
"""

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.install_options import client_of, takes_word
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set
from fallback_plugins.pypi.manifests.requirements import Declaration, declaration_at
from fallback_plugins.shared.commands import SHELL_CELL, code_cells
from fallback_tier.lazy_patterns import lazy_pattern

#: Comments, and the ends of continued lines.
_COMMENT = lazy_pattern(
    r"(?:^|(?<=[ \t]))(?:#|REM[ \t]|//|::)[^\r\n]*", re.MULTILINE | re.IGNORECASE
)
_CONTINUED = lazy_pattern(r"[\\`^][ \t]*\r?\n")

#: What is between words of a command, which may be items of a list: ``["pip", "install", "left==1.0"]``.
_GAP = r"""(?:["',]*[ \t]+["']?|["'][ \t]*,[ \t]*["'])"""
_QUOTED = r"\"[^\"\r\n]*\"|'[^'\r\n]*'"
#: A command that installs what its arguments name, up to the end of the command; one that runs a package's
#: program; and one that adds packages to the project's own (``uv run --with``).
_VALUE = rf"{_GAP}(?!(?:install|wheel|download|inject|run|pip|tool)\b)[^\s\"',;&|-][^\s\"',;&|]*"
_OPTIONS = rf"(?:{_GAP}-[\w-]+(?:=[^\s\"',]+|{_VALUE})?){{0,20}}"
_COMMAND = lazy_pattern(
    rf"(?<![\w.-])(?:(?:pip(?:[23](?:\.\d+)?)?|pipx|uv{_OPTIONS}{_GAP}(?:pip|tool))"
    rf"{_OPTIONS}{_GAP}(?P<verb>install|wheel|download|inject|run)\b"
    rf"|(?P<runner>uvx)(?=[\s\"'])|uv{_OPTIONS}{_GAP}(?P<adds>run)\b)"
    rf"(?P<arguments>(?:{_QUOTED}|[^\r\n&|;])*)"
)
#: Arguments of those two: quoted or not; options that name packages, and a release by its name.
_ARGUMENT = lazy_pattern(
    r"\"(?P<double>[^\"\r\n]*)\"|'(?P<single>[^'\r\n]*)'|(?P<bare>[^\s\"',\]]+)"
)
_NAMES_PACKAGE = lazy_pattern(r"--(?P<option>with|from|spec)(?:=(?P<value>.*))?")
_RELEASE = lazy_pattern(
    r"(?P<name>[A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?)@v?(?P<version>\d[\w.!+]*|latest)"
)
#: nox: ``session.install("left==1.0", …)``, over lines.
_SESSION = lazy_pattern(r"\bsession\.install\((?P<arguments>(?:[^()]|\([^()]*\))*)\)")
_FUNCTION = lazy_pattern(r"^[ \t]*def[ \t]+(?P<name>\w+)|^(?=\S)", re.MULTILINE)

#: tox: ``deps =`` with the lines below it; lines for some factors only are left out.
_SECTION = lazy_pattern(r"^\[(?P<name>[^\]\r\n]*)\]", re.MULTILINE)
_DEPS = lazy_pattern(
    r"^deps[ \t]*=(?P<arguments>[^\r\n]*(?:\r?\n(?:[ \t]+[^\r\n]*|[ \t]*(?=\r?\n)))*)", re.MULTILINE
)
_FACTOR = lazy_pattern(r"^[ \t]*(?=\S)[\w{},!. -]+:[ \t][^\r\n]*", re.MULTILINE)
#: Environments of tox and nox that are made to be old.
_OLDEST = lazy_pattern(r"old|min|low|legacy|compat|earl|past|lts|prev", re.IGNORECASE)
_TEST_TOOLS = frozenset({"tox.ini", "noxfile.py"})

#: conda: items below ``- pip:``, indented further.
_CONDA_PIP = lazy_pattern(
    r"^(?P<indent>[ ]*)-[ ]+pip:[ ]*\r?\n(?P<arguments>(?:(?P=indent)[ ]+[^\r\n]*(?:\r?\n|\Z))+)",
    re.MULTILINE,
)

#: pre-commit: what is installed next to a hook; items of node hooks have ``@`` before a version.
_ADDITIONAL = lazy_pattern(
    r"(?<![\w-])additional_dependencies:[ ]*(?:&\w+)?(?P<arguments>[ ]*\[[^\]]{0,20000}\]"
    r"|(?:[ \t]*\r?\n[ \t]*(?:-[ ](?:[^\r\n:]|:(?![ \r\n]))*)?(?=\r?\n|\Z))*)"
)

#: A requirement among other words; not a path, an address or an option's value.
_OPERATOR = r"(?:===|==|~=|!=|<=|>=|<|>)"
_REQUIREMENT = lazy_pattern(
    r"(?<![\w./:@$%{}+-])(?<!(?<!with)(?<!from)(?<!spec)=)"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[\w,. -]*\])?"
    rf"[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+(?:[ \t]*,[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+)*(?=[\s\"',;)\]]|\Z)"
)

#: Words of a command, whatever they are quoted by; a package by its name alone; what comes with every
#: environment; a line that only prints a command.
_TOKEN = lazy_pattern(r"[^\s\"',]+")
_BARE = lazy_pattern(
    r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?(?<!\.txt)(?<!\.in)(?<!\.whl)(?<!\.toml)(?<!\.gz)"
)
_ALWAYS_THERE = frozenset({"pip", "setuptools"})
_PRINTS = lazy_pattern(
    r"(?:\b(?:echo|printf|print|warn|error|info|die)\b|^[ \t-]*(?:name|description):)[^\r\n]*\Z",
    re.IGNORECASE,
)
#: What a shell or CI puts other words in the place of.
_EXPANDED = lazy_pattern(r"\$?\{\{[^{}\r\n]{0,500}\}\}|\$\([^()\r\n]{0,500}\)|`[^`\r\n]{0,500}`")
#: How far before a command it is looked for what only prints it (characters).
_MAX_BEFORE = 500

#: An option that says where packages come from.
_SOURCE = lazy_pattern(
    r"(?<![\w-])(?:-i|-f|--(?:index-url|extra-index-url|find-links|index|default-index|no-index))(?![\w-])"
)

#: How a script's own metadata begins (PEP 723).
SCRIPT_START = "# /// script"

#: … the whole of it, and the array of its requirements.
_SCRIPT = lazy_pattern(
    r"^# /// script[ \t]*\r?\n(?P<block>(?:^#(?:[ \t][^\r\n]*)?\r?\n)*?)^# ///[ \t]*$", re.MULTILINE
)
_DEPENDENCIES = lazy_pattern(
    r"^#[ \t]*dependencies[ \t]*=[ \t]*\[(?P<items>(?:\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\]\"'])*)\]",
    re.MULTILINE,
)
_STRING = lazy_pattern(
    r"\"(?P<double>[^\"\r\n]*)\"|'(?P<single>[^'\r\n]*)'|(?<!^)#[^\r\n]*", re.MULTILINE
)


def literals(path: str, text: str, package: str) -> tuple[Declaration, ...]:
    """Return the declarations of a package among a file's literals, top down; none for another kind.

    Environments of tox and nox that hold several versions of it, or are called old, hold what a project
    still supports: none of them is read.
    """
    found = {
        start: declaration
        for start, end in _spans(path, text)
        if (declaration := declaration_at(text, start, end, package)) and declaration.clauses
    }
    read = tuple(found[start] for start in sorted(found))
    if kind_in_set(path) is Kind.COMMANDS:
        read = tuple(declaration for declaration in read if declaration.pin is not None)
    several = len({declaration.pep440 for declaration in found.values()}) > 1
    return () if several and posixpath.basename(path) in _TEST_TOOLS else read


@dataclass(frozen=True)
class Command:
    """What one command installs. ``requirements``: as they are written, those by a name alone too.
    ``has_source``: an option says where packages come from."""

    requirements: tuple[str, ...]
    has_source: bool


def install_commands(path: str, text: str) -> tuple[Command, ...]:
    """Return the commands of a file that name packages. Of test tools' environments that require a package
    in several versions, none of these requirements is read, as ``literals`` says."""
    kind = kind_in_set(path)
    if kind is Kind.SCRIPT or path.endswith(".ipynb"):
        path, text = "", started_commands(path, text)
    if kind not in {Kind.COMMANDS, Kind.CI, Kind.SCRIPT} or not _may_install(text):
        return ()
    name = posixpath.basename(path)
    blanked = _blanked(name, text)
    found = [
        (_requirements(blanked, area), _SOURCE.search(blanked, *area.command) is not None)
        for area in _areas(name, blanked)
    ]
    dropped = set[str]()
    if name in _TEST_TOOLS:
        written = {name: it for names, _ in found for name, it in names}
        dropped = {name for names, _ in found for name, it in names if written[name] != it}
    commands = (
        Command(tuple(it for name, it in names if name not in dropped), has_source)
        for names, has_source in found
    )
    return tuple(command for command in commands if command.requirements)


def has_literals(path: str, text: str) -> bool:
    """Return whether a file that is changed for its literals alone has any requirement among them, or a
    command that installs a package. CI, and commands that a program starts, are not changed."""
    kind = kind_in_set(path)
    if kind is Kind.CI:
        return False
    if next(_spans(path, text), None) is not None:
        return True
    return kind is Kind.COMMANDS and bool(install_commands(path, text))


def script_metadata(text: str) -> str:
    """Return the lines of a script's own metadata, without their comment signs; empty if it has none."""
    blocks = (match["block"] for match in _SCRIPT.finditer(text))
    return "\n".join(it.removeprefix("#").strip() for block in blocks for it in block.splitlines())


def without(text: str, read: tuple[Declaration, ...]) -> str:
    """Return the text with the versions of these declarations blanked."""
    for one in read:
        start, end = one.clauses[0].operator_start, one.clauses[-1].end
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _spans(path: str, text: str) -> Iterator[tuple[int, int]]:
    kind = kind_in_set(path)
    if kind is Kind.SCRIPT:
        for block in _SCRIPT.finditer(text):
            for listed in _DEPENDENCIES.finditer(text, *block.span("block")):
                strings = _STRING.finditer(text, *listed.span("items"))
                yield from (it.span(it.lastgroup) for it in strings if it.lastgroup)
    elif kind is Kind.COMMANDS and _may_install(text):
        name = posixpath.basename(path)
        blanked = _blanked(name, text)
        for area in _areas(name, blanked):
            # A pin with hashes is not raised: they are those of the old release.
            if "--hash" not in blanked[slice(*area.span)]:
                yield from (it.span() for it in _REQUIREMENT.finditer(blanked, *area.span))


def _blanked(name: str, text: str) -> str:
    """The text without comments, ends of continued lines, and tox's lines for some factors only."""
    blanked = _CONTINUED.sub(_blank, _COMMENT.sub(_blank, text))
    return _FACTOR.sub(_blank, blanked) if name == "tox.ini" else blanked


def _may_install(text: str) -> bool:
    words = ("install", "deps", "pip", "uv", "additional_dependencies")
    return any(word in text for word in words)


@dataclass(frozen=True)
class _Area:
    """Where a command names packages. ``command``: all of its arguments. ``is_python``: names are strings
    there. ``client``: as ``client_of`` returns it."""

    span: tuple[int, int]
    command: tuple[int, int]
    is_python: bool = False
    client: str = "pip"


def _requirements(text: str, area: _Area) -> list[tuple[str, str]]:
    """(canonical name, requirement) of what a command's arguments name."""
    start, end = area.span
    found = [match.span() for match in _REQUIREMENT.finditer(text, start, end)]
    rest = text[start:end]
    for one, other in found:
        rest = rest[: one - start] + " " * (other - one) + rest[other - start :]
    rest = _EXPANDED.sub(lambda match: "$" * len(match[0]), rest)
    if area.is_python:
        rest = " ".join(it[0][1:-1] for it in re.finditer(_QUOTED, rest))
    words = [it[0].lstrip("[{") for it in _TOKEN.finditer(rest)]
    # Without a list's brackets around it; those of extras stay.
    words = [word if "[" in word else word.rstrip("]}") for word in words]
    written = [text[slice(*it)] for it in found]
    for before, word in zip(["", *words], words, strict=False):
        release = _RELEASE.fullmatch(word)
        if release is not None:
            exact = "" if release["version"] == "latest" else f"=={release['version']}"
            written.append(release["name"] + exact)
        elif _BARE.fullmatch(word) and not takes_word(area.client, before):
            written.append(word)
    names = ((canonicalize_name(re.split(r"[^\w.-]", it, maxsplit=1)[0]), it) for it in written)
    return [(name, it) for name, it in names if name != it or name not in _ALWAYS_THERE]


def _run(
    text: str, span: tuple[int, int], client: str, *, has_tool: bool
) -> Iterator[tuple[int, int]]:
    """Where a command that runs a program names packages: the values of its options, and, if it has a tool,
    the first other word, unless an option names that. What follows are the program's own arguments."""
    start, end = span
    is_item = text[start:end][:1] in {'"', "'"}  # of a list: ``["uvx", "late"]``
    option = before = ""
    for match in _ARGUMENT.finditer(text, start + is_item, end):
        word, place = match[match.lastgroup or 0], match.span(match.lastgroup or 0)
        named = _NAMES_PACKAGE.fullmatch("--with" if word == "-w" and client == "uv" else word)
        if before in {"with", "from", "spec"}:
            yield place
            option = before if before != "with" else option
        elif named and named["value"]:
            yield place[1] - len(named["value"]), place[1]
            option = named["option"] if named["option"] != "with" else option
        elif has_tool and not word.startswith("-") and not takes_word(client, before):
            if not option:
                yield place
            return
        before = named["option"] if named and not named["value"] else word


def _areas(name: str, text: str) -> Iterator[_Area]:
    for match in _COMMAND.finditer(text):
        start = match.start()
        if _PRINTS.search(text[max(text.rfind("\n", 0, start) + 1, start - _MAX_BEFORE) : start]):
            continue
        span = match.span("arguments")
        client = client_of(text[start : match.start("arguments")])
        runs = match["runner"] or match["verb"] == "run"
        if runs or match["adds"]:
            named = _run(text, span, client, has_tool=bool(runs))
            yield from (_Area(it, span, client=client) for it in named)
        else:
            yield _Area(span, span, client=client)
    is_python, found = name.endswith(".py"), list[re.Match[str]]()
    if is_python:
        sessions = _SESSION.finditer(text)
        found = [it for it in sessions if not _is_of_old(_FUNCTION, text, it.start())]
    elif name == "tox.ini":
        found = [it for it in _DEPS.finditer(text) if not _is_of_old(_SECTION, text, it.start())]
    elif name.endswith((".yml", ".yaml")):
        found = [*_CONDA_PIP.finditer(text), *_ADDITIONAL.finditer(text)]
        found = [it for it in found if not re.search(r"@\d", it["arguments"])]  # of node
    for match in found:
        span = match.span("arguments")
        yield _Area(span, span, is_python)


def _is_of_old(heading: re.Pattern[str], text: str, end: int) -> bool:
    """Return whether the last heading before an offset names an environment that is made to be old."""
    names = [match["name"] or "" for match in heading.finditer(text, 0, end)]
    return _OLDEST.search(names[-1] if names else "") is not None


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


#: What a program must hold to install packages.
_INSTALLS = lazy_pattern(r"pip3?\b|pip_|piplite|uv\b|requirements *=|packages_to_install")

#: Functions that run a process, or a client's own main function; functions that install what they get;
#: arguments that take requirements, and those that take a command.
_PROCESS = lazy_pattern(
    r"(?:\w+_)?(?:run|call|check|popen|system|get(?:status)?output|main|shell|sh|bash|exec|spawn|execute|sudo"
    r"|local|cmd|command|subprocess)(?:_\w+|[vlpe]+)?",
    re.IGNORECASE,
)
_INSTALLER = lazy_pattern(r"(?:\w+_)?pip_install(?:_packages)?")
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
_MAGIC = lazy_pattern(
    r"^(?P<indent>[ \t]*)(?:!|%(?=(?:pip|uv|sx|system)\b))[ \t]*(?P<command>.*)", re.MULTILINE
)
_CONTINUED_IN_SOURCE = lazy_pattern(r"\\[ \t]*\r?\n")

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
        source = _CONTINUED_IN_SOURCE.sub(" ", source)
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
            case (
                ast.BinOp(left=ast.List() as left, op=ast.Add(), right=right)
                | ast.BinOp(left=ast.Name() as left, op=ast.Add(), right=ast.List() as right)
            ):
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
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="shlex"), attr="format" | "split" | "strip"),
                args=[argument, *_],
            ):
                return self._text(argument)
            case ast.Call(func=ast.Attribute(value=value, attr="format" | "split" | "strip")):
                return self._text(value)
            case ast.FormattedValue(value=ast.Name(id=name)) | ast.Name(id=name):
                known = self.values.get(name, ())
                return known[0] if len(known) == 1 else f"{{{name}}}"
        return _COMPUTED


def _is(key: ast.expr | None, text: str) -> bool:
    return isinstance(key, ast.Constant) and key.value == text


def _name(node: ast.expr) -> str:
    """The last part of a name; empty for a longer one than anybody writes."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name if len(name) <= _MAX_NAME else ""


def _installing(requirements: Iterable[str]) -> str:
    quoted = " ".join(f"'{it}'" for it in requirements if "'" not in it)
    return f"pip install {quoted}" if quoted else ""
