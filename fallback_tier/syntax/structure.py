"""What a source file is made of: definitions, and imports with the names that they bind.

One tree-sitter query a grammar finds the nodes, in C and without recursion; what is done with a node
here looks at it and its children only, so that depth costs nothing.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from fallback_tier.syntax.grammars import MAX_PARSE_STEPS, grammar_of, language, parse

if TYPE_CHECKING:
    from tree_sitter import Node, Query

#: Definitions, and imports, of one file: a file of more is a table written by a program.
MAX_DEFINITIONS = 2_000


#: Of a longer name the start is kept: no person wrote it.
MAX_NAME_CHARS = 200


class Definition(NamedTuple):
    """A named piece of code. Lines count from 1, both ends included; decorators belong to it.

    ``name`` is the last part of what it is called (``Foo.prototype.bar = function`` is ``bar``),
    ``nesting`` the number of definitions around it. ``kind`` is ``function``, ``method``, ``class``, or
    ``callback``: a statement that hands a function over (``app.get("/", () => …)``), without a name.
    """

    name: str
    kind: str
    start_line: int
    end_line: int
    nesting: int


class Import(NamedTuple):
    """A statement that brings names in: ``import``, ``from … import``, ``… = require(…)``."""

    text: str
    names: tuple[str, ...]
    start_line: int
    end_line: int


class Structure(NamedTuple):
    """A file's definitions and imports, each in the order of the text."""

    definitions: tuple[Definition, ...] = ()
    imports: tuple[Import, ...] = ()


_REQUIRE = re.compile(rb"(?:await\s+)?(?:require|import)\s*\(")

_KINDS = ("function", "method", "class", "callback")

_PYTHON = """
(function_definition) @function
(class_definition) @class
(decorated_definition) @wrapper
[(import_statement) (import_from_statement)] @import
"""

_JAVASCRIPT = """
[(function_declaration) (generator_function_declaration)] @function
(class_declaration) @class
(method_definition) @method
(variable_declarator value: [(arrow_function) (function_expression)]) @function
(variable_declarator value: (class)) @class
(assignment_expression right: [(arrow_function) (function_expression)]) @function
(assignment_expression right: (class)) @class
(pair value: [(arrow_function) (function_expression)]) @method
(expression_statement
  (call_expression arguments: (arguments [(arrow_function) (function_expression)]))) @callback
(export_statement) @wrapper
(import_statement) @import
(variable_declarator value: [(call_expression) (member_expression) (await_expression)]) @declared
"""

_FIELDS = {
    "python": "",
    "javascript": "(field_definition value: [(arrow_function) (function_expression)]) @method",
    "typescript": """
(public_field_definition value: [(arrow_function) (function_expression)]) @method
[(abstract_class_declaration) (interface_declaration) (enum_declaration)] @class
""",
}
_FIELDS["tsx"] = _FIELDS["typescript"]


@cache
def _query(grammar: str) -> "Query":
    from tree_sitter import Query

    text = _PYTHON if grammar == "python" else _JAVASCRIPT
    return Query(language(grammar), text + _FIELDS[grammar])


def structure(text: str, grammar: str, *, max_steps: int = MAX_PARSE_STEPS) -> Structure | None:
    """The structure of a text whose grammar ``grammar_of`` told; what doesn't parse is left out.

    None: the parse would take more than ``max_steps``. At most MAX_DEFINITIONS of each kind.
    """
    from tree_sitter import QueryCursor

    source = text.encode("utf-8", "replace")
    tree = parse(source, grammar, max_steps=max_steps)
    if tree is None:
        return None
    found = QueryCursor(_query(grammar)).captures(tree.root_node)
    starts = dict(_wrapped(found.get("wrapper", ())))
    imports = [
        *found.get("import", ()),
        *(node for node in found.get("declared", ()) if _requires(node, source)),
    ]
    imports.sort(key=_place)
    return Structure(
        _definitions(found, starts, source), tuple(_imports(imports[:MAX_DEFINITIONS], source))
    )


def definitions(text: str, grammar: str) -> tuple[Definition, ...]:
    """Functions, methods and classes of a text, outer before inner; none where it can't be told."""
    found = structure(text, grammar) if grammar else None
    return found.definitions if found else ()


