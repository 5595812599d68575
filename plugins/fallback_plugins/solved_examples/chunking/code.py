"""The units of a piece of code: whole functions, classes, branches, literals, import blocks.

An edit's text is a fragment: it may begin inside a function and end inside another one. tree-sitter
parses what it can, and units are runs of whole *lines*, so that a wrong guess costs nothing but a
worse border. Where there is no grammar, blank lines part the units.
"""

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent
from typing import TYPE_CHECKING

from fallback_plugins.solved_examples.chunking.syntax import inner_nodes, kind_of, name_of
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

#: Larger fragments are parted at blank lines: error recovery in hostile text costs 60 ms a KiB, and
#: of 2,894 real edits the largest has 14 KiB.
MAX_PARSED_CHARS = 64 * 1024

#: Levels of units in units: class, method, branch, statement. Deeper ones are parted by lines.
_MAX_DEPTH = 4

#: How a line begins that goes on with what stands before it, when a fragment has lost its start.
_CONTINUES = re.compile(r"\s*(?:(?:else|elif|except|finally|catch)\b|[)\]}])")

_BLANK_END = re.compile(r"\n[^\S\n]*\n\Z")


def edit_unit(edit: SearchReplace) -> Unit:
    """An edit as one unit: the units of the old text, then those of the new one."""
    old = code_units(_ended(edit.old), edit.path)
    parts = (*old, *code_units(edit.new, edit.path))
    symbols = dict.fromkeys(part.context for part in parts if part.context)
    text = "".join(part.text for part in parts)
    return Unit(UnitKind.EDIT, text, parts, context=", ".join(symbols))


def code_units(text: str, path: str) -> tuple[Unit, ...]:
    """The text's units, in order: together they are the text, with ``\\n`` line ends.

    ``context`` of a unit is the name that it defines. Never raises for odd text.
    """
    text = one_line_end(text)
    lines = lines_of(text)
    grammar = grammar_of(path)
    if not grammar or len(text) > MAX_PARSED_CHARS:
        return tuple(_paragraphs(lines))
    source = dedent(text).encode("utf-8", "replace")
    root = parser(grammar).parse(source).root_node
    units = tuple(_merged(list(_units(_top(root), lines, 0, len(lines), _MAX_DEPTH))))
    return units or tuple(_paragraphs(lines))


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else text + "\n"


def _top(root: "Node") -> list["Node"]:
    """Nodes of the outermost level; what stands in an error counts as if there were none."""
    return [
        node
        for child in root.children
        for node in (child.children if child.type == "ERROR" and child.children else [child])
    ]


def _units(
    nodes: Sequence["Node"], lines: Sequence[str], begin: int, end: int, depth: int
) -> Iterator[Unit]:
    """One unit for each node that begins on a line of its own."""
    heads: list[Node] = []
    last_row = -1
    for node in nodes:
        # A later start on the line where the one before ends ("} else {") is the same unit.
        if not heads or node.start_point.row > last_row:
            heads.append(node)
        last_row = max(last_row, _end_row(node))
    rows = [node.start_point.row for node in heads]
    if rows:
        ranges = spans(rows, begin, end)
        placed = dict(zip(reversed(rows), reversed(heads), strict=True))
        for number, (start, stop) in enumerate(ranges):
            yield _unit(placed[start] if number else heads[0], lines, start, stop, depth)


def _end_row(node: "Node") -> int:
    """The last line that has something of the node."""
    row, column = node.end_point
    return row if column else row - 1


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
    """Comments with what follows them, import blocks, runs of statements, orphaned branches."""
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
    """Named and called after its first unit that isn't a comment."""
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
