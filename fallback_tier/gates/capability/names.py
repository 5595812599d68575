"""What the names of one file may stand for: imports, aliases, loaders; every possible value counts.

Nothing is run and the order of statements is not followed: a name that is ever bound to ``os.system``
stands for it everywhere in its file. What goes through parameters, containers and attributes of objects
is not followed; that is why bringing a module in counts as a use of its own.
"""

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fallback_tier.gates.capability.shapes import Shape
from fallback_tier.gates.capability.tables import ANY, Table

if TYPE_CHECKING:
    from tree_sitter import Node


#: Literals joined by ``+``: ``"child_" + "process"``. Deeper is a text, no name.
_MAX_JOINED = 8

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|\r?\n|(.))")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}

#: Nodes inside a string that are plain text.
_PLAIN = frozenset(
    {"string_start", "string_content", "string_end", "string_fragment", "escape_sequence"}
)


def name_of(node: "Node", source: bytes) -> str:
    """A name as its language compares it: Python normalises (PEP 3131), JavaScript undoes escapes."""
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if "\\" in text:
        text = _unescaped(text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def literal(node: "Node | None", source: bytes, depth: int = 0) -> str | None:
    """The text of a string literal, or of several joined; None for anything else."""
    if node is None or depth > _MAX_JOINED:
        return None
    if node.type in {"string", "template_string"}:
        return _string(node, source)
    if node.type in {"binary_operator", "binary_expression", "concatenated_string"}:
        operator = node.child_by_field_name("operator")
        if operator is not None and operator.type != "+":
            return None
        parts = [literal(child, source, depth + 1) for child in node.named_children]
        return None if None in parts else "".join(part or "" for part in parts)
    if node.type == "parenthesized_expression" and node.named_child_count == 1:
        return literal(node.named_children[0], source, depth + 1)
    return None


def _string(node: "Node", source: bytes) -> str | None:
    if any(child.type not in _PLAIN for child in node.named_children):
        return None  # something is filled in
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if node.named_children and node.named_children[0].type == "string_start":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape is theirs, not ours
                value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        if isinstance(value, bytes):
            return value.decode("latin-1")
        return value if isinstance(value, str) else None
    return _unescaped(text[1:-1])


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code is not None:
            return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else ""
        return _CONTROL.get(found[4], found[4]) if found[4] else ""

    return _ESCAPE.sub(plain, text)


def module_path(message: str) -> str:
    """A module's name as the lists spell it: without node's prefix, and of a package its name alone."""
    path = message.removeprefix("node:")
    if path.startswith((".", "/")) or "/" not in path:
        return path
    parts = path.split("/")
    return "/".join(parts[:2]) if path.startswith("@") else parts[0]


Paths = frozenset[str]

_NOTHING: Paths = frozenset()

#: Nested expressions and patterns that are followed: ``((a || b).c).d`` has five. A person's have less.
_MAX_DEPTH = 40

#: Aliases of aliases.
_MAX_PASSES = 4


#: What only stands around an expression.
_AROUND = frozenset(
    {"parenthesized_expression", "await", "await_expression", "non_null_expression"}
)


#: Calls that give a namespace of the file's own.
_NAMESPACES = frozenset({"globals", "locals"})


class Names:
    """The bindings of one file, and what its expressions may be."""

    def __init__(self, source: bytes, shape: Shape, table: Table) -> None:
        self._source, self._shape, self._table = source, shape, table
        self._bindings: dict[str, set[str]] = {}
        self._known: dict[tuple[int, bool], Paths] = {}
        #: Every name that something in the file binds.
        self.bound: set[str] = set()
        #: Names for a member of a value of which nothing is known: ``run = client.exec_command``.
        self.aliases: dict[str, set[str]] = {}
        #: Names that an import binds: the module is what is judged.
        self._brought: set[str] = set()

    def bind(self, name: str, path: str) -> None:
        """``name`` may stand for ``path``."""
        self.bound.add(name)
        normal = self._table.normal(path)
        if normal:
            self._bindings.setdefault(name, set()).add(normal)

    def bring(self, name: str, path: str) -> None:
        """An import binds ``name``."""
        self._brought.add(name)
        self.bind(name, path)

    def is_brought(self, node: "Node") -> bool:
        """Is it a member, of whatever depth, of what an import binds?"""
        while node.type in self._shape.members:
            holder = node.child_by_field_name(self._shape.members[node.type][0])
            if holder is None:
                return False
            node = self.bare(holder)
        return node.type in self._shape.names and self.text(node) in self._brought

    def bind_all(self, module: str) -> list[str]:
        """``from module import *``: every listed member by its own name. What of it counts."""
        members = [path for path in self._table.listed if path.rpartition(".")[0] == module]
        for path in members:
            self.bind(path.rpartition(".")[2], path)
        return members or [module]

    def weighed(self, module: str, brought: Sequence[str]) -> list[str]:
        """What of ``from module import …`` counts: a listed module once, else each listed member; not
        what is only a constant or an exception."""
        if not self._table.harmless.is_own(module) and not self._table.kind(
            self._table.normal(module)
        ):
            return [
                module,
                *(path for path in brought if self._table.kind(self._table.normal(path))),
            ]
        with_capability = [path for path in brought if self._table.kind(self._table.normal(path))]
        return (
            [module]
            if with_capability and self._table.kind(self._table.normal(module))
            else with_capability
        )

    def follow(self, pairs: list[tuple["Node", "Node"]]) -> None:
        """Assignments, until nothing new comes of them."""
        for _ in range(_MAX_PASSES):
            before = sum(map(len, self._bindings.values()))
            for target, value in pairs:
                if (
                    target.type.endswith("_list")
                    and target.named_child_count == value.named_child_count
                ):
                    for left, right in zip(
                        target.named_children, value.named_children, strict=True
                    ):
                        self._destructure(left, self.resolve(right), 0)
                else:
                    self._destructure(target, self.resolve(value), 0)
            if sum(map(len, self._bindings.values())) == before:
                return

    def alias(self, pairs: list[tuple["Node", "Node"]]) -> None:
        """Names for members of what can't be resolved."""
        for target, value in pairs:
            if target.type in self._shape.names and self._is_loading(value):
                self._brought.add(self.text(target))
            elif target.type in self._shape.names:
                name = self.named_member(self.bare(value))
                if name and not self.resolve(value) and not self.is_brought(value):
                    self.aliases.setdefault(self.text(target), set()).add(name)
            elif target.type == "object_pattern" and not self._is_loading(value):
                for part in target.named_children:
                    key, name = map(self.text, self._halves(part))
                    if not self._bindings.get(name):
                        self.aliases.setdefault(name, set()).add(key)

    def _is_loading(self, value: "Node") -> bool:
        """Is it a module, as a loader gives it: ``require("x")``, ``await import("x")``?"""
        value = self.bare(value)
        if value.type not in self._shape.calls:
            return False
        return self.loaded(value, self.resolve(self.callee(value), called=True)) is not None

    def _halves(self, part: "Node") -> tuple["Node", "Node"]:
        """Key and name of a part of ``{a, b: c, d = e}``."""
        if part.type == "pair_pattern":
            key, value = part.child_by_field_name("key"), part.child_by_field_name("value")
            return key or part, value or part
        if part.type == "object_assignment_pattern":
            part = part.child_by_field_name("left") or part
        return part, part

    def bare(self, node: "Node") -> "Node":
        """Without brackets and ``await`` around it."""
        while node.type in _AROUND and node.named_child_count == 1:
            node = node.named_children[0]
        return node

    def is_own(self, node: "Node") -> bool:
        """Is it a member of the object that it stands in: ``this.constructor``?"""
        holder = node.child_by_field_name("object")
        return holder is not None and holder.type == "this"

    def text(self, node: "Node") -> str:
        """The node's text as a name."""
        return name_of(node, self._source)

    def member(self, node: "Node | None") -> str:
        """The last name of ``a.b.c``; empty where the node is no member."""
        if node is None or node.type not in self._shape.members:
            return ""
        name = node.child_by_field_name(self._shape.members[node.type][1])
        return "" if name is None else self.text(name)

    def named_member(self, node: "Node | None") -> str:
        """As ``member``, and the ``c`` of ``a["c"]``."""
        if node is None or node.type not in self._shape.indexes:
            return self.member(node)
        return self.literal(node.child_by_field_name(self._shape.indexes[node.type][1])) or ""

    def literal(self, node: "Node | None") -> str | None:
        """The string that the node spells out."""
        return literal(node, self._source)

    def arguments(self, call: "Node") -> list["Node"]:
        """What a call hands over, without comments."""
        inner = call.child_by_field_name("arguments")
        return [] if inner is None else [n for n in inner.named_children if n.type != "comment"]

    def resolve(self, node: "Node | None", *, called: bool = False, depth: int = 0) -> Paths:
        """The normal paths that an expression may stand for; none where that doesn't matter."""
        if node is None or depth > _MAX_DEPTH:
            return _NOTHING
        known = self._known.get((node.id, called))
        return self._resolved(node, called, depth) if known is None else known

    def remember(self, node: "Node", *, called: bool) -> None:
        """Keep what an expression is: given the inner ones first, a chain of any length costs no more
        than its links, and none is too deep. Only once every name is bound."""
        self._known[node.id, called] = self.resolve(node, called=called)

    def _resolved(self, node: "Node", called: bool, depth: int) -> Paths:
        shape, kind, below = self._shape, node.type, depth + 1
        if kind in shape.names:
            return self._named(self.text(node), called=called)
        if kind == "import":
            return frozenset({"import"})
        if kind in shape.members:
            holder = node.child_by_field_name(shape.members[kind][0])
            paths = (
                self.resolve(holder, depth=below)
                or frozenset({self.member(holder)}) & self._table.carried
            )
            return self._member(paths, self.member(node))
        if kind in shape.indexes:
            holder, index = (node.child_by_field_name(part) for part in shape.indexes[kind])
            return self._indexed(self.resolve(holder, depth=below), self.literal(index))
        if kind in shape.calls:
            return self._returned(node, below)
        if kind in shape.pairs:
            return self.resolve(node.child_by_field_name(shape.pairs[kind][1]), depth=below)
        if kind in shape.through:
            found = (self.resolve(child, depth=below) for child in node.named_children)
            return _NOTHING.union(*found)
        return _NOTHING

    def holders(self, node: "Node | None") -> Paths:
        """The modules, classes and objects of the language's own that an expression may be; none for a
        namespace of the file's own (``globals()``)."""
        if node is None:
            return _NOTHING
        node = self.bare(node)
        if node.type in self._shape.calls and self.text(self.callee(node) or node) in _NAMESPACES:
            return _NOTHING
        return self.resolve(node) or self._native(node)

    def _native(self, node: "Node") -> Paths:
        """``Array.prototype``: an object of JavaScript's own, which no import brings."""
        parts: list[str] = []
        while node.type in self._shape.members or node.type in self._shape.indexes:
            parts.append(self.named_member(node) or ANY)
            inner = node.child_by_field_name("object")
            if inner is None:
                return _NOTHING
            node = self.bare(inner)
        name = self.text(node) if node.type in self._shape.names else ""
        is_native = name in self._table.harmless.natives and name not in self.bound
        return frozenset({".".join([name, *reversed(parts)])}) if is_native else _NOTHING

    def carried(self, path: str) -> str:
        """``os`` for ``shutil.os``; any other path as it is."""
        name = path.rpartition(".")[2]
        return name if name in self._table.carried else path

    def callee(self, call: "Node") -> "Node | None":
        """What a call calls."""
        return call.child_by_field_name(self._shape.calls[call.type])

    def loaded(self, call: "Node", paths: Paths) -> str | None:
        """The module that a call of ``paths`` brings in; empty: one that only the run tells; None: none."""
        arguments = self.arguments(call)
        is_loader = paths & self._table.loaders or self.member(self.callee(call)) == "require"
        if not arguments or not is_loader:
            return None
        message = self.literal(arguments[0])
        return "" if message is None else module_path(message)

    def _named(self, name: str, *, called: bool) -> Paths:
        found = frozenset(self._bindings.get(name, ()))
        if name in self._table.roots and (called or name not in self.bound):
            normal = self._table.normal(name)
            return found | {normal} if normal else found
        return found

    def _normal(self, paths: Iterator[str]) -> Paths:
        return frozenset(normal for path in paths if (normal := self._table.normal(path)))

    def _member(self, paths: Paths, name: str) -> Paths:
        if name == "__dict__":
            return paths
        return self._normal(f"{path}.{name}" for path in paths)

    def _indexed(self, paths: Paths, message: str | None) -> Paths:
        if message is not None and "sys.modules" in paths:
            return self._normal(iter([message]))
        found = self._member(paths, ANY if message is None else message)
        inside = message is not None and paths & self._table.outer
        return found | self._named(message or "", called=False) if inside else found

    def _returned(self, call: "Node", depth: int) -> Paths:
        """What a call gives, where that can be told: a module, a member, a namespace."""
        # Once: a chain of calls would double the work with each link.
        paths = self.resolve(self.callee(call), called=True, depth=depth)
        module = self.loaded(call, paths)
        if module:
            return self._normal(iter([module]))
        arguments = self.arguments(call)
        if paths & {"globals", "locals"}:
            return frozenset({"builtins"})
        if "vars" in paths and arguments:
            return self.resolve(arguments[0], depth=depth)
        if paths & self._table.getters and len(arguments) > 1:
            return self._indexed(
                self.resolve(arguments[0], depth=depth), self.literal(arguments[1])
            )
        return self._normal(self._table.gives[path] for path in paths if path in self._table.gives)

    def _destructure(self, target: "Node", paths: Paths, depth: int) -> None:
        kind = target.type
        if not paths or depth > _MAX_DEPTH:
            return
        if kind in self._shape.names or kind == "shorthand_property_identifier_pattern":
            for path in paths:
                self.bind(self.text(target), path)
        elif kind == "object_pattern":
            for part in target.named_children:
                self._part(part, paths, depth + 1)
        elif kind in {"assignment_pattern", "object_assignment_pattern"}:
            left = target.child_by_field_name("left")
            if left is not None:
                self._destructure(left, paths, depth + 1)

    def _part(self, part: "Node", paths: Paths, depth: int) -> None:
        """One part of ``{a, b: c, d = e, ...rest}``."""
        if part.type == "rest_pattern":
            for name in part.named_children:
                self._destructure(name, paths, depth)
            return
        key, value = self._halves(part)
        message = self.literal(key)
        if message is None:
            message = ANY if key.type == "computed_property_name" else self.text(key)
        self._destructure(value, self._member(paths, message), depth)
