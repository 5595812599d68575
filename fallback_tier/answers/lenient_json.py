"""A JSON parser for text that a model typed: lenient about syntax, never about content.

It reads RFC 8259 and, beyond it, only what has exactly one reading: trailing commas, single-quoted and
triple-quoted strings, raw line breaks and tabs inside a string. If there are two readings (an unknown
escape, a backslash in a triple-quoted string, a key given twice) it raises LenientJsonError, and the model
is asked to be clear, because a wrong guess would end up in a source file.
"""

import json
import re
from dataclasses import dataclass
from typing import Final

#: Plans are four levels deep. The bound keeps the parser's recursion far below the interpreter's limit.
MAX_DEPTH: Final = 16

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r"-?(?:0|[1-9]\d{0,30})(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?|[A-Za-z]+")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_QUOTES: Final = ('"""', "'''", '"', "'")
_ESCAPES: Final = {
    '"': '"',
    "'": "'",
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_HEX: Final = re.compile(r"[0-9a-fA-F]{4}")

Value = dict[str, "Value"] | list["Value"] | str | float | bool | None


class LenientJsonError(ValueError):
    """The text has no single reading. ``keys``: those of the outermost object read before it; ``kind``: as
    that of other errors (ADR-0130)."""

    def __init__(self, what: str, text: str, at: int, *, kind: str) -> None:
        line = text.count("\n", 0, at) + 1
        super().__init__(f"{what} (line {line} of the answer)")
        self.at = at
        self.kind = kind
        self.keys: frozenset[str] = frozenset()


def read_object(text: str, at: int) -> tuple[dict[str, Value], int]:
    """Return the object whose ``{`` is at ``at``, and the position after its ``}``. Raises
    LenientJsonError."""
    reader = _Reader(text, at)
    keys: dict[str, Value] = {}
    try:
        return reader.object(keys, depth=1), reader.at
    except LenientJsonError as error:
        error.keys = frozenset(keys)
        raise


@dataclass
class _Reader:
    text: str
    at: int

    def fail(self, what: str, *, kind: str) -> LenientJsonError:
        return LenientJsonError(what, self.text, min(self.at, len(self.text)), kind=kind)

    def skip_space(self) -> None:
        if match := _SPACE.match(self.text, self.at):
            self.at = match.end()

    def take(self, token: str) -> bool:
        self.skip_space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def value(self, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise self.fail(f"nested more than {MAX_DEPTH} levels deep", kind="too_deep")
        self.skip_space()
        if self.text.startswith("{", self.at):
            return self.object({}, depth)
        if self.text.startswith("[", self.at):
            return self.list(depth)
        if self.text.startswith(("'", '"'), self.at):
            return self.string()
        return self.scalar()

    def object(self, into: dict[str, Value], depth: int) -> dict[str, Value]:
        self.at += 1
        while not self.take("}"):
            self.skip_space()
            if not self.text.startswith(("'", '"'), self.at):
                raise self.fail("a quoted key or } was expected", kind="no_key")
            key = self.string()
            if key in into:
                raise self.fail(f"the key {key[:40]!r} is given twice", kind="duplicate_key")
            if not self.take(":"):
                raise self.fail(f"a colon was expected after the key {key[:40]!r}", kind="no_colon")
            into[key] = None  # before its value is read: see LenientJsonError.keys
            into[key] = self.value(depth + 1)
            self.separator("}")
        return into

    def list(self, depth: int) -> list[Value]:
        self.at += 1
        items: list[Value] = []
        while not self.take("]"):
            items.append(self.value(depth + 1))
            self.separator("]")
        return items

    def separator(self, closing: str) -> None:
        """Skip a comma, or check for the closing bracket, which stays. A comma before it is tolerated."""
        if self.take(","):
            return
        if not self.text.startswith(closing, self.at):
            raise self.fail(f"a comma or {closing} was expected after a value", kind="no_comma")

    def scalar(self) -> Value:
        match = _SCALAR.match(self.text, self.at)
        word = match.group() if match else ""
        if word in _WORDS:
            value: Value = _WORDS[word]
        elif word and word[0] in "-0123456789":
            value = float(word) if re.search("[.eE]", word) else int(word)
        else:
            raise self.fail("a JSON value was expected", kind="no_value")
        self.at += len(word)
        return value

    def string(self) -> str:
        quote = next(mark for mark in _QUOTES if self.text.startswith(mark, self.at))
        # An empty string is two quotes; three in a row open a triple-quoted one.
        self.at += len(quote)
        if len(quote) == 3:
            return self.triple_quoted(quote)
        parts: list[str] = []
        plain = re.compile(rf"[^\\{quote}]+")
        while True:
            if run := plain.match(self.text, self.at):
                parts.append(run.group())
                self.at = run.end()
            if self.text.startswith(quote, self.at):
                self.at += 1
                return _joined("".join(parts))
            if self.at >= len(self.text):
                raise self.fail("a string is not closed", kind="not_closed")
            parts.append(self.escape())

    def triple_quoted(self, quote: str) -> str:
        end = self.text.find(quote, self.at)
        if end < 0:
            raise self.fail(f"a string opened by {quote} is not closed", kind="not_closed")
        content = self.text[self.at : end]
        if "\\" in content:
            raise self.fail(
                f"a backslash inside {quote} has two readings; use a JSON string",
                kind="two_readings",
            )
        self.at = end + 3
        return content

    def escape(self) -> str:
        letter = self.text[self.at + 1 : self.at + 2]
        if letter == "u" and (digits := _HEX.match(self.text, self.at + 2)):
            self.at += 6
            return chr(int(digits.group(), 16))
        if letter not in _ESCAPES or not letter:
            raise self.fail(
                f"\\{letter} is no JSON escape; write a backslash as \\\\", kind="bad_escape"
            )
        self.at += 2
        return _ESCAPES[letter]


def _joined(text: str) -> str:
    """Return the text with surrogate pairs written as two escapes joined, as in any JSON parser."""
    if not re.search("[\ud800-\udfff]", text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def canonical(value: Value) -> str:
    """Return the same text for equal values, to tell a repetition from a contradiction."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
