"""Comparison of a language's own parser with ours on a patched text: no code that only one of them sees.

Our parser reads text; Python reads bytes, with a declared encoding, its own line ends, and a grammar that
changes. What one parser takes for a comment and the other for code shows as names and statements that only
one of them has. A difference that the base commit has too is not the patch's (a grammar's quirk, an older
Python's syntax). JavaScript's parser is node's; callers that have node pass its results.
"""

import ast
import sys
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from fallback_tier.syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node

#: Statements and expressions that have the same type in both, and that have an effect without a name.
_KINDS: dict[type[ast.AST], str] = {
    ast.Assert: "assert_statement",
    ast.AsyncFor: "for_statement",
    ast.AsyncFunctionDef: "function_definition",
    ast.AsyncWith: "with_statement",
    ast.Await: "await",
    ast.Break: "break_statement",
    ast.Call: "call",
    ast.ClassDef: "class_definition",
    ast.Continue: "continue_statement",
    ast.Delete: "delete_statement",
    ast.For: "for_statement",
    ast.FunctionDef: "function_definition",
    ast.Lambda: "lambda",
    ast.Pass: "pass_statement",
    ast.Raise: "raise_statement",
    ast.Return: "return_statement",
    ast.Try: "try_statement",
    ast.TryStar: "try_statement",
    ast.While: "while_statement",
    ast.With: "with_statement",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
}
_NODES = frozenset(_KINDS.values())

_FUTURE = "future_import_statement"

#: The same for JavaScript, if both find them; names are in nodes of many types.
_JAVASCRIPT_NODES = frozenset(
    {"call_expression", "new_expression", "return_statement", "throw_statement"}
)
_JAVASCRIPT_NAMES = frozenset(
    {
        *("identifier", "property_identifier", "private_property_identifier", "undefined"),
        *("shorthand_property_identifier", "shorthand_property_identifier_pattern"),
        *("statement_identifier",),
    }
)
_BROKEN = "<broken>"

#: How many differences a problem names.
_SHOWN = 3

#: Exceptions of Python's parser for a text, for example for NUL bytes and unknown encodings.
_REFUSALS = (SyntaxError, ValueError, RecursionError, MemoryError)

Found = Counter[str]


def disagreement(before: str, after: str) -> str | None:
    """Return what the parsers see differently in ``after`` but not in ``before``, as a clause.

    None: they agree, ``before`` can't be parsed, or neither parser can parse ``after``. Never raises.
    """
    old, new = _differences(before), _differences(after)
    if isinstance(old, str):
        return None  # another Python's syntax: nothing to compare with
    if isinstance(new, str):
        tree = parse(after.encode("utf-8", "replace"), "python")
        # What neither can parse is not executed: the gates that follow report it.
        is_broken = tree is not None and tree.root_node.has_error
        return None if is_broken else f"{new}; the base commit's can be read"
    return _told_apart(old, new, "Python")


def javascript_disagreement(
    before: str, after: str, was: Mapping[str, Found], now: Mapping[str, Found]
) -> str | None:
    """Do the same as ``disagreement`` for JavaScript, with the names that node's parser found in each text,
    for each way to parse it; a way that can't parse a text is left out."""
    ours_before, ours_after = (_javascript_by_ours(text) for text in (before, after))
    if not was or ours_before is None:
        return None  # another dialect: nothing to compare with
    if ours_after is None:
        return "it is beyond what is parsed here; the base commit's can be read"
    if not now.keys() & was.keys():
        # The dialect of a new file is unknown.
        problem = "node can't read it as it reads the base commit's"
        return problem if before and not ours_after[_BROKEN] else None
    for way in now.keys() & was.keys():
        old, new = (Counter(counts) for counts in (was[way], now[way]))
        old.subtract(ours_before)
        new.subtract(ours_after)
        new[_BROKEN] = old[_BROKEN]  # what one of them can't parse whole shows in its names
        if (difference := _told_apart(old, new, "node")) is not None:
            return difference
    return None


def _told_apart(old: Found, new: Found, parser: str) -> str | None:
    names = sorted(name for name in old.keys() | new.keys() if old[name] != new[name])
    if not names:
        return None
    shown = ", ".join(map(ascii, names[:_SHOWN])) + ", …" * (len(names) > _SHOWN)
    return f"{parser} reads it otherwise than it looks: {shown} is code to one parser and none to another"


def _differences(text: str) -> Found | str:
    """Return how much more often Python finds each name than our parser, or why it can't parse the text."""
    source = text.encode("utf-8", "replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is the target's, not ours
            counts = Counter(_read_by_python(ast.parse(source)))
    except _REFUSALS as error:
        version = ".".join(map(str, sys.version_info[:2]))
        return f"Python {version} can't read it ({type(error).__name__}: {error})"
    tree = parse(source, "python")
    if tree is None:
        return "it is beyond what is parsed here"
    counts.subtract(Counter(_read_by_ours(tree.root_node, source)))
    return counts


def _read_by_python(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (kind := _KINDS.get(type(node))) is not None:
            yield f"<{kind}>"
        if isinstance(node, ast.Constant):
            continue
        for field, value in ast.iter_fields(node):
            names = value if isinstance(value, list) else [value]
            if field != "type_comment":
                for name in names:
                    if isinstance(name, str):
                        yield from filter(str.isidentifier, name.split("."))


def _read_by_ours(root: "Node", source: bytes) -> Iterator[str]:
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "identifier":
            name = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
            yield unicodedata.normalize("NFKC", name)
        elif node.type == _FUTURE:
            yield "__future__"
        elif node.is_named and node.type in _NODES:
            yield f"<{node.type}>"
        pending.extend(node.children)


def _javascript_by_ours(text: str) -> Found | None:
    source = text.encode("utf-8", "replace")
    tree = parse(source, "javascript")
    if tree is None:
        return None
    counts = Counter({_BROKEN: 1} if tree.root_node.has_error else {})
    pending = [tree.root_node]
    while pending:
        node = pending.pop()
        callee = node.child_by_field_name("function")
        if callee is not None and source[callee.start_byte : callee.end_byte] == b"await":
            pending.extend(child for child in node.children if child != callee)
            continue  # `await (…)`, which our grammar sometimes takes for a call
        if node.type in _JAVASCRIPT_NAMES and node.is_named:
            name = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
            counts[name.removeprefix("#")] += 1
        elif node.type in _JAVASCRIPT_NODES and node.is_named:
            counts[f"<{node.type}>"] += 1
        pending.extend(node.children)
    return counts
