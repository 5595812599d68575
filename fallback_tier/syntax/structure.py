"""What a source file is made of: definitions, and imports with the names that they bind.

One tree-sitter query a grammar finds the nodes, in C and without recursion; what is done with a node
here looks at it and its children only, so that depth costs nothing.
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

#: Programs on a first line (``#!``) that say what a file without a suffix is written in.
_BY_INTERPRETER = {
    "python": "python",
    "node": "javascript",
    "deno": "typescript",
    "bun": "typescript",
}

#: Steps of one parse, about 0.05 ms each: code that a person wrote takes 7 to 22 a KiB, so that 350 KiB
#: and more are parsed whole, while error recovery in hostile text (0.3 ms a step) ends within seconds.
MAX_PARSE_STEPS = 8_000

#: Given to the parser at a time: each piece is copied, so that it must not be the whole rest.
_READ_BYTES = 64 * 1024

#: tree-sitter lets go of its parse stack by recursion (``stack_node_release``): what nests a hundred
#: thousand levels deep would end the process. A source up to this size needs 0.5 MB of stack at most …
_SHALLOW_BYTES = 16 * 1024

#: … and what MAX_PARSE_STEPS steps of 100 operations can pile up, at 32 bytes a level, some 26 MB. Memory
#: is taken from it as it is used.
_STACK_BYTES = 64 * 1024 * 1024

#: The size of stacks is a setting of the whole process: it is changed while one thread starts.
_STARTING = threading.Lock()


def grammar_of(path: str) -> str:
    """Name of the grammar for a file; empty where there is none."""
    return _BY_SUFFIX.get(PurePosixPath(path).suffix.lower(), "")


def grammar_of_text(path: str, *texts: str) -> str:
    """The same; for a file without a suffix, by what the first line (``#!``) of one of its texts starts.

    Several texts: a patch that takes that line away makes the file no other language's.
    """
    grammar = grammar_of(path)
    if grammar or PurePosixPath(path).suffix:
        return grammar
    firsts = (text.partition("\n")[0] for text in texts)
    named = (_by_interpreter(first) for first in firsts if first.startswith("#!"))
    return next(filter(None, named), "")


def _by_interpreter(first: str) -> str:
    return next((name for word, name in _BY_INTERPRETER.items() if word in first), "")


@cache
def language(grammar: str) -> "Language":
    """The grammar of this name (one that ``grammar_of`` gives), loaded once."""
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
    """A parser of its own for each call: they keep state, and any thread may ask."""
    from tree_sitter import Parser

    return Parser(language(grammar))


def parse(source: bytes, grammar: str, *, max_steps: int = MAX_PARSE_STEPS) -> "Tree | None":
    """The tree of a source in UTF-8, or None: it would take more than ``max_steps``.

    Steps are tree-sitter's progress reports (one in 100 operations), not time: the same text gives
    the same answer on every machine.
    """
    if len(source) <= _SHALLOW_BYTES:
        return _parsed(source, grammar, max_steps)
    found: list[Tree | None] = []
    thread = threading.Thread(
        target=lambda: found.append(_parsed(source, grammar, max_steps)), daemon=True, name="parse"
    )
    with _STARTING:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return found[0] if found else None


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
