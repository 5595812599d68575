"""Every sentence that the product says to people, in one file: ``messages.txt``, to be read as prose.

Collected from the source, not from runs: texts given to an exception, to a function that makes one, to a
gate's verdict or a health finding, and to arguments named as in `ARGUMENTS` (notes, reasons, details).
Values are placeholders in braces. Docstrings and help texts are not in it. After a message has changed::

    python -m tests.golden.messages --remake

The change of wording is then one diff of that file; `tests/unit/test_golden_messages.py` compares it.
"""

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

FILE = Path(__file__).with_name("messages.txt")

#: Product code: what is tested, not what tests it.
PACKAGES = ("fallback_tier", "plugins", "audit")

#: Arguments that people read, whatever is called with them.
ARGUMENTS = frozenset(
    ("problem", "next_step", "reason", "detail", "note", "notes", "sentence", "message", "warning")
)

#: What people are told without an exception: functions that return one of these say it.
_TOLD = {"GateVerdict": "verdict", "Finding": "health"}

#: The same, where it is made; functions that return one pass on what others made.
_MADE = {"TrailFault": "finding"}

_BUILTIN = frozenset(
    (
        "ValueError",
        "TypeError",
        "OSError",
        "RuntimeError",
        "PermissionError",
        "Exception",
        "ArgumentTypeError",
    )
)

_DEPTH = 3

_HEADER = "\n".join(
    (
        "# Every message of the product, by module. Made by: python -m tests.golden.messages --remake",
        "# `Class` or `Class:kind` of the exception, or what else carries it; {…} is a value.",
    )
)


@dataclass(frozen=True)
class Message:
    """A text, where it is, and what carries it: an exception's class with its kind, or another word."""

    module: str
    carrier: str
    text: str


@dataclass(frozen=True)
class Unseen:
    """An exception that is raised with words which the collector can't see; ``code`` makes it."""

    module: str
    carrier: str
    code: str


@dataclass(frozen=True)
class Collected:
    """All messages, those that are raised but not seen, and the exceptions that are made somewhere."""

    messages: tuple[Message, ...]
    unseen: tuple[Unseen, ...]
    made: frozenset[str]
    #: All exception classes that the product defines.
    exceptions: frozenset[str]


def sources() -> dict[str, str]:
    """Return the product's code by its path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def collect() -> Collected:
    """Read every module of the product. Some seconds."""
    with no_collecting():
        return collected_from(sources())


@contextmanager
def no_collecting() -> Iterator[None]:
    """Collect no garbage: among a million nodes that are all in use this takes as long as reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collected_from(codes: Mapping[str, str]) -> Collected:
    """Return what modules (code by path) say; they may call one another's functions."""
    trees = {name: ast.parse(code) for name, code in codes.items()}
    nodes = {name: list(ast.walk(tree)) for name, tree in trees.items()}
    exceptions = exception_classes(node for each in nodes.values() for node in each)
    makers: dict[str, str] = {}
    own = {name: _makers(each, exceptions) for name, each in nodes.items()}
    for found in own.values():
        makers |= found
    modules = [
        _Module(name, tree, nodes[name], exceptions, own[name], makers)
        for name, tree in trees.items()
    ]
    messages = sorted(
        {message for module in modules for message in module.messages},
        key=lambda message: (message.module, message.carrier, message.text),
    )
    unseen = sorted(
        {one for module in modules for one in module.unseen},
        key=lambda one: (one.module, one.carrier, one.code),
    )
    made = frozenset(name for module in modules for name in module.made)
    return Collected(tuple(messages), tuple(unseen), made, exceptions)


def exception_classes(nodes: Iterable[ast.AST]) -> frozenset[str]:
    """Return the names of all exception classes that modules, of all their nodes, define; of any base."""
    bases: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.bases:
            bases[node.name] = ast.unparse(node.bases[0]).split(".")[-1]
    exceptions = set()
    for name in bases:
        at = name
        while at in bases:
            at = bases[at]
        if at in _BUILTIN or at == "BaseException":
            exceptions.add(name)
    return frozenset(exceptions)


