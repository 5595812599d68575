"""Exact edits of JSON text: one value is set, every other byte stays."""

import json
import re
from collections.abc import Sequence
from itertools import accumulate

_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\{\r?\n([ \t]+)\"")
_DECODER = json.JSONDecoder()
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')

#: Objects and lists in each other: deeper than any real manifest.
MAX_DEPTH = 400

#: Where a value begins and ends.
_Span = tuple[int, int]


def set_value(text: str, keys: Sequence[str], value: str) -> str:
    """The text with a string at ``keys``, objects on the way made where missing.

    An object gains its new member at the end, indented as the file is. Raises ValueError: the text is
    not a JSON object, something else than an object stands on the way, or it nests deeper than MAX_DEPTH.
    """
    steps = ((it in "[{") - (it in "]}") for it in _TOKEN.findall(text))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise ValueError(f"no text that nests deeper than {MAX_DEPTH} is edited")
    try:
        span = _value(text, 1 if text.startswith("\ufeff") else 0)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON ({error})") from error
    for depth, key in enumerate(keys):
        if text[span[0]] != "{":
            raise ValueError(f"{'.'.join(keys[:depth]) or 'the document'} is not an object")
        members = _members(text, span[0])
        if key not in members:
            last = max((end for _, end in members.values()), default=0)
            return _insert(text, span, last, keys[depth:], value, depth)
        span = members[key]
    return text[: span[0]] + json.dumps(value, ensure_ascii=False) + text[span[1] :]


def _insert(text: str, span: _Span, last: int, keys: Sequence[str], value: str, depth: int) -> str:
    """``last``: where the object's last member ends; 0: it has none."""
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
    if not last:
        return f"{text[: span[0]]}{{{inner}{member}{outer}}}{text[span[1] :]}"
    return f"{text[:last]},{inner or ' '}{member}{text[last:]}"


def _members(text: str, start: int) -> dict[str, _Span]:
    """Where the value of each member of an object is; of two equal keys the last counts, as in every
    parser."""
    members: dict[str, _Span] = {}
    at = _after_blank(text, start + 1)
    while text[at] != "}":
        key, colon = _DECODER.raw_decode(text, at)
        members[key] = span = _value(text, _after_blank(text, colon) + 1)
        at = _after_blank(text, span[1])
        at = _after_blank(text, at + 1) if text[at] == "," else at
    return members


def _value(text: str, at: int) -> _Span:
    """The value behind blanks."""
    start = _after_blank(text, at)
    return start, _DECODER.raw_decode(text, start)[1]


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
