"""Text that reads as it runs: an added line is what a reviewer, and each of our checks, takes it for.

A comment that ends where no reader sees it, text that runs in another order than it is shown in, a name
that reads like another one, an encoding that turns comments into code: each hides what a patch does, from
people and from parsers. Only lines that a patch adds or changes are checked; the rest of the base commit's
text is not the patch's.

* Every text: no invisible character and none that moves others, no blank but a space and a tab, no
  carriage return except before a line feed, no declared encoding that reads an added line differently
  from UTF-8. Letters are not judged by their looks (ADR-0126).
* Code that is parsed here: names are ASCII, unless the file had that very name; no escapes in names; no
  HTML comments, which are comments in one kind of JavaScript and code in another.
* Python: its own parser finds the same names and statements as ours (``parsers_agree``).

The cost of a wrong refusal is an escape (``\u00a0``) or another name; the cost of a wrong permission is the
gates' proof.
"""

import codecs
import io
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from fallback_tier.patch.diff import changes, git_lines
from fallback_tier.patch.parsers_agree import disagreement
from fallback_tier.patch.policy import recipe_only_reason
from fallback_tier.prompt.characters import is_hidden
from fallback_tier.syntax import grammar_of_text, parse

if TYPE_CHECKING:
    from tree_sitter import Node

#: General categories (UAX #44) that no added line needs: controls, formats, surrogates, private use, what
#: this Python's Unicode does not know, line and paragraph separators. Paths have the same rule.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})

_BYTE_ORDER_MARK = "\ufeff"

#: Characters that join others to one emoji: a request for colour after a symbol, a joiner between two.
_VARIATION, _JOINER = "\ufe0f", "\u200d"
_SYMBOLS = frozenset({"So", "Sk", "Sm"})
#: Emoji of other categories: keys, letters and marks.
_OTHER_EMOJI = frozenset("#*0123456789\u203c\u2049\u2139\u3030")

#: Encodings in which ASCII is ASCII whatever precedes it. In UTF-7, unicode_escape and the stateful
#: encodings of East Asia plain ASCII may mean anything.
_ASCII_ALIKE = frozenset({"ascii", "iso8859-1", "iso8859-15", "cp1252"})

#: Endings of files in which Python and Ruby look for ``coding:``, in comments of the first two lines (PEP
#: 263).
_WITH_COOKIES = frozenset({".py", ".pyi", ".pyw", ".pyx", ".pxd", ".pxi", ".rb", ".rake", ""})

_COOKIE = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)
#: Python ignores the text after these names: ``utf-8-unix``.
_AS_IN_EMACS = re.compile(
    r"(?i)\A(utf[-_]8|latin[-_]1|iso[-_]8859[-_]1|iso[-_]latin[-_]1)[-_].*", re.DOTALL
)
#: How many characters of a declaration, or of a name (an error node can be the whole file), a message
#: shows.
_SHOWN = 60
_BLANK_OR_COMMENT = re.compile(r"[ \t\f]*(?:#|$)")

#: The same in markup and style sheets, at their beginning.
_MARKUP = re.compile(
    r"""<\?xml\b[^>]*?\bencoding\s*=\s*["']([^"'>]*)|\A\s*@charset\s*["']([^"']*)"""
    r"""|<meta\b[^>]*?\bcharset\s*=\s*["']?([^"'\s/>;]+)""",
    re.IGNORECASE,
)
#: How far parsers of HTML look for it (HTML standard, 13.2.3.2).
_MARKUP_CHARS = 1_024


class _Added(NamedTuple):
    """A line that a patch adds: its number from 1 in the patched text, its text without the line feed."""

    number: int
    text: str
    is_ended: bool


def misread_reason(path: str, before: str | None, after: str) -> str | None:
    """Return why an added line is not what it seems, as a clause with its number, or None. ``before`` None:
    the file is new. Never raises."""
    if after == before:
        return None
    added = list(_added(before or "", after))
    had_mark = before is not None and before.startswith(_BYTE_ORDER_MARK)
    is_listing = recipe_only_reason(path) is not None
    for line in added:
        marked = had_mark and line.number == 1
        text = line.text.removeprefix(_BYTE_ORDER_MARK) if marked else line.text
        why = _line_reason(text, is_ended=line.is_ended, is_listing=is_listing)
        if why is not None:
            return f"line {line.number} has {why}"
    # If the declared encoding changes, every line reads differently, and all are checked.
    is_same = _declared(path, before or "") == _declared(path, after)
    encoded = added if is_same else _added("", after)
    return _encoding_reason(path, after, encoded, is_same=is_same) or _code_reason(
        path, before, after, added
    )


def _added(before: str, after: str) -> Iterator[_Added]:
    lines = git_lines(after)
    for change in changes(git_lines(before), lines):
        for at in range(change.j1, change.j2):
            text = lines[at].removesuffix("\n")
            yield _Added(at + 1, text, is_ended=text != lines[at])


def _line_reason(text: str, *, is_ended: bool, is_listing: bool) -> str | None:
    """Return why a line is not what it seems, or None. ``is_listing``: manifests and locks, in which
    clients write what packages say of themselves."""
    if is_ended:
        text = text.removesuffix("\r")
    if text.isascii() and text.replace("\t", " ").isprintable():
        return None
    if "\r" in text:
        return "a carriage return without a line feed, where a comment may end unseen: end the line"
    for at, character in enumerate(text):
        category = unicodedata.category(character)
        unseen = category in _UNSEEN and character != "\t"
        if (unseen or is_hidden(character)) and not _is_of_emoji(text, at):
            return f"{_named(character)}, which nobody sees: write it as an escape, or leave it out"
        if category == "Zs" and character != " " and not is_listing:
            return f"{_named(character)}, which looks like a space: write a space, or an escape"
    return None


