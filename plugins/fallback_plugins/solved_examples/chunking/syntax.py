"""What a syntax node means to a reader: its kind, its name, and the nodes it is made of.

Node types are those of tree-sitter-python, -javascript and -typescript (tsx).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fallback_plugins.solved_examples.chunking.units import UnitKind

if TYPE_CHECKING:
    from tree_sitter import Node

_KINDS = {
    "function_definition": UnitKind.FUNCTION,
    "function_declaration": UnitKind.FUNCTION,
    "generator_function_declaration": UnitKind.FUNCTION,
    "function_expression": UnitKind.FUNCTION,
    "arrow_function": UnitKind.FUNCTION,
    "method_definition": UnitKind.FUNCTION,
    "class_definition": UnitKind.CLASS,
    "class_declaration": UnitKind.CLASS,
    "class": UnitKind.CLASS,
    "abstract_class_declaration": UnitKind.CLASS,
    "interface_declaration": UnitKind.CLASS,
    "enum_declaration": UnitKind.CLASS,
    "import_statement": UnitKind.IMPORTS,
    "import_from_statement": UnitKind.IMPORTS,
    "future_import_statement": UnitKind.IMPORTS,
    "dictionary": UnitKind.LITERAL,
    "list": UnitKind.LITERAL,
    "set": UnitKind.LITERAL,
    "tuple": UnitKind.LITERAL,
    "object": UnitKind.LITERAL,
    "array": UnitKind.LITERAL,
    "if_statement": UnitKind.BRANCH,
    "for_statement": UnitKind.BRANCH,
    "for_in_statement": UnitKind.BRANCH,
    "while_statement": UnitKind.BRANCH,
    "do_statement": UnitKind.BRANCH,
    "try_statement": UnitKind.BRANCH,
    "with_statement": UnitKind.BRANCH,
    "match_statement": UnitKind.BRANCH,
    "switch_statement": UnitKind.BRANCH,
    "comment": UnitKind.COMMENT,
}

#: Nodes that only wrap what they are about, and the fields that lead to it.
_WRAPPERS = {
    "decorated_definition": ("definition",),
    "export_statement": ("declaration", "value"),
    "lexical_declaration": (),
    "variable_declaration": (),
    "variable_declarator": ("value",),
    "expression_statement": (),
    "assignment": ("right",),
    "assignment_expression": ("right",),
    "pair": ("value",),
    # frozenset({…}), new Set([…])
    "call": ("arguments",),
    "call_expression": ("arguments",),
    "new_expression": ("arguments",),
    "argument_list": (),
    "arguments": (),
}

#: Nodes whose children are the parts of the node above.
_BODIES = frozenset(
    ("block", "statement_block", "class_body", "switch_body", "interface_body", "enum_body")
)

#: A chain of wrappers is short; a hostile one ends here.
_MAX_WRAPPERS = 12


def kind_of(node: "Node") -> UnitKind:
    """What the node is about; STATEMENTS where it is nothing larger."""
    kind = _KINDS.get(_core(node).type, UnitKind.STATEMENTS)
    one_line = node.start_point.row == node.end_point.row
    return UnitKind.STATEMENTS if kind is UnitKind.LITERAL and one_line else kind


def name_of(node: "Node") -> str:
    """The name that the node defines, if it defines one (function, class, variable)."""
    for wrapper in _chain(node):
        for field in ("name", "left", "key"):
            named = wrapper.child_by_field_name(field)
            if named is not None and named.text is not None and kind_of(node) in _NAMED:
                return named.text.decode("utf-8", "replace")
    return ""


_NAMED = (UnitKind.FUNCTION, UnitKind.CLASS, UnitKind.LITERAL)


def inner_nodes(node: "Node") -> list["Node"]:
    """What the node is made of, a level down: statements and clauses, members, entries."""
    core = _core(node)
    if _KINDS.get(core.type) is UnitKind.LITERAL:
        return core.named_children
    found: list[Node] = []
    for child in core.named_children:
        if child.type in _BODIES:
            found.extend(child.named_children)
        elif child.type.endswith(("_clause", "_case")):
            found.append(child)
    return found


def _core(node: "Node") -> "Node":
    """The node without its wrappers."""
    *_, core = _chain(node)
    return core


def _chain(node: "Node") -> Iterator["Node"]:
    """The node, and inwards what it wraps."""
    for _ in range(_MAX_WRAPPERS):
        yield node
        if node.type not in _WRAPPERS:
            return
        fields = (node.child_by_field_name(field) for field in _WRAPPERS[node.type])
        inner = next((field for field in fields if field is not None), None)
        if inner is None and not _WRAPPERS[node.type] and node.named_child_count:
            inner = node.named_children[0]
        if inner is None:
            return
        node = inner
