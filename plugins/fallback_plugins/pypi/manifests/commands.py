"""Requirements that are literals in another text: an install command's arguments, a script's own
metadata.

Only literals are read: a version that is a variable is not one. Among an install command's arguments only
pins are raised, but the command installs all that it names. Offsets refer to the whole text, so that an
edit keeps every other byte.

Commands that notebooks and Python programs start are read as shell lines (ADR-0115). A program is read as a
syntax tree, never run; literal texts count, also as the one value of a name.
"""

import ast
import posixpath
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from packaging.utils import canonicalize_name

from fallback_plugins.pypi.manifests.install_options import SHORT_FLAGS, client_of, takes_word
from fallback_plugins.pypi.manifests.kinds import Kind, kind_in_set
from fallback_plugins.pypi.manifests.requirements import Declaration, declaration_at
from fallback_plugins.shared.commands import SHELL_CELL, code_cells
from fallback_tier.lazy_patterns import lazy_pattern

#: Comments, and the ends of continued lines.
_COMMENT = lazy_pattern(
    r"(?:^|(?<=[ \t]))(?:#|REM[ \t]|//|::)[^\r\n]*", re.MULTILINE | re.IGNORECASE
)
_CONTINUED = lazy_pattern(r"[\\`^][ \t]*\r?\n")

#: Text between the words of a command, which may be items of a list: ``["pip", "install", "left==1.0"]``.
#: A gap is matched in one way alone: what follows a failed match is not tried again for each of them.
_GAP = r"""(?:["',]*[ \t]+["']?|["'](?:[ \t]+,[ \t]*|,)["'])"""
_QUOTED = r"\"[^\"\r\n]*\"|'[^'\r\n]*'"
#: A command that installs what its arguments name, up to its end; one that runs a package's program; and
#: one that adds packages to the project's own (``uv run --with``).
_VALUE = rf"{_GAP}(?!(?:install|wheel|download|inject|run|pip|tool)(?![\w./-]))[^\s\"',;&|-][^\s\"',;&|]*"
_OPTIONS = rf"(?:{_GAP}-[\w-]+(?:=[^\s\"',]+|{_VALUE})?){{0,20}}"
_COMMAND = lazy_pattern(
    rf"(?<![\w.-])(?:(?:pip(?:[23](?:\.\d+)?)?|pipx|uv{_OPTIONS}{_GAP}(?P<part>pip|tool))"
    rf"{_OPTIONS}{_GAP}(?P<verb>install|wheel|download|inject|run)\b"
    rf"|(?P<runner>uvx)(?=[\s\"'])|uv{_OPTIONS}{_GAP}(?P<adds>run)\b)"
    rf"(?P<arguments>(?:{_QUOTED}|[^\r\n&|;])*)"
)
#: Arguments of the last two: quoted or not; options that name packages; a release after a package's name.
_ARGUMENT = lazy_pattern(
    r"\"(?P<double>[^\"\r\n]*)\"|'(?P<single>[^'\r\n]*)'|(?P<bare>[^\s\"',\]]+)"
)
_NAMES_PACKAGE = lazy_pattern(r"--(?P<option>with|from|spec)(?:=(?P<value>.*))?")
_RELEASE = lazy_pattern(
    r"(?P<name>[A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?)@v?(?P<version>\d[\w.!+]*|latest)"
)
#: nox: ``session.install("left==1.0", …)``, over several lines.
_SESSION = lazy_pattern(r"\bsession\.install\((?P<arguments>(?:[^()]|\([^()]*\))*)\)")
_FUNCTION = lazy_pattern(r"^[ \t]*def[ \t]+(?P<name>\w+)|^(?=\S)", re.MULTILINE)

#: tox: ``deps =`` with the lines below it; lines that apply to some factors only are left out.
_SECTION = lazy_pattern(r"^\[(?P<name>[^\]\r\n]*)\]", re.MULTILINE)
_DEPS = lazy_pattern(
    r"^deps[ \t]*=(?P<arguments>[^\r\n]*(?:\r?\n(?:[ \t]+[^\r\n]*|[ \t]*(?=\r?\n)))*)", re.MULTILINE
)
_FACTOR = lazy_pattern(r"^[ \t]*(?=\S)[\w{},!. -]+:[ \t][^\r\n]*", re.MULTILINE)
#: Names of environments of tox and nox that have old versions on purpose.
_OLDEST = lazy_pattern(r"old|min|low|legacy|compat|earl|past|lts|prev", re.IGNORECASE)
_TEST_TOOLS = frozenset({"tox.ini", "noxfile.py"})

