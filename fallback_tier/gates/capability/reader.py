"""The uses of capabilities in one file: every use of a listed name, with its lines.

A *use* is a mention, called or not: ``run = os.system`` hands on the same power as a call. Importing a
module counts too. A mention in a comment or a string is not a use.
"""

import posixpath
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from fallback_audit.vocabulary import Capability
from fallback_tier.gates.capability import shapes, tables
from fallback_tier.gates.capability.harmless import inner_names, plain_dunder, words
from fallback_tier.gates.capability.names import Names, module_path
from fallback_tier.gates.capability.project import About, Question, package_of
from fallback_tier.gates.capability.shapes import FUNCTIONS, HANDED_ON, Shape
from fallback_tier.gates.capability.tables import ANY, STEERING, Table
from fallback_tier.syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node


class CapabilityUse(NamedTuple):
    """A capability and its use: ``process``, ``child_process.exec``."""

    capability: Capability
    callee: str


# What the reader of one file can't judge, each with a question that the project may answer: an imported
# module, a called member of a value that the file does not make, a name that the file does not bind, a
# call of a computed value, the way from a value to its inner parts.

#: Files that a relative import of JavaScript can run, but that are not source.
_NATIVE = (".node", ".wasm")

#: Members that lead from any value to code that runs a text.
_LEADING = frozenset({"constructor", "__proto__"})

#: Members of node's modules that load code, however they are reached.
_LOADING = words(
    """
    _load _resolveFilename _resolveLookupPaths _extensions _compile _findPath _nodeModulePaths _initPaths
    _preloadModules runMain registerHooks
    """
)

_NO_QUESTION = Question(About.NOTHING, "")


class _Unknown:
    def __init__(self, names: Names, table: Table, path: str, *, is_python: bool) -> None:
        self._names, self._table, self._is_python = names, table, is_python
        self._folder = PurePosixPath(path).parent
        self.found: defaultdict[CapabilityUse, list[int]] = defaultdict(list)
        self.questions: dict[CapabilityUse, Question] = {}

    def brought(self, specifier: str, node: "Node") -> None:
        """Record an imported module that is not in the language's standard library."""
        if self._is_python:
            if specifier.startswith("."):
                self._relative(specifier, node)
                return
            top = specifier.partition(".")[0]
            self._ask(specifier, Question(About.MODULE, top), node)
        elif specifier.startswith("."):
            path = posixpath.normpath(str(self._folder / specifier))
            is_file = not path.startswith("..") and not specifier.endswith(_NATIVE)
            self._ask(
                specifier,
                Question(About.FILE, _stem(path), False) if is_file else _NO_QUESTION,
                node,
            )
        elif specifier.startswith("/") or ":" in specifier:
            self._ask(specifier, _NO_QUESTION, node)
        elif specifier:
            self._ask(specifier, Question(About.MODULE, package_of(specifier), False), node)

    def _relative(self, specifier: str, node: "Node") -> None:
        """Record ``from .a.b import c``. (``from . import c`` may import a name of the package itself.)"""
        names = specifier.lstrip(".").split(".")
        folder = self._folder
        for _ in range(len(specifier) - len(specifier.lstrip(".")) - 1):
            folder = folder.parent
        if names[0]:
            path = folder.joinpath(*names)
            self._ask(specifier, Question(About.FILE, str(path), True), node)

    def called_member(self, name: str, node: "Node") -> None:
        """Record a called member of an unknown value."""
        if name in _LEADING:
            self._ask(f".{name}", _NO_QUESTION, node)
            return
        if not (
            name in self._table.harmless.members
            or (name.startswith("__") and name.endswith("__"))
            or name.startswith("#")
        ):
            self._ask(f".{name}", Question(About.MEMBER, name, self._is_python), node)

    def unbound(self, name: str, node: "Node") -> None:
        """Record a name that the file does not bind; Python's built-in names are in ``tables.py``."""
        if self._is_python:
            return
        if name not in self._table.harmless.roots and name not in self._table.roots:
            self._ask(name, Question(About.ROOT, name, False), node)

    def inner(self, name: str, node: "Node") -> None:
        """Record an attribute that leads to code, frames, all classes, or in JavaScript to node's
        loader."""
        if not plain_dunder(name):
            self._ask(name, _NO_QUESTION, node)
        elif not self._is_python and name in _LOADING and not self._names.is_own(node):
            self._ask(f".{name}", _NO_QUESTION, node)

    def spelled(self, text: str | None, node: "Node") -> None:
        """Record a name or a text that is a variable which controls what programs load."""
        name = (text or "").partition("=")[0]
        if name in STEERING:
            self._ask(f"the variable {name}", _NO_QUESTION, node)

    def written(self, holder: "Node | None", name: str, node: "Node") -> None:
        """Record a member that is set, if code outside the project then behaves differently. ``name``:
        empty if it is computed."""
        for path in self._names.holders(holder):
            if self._table.steers(path, name):
                self._ask(f"a change of {path}.{name or ANY}", _NO_QUESTION, node)

    def text(self, text: str | None, node: "Node") -> None:
        """Record a text that names such an attribute: a formatter or a getter may use it."""
        for name in inner_names(text or ""):
            self._ask(f"{name} in a text", _NO_QUESTION, node)

    def made(self, what: str, node: "Node") -> None:
        """Record a value that exists only when the program runs."""
        self._ask(what, _NO_QUESTION, node)

    def _ask(self, callee: str, question: Question, node: "Node") -> None:
        use = CapabilityUse(Capability.UNKNOWN, callee)
        self.questions[use] = question
        self.found[use].append(node.start_point.row + 1)


