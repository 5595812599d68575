"""The units of a piece of code: whole functions, classes, branches, literals, import blocks.

An edit's text is a fragment: it may begin inside a function and end inside another one. tree-sitter
parses what it can, and units are runs of whole *lines*, so that a wrong guess only gives a worse border. If
there is no grammar, the text is split at blank lines.
"""

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import TYPE_CHECKING

from fallback_plugins.solved_examples.chunking.units import (
    Unit,
    UnitKind,
    joined,
    lines_of,
    one_line_end,
    paragraph_ranges,
    spans,
)
from fallback_tier.outcome import SearchReplace
from fallback_tier.syntax import grammar_of, parser

if TYPE_CHECKING:
    from tree_sitter import Node


#: Larger fragments are split at blank lines: error recovery in hostile text costs 60 ms a KiB, and
#: of 2,894 real edits the largest has 14 KiB.
MAX_PARSED_CHARS = 64 * 1024

#: Levels of nested units: class, method, branch, statement. Deeper ones are split by lines.
_MAX_DEPTH = 4

#: The beginning of a line that continues the text before it, if a fragment has lost its start.
_CONTINUES = re.compile(r"\s*(?:(?:else|elif|except|finally|catch)\b|[)\]}])")

_BLANK_END = re.compile(r"\n[^\S\n]*\n\Z")


def edit_unit(edit: SearchReplace) -> Unit:
    """Return an edit as one unit: the units of the old text, then those of the new one."""
    is_open = edit.old and not edit.old.endswith("\n")
    old = code_units(f"{edit.old}\n" if is_open else edit.old, edit.path)
    parts = (*old, *code_units(edit.new, edit.path))
    symbols = dict.fromkeys(part.context for part in parts if part.context)
    text = "".join(part.text for part in parts)
    return Unit(UnitKind.EDIT, text, parts, context=", ".join(symbols))


def code_units(text: str, path: str) -> tuple[Unit, ...]:
    """Return the text's units, in order: together they are the text, with ``\\n`` line ends.

    ``context`` of a unit is the name that it defines. Never raises for odd text.
    """
    text = one_line_end(text)
    lines = lines_of(text)
    grammar = grammar_of(path)
    if not grammar or len(text) > MAX_PARSED_CHARS:
        return tuple(_paragraphs(lines))
    source = dedent(text).encode("utf-8", "replace")
    root = parser(grammar).parse(source).root_node
    # Nodes inside an error count as if there were no error.
    top = [
        node
        for child in root.children
        for node in (child.children if child.type == "ERROR" and child.children else [child])
    ]
    units = tuple(_merged(list(_units(top, lines, 0, len(lines), _MAX_DEPTH))))
    return units or tuple(_paragraphs(lines))


def _units(
    nodes: Sequence["Node"], lines: Sequence[str], begin: int, end: int, depth: int
) -> Iterator[Unit]:
    """Yield one unit for each node that begins on its own line."""
    heads: list[Node] = []
    last_row = -1
    for node in nodes:
        # A node that begins on the line on which the one before ends ("} else {") is in the same unit.
        if not heads or node.start_point.row > last_row:
            heads.append(node)
        row, column = node.end_point
        last_row = max(last_row, row if column else row - 1)
    rows = [node.start_point.row for node in heads]
    if rows:
        ranges = spans(rows, begin, end)
        placed = dict(zip(reversed(rows), reversed(heads), strict=True))
        for number, (start, stop) in enumerate(ranges):
            yield _unit(placed[start] if number else heads[0], lines, start, stop, depth)


def _unit(node: "Node", lines: Sequence[str], start: int, stop: int, depth: int) -> Unit:
    parts: tuple[Unit, ...] = ()
    header = ""
    inner = inner_nodes(node) if depth and stop - start > 1 else []
    if inner:
        parts = tuple(_merged(list(_units(inner, lines, start, stop, depth - 1))))
        header = "".join(lines[start : min(inner[0].start_point.row, stop)])
    return Unit(
        kind_of(node),
        "".join(lines[start:stop]),
        parts if len(parts) > 1 else (),
        header,
        name_of(node),
    )


def _merged(units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield units, some joined: comments with what follows, imports, runs of statements, orphaned
    branches."""
    group: list[Unit] = []
    for unit in units:
        if group and not _goes_on(group, unit):
            yield _group(group)
            group = []
        group.append(unit)
    if group:
        yield _group(group)


def _goes_on(group: Sequence[Unit], unit: Unit) -> bool:
    last = group[-1]
    if last.kind is UnitKind.COMMENT or _CONTINUES.match(unit.text):
        return True
    if unit.kind is last.kind is UnitKind.IMPORTS:
        return True
    return unit.kind is last.kind is UnitKind.STATEMENTS and not _BLANK_END.search(last.text)


def _group(units: Sequence[Unit]) -> Unit:
    """Return one unit, with the kind and the name of its first part that isn't a comment."""
    if len(units) == 1:
        return units[0]
    chief = next((unit for unit in units if unit.kind is not UnitKind.COMMENT), units[0])
    text = "".join(unit.text for unit in units)
    return Unit(chief.kind, text, tuple(units), context=chief.context)


def _paragraphs(lines: Sequence[str]) -> Iterator[Unit]:
    for start, stop in paragraph_ranges(lines):
        yield joined(
            UnitKind.STATEMENTS, [Unit(UnitKind.FRAGMENT, line) for line in lines[start:stop]]
        )


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

#: A chain of wrappers is short; a hostile one is cut here.
_MAX_WRAPPERS = 12


def kind_of(node: "Node") -> UnitKind:
    """Return what the node is about; STATEMENTS if it is nothing larger."""
    kind = _KINDS.get(_core(node).type, UnitKind.STATEMENTS)
    one_line = node.start_point.row == node.end_point.row
    return UnitKind.STATEMENTS if kind is UnitKind.LITERAL and one_line else kind


def name_of(node: "Node") -> str:
    """Return the name that the node defines (function, class, variable); empty if none."""
    for wrapper in _chain(node):
        for field in ("name", "left", "key"):
            name_node = wrapper.child_by_field_name(field)
            if name_node is not None and name_node.text is not None and kind_of(node) in _NAMED:
                return name_node.text.decode("utf-8", "replace")
    return ""


_NAMED = (UnitKind.FUNCTION, UnitKind.CLASS, UnitKind.LITERAL)


def inner_nodes(node: "Node") -> list["Node"]:
    """Return the parts of a node, one level down: statements and clauses, members, entries."""
    core = _core(node)
    if _KINDS.get(core.type) is UnitKind.LITERAL:
        return core.named_children
    parts: list[Node] = []
    for child in core.named_children:
        if child.type in _BODIES:
            parts.extend(child.named_children)
        elif child.type.endswith(("_clause", "_case")):
            parts.append(child)
    return parts


def _core(node: "Node") -> "Node":
    *_, core = _chain(node)
    return core


def _chain(node: "Node") -> Iterator["Node"]:
    """Yield the node, and inwards the nodes that it wraps."""
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