#: conda: items below ``- pip:``, indented further.
_CONDA_PIP = lazy_pattern(
    r"^(?P<indent>[ ]*)-[ ]+pip:[ ]*\r?\n(?P<arguments>(?:(?P=indent)[ ]+[^\r\n]*(?:\r?\n|\Z))+)",
    re.MULTILINE,
)

#: pre-commit: packages that are installed next to a hook; items of node hooks have ``@`` before a version.
_ADDITIONAL = lazy_pattern(
    r"(?<![\w-])additional_dependencies:[ ]*(?:&\w+)?(?P<arguments>[ ]*\[[^\]]{0,20000}\]"
    r"|(?:[ \t]*\r?\n[ \t]*(?:-[ ](?:[^\r\n:]|:(?![ \r\n]))*)?(?=\r?\n|\Z))*)"
)

#: A requirement within other text; not a path, an address or an option's value.
_OPERATOR = r"(?:===|==|~=|!=|<=|>=|<|>)"
_REQUIREMENT = lazy_pattern(
    r"(?<![\w./:@$%{}+-])(?<!(?<!with)(?<!from)(?<!spec)=)"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[\w,. -]*\])?"
    rf"[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+(?:[ \t]*,[ \t]*{_OPERATOR}[ \t]*[\w.!*+-]+)*(?=[\s\"',;)\]]|\Z)"
)

#: Words of a command, however they are quoted; a package's name alone; packages in every environment; a
#: line that only prints a command.
_TOKEN = lazy_pattern(r"[^\s\"',]+")
_BARE = lazy_pattern(
    r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]*\])?(?<!\.txt)(?<!\.in)(?<!\.whl)(?<!\.toml)(?<!\.gz)"
)
_ALWAYS_THERE = frozenset({"pip", "setuptools"})
_PRINTS = lazy_pattern(
    r"(?:\b(?:echo|printf|print|warn|error|info|die)\b|^[ \t-]*(?:name|description):)[^\r\n]*\Z",
    re.IGNORECASE,
)
#: Text that a shell or CI replaces.
_EXPANDED = lazy_pattern(r"\$?\{\{[^{}\r\n]{0,500}\}\}|\$\([^()\r\n]{0,500}\)|`[^`\r\n]{0,500}`")
#: Length of the text before a command that is searched for something that only prints it (characters).
_MAX_BEFORE = 500
#: Most commands that run one another (``uv run pip install left``).
_MAX_NESTED = 5

#: An option that sets where packages come from.
_SOURCE = lazy_pattern(
    rf"(?<![\w-])(?:-{SHORT_FLAGS}[if]"
    r"|--(?:index-url|extra-index-url|find-links|index|default-index|no-index))(?![\w-])"
)

#: How a script's own metadata begins (PEP 723).
SCRIPT_START = "# /// script"

#: The whole of that metadata, and the array of its requirements.
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
    """Return the declarations of a package among a file's literals, top down; none for files of another
    kind.

    Environments of tox and nox that have several versions of it, or are named as old, have what a project
    still supports: none of them is read.
    """
    declarations = {
        start: declaration
        for start, end in _spans(path, text)
        if (declaration := declaration_at(text, start, end, package)) and declaration.clauses
    }
    read = tuple(declarations[start] for start in sorted(declarations))
    if kind_in_set(path) is Kind.COMMANDS:
        read = tuple(declaration for declaration in read if declaration.pin is not None)
    several = len({declaration.pep440 for declaration in declarations.values()}) > 1
    return () if several and posixpath.basename(path) in _TEST_TOOLS else read


@dataclass(frozen=True)
class Command:
    """Packages that one command installs. ``requirements``: as written, including bare names.
    ``has_source``: an option sets where packages come from."""

    requirements: tuple[str, ...]
    has_source: bool