def _makers(nodes: Iterable[ast.AST], exceptions: frozenset[str]) -> dict[str, str]:
    """Return the functions of a module that return an exception or a verdict, with what they return."""
    found = {}
    for node in nodes:
        if not isinstance(node, ast.FunctionDef) or node.returns is None:
            continue
        returned = ast.unparse(node.returns).strip("'\"").split(" | ")[0].split(".")[-1]
        if returned in exceptions or returned in _BUILTIN:
            found[node.name] = returned
        elif returned in _TOLD:
            found[node.name] = _TOLD[returned]
    return found


class _Module:
    """What one module says: its messages, and the exceptions whose words are not seen."""

    def __init__(
        self,
        name: str,
        tree: ast.Module,
        nodes: Sequence[ast.AST],
        exceptions: frozenset[str],
        own: dict[str, str],
        others: dict[str, str],
    ) -> None:
        self.name = name
        self.messages: list[Message] = []
        self.unseen: list[Unseen] = []
        self.made: set[str] = set()
        self._exceptions = exceptions
        self._makers = self._reachable(nodes, own, others)
        self._functions = {
            node.name: node
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self._constants = _assigned(tree.body)
        self._taken: set[int] = set()
        raised = {
            id(node.exc) for node in nodes if isinstance(node, ast.Raise) and node.exc is not None
        }
        self._walk(tree, {}, raised)

    def _reachable(
        self, nodes: Sequence[ast.AST], own: dict[str, str], others: dict[str, str]
    ) -> dict[str, str]:
        """Return its own makers, those that it imports, and those of modules (``x.maker``)."""
        imported = {
            alias.asname or alias.name: others[alias.name]
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name in others
        }
        attributes = {f".{name}": label for name, label in others.items()}
        return attributes | imported | own | {f".{name}": label for name, label in own.items()}

    def _walk(self, node: ast.AST, scope: dict[str, list[ast.expr]], raised: set[int]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner = scope | _assigned(child.body)
            if isinstance(child, ast.Call):
                self._call(child, inner, is_raised=id(child) in raised)
            self._walk(child, inner, raised)

    def _call(self, call: ast.Call, scope: dict[str, list[ast.expr]], *, is_raised: bool) -> None:
        carrier = self._carrier(call) or self._chosen(call, scope)
        if carrier is None:
            self._arguments(call, scope)
            return
        self.made.add(carrier)
        kind = _kind_of(call)
        label = f"{carrier}:{kind}" if kind else carrier
        values = [
            *call.args,
            *(it.value for it in call.keywords if it.arg not in {"kind", "kinds"}),
        ]
        texts = [text for value in values for text in self._texts(value, scope)]
        said = [text for text in texts if _is_prose(text)]
        self.messages += [Message(self.name, label, text) for text in said]
        if is_raised and values and not said and _called_name(call) in self._exceptions:
            code = " ".join(ast.unparse(call).split())
            self.unseen.append(Unseen(self.name, label, code[:100]))

    def _carrier(self, call: ast.Call) -> str | None:
        function = call.func
        if isinstance(function, ast.Attribute):
            name, known = function.attr, self._makers.get(f".{function.attr}")
        elif isinstance(function, ast.Name):
            name, known = function.id, self._makers.get(function.id)
        else:
            return None
        if name in self._exceptions or name in _BUILTIN:
            return name
        return _TOLD.get(name) or _MADE.get(name) or known

    def _chosen(self, call: ast.Call, scope: dict[str, list[ast.expr]]) -> str | None:
        """Return the class that a variable holds, the first of several; None if it holds no exception."""
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        held = (node for value in scope.get(name, ()) for node in ast.walk(value))
        classes = (node.id for node in held if isinstance(node, ast.Name))
        return next((one for one in classes if one in self._exceptions), None)

    def _arguments(self, call: ast.Call, scope: dict[str, list[ast.expr]]) -> None:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            return
        for argument in call.keywords:
            if argument.arg in ARGUMENTS:
                self.messages += [
                    Message(self.name, argument.arg, text)
                    for text in self._texts(argument.value, scope)
                    if _is_prose(text)
                ]

    def _texts(
        self, node: ast.expr, scope: dict[str, list[ast.expr]], depth: int = _DEPTH
    ) -> Iterator[str]:
        """Yield the texts that an expression may be, or is made of."""
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr():
                yield "".join(_part(value) for value in node.values)
                for value in node.values:
                    if isinstance(value, ast.FormattedValue) and depth:
                        yield from self._texts(value.value, scope, depth - 1)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from self._texts(left, scope, depth)
                yield from self._texts(right, scope, depth)
            case ast.IfExp(body=body, orelse=otherwise):
                yield from self._texts(body, scope, depth)
                yield from self._texts(otherwise, scope, depth)
            case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
                for value in values:
                    yield from self._texts(value, scope, depth)
            case ast.Dict(values=values):
                for value in values:
                    yield from self._texts(value, scope, depth)
            case ast.Subscript(value=value) | ast.Starred(value=value) | ast.NamedExpr(value=value):
                yield from self._texts(value, scope, depth)
            case ast.Name(id=name) if depth:
                for value in scope.get(name, []) or self._constants.get(name, []):
                    yield from self._texts(value, scope, depth - 1)
            case ast.Call() if depth and self._carrier(node) is None:
                yield from self._called(node, scope, depth)

    def _called(
        self, call: ast.Call, scope: dict[str, list[ast.expr]], depth: int
    ) -> Iterator[str]:
        """Yield what a call may return: of a function of this module, or a method of a text."""
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if isinstance(function, ast.Attribute):
            yield from self._texts(function.value, scope, depth - 1)
        for value in call.args:
            yield from self._texts(value, scope, depth - 1)
        if (defined := self._functions.get(name)) is not None:
            inner = _assigned(defined.body)
            for node in ast.walk(defined):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from self._texts(node.value, inner, depth - 1)


def _kind_of(call: ast.Call) -> str | None:
    """Return the kind that an error, a finding or a verdict is given: the first of several."""
    given = [it.value for it in call.keywords if it.arg == "kind"]
    if _called_name(call) in _MADE:
        given = call.args[:1]
    several = [it.value for it in call.keywords if it.arg == "kinds"]
    given += [one for value in several if isinstance(value, ast.List) for one in value.elts]
    texts = (one.value for one in given if isinstance(one, ast.Constant))
    return next((text for text in texts if isinstance(text, str)), None)


def _called_name(call: ast.Call) -> str:
    return ast.unparse(call.func).split(".")[-1]


def _part(value: ast.expr) -> str:
    """Return a piece of an f-string: its text, or the value's expression in braces."""
    if isinstance(value, ast.Constant):
        return str(value.value)
    assert isinstance(value, ast.FormattedValue)
    return "{" + " ".join(ast.unparse(value.value).split()) + "}"


def _assigned(body: list[ast.stmt]) -> dict[str, list[ast.expr]]:
    """Return the values that names get in these statements, those of inner functions too."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found[name].append(value)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                    for name, one in _unpacked(targets, value):
                        found[name].append(one)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    found[name].append(value)
                case ast.NamedExpr(target=ast.Name(id=name), value=value):
                    found[name].append(value)
    return dict(found)


def _unpacked(targets: list[ast.expr], value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name of a tuple that is assigned to with its value, or with the whole where it is one."""
    each = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(targets) else ()
    for number, target in enumerate(targets):
        if isinstance(target, ast.Name):
            yield target.id, each[number] if each else value


def _is_prose(text: str) -> bool:
    """Return whether a text has words: one of two letters or more outside of braces, and a second part."""
    literal = outside_braces(text)
    return (
        any(len(word) > 1 and word.isalpha() for word in literal.split()) and len(text.split()) > 1
    )


def outside_braces(text: str) -> str:
    """Return a message without its values."""
    kept, depth = [], 0
    for letter in text:
        depth += (letter == "{") - (letter == "}" and depth > 0)
        kept.append(" " if depth or letter == "}" else letter)
    return "".join(kept)


def as_text(collected: Collected) -> str:
    """Return the golden file: messages by module, then what is raised but not seen, with its count."""
    lines = [_HEADER]
    module = ""
    for message in collected.messages:
        if message.module != module:
            module = message.module
            lines.append(f"\n{module}")
        lines.append(f"  {message.carrier} | {_one_line(message.text)}")
    lines.append(f"\n# Raised with words that are not seen: {len(collected.unseen)}")
    lines += [f"  {one.module} | {one.carrier} | {one.code}" for one in collected.unseen]
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").strip()


if __name__ == "__main__":
    if sys.argv[1:] != ["--remake"]:
        raise SystemExit("usage: python -m tests.golden.messages --remake")
    FILE.write_text(as_text(collect()), encoding="utf-8")