def _definitions(
    found: dict[str, list["Node"]], starts: dict[int, int], source: bytes
) -> tuple[Definition, ...]:
    nodes = [(kind, node) for kind in _KINDS for node in found.get(kind, ())]
    nodes.sort(key=lambda item: _place(item[1]))
    open_kinds: list[tuple[int, str]] = []
    reported: list[Definition] = []
    for kind, node in nodes[:MAX_DEFINITIONS]:
        while open_kinds and open_kinds[-1][0] <= node.start_byte:
            open_kinds.pop()
        if kind == "function" and open_kinds and open_kinds[-1][1] == "class":
            kind = "method"
        start = starts.get(node.start_byte, node.start_point.row)
        reported.append(
            Definition(
                _name(node, source), kind, start + 1, node.end_point.row + 1, len(open_kinds)
            )
        )
        open_kinds.append((node.end_byte, kind))
    return tuple(reported)


def _requires(declarator: "Node", source: bytes) -> bool:
    """``x = require("y")``, ``x = require("y").z``, ``x = await import("y")``."""
    value = declarator.child_by_field_name("value")
    return value is not None and bool(_REQUIRE.match(source, value.start_byte, value.end_byte))


def _wrapped(nodes: Iterable["Node"]) -> Iterator[tuple[int, int]]:
    """Where a decorated or exported definition begins, and the line that its wrapper begins at."""
    for node in nodes:
        for field in ("definition", "declaration", "value"):
            inner = node.child_by_field_name(field)
            if inner is not None:
                yield inner.start_byte, node.start_point.row


def _place(node: "Node") -> tuple[int, int]:
    return node.start_byte, -node.end_byte


def _name(node: "Node", source: bytes) -> str:
    for field in ("name", "left", "key", "property"):
        named = node.child_by_field_name(field)
        if named is not None and named.type == "member_expression":
            named = named.child_by_field_name("property")
        if named is not None:
            return _text_of(named, source).strip("\"'`#")[:MAX_NAME_CHARS]
    return ""


def _imports(nodes: Iterable["Node"], source: bytes) -> Iterator[Import]:
    for node in nodes:
        lines = node.start_point.row + 1, node.end_point.row + 1
        yield Import(_text_of(node, source), _bound_names(node, source), *lines)


#: Levels of patterns in patterns: ``const {a: {b: [c]}} = require(…)`` has three.
_MAX_DEPTH = 8

#: Nodes whose text is a bound name.
_NAMES = frozenset({"identifier", "shorthand_property_identifier_pattern"})

#: Nodes that rename: the field that holds the name bound (in that order of preference).
_RENAMED = {
    "aliased_import": ("alias",),
    "import_specifier": ("alias", "name"),
    "pair_pattern": ("value",),
    "assignment_pattern": ("left",),
    "object_assignment_pattern": ("left",),
    # The right side is the module, not a name.
    "variable_declarator": ("name",),
}


def _bound_names(node: "Node", source: bytes) -> tuple[str, ...]:
    """Names bound by an import statement or by a declarator whose value is a ``require``, in order."""
    return tuple(dict.fromkeys(_names(node, source)))


def _names(statement: "Node", source: bytes) -> Iterator[str]:
    module = statement.child_by_field_name("module_name")
    pending = [(statement, 0)]
    while pending:
        node, depth = pending.pop()
        if node.type == "dotted_name":
            # ``import a.b`` binds a, ``from m import b`` binds b: both have the name first.
            node = node.named_children[0] if node.named_children else node
        if node.type in _NAMES:
            yield _text_of(node, source)
        elif depth < _MAX_DEPTH:
            inner = [child for child in _inner(node) if child != module]
            pending.extend((child, depth + 1) for child in reversed(inner))


def _inner(node: "Node") -> list["Node"]:
    for field in _RENAMED.get(node.type, ()):
        child = node.child_by_field_name(field)
        if child is not None:
            return [child]
    return node.named_children


def _text_of(node: "Node", source: bytes) -> str:
    """The node's text. ``node.text`` would ask the reader that the parser was given, byte for byte."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def first_error_line(text: str, suffix: str) -> int | None:
    """The first line (from 1) at which the text is not of its language.

    ``suffix`` is the file's (``.py``, ``.tsx``). None: it parses cleanly, the language is not one of
    ours, or the text is beyond MAX_PARSE_STEPS. A grammar knows less than its compiler (a dialect, a
    newer syntax), so judge an edit by what it changes: a text that had an error before proves nothing.
    """
    grammar = grammar_of(f"file{suffix}")
    tree = parse(text.encode("utf-8", "replace"), grammar) if grammar else None
    if tree is None or not tree.root_node.has_error:
        return None
    node = tree.root_node
    while not (node.is_error or node.is_missing):
        inner = next((child for child in node.children if child.has_error), None)
        if inner is None:
            break
        node = inner
    return node.start_point.row + 1
