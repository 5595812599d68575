"""The possible values of the names of one file: imports, aliases, loaders; every possible value counts.

The code is not run, and the order of statements is ignored: a name that is ever bound to ``os.system`` may
mean it anywhere in its file. Parameters, containers and attributes of objects are not followed; that is why
importing a module counts as a use too.
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


#: Literals joined by ``+``: ``"child_" + "process"``. More of them are a text, not a name.
_MAX_JOINED = 8

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|\r?\n|(.))")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}

#: Nodes inside a string that are plain text.
_PLAIN = frozenset(
    {"string_start", "string_content", "string_end", "string_fragment", "escape_sequence"}
)


def name_of(node: "Node", source: bytes) -> str:
    """Return a name as its language compares it: Python's normalised (PEP 3131), JavaScript's unescaped."""
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if "\\" in text:
        text = _unescaped(text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def literal(node: "Node | None", source: bytes, depth: int = 0) -> str | None:
    """Return the text of a string literal, or of several joined; None for anything else."""
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
        return None  # a value is filled in
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if node.named_children and node.named_children[0].type == "string_start":
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape is the target's, not ours
                value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        if isinstance(value, bytes):
            return value.decode("latin-1")
        return value if isinstance(value, str) else None
    return _unescaped(text[1:-1])


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1] or match[2] or match[3]
        if code is not None:
            return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else ""
        return _CONTROL.get(match[4], match[4]) if match[4] else ""

    return _ESCAPE.sub(plain, text)


def module_path(specifier: str) -> str:
    """Return a module's name as the lists spell it: without node's prefix, and only the package's name."""
    path = specifier.removeprefix("node:")
    if path.startswith((".", "/")) or "/" not in path:
        return path
    parts = path.split("/")
    return "/".join(parts[:2]) if path.startswith("@") else parts[0]


Paths = frozenset[str]

_NOTHING: Paths = frozenset()

#: Nested expressions and patterns that are followed: ``((a || b).c).d`` has five. People write fewer.
_MAX_DEPTH = 40

#: The number of passes, for aliases of aliases.
_MAX_PASSES = 4


#: Nodes that only wrap an expression.
_AROUND = frozenset(
    {"parenthesized_expression", "await", "await_expression", "non_null_expression"}
)


#: Calls that return the file's own namespace.
_NAMESPACES = frozenset({"globals", "locals"})