def _stem(path: str) -> str:
    """Return a path that may name a file of another ending: ``a.js`` for ``a.ts``."""
    return path[:-3] if path.endswith((".js", ".ts")) else path.removesuffix(".mjs")


#: The role of a node in its parent: an expression; the object of a member; a callee; a position that binds
#: names; not an expression.
_PLAIN, _SPINE, _CALLEE, _TARGET, _LABEL = range(5)

_NONE: dict[int, int] = {}

#: Nested types: ``dict[str, list[Path]]`` has five nodes.
_MAX_DEPTH = 20


@dataclass(frozen=True)
class CapabilityUses:
    """The uses in a file, each with its lines (from 1), and whether the text has a syntax error."""

    lines: dict[CapabilityUse, tuple[int, ...]]
    is_broken: bool = False
    questions: dict[CapabilityUse, Question] = field(default_factory=dict)

    @property
    def counts(self) -> dict[CapabilityUse, int]:
        """The number of uses."""
        return {use: len(lines) for use, lines in self.lines.items()}


def capability_uses(text: str, grammar: str, path: str = "") -> CapabilityUses | None:
    """Return the capability uses of a text of this grammar, despite syntax errors; None if the parse takes
    more than MAX_PARSE_STEPS."""
    source = text.encode("utf-8", "replace")
    tree = parse(source, grammar)
    if tree is None:
        return None
    is_python = grammar == "python"
    reader = _Reader(source, path, is_python=is_python)
    reader.read(tree.root_node)
    lines_by_use = {use: tuple(sorted(lines)) for use, lines in reader.found.items()}
    return CapabilityUses(lines_by_use, tree.root_node.has_error, reader.unknown.questions)


