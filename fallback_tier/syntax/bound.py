"""The names that an import binds in its file, by whatever alias."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

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


def bound_names(node: "Node", source: bytes) -> tuple[str, ...]:
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
            yield text_of(node, source)
        elif depth < _MAX_DEPTH:
            inner = [child for child in _inner(node) if child != module]
            pending.extend((child, depth + 1) for child in reversed(inner))


def _inner(node: "Node") -> list["Node"]:
    for field in _RENAMED.get(node.type, ()):
        child = node.child_by_field_name(field)
        if child is not None:
            return [child]
    return node.named_children


def text_of(node: "Node", source: bytes) -> str:
    """The node's text. ``node.text`` would ask the reader that the parser was given, byte for byte."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")