def install_commands(path: str, text: str) -> tuple[Command, ...]:
    """Return the commands of a file that name packages. If a test tool's environments require several
    versions of a package, no requirement of it is read, as for ``literals``."""
    kind = kind_in_set(path)
    if kind is Kind.SCRIPT or path.endswith(".ipynb"):
        path, text = "", started_commands(path, text)
    if kind not in {Kind.COMMANDS, Kind.CI, Kind.SCRIPT} or not _may_install(text):
        return ()
    name = posixpath.basename(path)
    blanked = _blanked(name, text)
    by_area = [
        (_requirements(blanked, area), _SOURCE.search(blanked, *area.command) is not None)
        for area in _areas(name, blanked)
    ]
    dropped = set[str]()
    if name in _TEST_TOOLS:
        last_by_name = {name: requirement for names, _ in by_area for name, requirement in names}
        dropped = {
            name
            for names, _ in by_area
            for name, requirement in names
            if last_by_name[name] != requirement
        }
    commands = (
        Command(
            tuple(requirement for name, requirement in names if name not in dropped), has_source
        )
        for names, has_source in by_area
    )
    return tuple(command for command in commands if command.requirements)


def has_literals(path: str, text: str) -> bool:
    """Return whether a file that is changed only for its literals has any requirement among them, or a
    command that installs a package. CI files, and commands that a program starts, are never changed."""
    kind = kind_in_set(path)
    if kind is Kind.CI:
        return False
    if next(_spans(path, text), None) is not None:
        return True
    return kind is Kind.COMMANDS and bool(install_commands(path, text))


def script_metadata(text: str) -> str:
    """Return the lines of a script's own metadata, without their comment signs; empty if there is none."""
    blocks = (match["block"] for match in _SCRIPT.finditer(text))
    return "\n".join(
        line.removeprefix("#").strip() for block in blocks for line in block.splitlines()
    )


def without(text: str, read: tuple[Declaration, ...]) -> str:
    """Return the text with the versions of these declarations blanked."""
    for declaration in read:
        start, end = declaration.clauses[0].operator_start, declaration.clauses[-1].end
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _spans(path: str, text: str) -> Iterator[tuple[int, int]]:
    kind = kind_in_set(path)
    if kind is Kind.SCRIPT:
        for block in _SCRIPT.finditer(text):
            for array in _DEPENDENCIES.finditer(text, *block.span("block")):
                strings = _STRING.finditer(text, *array.span("items"))
                yield from (string.span(string.lastgroup) for string in strings if string.lastgroup)
    elif kind is Kind.COMMANDS and _may_install(text):
        name = posixpath.basename(path)
        blanked = _blanked(name, text)
        for area in _areas(name, blanked):
            # A pin with hashes is not raised: they are those of the old release.
            if "--hash" not in blanked[slice(*area.span)]:
                yield from (match.span() for match in _REQUIREMENT.finditer(blanked, *area.span))


def _blanked(name: str, text: str) -> str:
    """Return the text with comments, ends of continued lines, and tox's lines for some factors blanked."""
    blanked = _CONTINUED.sub(_blank, _COMMENT.sub(_blank, text))
    return _FACTOR.sub(_blank, blanked) if name == "tox.ini" else blanked


def _may_install(text: str) -> bool:
    words = ("install", "deps", "pip", "uv", "additional_dependencies")
    return any(word in text for word in words)


@dataclass(frozen=True)
class _Area:
    """Span in which a command names packages. ``command``: span of all its arguments. ``is_python``: the
    names are Python strings. ``client``: as ``client_of`` returns it."""

    span: tuple[int, int]
    command: tuple[int, int]
    is_python: bool = False
    client: str = "pip"


def _requirements(text: str, area: _Area) -> list[tuple[str, str]]:
    """Return (canonical name, requirement) for each package that a command's arguments name."""
    start, end = area.span
    spans = [match.span() for match in _REQUIREMENT.finditer(text, start, end)]
    rest = text[start:end]
    # A word stays in place of each, and of an empty one: the next word is no value of the option before it.
    for begin, stop in spans:
        rest = rest[: begin - start] + "$".ljust(stop - begin) + rest[stop - start :]
    rest = re.sub(r"(?<=\s)(?:\"\"|'')(?=\s|\Z)", "$$", rest)
    rest = _EXPANDED.sub(lambda match: "$" * len(match[0]), rest)
    if area.is_python:
        rest = " ".join(match[0][1:-1] for match in re.finditer(_QUOTED, rest))
    words = [match[0].lstrip("[{") for match in _TOKEN.finditer(rest)]
    # Remove the brackets of a list around it; those of extras stay.
    words = [word if "[" in word else word.rstrip("]}") for word in words]
    requirements = [text[slice(*span)] for span in spans]
    for before, word in zip(["", *words], words, strict=False):
        release = _RELEASE.fullmatch(word)
        if release is not None:
            exact = "" if release["version"] == "latest" else f"=={release['version']}"
            requirements.append(release["name"] + exact)
        elif _BARE.fullmatch(word) and not takes_word(area.client, before):
            requirements.append(word)
    names = (
        (canonicalize_name(re.split(r"[^\w.-]", requirement, maxsplit=1)[0]), requirement)
        for requirement in requirements
    )
    return [
        (name, requirement)
        for name, requirement in names
        if name != requirement or name not in _ALWAYS_THERE
    ]