def _is_of_emoji(text: str, at: int) -> bool:
    """Return whether this is one request for colour, or one joiner: runs of them can hide a text."""
    previous = text[at - 1 : at] if at else ""
    if text[at] == _VARIATION:
        return bool(previous) and (
            unicodedata.category(previous) in _SYMBOLS or previous in _OTHER_EMOJI
        )
    if text[at] != _JOINER or not previous:
        return False
    joins = previous == _VARIATION or unicodedata.category(previous) in _SYMBOLS
    following = text[at + 1 : at + 2]
    return joins and bool(following) and unicodedata.category(following) in _SYMBOLS


def _named(character: str) -> str:
    name = unicodedata.name(character, "a character without a name")
    return f"U+{ord(character):04X} ({name})"


def _encoding_reason(path: str, text: str, lines: Iterable[_Added], *, is_same: bool) -> str | None:
    """Return why a declared encoding reads an added line differently from UTF-8, or None, no matter who
    declared it."""
    declared = _declared(path, text)
    if declared is None:
        return None
    try:
        name = codecs.lookup(_AS_IN_EMACS.sub(r"\1", declared)).name
    except (LookupError, ValueError):
        if is_same and not _has_cookies(path, text):
            return None  # a template's placeholder, which was there: its user decides
        return (
            f"it declares the encoding {declared[:_SHOWN]!a}, which is not known: declare UTF-8, or "
            "nothing"
        )
    if name in {"utf-8", "utf-8-sig"}:
        return None
    misread = next(
        (line for line in lines if name not in _ASCII_ALIKE or not line.text.isascii()), None
    )
    if misread is None:
        return None
    return (
        f"it declares the encoding {declared!a}, in which line {misread.number} is not what it reads as: "
        "only UTF-8 is taken"
    )


def _declared(path: str, text: str) -> str | None:
    if not _has_cookies(path, text):
        # In code of other languages than Python, markup is a text.
        match = None if grammar_of_text(path, text) else _MARKUP.search(text[:_MARKUP_CHARS])
        return match and next(group for group in match.groups() if group is not None)
    # The interpreter accepts any line end; the library's own reader only line feeds.
    lines = io.StringIO(text.removeprefix(_BYTE_ORDER_MARK), newline=None)
    for line, _ in zip(lines, range(2), strict=False):
        if cookie := _COOKIE.match(line):
            return cookie[1]
        if not _BLANK_OR_COMMENT.match(line):
            return None
    return None


def _has_cookies(path: str, text: str) -> bool:
    suffix = PurePosixPath(path).suffix.lower()
    return suffix in _WITH_COOKIES and (bool(suffix) or text.startswith("#!"))


def _code_reason(path: str, before: str | None, after: str, added: list[_Added]) -> str | None:
    grammar = grammar_of_text(path, after, before or "")
    if not grammar:
        return None
    old_text, new_text = ((text or "").removeprefix(_BYTE_ORDER_MARK) for text in (before, after))
    numbers = {line.number for line in added}
    reason = _Code(new_text, grammar).odd_name(numbers, lambda: _Code(old_text, grammar).names())
    return reason or (disagreement(old_text, new_text) if grammar == "python" else None)


# Characters in code that only texts should have: names beyond ASCII, escapes in names, HTML comments.
#
# Names are not judged by their looks: lists of look-alikes are never complete, a word of one script can
# look like a word of another (four Cyrillic letters read "copy"), and Python treats a ligature as its
# letters (PEP 3131). A fix rarely needs a new name.

#: Nodes that are text to the language, of all grammars; all others are code.
_TEXTS = frozenset(
    {
        *("comment", "string", "string_content", "string_fragment", "escape_sequence"),
        *("template_string", "regex_pattern", "jsx_text", "html_character_reference"),
        *("format_specifier", "hash_bang_line", "concatenated_string"),
    }
)

#: What is checked: characters beyond ASCII; the escape of a letter; the beginning of an HTML comment. The
#: end of one begins a comment as well, at the beginning of a line (ECMAScript, annex B.1.1).
_ODD = re.compile(rb"[\x80-\xff]+|\\u|<!--|^(?:.*\*/)?[ \t]*-->")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]+")


@dataclass(frozen=True)
class _Code:
    """A source text and its parse. ``grammar``: one that ``grammar_of`` returns."""

    text: str
    grammar: str

    def odd_name(self, lines: Collection[int], known: Callable[[], frozenset[str]]) -> str | None:
        """Return what in the code of these lines (from 1) reads as something else, as a clause, or None.
        ``known``: the file's own names beyond ASCII."""
        start = 0
        for number, line in enumerate(self._source.split(b"\n"), start=1):
            if number in lines:
                for match in _ODD.finditer(line):
                    reason = self._reason(start + match.start(), match[0], known)
                    if reason is not None:
                        return f"line {number} has {reason}"
            start += len(line) + 1
        return None

    def names(self) -> frozenset[str]:
        """Return the names beyond ASCII in the code."""
        nodes = (self._at(match.start()) for match in _BEYOND_ASCII.finditer(self._source))
        return frozenset(
            self._described(node) for node in nodes if node and node.type not in _TEXTS
        )

    def _reason(self, at: int, odd: bytes, known: Callable[[], frozenset[str]]) -> str | None:
        if odd.endswith((b"<!--", b"-->")):
            return self._html_comment(at + len(odd) - 1)
        if odd != rb"\u" and not any(map(_is_of_name, odd.decode("utf-8", "replace"))):
            return None  # a dash or an arrow is not executed
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
    """Return whether a name may have it: letters, marks, numbers, connectors, Unicode's exceptions."""
    kind = unicodedata.category(character)
    return kind[0] in "LMN" or kind == "Pc" or f"a{character}".isidentifier()