class _Reader:
    """A reader that collects nodes in one walk, and judges them once all names are known."""

    def __init__(self, source: bytes, path: str, *, is_python: bool) -> None:
        self._shape: Shape = shapes.PYTHON if is_python else shapes.JAVASCRIPT
        self._table: Table = tables.PYTHON if is_python else tables.JAVASCRIPT
        self._import = _python_import if is_python else _javascript_import
        self._names = Names(source, self._shape, self._table)
        self._seen: list[tuple[Node, int]] = []
        self._pairs: list[tuple[Node, Node]] = []
        self._excused: set[int] = set()
        self._defined: set[str] = set()
        self.unknown = _Unknown(self._names, self._table, path, is_python=is_python)
        self.found: defaultdict[CapabilityUse, list[int]] = self.unknown.found

    def read(self, root: "Node") -> None:
        self._walk(root)
        self._names.follow(self._pairs)
        self._names.alias(self._pairs)
        for node, role in reversed(self._seen):
            self._names.remember(node, called=role == _CALLEE)
        for node, role in self._seen:
            self._look(node, role)

    @cached_property
    def _looked_at(self) -> frozenset[str]:
        shape = self._shape
        return shape.names.union(shape.members, shape.indexes, shape.calls)

    def _walk(self, root: "Node") -> None:
        """Collect the nodes, without recursion: the text determines the depth."""
        pending = [(root, _PLAIN)]
        while pending:
            node, role = pending.pop()
            kind = node.type
            if kind in shapes.SPELLED:
                self.unknown.spelled(self._spelled(node), node)
            if role == _LABEL or kind in self._shape.skipped:
                continue
            if kind in self._shape.imports and self._brought_in(node):
                continue
            if role == _TARGET and kind in self._binding:
                self._names.bound.add(self._names.text(node))
            elif kind == "string":
                self.unknown.text(self._names.text(node), node)
            elif kind in self._looked_at:
                self._seen.append((node, role))
            if node.named_child_count:
                special, default = self._roles(node, role)
                pending.extend(
                    (child, special.get(child.id, default)) for child in node.named_children
                )

    def _spelled(self, node: "Node") -> str | None:
        is_name = node.type.endswith(("identifier", "identifier_pattern"))
        return self._names.text(node) if is_name else self._names.literal(node)

    @cached_property
    def _binding(self) -> frozenset[str]:
        return self._shape.names | {"shorthand_property_identifier_pattern"}

    def _roles(self, node: "Node", role: int) -> tuple[dict[int, int], int]:
        """Return the roles of a node's children by their id, and the role of the others."""
        shape, kind = self._shape, node.type
        if kind in shape.members:
            return self._fields(node, shape.members[kind], (_SPINE, _LABEL)), _PLAIN
        if kind in shape.indexes:
            return self._fields(node, shape.indexes[kind], (_SPINE, _PLAIN)), _PLAIN
        if kind in shape.calls:
            return self._fields(node, (shape.calls[kind],), (_CALLEE,)), _PLAIN
        if kind in shape.pairs:
            target, value = (node.child_by_field_name(part) for part in shape.pairs[kind])
            if target is not None and value is not None:
                self._pairs.append((target, value))
            return self._fields(node, shape.pairs[kind], (_TARGET, _PLAIN)), _PLAIN
        if kind in shape.targets:
            fields = shape.targets[kind]
            name = node.child_by_field_name("name")
            if name is not None:
                self._defined.add(self._names.text(name))
            return self._fields(node, fields, (_TARGET,) * len(fields)), _PLAIN
        if kind in shape.labels:
            return self._fields(node, (shape.labels[kind],), (_LABEL,)), _PLAIN
        if kind in shape.lists:
            return _NONE, _TARGET
        if role == _TARGET or (kind in shape.through and role in {_SPINE, _CALLEE}):
            return _NONE, role
        return _NONE, _PLAIN

    @staticmethod
    def _fields(node: "Node", fields: tuple[str, ...], roles: tuple[int, ...]) -> dict[int, int]:
        children = (node.child_by_field_name(name) for name in fields)
        return {
            child.id: role for child, role in zip(children, roles, strict=True) if child is not None
        }

    def _brought_in(self, statement: "Node") -> bool:
        """Bind and count what a statement imports. Return False if it imports nothing (``export
        const …``)."""
        paths = self._import(statement, self._names)
        if paths is None:
            return False
        for path in paths:
            self._bring(path, statement)
        return True

    def _bring(self, path: str, node: "Node") -> None:
        """Count an imported module, or a member of one."""
        path = path.removeprefix(
            "six.moves."
        )  # the library's, by a name that old and new Pythons share
        normal = self._table.normal(path)
        if normal:
            self._count(normal, node)
        if not self._table.harmless.is_own(path) and not self._table.kind(normal):
            self.unknown.brought(path, node)

    def _look(self, node: "Node", role: int) -> None:
        kind, shape = node.type, self._shape
        if kind in shape.calls:
            self._look_at_call(node)
        elif kind in shape.members:
            self.unknown.inner(self._names.member(node), node)
            if role == _PLAIN:
                self._look_at_mention(node, self._names.member(node))
        elif kind in shape.indexes:
            self.unknown.inner(self._names.named_member(node), node)
        elif kind in shape.names:
            name = self._names.text(node)
            if name not in self._names.bound:
                self.unknown.unbound(name, node)
            if role == _PLAIN:
                self._look_at_mention(node, name)
        is_member = kind in shape.members or kind in shape.indexes
        if role == _TARGET and is_member and not _is_annotation(node):
            self.unknown.written(self._holder(node), self._names.named_member(node), node)
        if node.id in self._excused or (role == _SPINE and kind not in shape.calls):
            return
        for path in self._names.resolve(node, called=role == _CALLEE):
            if kind in shape.names and path in self._table.called and role != _CALLEE:
                continue
            is_whole = path in self._table.holders and role == _PLAIN and kind not in shape.calls
            if is_whole and not self._is_compared(node):
                # A whole module is handed on: its uses there can't be seen.
                self._add(self._table.holders[path], path, node)
            elif kind not in shape.calls or self._is_got(node):
                self._count(path, node)
            if path.endswith(f".{ANY}") and role == _CALLEE and path not in self._table.listed:
                stem = path.removesuffix(f".{ANY}")
                if stem in self._table.outer:
                    self._add(Capability.DYNAMIC_CODE, path, node)

    def _is_got(self, call: "Node") -> bool:
        """Return whether a call is itself the mention: ``getattr(os, "system")``."""
        paths = self._names.resolve(self._names.callee(call), called=True)
        return bool(paths & self._table.getters)

    def _look_at_call(self, call: "Node") -> None:
        callee, arguments = self._names.callee(call), self._names.arguments(call)
        if callee is None:
            return
        self._look_at_callee(callee)
        if not arguments:
            return
        paths = self._names.resolve(callee, called=True)
        module = self._names.loaded(call, paths)
        if module:
            self._bring(module, call)
        elif module is not None:
            self._add(Capability.DYNAMIC_CODE, "a module whose name is computed", call)
        self._look_at_setter(call, callee, arguments)
        first = arguments[0]
        is_text = self._names.literal(first) is not None or first.type == "template_string"
        if is_text and paths & self._table.timers:
            self._add(Capability.DYNAMIC_CODE, f"{min(paths)} of a text", call)
        elif paths & self._table.timers:
            self._look_at_timer(first)
        if is_text and self._names.named_member(callee) == "constructor":
            self._add(Capability.DYNAMIC_CODE, "constructor of a text", call)
        if paths & self._table.getters:
            if len(arguments) > 1 and self._names.literal(arguments[1]) is None:
                self.unknown.made("a member whose name is computed", call)
            self._excused.add(first.id)  # the member counts, not that the call names the module
        for path in paths & self._table.safe_with.keys():
            word = self._table.safe_with[path]
            if any(self._names.text(argument).endswith(word) for argument in arguments[1:]):
                self._excused.add(callee.id)

    def _holder(self, member: "Node") -> "Node | None":
        fields = self._shape.members.get(member.type) or self._shape.indexes[member.type]
        return member.child_by_field_name(fields[0])

    def _is_compared(self, node: "Node") -> bool:
        """Return whether a module is not handed on: ``require.main === module``, ``typeof module``."""
        parent_type = node.parent.type if node.parent is not None else ""
        return self._names.text(node) == "module" and parent_type not in HANDED_ON

    def _look_at_setter(self, call: "Node", callee: "Node", arguments: list["Node"]) -> None:
        """Record ``setattr(json, "loads", x)``, ``Object.assign(process.env, x)``,
        ``os.environ.update(x)``."""
        name, holder = self._names.named_member(callee), None
        if name:
            holder = self._holder(callee)
        if self._names.text(callee) in shapes.SETTERS or (
            name in shapes.MEMBER_SETTERS
            and self._names.text(holder or callee) in shapes.SETTERS_OF
        ):
            holder, *values = arguments
            names = [self._names.literal(values[0]) or ""] if values else [""]
            if name in shapes.MERGERS:
                names = [name_set for value in values for name_set in self._keys(value)]
        elif name in shapes.UPDATERS and (
            self._names.member(holder) == "__dict__"
            or self._names.holders(holder) & (self._table.environments | {"sys.modules"})
        ):
            names = [self._names.literal(arguments[0]) or ""]
            if name in shapes.MERGERS:
                names = [name_set for value in arguments for name_set in self._keys(value)]
        else:
            return
        for name_set in names:
            self.unknown.written(holder, name_set, call)

    def _keys(self, value: "Node") -> Iterator[str]:
        """Yield the names that a value of names sets; "" for names that are unknown."""
        if value.type == "keyword_argument":
            yield self._names.text(value.child_by_field_name("name") or value)
        elif value.type not in {"object", "dictionary"}:
            yield ""
        else:
            for part in value.named_children:
                key = part.child_by_field_name("key") or part
                if key.type == "computed_property_name" and key.named_child_count == 1:
                    key = key.named_children[0]
                if part.type in {"pair", "method_definition", "shorthand_property_identifier"}:
                    is_name = key.type.endswith("property_identifier")
                    yield (self._names.text(key) if is_name else self._names.literal(key)) or ""
                elif part.type != "comment":
                    yield ""

    def _look_at_callee(self, callee: "Node") -> None:
        callee = self._names.bare(callee)
        if self._names.resolve(callee, called=True) or self._names.is_brought(callee):
            return
        name = self._names.named_member(callee)
        if name == "constructor" and self._names.is_own(callee):
            return
        if name:
            self.unknown.called_member(name, callee)
        elif callee.type in self._shape.indexes:
            self.unknown.made("a call of a computed member", callee)
        elif callee.type == "call":  # in Python; in JavaScript it is common
            self.unknown.made("a call of what a call gives", callee)
        elif callee.type in self._shape.names:
            for member in self._names.aliases.get(self._names.text(callee), ()):
                self.unknown.called_member(member, callee)

    def _look_at_timer(self, first: "Node") -> None:
        """Record a browser's timer unless its argument is seen to be a function: timers also run texts."""
        first = self._names.bare(first)
        if self._names.member(first):
            self.unknown.called_member(self._names.member(first), first)
        elif first.type in self._shape.names:
            if self._names.text(first) not in self._functions:
                self.unknown.made("a timer of what may be a text", first)
        elif first.type not in FUNCTIONS and first.type not in self._shape.calls:
            self.unknown.made("a timer of what may be a text", first)

    def _look_at_mention(self, node: "Node", name: str) -> None:
        """Record a function that is handed on and calls or gets anything."""
        parent_type = node.parent.type if node.parent is not None else ""
        if parent_type not in HANDED_ON:
            return
        if name == "constructor":
            self.unknown.called_member(name, node)
        elif name not in self._names.bound and name in self._handed:
            self.unknown.made(f"{name} handed on", node)

    @cached_property
    def _handed(self) -> frozenset[str]:
        return self._table.called | self._table.getters

    @cached_property
    def _functions(self) -> frozenset[str]:
        names = {
            self._names.text(callee)
            for node, _ in self._seen
            if node.type in self._shape.calls
            and (callee := self._names.callee(node)) is not None
            and callee.type in self._shape.names
        }
        names |= {self._names.text(left) for left, right in self._pairs if right.type in FUNCTIONS}
        return frozenset(names | self._defined)

    def _count(self, path: str, node: "Node") -> None:
        kind = self._table.kind(path)
        if kind is not None:
            self._add(kind, path, node)

    def _add(self, kind: Capability, callee: str, node: "Node") -> None:
        self.found[CapabilityUse(kind, callee)].append(node.start_point.row + 1)


