"""Exact edits of JSON text: one value is set, every other byte stays."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BLANK = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,\]}]+')
_INDENT = re.compile(r"\{\r?\n([ \t]+)\"")


@dataclass(frozen=True)
class _Span:
    """Where a value stands; of an object also where each member's value does."""

    start: int
    end: int
    members: Mapping[str, "_Span"] | None = None


def set_value(text: str, keys: Sequence[str], value: str) -> str:
    """The text with a string at ``keys``, objects on the way made where missing.

    An object gains its new member at the end, indented as the file is. Raises ValueError: the text is
    not a JSON object, or something else than an object stands on the way.
    """
    start = _after_blank(text, 1 if text.startswith("\ufeff") else 0)
    span, done = _value(text, start), 0
    while done < len(keys):
        if span.members is None:
            raise ValueError(f"{'.'.join(keys[:done]) or 'the document'} is not an object")
        if keys[done] not in span.members:
            return _insert(text, span, keys[done:], value, depth=done)
        span = span.members[keys[done]]
        done += 1
    return text[: span.start] + json.dumps(value, ensure_ascii=False) + text[span.end :]


def _insert(text: str, span: _Span, keys: Sequence[str], value: str, *, depth: int) -> str:
    found = _INDENT.search(text)
    unit = found.group(1) if found else ""
    newline = "" if not unit else "\r\n" if "\r\n" in text else "\n"
    member = json.dumps(value, ensure_ascii=False)
    for level in reversed(range(len(keys))):
        inner = newline + unit * (depth + level + 1)
        member = f"{json.dumps(keys[level], ensure_ascii=False)}: {member}"
        if level:
            member = "{" + inner + member + newline + unit * (depth + level) + "}"
    inner, outer = newline + unit * (depth + 1), newline + unit * depth
    if not span.members:
        return f"{text[: span.start]}{{{inner}{member}{outer}}}{text[span.end :]}"
    last = max(other.end for other in span.members.values())
    return f"{text[:last]},{inner or ' '}{member}{text[last:]}"


def _value(text: str, at: int) -> _Span:
    if text[at : at + 1] == "{":
        return _object(text, at)
    if text[at : at + 1] == "[":
        return _array(text, at)
    found = _SCALAR.match(text, at)
    if found is None:
        raise ValueError(f"no JSON value at {at}")
    return _Span(at, found.end())


def _object(text: str, start: int) -> _Span:
    members: dict[str, _Span] = {}
    at = _after_blank(text, start + 1)
    while text[at : at + 1] != "}":
        key = _SCALAR.match(text, at)
        if key is None:
            raise ValueError(f"no key at {at}")
        colon = _after_blank(text, key.end())
        if text[colon : colon + 1] != ":":
            raise ValueError(f"no colon at {colon}")
        # The last of two equal keys is the one that counts, as in every parser.
        members[json.loads(key.group())] = span = _value(text, _after_blank(text, colon + 1))
        at = _next(text, span.end)
    return _Span(start, at + 1, members)


def _array(text: str, start: int) -> _Span:
    at = _after_blank(text, start + 1)
    while text[at : at + 1] != "]":
        at = _next(text, _value(text, at).end)
    return _Span(start, at + 1)


def _next(text: str, at: int) -> int:
    at = _after_blank(text, at)
    return _after_blank(text, at + 1) if text[at : at + 1] == "," else at


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
