"""The structure of a source file: definitions, and imports with the names that they bind.

One tree-sitter query per grammar finds the nodes, in C and without recursion; the code here looks at a node
and its children only, so that depth costs nothing.
"""

import re
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser, Query, Tree


_BY_SUFFIX = {
    ".py": "python",
    ".pyi": "python",
    ".js": "javascript",
    ".cjs": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".cts": "typescript",
    ".mts": "typescript",
    ".tsx": "tsx",
}

#: Programs on a first line (``#!``) that determine the language of a file without a suffix.
_BY_INTERPRETER = {
    "python": "python",
    "node": "javascript",
    "deno": "typescript",
    "bun": "typescript",
}

#: Steps of one parse, about 0.05 ms each: code that a person wrote takes 7 to 22 a KiB, so that 350 KiB and
#: more are parsed whole, while error recovery in hostile text (0.3 ms a step) ends within seconds.
MAX_PARSE_STEPS = 8_000

#: How many bytes the parser gets at a time: each piece is copied, so it must not be the whole rest.
_READ_BYTES = 64 * 1024

#: tree-sitter frees its parse stack by recursion (``stack_node_release``): source that nests a hundred
#: thousand levels deep would crash the process. A source up to this size needs 0.5 MB of stack at most …
_SHALLOW_BYTES = 16 * 1024

#: … and MAX_PARSE_STEPS steps of 100 operations can pile up some 26 MB, at 32 bytes a level. Memory is
#: allocated as it is used.
_STACK_BYTES = 64 * 1024 * 1024

#: The stack size is a setting of the whole process: it is changed while one thread starts.
_STARTING = threading.Lock()


