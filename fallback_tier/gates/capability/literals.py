"""Text that a program spells out: names and string literals, escapes undone."""

import ast
import re
import unicodedata
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

#: Literals joined by ``+``: ``"child_" + "process"``. Deeper is a text, no name.
_MAX_JOINED = 8

_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|\r?\n|(.))")
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0"}

#: Nodes inside a string that are plain text.
_PLAIN = frozenset(
    {"string_start", "string_content", "string_end", "string_fragment", "escape_sequence"}
)


def name_of(node: "Node", source: bytes) -> str:
    """A name as its language compares it: Python normalises (PEP 3131), JavaScript undoes escapes."""
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if "\\" in text:
        text = _unescaped(text)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def literal(node: "Node | None", source: bytes, depth: int = 0) -> str | None:
    """The text of a string literal, or of several joined; None for anything else."""
    if node is None or depth > _MAX_JOINED:
        return None
    if node.type in {"string", "template_string"}:
        return _string(node, source)
    if node.type in {"binary_operator", "binary_expression", "concatenated_string"}:
        operator = node.child_by_field_name("operator")
        if operator is not None and operator.type != "+":
            return None
        parts = [literal(child, source, depth + 1) for child in node.named_children]
        return None if None in parts else "".join(part or "" for part in parts)
    if node.type == "parenthesized_expression" and node.named_child_count == 1:
        return literal(node.named_children[0], source, depth + 1)
    return None


def _string(node: "Node", source: bytes) -> str | None:
    if any(child.type not in _PLAIN for child in node.named_children):
        return None  # something is filled in
    text = source[node.start_byte : node.end_byte].decode("utf-8", "replace")
    if node.named_children and node.named_children[0].type == "string_start":
        return _of_python(text)
    return _unescaped(text[1:-1])


def _of_python(text: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is theirs, not ours
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else None


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if code is not None:
            return chr(int(code, 16)) if int(code, 16) <= 0x10FFFF else ""
        return _CONTROL.get(found[4], found[4]) if found[4] else ""

    return _ESCAPE.sub(plain, text)


def module_path(message: str) -> str:
    """A module's name as the lists spell it: without node's prefix, and of a package its name alone."""
    path = message.removeprefix("node:")
    if path.startswith((".", "/")) or "/" not in path:
        return path
    parts = path.split("/")
    return "/".join(parts[:2]) if path.startswith("@") else parts[0]
