"""A language's own parser and ours find the same in what a patch leaves: no code that only one sees.

Our parser reads text as it stands; Python reads bytes, with a declared encoding, with line ends of its own,
and by a grammar that changes. What one takes for a comment and the other for code shows as names and
statements that only one of them has. A difference that the base commit has too is none of the patch's (a
grammar's quirk, an older Python's syntax). JavaScript's parser is node's, which whoever has a node asks.
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

#: Statements and expressions that both call by one name, and that do something without a name.
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

#: The same for JavaScript, where both find them; names stand in nodes of many types.
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

#: Differences that a problem names.
_SHOWN = 3

#: What Python's parser raises for a text: NUL bytes and unknown encodings among them.
_REFUSALS = (SyntaxError, ValueError, RecursionError, MemoryError)

Found = Counter[str]


def disagreement(before: str, after: str) -> str | None:
    """Return what the parsers see differently in ``after`` but not in ``before``, as a clause. None: they
    agree, ``before`` can't be read, or neither parser can read ``after``. Never raises."""
    was, now = _differences(before), _differences(after)
    if isinstance(was, str):
        return None  # another Python's: nothing to compare with
    if isinstance(now, str):
        ours = parse(after.encode("utf-8", "replace"), "python")
        # What neither can read does not run: the gates that follow say so.
        broken = ours is not None and ours.root_node.has_error
        return None if broken else f"{now}; the base commit's can be read"
    return _told_apart(was, now, "Python")


def javascript_disagreement(
    before: str, after: str, was: Mapping[str, Found], now: Mapping[str, Found]
) -> str | None:
    """As ``disagreement``, for JavaScript, by what node's parser finds in each text, for each way to read
    it; a way that can't read a text is left out."""
    ours_before, ours_after = (_javascript_by_ours(text) for text in (before, after))
    if not was or ours_before is None:
        return None  # another dialect: nothing to compare with
    if ours_after is None:
        return "it is beyond what is parsed here; the base commit's can be read"
    if not now.keys() & was.keys():
        # Of a new file nobody knows which dialect it is in.
        message = "node can't read it as it reads the base commit's"
        return message if before and not ours_after[_BROKEN] else None
    for way in now.keys() & was.keys():
        old, new = (Counter(found) for found in (was[way], now[way]))
        old.subtract(ours_before)
        new.subtract(ours_after)
        new[_BROKEN] = old[_BROKEN]  # what one of them can't read whole shows in its names
        if (apart := _told_apart(old, new, "node")) is not None:
            return apart
    return None


def _told_apart(was: Found, now: Found, who: str) -> str | None:
    names = sorted(name for name in was.keys() | now.keys() if was[name] != now[name])
    if not names:
        return None
    shown = ", ".join(map(ascii, names[:_SHOWN])) + ", …" * (len(names) > _SHOWN)
    return (
        f"{who} reads it otherwise than it looks: {shown} is code to one parser and none to another"
    )


def _differences(text: str) -> Found | str:
    """How much more often Python finds a thing than our parser does; or why it can't read the text."""
    source = text.encode("utf-8", "replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is theirs, not ours
            reported = Counter(_read_by_python(ast.parse(source)))
    except _REFUSALS as error:
        version = ".".join(map(str, sys.version_info[:2]))
        return f"Python {version} can't read it ({type(error).__name__}: {error})"
    ours = parse(source, "python")
    if ours is None:
        return "it is beyond what is parsed here"
    reported.subtract(Counter(_read_by_ours(ours.root_node, source)))
    return reported


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
    found = Counter({_BROKEN: 1} if tree.root_node.has_error else {})
    pending = [tree.root_node]
    while pending:
        node = pending.pop()
        called = node.child_by_field_name("function")
        if called is not None and source[called.start_byte : called.end_byte] == b"await":
            pending.extend(child for child in node.children if child != called)
            continue  # `await (…)`, which our grammar takes for a call at times
        if node.type in _JAVASCRIPT_NAMES and node.is_named:
            name = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
            found[name.removeprefix("#")] += 1
        elif node.type in _JAVASCRIPT_NODES and node.is_named:
            found[f"<{node.type}>"] += 1
        pending.extend(node.children)
    return found