def grammar_of(path: str) -> str:
    """Return the name of a file's grammar, or "" if there is none."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower(), "")


def grammar_of_text(path: str, *texts: str) -> str:
    """Return the same; for a file without a suffix, by the first line (``#!``) of one of its texts.

    Several texts, because a patch that removes that line does not change the file's language.
    """
    grammar = grammar_of(path)
    if grammar or PurePosixPath(path).suffix:
        return grammar
    first_lines = (text.partition("\n")[0] for text in texts)
    grammars = (_by_interpreter(line) for line in first_lines if line.startswith("#!"))
    return next(filter(None, grammars), "")


def _by_interpreter(first_line: str) -> str:
    return next((name for word, name in _BY_INTERPRETER.items() if word in first_line), "")


@cache
def language(grammar: str) -> "Language":
    """Return the grammar of this name (one that ``grammar_of`` returns), loaded once."""
    from tree_sitter import Language

    if grammar == "python":
        import tree_sitter_python

        return Language(tree_sitter_python.language())
    if grammar == "javascript":
        import tree_sitter_javascript

        return Language(tree_sitter_javascript.language())
    import tree_sitter_typescript

    if grammar == "tsx":
        return Language(tree_sitter_typescript.language_tsx())
    return Language(tree_sitter_typescript.language_typescript())


def parser(grammar: str) -> "Parser":
    """Return a new parser for each call: parsers keep state, and callers may be in any thread."""
    from tree_sitter import Parser

    return Parser(language(grammar))


def parse(source: bytes, grammar: str, *, max_steps: int = MAX_PARSE_STEPS) -> "Tree | None":
    """Return the tree of a source in UTF-8, or None if it would take more than ``max_steps``.

    Steps are tree-sitter's progress reports (one in 100 operations), not time: the same text gives the same
    result on every machine.
    """
    if len(source) <= _SHALLOW_BYTES:
        return _parsed(source, grammar, max_steps)
    trees: list[Tree | None] = []
    thread = threading.Thread(
        target=lambda: trees.append(_parsed(source, grammar, max_steps)), daemon=True, name="parse"
    )
    with _STARTING:
        default_size = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(default_size)
    thread.join()
    return trees[0] if trees else None


def _parsed(source: bytes, grammar: str, max_steps: int) -> "Tree | None":
    steps = 0

    def give_up(_offset: int, _has_error: bool) -> bool:
        nonlocal steps
        steps += 1
        return steps > max_steps

    def read(offset: int, _point: object) -> bytes:
        return source[offset : offset + _READ_BYTES]

    try:
        return parser(grammar).parse(read, progress_callback=give_up)
    except ValueError:
        return None


#: The limit of definitions, and of imports, in one file: a file with more is a table written by a program.
MAX_DEFINITIONS = 2_000


#: Only the beginning of a longer name is kept: no person wrote it.
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
    """Return the structure of a text whose grammar is one of ``grammar_of``, without parts that don't
    parse.

    None: the parse would take more than ``max_steps``. At most MAX_DEFINITIONS of each kind.
    """
    from tree_sitter import QueryCursor

    source = text.encode("utf-8", "replace")
    tree = parse(source, grammar, max_steps=max_steps)
    if tree is None:
        return None
    captures = QueryCursor(_query(grammar)).captures(tree.root_node)
    starts = dict(_wrapped(captures.get("wrapper", ())))
    imports = [
        *captures.get("import", ()),
        *(node for node in captures.get("declared", ()) if _requires(node, source)),
    ]
    imports.sort(key=_place)
    return Structure(
        _definitions(captures, starts, source), tuple(_imports(imports[:MAX_DEFINITIONS], source))
    )


def definitions(text: str, grammar: str) -> tuple[Definition, ...]:
    """Return functions, methods and classes of a text, outer before inner; none if it can't be parsed."""
    parsed = structure(text, grammar) if grammar else None
    return parsed.definitions if parsed else ()


def _definitions(
    captures: dict[str, list["Node"]], starts: dict[int, int], source: bytes
) -> tuple[Definition, ...]:
    nodes = [(kind, node) for kind in _KINDS for node in captures.get(kind, ())]
    nodes.sort(key=lambda item: _place(item[1]))
    open_kinds: list[tuple[int, str]] = []
    collected: list[Definition] = []
    for kind, node in nodes[:MAX_DEFINITIONS]:
        while open_kinds and open_kinds[-1][0] <= node.start_byte:
            open_kinds.pop()
        if kind == "function" and open_kinds and open_kinds[-1][1] == "class":
            kind = "method"
        start = starts.get(node.start_byte, node.start_point.row)
        collected.append(
            Definition(
                _name(node, source), kind, start + 1, node.end_point.row + 1, len(open_kinds)
            )
        )
        open_kinds.append((node.end_byte, kind))
    return tuple(collected)


def _requires(declarator: "Node", source: bytes) -> bool:
    """Return whether it is ``x = require("y")``, ``x = require("y").z`` or ``x = await import("y")``."""
    value = declarator.child_by_field_name("value")
    return value is not None and bool(_REQUIRE.match(source, value.start_byte, value.end_byte))


def _wrapped(nodes: Iterable["Node"]) -> Iterator[tuple[int, int]]:
    """Yield the start of each decorated or exported definition, and the first line of its wrapper."""
    for node in nodes:
        for field in ("definition", "declaration", "value"):
            inner = node.child_by_field_name(field)
            if inner is not None:
                yield inner.start_byte, node.start_point.row


def _place(node: "Node") -> tuple[int, int]:
    return node.start_byte, -node.end_byte


def _name(node: "Node", source: bytes) -> str:
    for field in ("name", "left", "key", "property"):
        name_node = node.child_by_field_name(field)
        if name_node is not None and name_node.type == "member_expression":
            name_node = name_node.child_by_field_name("property")
        if name_node is not None:
            return _text_of(name_node, source).strip("\"'`#")[:MAX_NAME_CHARS]
    return ""


def _imports(nodes: Iterable["Node"], source: bytes) -> Iterator[Import]:
    for node in nodes:
        lines = node.start_point.row + 1, node.end_point.row + 1
        yield Import(_text_of(node, source), _bound_names(node, source), *lines)


#: Levels of nested patterns: ``const {a: {b: [c]}} = require(…)`` has three.
_MAX_DEPTH = 8

#: Nodes whose text is a bound name.
_NAMES = frozenset({"identifier", "shorthand_property_identifier_pattern"})

#: Nodes that rename: the field with the bound name (in that order of preference).
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
    """Return the names that an import statement or a declarator with a ``require`` binds, in order."""
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
    """Return the node's text. (``node.text`` would call the parser's reader, byte for byte.)"""
    return source[node.start_byte : node.end_byte].decode("utf-8", "replace")


def first_error_line(text: str, suffix: str) -> int | None:
    """Return the first line (from 1) at which the text is not valid in its language.

    ``suffix`` is the file's (``.py``, ``.tsx``). None: it parses cleanly, the language has no grammar here,
    or the text exceeds MAX_PARSE_STEPS. A grammar knows less than its compiler (a dialect, a newer syntax),
    so judge an edit by what it changes: a text that had an error before proves nothing.
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
