"""Editor of JSON text that keeps its format: what stays the same keeps its bytes, whichever tool wrote it.

Indentation, the order of members, line ends, lists on one line and the end of the file are those of the old
text, so that a formatter's form survives a client that knows only its own.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

BOM = "\ufeff"

_BLANK = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"[{\[]\r?\n([ \t]+)\S")
_SHORT_LIST = re.compile(r"\[[ \t]*[^\s\]]")
_LONG_LIST = re.compile(r"\[\r?\n[ \t]*[^\s{\[]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')
_DECODER = json.JSONDecoder()

#: Nested objects and lists, at most: deeper than any real manifest.
MAX_DEPTH = 400

#: Columns up to which formatters write a list on one line.
_COLUMNS = 80


@dataclass(frozen=True)
class _Member:
    """A member of an object in a text: its key's text begins at ``start``, its value's at ``value``."""

    key: str
    start: int
    value: int
    end: int


def set_value(text: str, keys: Sequence[str], value: str) -> str:
    """Return the text with a string at ``keys``. Missing objects on the way are created.

    Raises ValueError if the text is not a JSON object, something other than an object is on the way, or it
    nests deeper than MAX_DEPTH.
    """
    steps = ((part in "[{") - (part in "]}") for part in _TOKEN.findall(text))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise ValueError(f"no text that nests deeper than {MAX_DEPTH} is edited")
    try:
        document = inner = json.loads(text.removeprefix(BOM))
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON ({error})") from error
    for depth, key in enumerate(keys):
        if not isinstance(inner, dict):
            raise ValueError(f"{'.'.join(keys[:depth]) or 'the document'} is not an object")  # noqa: TRY004 (of a text)
        if depth < len(keys) - 1:
            inner = inner.setdefault(key, {})
    inner[keys[-1]] = value
    return rewritten(text, document)


def rewritten(text: str, new: Any) -> str:
    """Return ``new`` as JSON in the format of ``text``. Raises ValueError if ``text`` is not JSON."""
    start = _after_blank(text, len(BOM) if text.startswith(BOM) else 0)
    old, end = _DECODER.raw_decode(text, start)
    style = _Style.of(text, old)
    return f"{text[:start]}{style.value(text, start, old, new, '')}{text[end:]}"


@dataclass(frozen=True)
class _Style:
    """The format of a text. ``unit``: its indentation, None if it is on one line."""

    unit: str | None
    newline: str
    separators: tuple[str, str]
    is_ascii: bool
    is_sorted: bool
    short_lists: bool

    @classmethod
    def of(cls, text: str, document: Any) -> "_Style":
        match = _INDENT.search(text)
        keys = list(document) if isinstance(document, dict) else []
        return cls(
            unit=match[1] if match else None,
            newline="\r\n" if "\r\n" in text else "\n",
            separators=(",", ": ") if match else (", ", ": ") if '": ' in text else (",", ":"),
            is_ascii="\\u" in text and text.isascii(),
            is_sorted=len(keys) > 2 and keys == sorted(keys),
            short_lists=bool(_SHORT_LIST.search(text)) and not _LONG_LIST.search(text),
        )

    def value(self, text: str, at: int, old: Any, new: Any, indent: str) -> str:
        """Return the text of a value that replaces the one at ``at``. ``indent``: of the line it is on."""
        if type(old) is type(new) and old == new:
            return text[at : _DECODER.raw_decode(text, at)[1]]
        if not (isinstance(old, dict) and isinstance(new, dict) and old and new):
            return self.fresh(new, indent)
        members, end = _members(text, at)
        lead = text[at + 1 : members[0].start]
        inside = lead.rpartition("\n")[2] if "\n" in lead else indent
        # Of two equal keys the last counts, as in every parser.
        member_by_key = {member.key: member for member in members}
        texts = {
            key: text[member.start : member.value]
            + self.value(text, member.value, old[key], new[key], inside)
            for key, member in member_by_key.items()
            if key in new
        }
        if member_by_key.keys() == new.keys():
            edited = text[at : members[0].start]
            for member, following in zip(
                members, [member.start for member in members[1:]] + [end], strict=True
            ):
                edited += (
                    texts[member.key]
                    if member is member_by_key[member.key]
                    else text[member.start : member.end]
                )
                edited += text[member.end : following]
            return edited
        gaps = [text[before.end : after.start] for before, after in pairwise(members)]
        gap = gaps[0] if gaps else f",{lead or ' ' * (self.separators[0] != ',')}"
        for key in new.keys() - member_by_key.keys():
            name = json.dumps(key, ensure_ascii=self.is_ascii) + self.separators[1]
            texts[key] = name + self.fresh(new[key], inside, len(name))
        ordered = gap.join(texts[key] for key in self._order(old, new))
        return f"{{{lead}{ordered}{text[members[-1].end : end]}"

    def fresh(self, value: Any, indent: str, column: int = 0) -> str:
        """Return the text of a new value, on a line of this indentation."""
        if isinstance(value, list) and self.short_lists:
            line = json.dumps(value, ensure_ascii=self.is_ascii)
            if len(indent) + column + len(line) <= _COLUMNS:
                return line
        if self.unit is None or not value or not isinstance(value, dict | list):
            return json.dumps(
                value,
                ensure_ascii=self.is_ascii,
                separators=self.separators,
                sort_keys=self.is_sorted,
            )
        inside = indent + self.unit
        if isinstance(value, list):
            parts = [self.fresh(item, inside) for item in value]
        else:
            keys = sorted(value) if self.is_sorted else value
            names = {key: json.dumps(key, ensure_ascii=self.is_ascii) + ": " for key in keys}
            parts = [name + self.fresh(value[k], inside, len(name)) for k, name in names.items()]
        opened, closed = "[]" if isinstance(value, list) else "{}"
        lead = self.newline + inside
        return f"{opened}{lead}{f',{lead}'.join(parts)}{self.newline}{indent}{closed}"

    def _order(self, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        """Return the keys of ``new`` in the order of ``old``; an added key comes after the one that it
        follows."""
        if self.is_sorted and list(old) == sorted(old):
            return sorted(new)
        groups: dict[str | None, list[str]] = {None: []}
        groups |= {name: [name] for name in old if name in new}
        before = None
        for name in new:
            if name in old:
                before = name
            else:
                groups[before].append(name)
        return [name for group in groups.values() for name in group]


def _members(text: str, start: int) -> tuple[list[_Member], int]:
    """Return the members of the object at ``start``, in their order, and the index of its end."""
    members: list[_Member] = []
    at = _after_blank(text, start + 1)
    while text[at] != "}":
        key, colon = _DECODER.raw_decode(text, at)
        value = _after_blank(text, _after_blank(text, colon) + 1)
        members.append(_Member(key, at, value, _DECODER.raw_decode(text, value)[1]))
        at = _after_blank(text, members[-1].end)
        at = _after_blank(text, at + 1) if text[at] == "," else at
    return members, at + 1


def _after_blank(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