class Names:
    """The bindings of one file, and the possible values of its expressions."""

    def __init__(self, source: bytes, shape: Shape, table: Table) -> None:
        self._source, self._shape, self._table = source, shape, table
        self._bindings: dict[str, set[str]] = {}
        self._known: dict[tuple[int, bool], Paths] = {}
        #: All names that the file binds.
        self.bound: set[str] = set()
        #: Names for a member of an unknown value: ``run = client.exec_command``.
        self.aliases: dict[str, set[str]] = {}
        #: Names that an import binds: there the module is judged.
        self._brought: set[str] = set()

    def bind(self, name: str, path: str) -> None:
        """Record that ``name`` may mean ``path``."""
        self.bound.add(name)
        normal = self._table.normal(path)
        if normal:
            self._bindings.setdefault(name, set()).add(normal)

    def bring(self, name: str, path: str) -> None:
        """Record that an import binds ``name``."""
        self._brought.add(name)
        self.bind(name, path)

    def is_brought(self, node: "Node") -> bool:
        """Return whether the node is a member, at any depth, of a name that an import binds."""
        while node.type in self._shape.members:
            holder = node.child_by_field_name(self._shape.members[node.type][0])
            if holder is None:
                return False
            node = self.bare(holder)
        return node.type in self._shape.names and self.text(node) in self._brought

    def bind_all(self, module: str) -> list[str]:
        """Bind every listed member for ``from module import *``. Return the paths that count as used."""
        members = [path for path in self._table.listed if path.rpartition(".")[0] == module]
        for path in members:
            self.bind(path.rpartition(".")[2], path)
        return members or [module]

    def weighed(self, module: str, imported: Sequence[str]) -> list[str]:
        """Return the paths of ``from module import …`` that count as used: a listed module once, otherwise
        each listed member, but no mere constants or exceptions."""
        if not self._table.harmless.is_own(module) and not self._table.kind(
            self._table.normal(module)
        ):
            return [
                module,
                *(path for path in imported if self._table.kind(self._table.normal(path))),
            ]
        with_capability = [path for path in imported if self._table.kind(self._table.normal(path))]
        return (
            [module]
            if with_capability and self._table.kind(self._table.normal(module))
            else with_capability
        )

    def follow(self, pairs: list[tuple["Node", "Node"]]) -> None:
        """Bind the targets of assignments, in several passes until no binding is new."""
        for _ in range(_MAX_PASSES):
            count = sum(map(len, self._bindings.values()))
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
            if sum(map(len, self._bindings.values())) == count:
                return

    def alias(self, pairs: list[tuple["Node", "Node"]]) -> None:
        """Record names for members of values that can't be resolved."""
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
        """Return whether the value is a module from a loader: ``require("x")``, ``await import("x")``."""
        value = self.bare(value)
        if value.type not in self._shape.calls:
            return False
        return self.loaded(value, self.resolve(self.callee(value), called=True)) is not None

    def _halves(self, part: "Node") -> tuple["Node", "Node"]:
        """Return the key and the name of a part of ``{a, b: c, d = e}``."""
        if part.type == "pair_pattern":
            key, value = part.child_by_field_name("key"), part.child_by_field_name("value")
            return key or part, value or part
        if part.type == "object_assignment_pattern":
            part = part.child_by_field_name("left") or part
        return part, part

    def bare(self, node: "Node") -> "Node":
        """Return the expression without brackets and ``await`` around it."""
        while node.type in _AROUND and node.named_child_count == 1:
            node = node.named_children[0]
        return node

    def is_own(self, node: "Node") -> bool:
        """Return whether the node is a member of ``this``, such as ``this.constructor``."""
        holder = node.child_by_field_name("object")
        return holder is not None and holder.type == "this"

    def text(self, node: "Node") -> str:
        """Return the node's text as a name."""
        return name_of(node, self._source)

    def member(self, node: "Node | None") -> str:
        """Return the last name of ``a.b.c``, or "" if the node is not a member."""
        if node is None or node.type not in self._shape.members:
            return ""
        name = node.child_by_field_name(self._shape.members[node.type][1])
        return "" if name is None else self.text(name)

    def named_member(self, node: "Node | None") -> str:
        """Return the same as ``member``, and also the ``c`` of ``a["c"]``."""
        if node is None or node.type not in self._shape.indexes:
            return self.member(node)
        return self.literal(node.child_by_field_name(self._shape.indexes[node.type][1])) or ""

    def literal(self, node: "Node | None") -> str | None:
        """Return the string that the node spells out, or None."""
        return literal(node, self._source)

    def arguments(self, call: "Node") -> list["Node"]:
        """Return a call's arguments, without comments."""
        inner = call.child_by_field_name("arguments")
        return (
            []
            if inner is None
            else [argument for argument in inner.named_children if argument.type != "comment"]
        )

    def resolve(self, node: "Node | None", *, called: bool = False, depth: int = 0) -> Paths:
        """Return the normal paths that an expression may mean, or none if it doesn't matter."""
        if node is None or depth > _MAX_DEPTH:
            return _NOTHING
        paths = self._known.get((node.id, called))
        return self._resolved(node, called, depth) if paths is None else paths

    def remember(self, node: "Node", *, called: bool) -> None:
        """Cache the paths of an expression; call it only once every name is bound.

        If inner expressions come first, a chain of any length costs no more than its links, and none is too
        deep.
        """
        self._known[node.id, called] = self.resolve(node, called=called)

    def _resolved(self, node: "Node", called: bool, depth: int) -> Paths:
        shape, kind, depth_below = self._shape, node.type, depth + 1
        if kind in shape.names:
            return self._named(self.text(node), called=called)
        if kind == "import":
            return frozenset({"import"})
        if kind in shape.members:
            holder = node.child_by_field_name(shape.members[kind][0])
            paths = (
                self.resolve(holder, depth=depth_below)
                or frozenset({self.member(holder)}) & self._table.carried
            )
            return self._member(paths, self.member(node))
        if kind in shape.indexes:
            holder, index = (node.child_by_field_name(part) for part in shape.indexes[kind])
            return self._indexed(self.resolve(holder, depth=depth_below), self.literal(index))
        if kind in shape.calls:
            return self._returned(node, depth_below)
        if kind in shape.pairs:
            return self.resolve(node.child_by_field_name(shape.pairs[kind][1]), depth=depth_below)
        if kind in shape.through:
            paths_of_children = (
                self.resolve(child, depth=depth_below) for child in node.named_children
            )
            return _NOTHING.union(*paths_of_children)
        return _NOTHING

    def holders(self, node: "Node | None") -> Paths:
        """Return the modules, classes and built-in objects that an expression may be, but not the file's
        own namespace (``globals()``)."""
        if node is None:
            return _NOTHING
        node = self.bare(node)
        if node.type in self._shape.calls and self.text(self.callee(node) or node) in _NAMESPACES:
            return _NOTHING
        return self.resolve(node) or self._native(node)

    def _native(self, node: "Node") -> Paths:
        """Return a built-in object of JavaScript, which needs no import: ``Array.prototype``."""
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
        """Return ``os`` for ``shutil.os``, and any other path unchanged."""
        name = path.rpartition(".")[2]
        return name if name in self._table.carried else path

    def callee(self, call: "Node") -> "Node | None":
        """Return the expression that is called."""
        return call.child_by_field_name(self._shape.calls[call.type])

    def loaded(self, call: "Node", paths: Paths) -> str | None:
        """Return the module that a call of ``paths`` loads; "": its name is computed; None: no module."""
        arguments = self.arguments(call)
        is_loader = paths & self._table.loaders or self.member(self.callee(call)) == "require"
        if not arguments or not is_loader:
            return None
        specifier = self.literal(arguments[0])
        return "" if specifier is None else module_path(specifier)

    def _named(self, name: str, *, called: bool) -> Paths:
        paths = frozenset(self._bindings.get(name, ()))
        if name in self._table.roots and (called or name not in self.bound):
            normal = self._table.normal(name)
            return paths | {normal} if normal else paths
        return paths

    def _normal(self, paths: Iterator[str]) -> Paths:
        return frozenset(normal for path in paths if (normal := self._table.normal(path)))

    def _member(self, paths: Paths, name: str) -> Paths:
        if name == "__dict__":
            return paths
        return self._normal(f"{path}.{name}" for path in paths)

    def _indexed(self, paths: Paths, key: str | None) -> Paths:
        if key is not None and "sys.modules" in paths:
            return self._normal(iter([key]))
        members = self._member(paths, ANY if key is None else key)
        is_outer = key is not None and paths & self._table.outer
        return members | self._named(key or "", called=False) if is_outer else members

    def _returned(self, call: "Node", depth: int) -> Paths:
        """Return what a call returns, if it is known: a module, a member, a namespace."""
        # Resolved only once: in a chain of calls a second time would double the work with each link.
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
        """Bind one part of ``{a, b: c, d = e, ...rest}``."""
        if part.type == "rest_pattern":
            for name in part.named_children:
                self._destructure(name, paths, depth)
            return
        key, value = self._halves(part)
        key_name = self.literal(key)
        if key_name is None:
            key_name = ANY if key.type == "computed_property_name" else self.text(key)
        self._destructure(value, self._member(paths, key_name), depth)