def _is_annotation(node: "Node") -> bool:
    """Return whether a node is in the type of a parameter, next to the names that parameters bind."""
    ancestor: Node | None = node
    for _ in range(_MAX_DEPTH):
        ancestor = ancestor.parent if ancestor is not None else None
        if ancestor is None or ancestor.type in {"parameters", "lambda_parameters", "block"}:
            return False
        if ancestor.type == "type":
            return True
    return False


def _python_import(statement: "Node", names: Names) -> list[str]:
    """Bind the names of an import. Return the modules, otherwise the members, that it imports."""
    module = statement.child_by_field_name("module_name")
    if module is None:
        return [_plain(child, names) for child in statement.children_by_field_name("name")]
    module_name = names.text(module)
    if any(child.type == "wildcard_import" for child in statement.named_children):
        return names.bind_all(module_name)
    imported = []
    for child in statement.children_by_field_name("name"):
        name, alias = _renamed(child, names)
        path = names.carried(f"{module_name}.{name}")
        names.bring(alias or name, path)
        imported.append(path)
    return names.weighed(module_name, imported)


def _plain(child: "Node", names: Names) -> str:
    """Bind ``a`` for ``import a.b``, ``c`` for ``import a.b as c``. Return the module."""
    name, alias = _renamed(child, names)
    if alias:
        names.bring(alias, name)
    else:
        root = name.partition(".")[0]
        names.bring(root, root)
    return name


