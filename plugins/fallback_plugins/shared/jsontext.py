"""Edits of JSON text in the form that it has: what stays the same keeps its bytes, whichever tool wrote it.

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

#: Objects and lists in each other: deeper than any real manifest.
MAX_DEPTH = 400

#: Columns of a line with a list that formatters still write as one.
_COLUMNS = 80


@dataclass(frozen=True)
class _Member:
    """A member of an object in a text: its key's text begins at ``start``, its value's at ``value``."""

    key: str
    start: int
    value: int
    end: int


def set_value(text: str, keys: Sequence[str], value: str) -> str:
    """Return the text with a string at ``keys``, objects on the way made if they are missing.

    Raises ValueError: the text is not a JSON object, something else than an object is on the way, or it
    nests deeper than MAX_DEPTH.
    """
    steps = ((it in "[{") - (it in "]}") for it in _TOKEN.findall(text))
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
    """Return a text that means ``new``, in the form of a JSON text. Raises ValueError: that is not JSON."""
    start = _after_blank(text, len(BOM) if text.startswith(BOM) else 0)
    old, end = _DECODER.raw_decode(text, start)
    style = _Style.of(text, old)
    return f"{text[:start]}{style.value(text, start, old, new, '')}{text[end:]}"


@dataclass(frozen=True)
class _Style:
    """How a text is written. ``unit``: of its indentation, None if it is on one line."""

    unit: str | None
    newline: str
    separators: tuple[str, str]
    is_ascii: bool
    is_sorted: bool
    short_lists: bool

    @classmethod
    def of(cls, text: str, document: Any) -> "_Style":
        found = _INDENT.search(text)
        keys = list(document) if isinstance(document, dict) else []
        return cls(
            unit=found[1] if found else None,
            newline="\r\n" if "\r\n" in text else "\n",
            separators=(",", ": ") if found else (", ", ": ") if '": ' in text else (",", ":"),
            is_ascii="\\u" in text and text.isascii(),
            is_sorted=len(keys) > 2 and keys == sorted(keys),
            short_lists=bool(_SHORT_LIST.search(text)) and not _LONG_LIST.search(text),
        )

    def value(self, text: str, at: int, old: Any, new: Any, indent: str) -> str:
        """The text of a value in the place of the one at ``at``; ``indent``: of the line it is on."""
        if type(old) is type(new) and old == new:
            return text[at : _DECODER.raw_decode(text, at)[1]]
        if not (isinstance(old, dict) and isinstance(new, dict) and old and new):
            return self.fresh(new, indent)
        members, end = _members(text, at)
        lead = text[at + 1 : members[0].start]
        inside = lead.rpartition("\n")[2] if "\n" in lead else indent
        own = {
            it.key: it for it in members
        }  # of two equal keys the last counts, as in every parser
        texts = {
            key: text[it.start : it.value] + self.value(text, it.value, old[key], new[key], inside)
            for key, it in own.items()
            if key in new
        }
        if own.keys() == new.keys():
            kept = text[at : members[0].start]
            for it, following in zip(
                members, [it.start for it in members[1:]] + [end], strict=True
            ):
                kept += texts[it.key] if it is own[it.key] else text[it.start : it.end]
                kept += text[it.end : following]
            return kept
        gaps = [text[one.end : two.start] for one, two in pairwise(members)]
        gap = gaps[0] if gaps else f",{lead or ' ' * (self.separators[0] != ',')}"
        for key in new.keys() - own.keys():
            name = json.dumps(key, ensure_ascii=self.is_ascii) + self.separators[1]
            texts[key] = name + self.fresh(new[key], inside, len(name))
        ordered = gap.join(texts[key] for key in self._order(old, new))
        return f"{{{lead}{ordered}{text[members[-1].end : end]}"

    def fresh(self, value: Any, indent: str, column: int = 0) -> str:
        """The text of a value that is new, on a line of this indentation."""
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
        """The members of ``new`` as ``old`` has them; an added one is after the one that it follows."""
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
    """The members of the object at ``start``, in their order, and where it ends."""
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
    found = _BLANK.match(text, at)
    return found.end() if found else at