def _run(
    text: str, span: tuple[int, int], client: str, *, has_tool: bool
) -> Iterator[tuple[int, int]]:
    """Yield the spans in which a command that runs a program names packages: the values of its options,
    and, if it has a tool, the first other word, unless an option names the package. The program's own
    arguments follow."""
    start, end = span
    is_item = text[start:end][:1] in {'"', "'"}  # in a list: ``["uvx", "late"]``
    option = before = ""
    for match in _ARGUMENT.finditer(text, start + is_item, end):
        word, word_span = match[match.lastgroup or 0], match.span(match.lastgroup or 0)
        is_with = word == "-w" and client == "uv"
        option_match = _NAMES_PACKAGE.fullmatch("--with" if is_with else word)
        if before in {"with", "from", "spec"}:
            yield word_span
            option = before if before != "with" else option
        elif option_match and option_match["value"]:
            yield word_span[1] - len(option_match["value"]), word_span[1]
            option = option_match["option"] if option_match["option"] != "with" else option
        elif has_tool and not word.startswith("-") and not takes_word(client, before):
            if not option:
                yield word_span
            return
        before = option_match["option"] if option_match and not option_match["value"] else word


def _commands(text: str, span: tuple[int, int], depth: int = 0) -> Iterator[re.Match[str]]:
    """Yield the commands in a span, and those that one of them runs (``uv run pip install left``)."""
    for match in _COMMAND.finditer(text, *span):
        yield match
        runs = match["runner"] or match["adds"] or match["verb"] == "run"
        if runs and depth < _MAX_NESTED:
            yield from _commands(text, match.span("arguments"), depth + 1)


def _areas(name: str, text: str) -> Iterator[_Area]:
    for match in _commands(text, (0, len(text))):
        start = match.start()
        if _PRINTS.search(text[max(text.rfind("\n", 0, start) + 1, start - _MAX_BEFORE) : start]):
            continue
        span = match.span("arguments")
        client = client_of(match[0], match["part"])
        runs = match["runner"] or match["verb"] == "run"
        if runs or match["adds"]:
            spans = _run(text, span, client, has_tool=bool(runs))
            yield from (_Area(package_span, span, client=client) for package_span in spans)
        else:
            yield _Area(span, span, client=client)
    is_python, matches = name.endswith(".py"), list[re.Match[str]]()
    if is_python:
        sessions = _SESSION.finditer(text)
        matches = [match for match in sessions if not _is_of_old(_FUNCTION, text, match.start())]
    elif name == "tox.ini":
        matches = [
            match for match in _DEPS.finditer(text) if not _is_of_old(_SECTION, text, match.start())
        ]
    elif name.endswith((".yml", ".yaml")):
        matches = [*_CONDA_PIP.finditer(text), *_ADDITIONAL.finditer(text)]
        # Items with ``@`` before a version belong to node hooks.
        matches = [match for match in matches if not re.search(r"@\d", match["arguments"])]
    for match in matches:
        span = match.span("arguments")
        yield _Area(span, span, is_python)


def _is_of_old(heading: re.Pattern[str], text: str, end: int) -> bool:
    """Return whether the last heading before an offset names an environment that is old on purpose."""
    names = [match["name"] or "" for match in heading.finditer(text, 0, end)]
    return _OLDEST.search(names[-1] if names else "") is not None


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


#: Text that a program contains if it installs packages.
_INSTALLS = lazy_pattern(r"pip3?\b|pip_|piplite|uv\b|requirements *=|packages_to_install")

#: Functions that run a process, or a client's own main function; functions that install their arguments;
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