def _renamed(node: "Node", names: Names) -> tuple[str, str]:
    """Return the imported name, and its alias or ""."""
    name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
    return names.text(node if name is None else name), names.text(alias) if alias else ""


def _javascript_import(statement: "Node", names: Names) -> list[str] | None:
    """Do the same as ``_python_import``, but return None if it is not an import (``export const …``)."""
    clause = next((c for c in statement.named_children if c.type.endswith("_clause")), None)
    source = statement.child_by_field_name("source")
    if source is None and clause is not None and clause.type == "import_require_clause":
        source = clause.child_by_field_name("source")
    if source is None:
        return None
    if any(child.type == "type" for child in statement.children):
        return []  # types do not exist when it runs
    module = module_path(names.literal(source) or "")
    if statement.type == "import_statement" and clause is not None:
        _bind(clause, module, names)
    return [module]


def _bind(clause: "Node", module: str, names: Names) -> None:
    for child in clause.named_children:
        if child.type == "identifier":
            names.bring(names.text(child), module)
        elif child.type == "namespace_import":
            for inner in child.named_children:
                names.bring(names.text(inner), module)
        elif child.type == "named_imports":
            for specifier in child.named_children:
                name, alias = _renamed(specifier, names)
                member = name.strip("\"'")  # a name may be a string (ES2022)
                names.bring(alias or name, f"{module}.{member}")
