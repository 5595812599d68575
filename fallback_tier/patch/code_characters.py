"""Characters in code that only a text should have: names beyond ASCII, escapes in names, HTML comments.

Names are not weighed by their looks: lists of look-alikes are never whole, a word of one script can look
like a word of another (four Cyrillic letters read "copy"), and Python takes a ligature for its letters
(PEP 3131). A fix rarely needs a new one.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fallback_tier.syntax import parse

if TYPE_CHECKING:
    from tree_sitter import Node

#: Nodes that are text to the language, of all grammars; whatever is not one of them is code.
_TEXTS = frozenset(
    {
        *("comment", "string", "string_content", "string_fragment", "escape_sequence"),
        *("template_string", "regex_pattern", "jsx_text", "html_character_reference"),
        *("format_specifier", "hash_bang_line", "concatenated_string"),
    }
)

#: What is looked at: beyond ASCII; the escape of a letter; where an HTML comment begins. The end of one
#: begins a comment as well, at the beginning of a line (ECMAScript, annex B.1.1).
_ODD = re.compile(rb"[\x80-\xff]+|\\u|<!--|^(?:.*\*/)?[ \t]*-->")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]+")


#: Of a name, in a message: an error node can be the whole file.
_SHOWN = 60


@dataclass(frozen=True)
class Code:
    """A source text and what its parser makes of it. ``grammar``: one that ``grammar_of`` gives."""

    text: str
    grammar: str

    def odd_name(self, lines: Collection[int], known: Callable[[], frozenset[str]]) -> str | None:
        """What stands in the code of these lines (from 1) and reads as something else, as a clause.

        ``known``: names beyond ASCII that are the file's own already.
        """
        start = 0
        for number, line in enumerate(self._source.split(b"\n"), start=1):
            if number in lines:
                for found in _ODD.finditer(line):
                    why = self._reason(start + found.start(), found[0], known)
                    if why is not None:
                        return f"line {number} has {why}"
            start += len(line) + 1
        return None

    def names(self) -> frozenset[str]:
        """The names beyond ASCII in the code."""
        found = (self._at(match.start()) for match in _BEYOND_ASCII.finditer(self._source))
        return frozenset(
            self._described(node) for node in found if node and node.type not in _TEXTS
        )

    def _reason(self, at: int, odd: bytes, known: Callable[[], frozenset[str]]) -> str | None:
        if odd.endswith((b"<!--", b"-->")):
            return self._html_comment(at + len(odd) - 1)
        if odd != rb"\u" and not any(map(_is_of_name, odd.decode("utf-8", "replace"))):
            return None  # a dash or an arrow runs nowhere
        node = self._at(at)
        if node is not None and node.type in _TEXTS:
            return None
        if node is None:
            return "characters beyond ASCII, and the file is beyond what is parsed: write escapes"
        name = self._described(node)
        if name in known():
            return None
        if odd == rb"\u":
            return f"an escape in the name {name[:_SHOWN]!r}: write the letter itself"
        return (
            f"the name {name[:_SHOWN]!a}, which may read as another one and which the file does not "
            "have: write names in ASCII"
        )

    def _html_comment(self, at: int) -> str | None:
        node = self._at(at)
        if self.grammar == "python" or (node is not None and node.type in _TEXTS):
            return None
        return "an HTML comment, which is a comment in a script and code in a module: leave it out"

    def _at(self, at: int) -> "Node | None":
        return self._root and self._root.descendant_for_byte_range(at, at + 1)

    def _described(self, node: "Node") -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    @cached_property
    def _source(self) -> bytes:
        return self.text.encode("utf-8", "replace")

    @cached_property
    def _root(self) -> "Node | None":
        tree = parse(self._source, self.grammar)
        return tree and tree.root_node


def _is_of_name(character: str) -> bool:
    """May it stand in a name? Letters, marks, numbers, connectors, and Unicode's exceptions."""
    kind = unicodedata.category(character)
    return kind[0] in "LMN" or kind == "Pc" or f"a{character}".isidentifier()