#: Texts whose commands are cached: a survey and a resolution read the same programs.
_TEXTS = 32

#: Longest name of a function that is matched (characters).
_MAX_NAME = 100

#: Placeholder for a computed part of a text.
_COMPUTED = "{}"

#: Shell commands of a notebook: ``!pip install``, ``%pip install``.
_MAGIC = lazy_pattern(
    r"^(?P<indent>[ \t]*)(?:!|%(?=(?:pip|uv|sx|system)\b))[ \t]*(?P<command>.*)", re.MULTILINE
)
_CONTINUED_IN_SOURCE = lazy_pattern(r"\\[ \t]*\r?\n")

#: Errors raised for a text that can't be read.
_UNREADABLE = (
    *(SyntaxError, ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError),
)


@lru_cache(maxsize=_TEXTS)
def started_commands(path: str, text: str) -> str:
    """Return the install commands that a notebook (by ``path``) or a Python program starts, one per line.
    If the text can't be parsed, return it: each of its lines may be one."""
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
    """Reader of a program's calls and tables. ``values``: the words of each name that has one value."""

    def __init__(self, tree: ast.AST) -> None:
        self.values: dict[str, list[str]] = {}
        words_by_name: dict[str, list[str]] = {}
        ambiguous: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        words = self.words(node.value)
                        if words_by_name.setdefault(target.id, words) != words:
                            ambiguous.add(target.id)
        self.values = {
            name: words for name, words in words_by_name.items() if name not in ambiguous
        }

    def command(self, node: ast.AST) -> str:
        """Return the command by which a call, list or table installs packages; empty if it does not."""
        match node:
            case ast.Dict():
                entries = zip(node.keys, node.values, strict=True)
                pip_values = [value for key, value in entries if _is(key, "pip")]
                return _installing(
                    requirement for value in pip_values for requirement in self._listed(value)
                )
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
        words = [word for argument in node.args for word in self.words(argument)]
        if _INSTALLER.fullmatch(name) or (name == "install" and owner in _BROWSERS_CLIENTS):
            return _installing(words)
        required = [keyword.value for keyword in node.keywords if keyword.arg in _REQUIREMENTS]
        if required:
            return _installing(
                requirement for value in required for requirement in self._listed(value)
            )
        if not _PROCESS.fullmatch(name):
            return ""
        words += [
            word
            for keyword in node.keywords
            if keyword.arg in _COMMANDS
            for word in self.words(keyword.value)
        ]
        if "main" in name and words and words[0] in _VERBS:
            words = ["pip", *words]
        return " ".join(word.replace("\n", " ; ") for word in words)

    def _listed(self, node: ast.expr) -> list[str]:
        """Return the requirements in a list, or in a table's ``packages``."""
        if isinstance(node, ast.Dict):
            entries = zip(node.keys, node.values, strict=True)
            return [
                requirement
                for key, value in entries
                if _is(key, "packages")
                for requirement in self.words(value)
            ]
        return self.words(node)

    def words(self, node: ast.expr) -> list[str]:
        """Return the texts of a list, or one text, with ``{…}`` for a computed part."""
        match node:
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                texts = [text for item in items for text in self.words(item)]
            case ast.Starred(value=value):
                texts = self.words(value)
            case (
                ast.BinOp(left=ast.List() as left, op=ast.Add(), right=right)
                | ast.BinOp(left=ast.Name() as left, op=ast.Add(), right=ast.List() as right)
            ):
                texts = [*self.words(left), *self.words(right)]
            case ast.Name(id=name) if name in self.values:
                texts = self.values[name]
            case _:
                texts = [self._text(node)]
        return [text for text in texts if text and text != _COMPUTED]

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
                name_words = self.values.get(name, ())
                return name_words[0] if len(name_words) == 1 else f"{{{name}}}"
        return _COMPUTED


def _is(key: ast.expr | None, text: str) -> bool:
    return isinstance(key, ast.Constant) and key.value == text


def _name(node: ast.expr) -> str:
    """Return the last part of a name; empty if it is longer than real names."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name if len(name) <= _MAX_NAME else ""


def _installing(requirements: Iterable[str]) -> str:
    quoted = " ".join(f"'{requirement}'" for requirement in requirements if "'" not in requirement)
    return f"pip install {quoted}" if quoted else ""
