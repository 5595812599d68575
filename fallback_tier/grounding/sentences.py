"""Sentences of a text that people or models wrote about code, by rule: same text, same sentences."""

import re
from itertools import pairwise
from typing import Final

#: Code is one word, whatever stands in it. Spans without their closing mark are prose.
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)

#: What may end a sentence: stops, what closes round them, citations that follow (`. [S1][E2] `). Begins
#: at a run's first stop only: a model that is caught in a loop writes thousands of dots.
#: No white space follows the dots of a version, so they end nothing.
_STOP: Final = re.compile(
    r"(?<![.!?])[.!?]+[\"')\]*_`]{0,8}(?:[ \t]{0,3}\[[A-Z]\d{1,3}\][,;.]?){0,8}(?=\s)"
)

#: An empty line, or a line that begins a list item or a heading.
_BREAK: Final = re.compile(r"\n[ \t]*\n\s*|\n(?=[ \t]*(?:[-*+•#]+|\d{1,2}[.)])[ \t])")

#: A list item's mark is no part of what the item says.
_MARK: Final = re.compile(r"^(?:[-*+•#]+|\d{1,2}[.)])\s+")

#: The word before a stop after which a sentence goes on, whatever follows.
_NEVER_LAST: Final = frozenset(
    {
        "e.g",
        "i.e",
        "eg",
        "ie",
        "cf",
        "vs",
        "viz",
        "resp",
        "approx",
        "ca",
        "incl",
        "esp",
        "no",
        "nos",
    }
    | {"fig", "sec", "ch", "p", "pp", "ver", "v", "vol", "dr", "mr", "mrs", "ms", "st"}
)

#: As these, unless a capital letter follows.
_SELDOM_LAST: Final = frozenset({"etc", "al", "inc", "ltd", "co", "corp"})

_LAST_WORD: Final = re.compile(r"[\w.]*\Z")

#: "No." is an abbreviation in front of a number only.
_BEFORE_NUMBER: Final = frozenset({"no", "nos", "p", "pp", "v", "ver", "st"})


def sentences(text: str) -> tuple[str, ...]:
    """The sentences in order, each on one line, list marks left out; never an empty one.

    Code spans, abbreviations, initials and version numbers are not cut. Of what is no white space and no
    list mark nothing is lost. Linear in the length of the text.
    """
    masked = _CODE.sub(lambda found: "x" * len(found.group()), text)
    cuts = {0, len(text)}
    cuts.update(found.end() for found in _BREAK.finditer(masked))
    cuts.update(found.end() for found in _STOP.finditer(masked) if _ends(masked, found))
    pieces = (" ".join(text[start:end].split()) for start, end in pairwise(sorted(cuts)))
    return tuple(message for piece in pieces if (message := _MARK.sub("", piece)).strip("-*+•#_. "))


def _ends(masked: str, stop: re.Match[str]) -> bool:
    """Does this stop end a sentence, or an abbreviation, an initial, a list number?"""
    if masked[stop.start()] != "." or stop.group().startswith(".."):
        return True
    before = masked[max(0, stop.start() - 40) : stop.start()]
    match = _LAST_WORD.search(before)
    word = match.group().lower().strip("_") if match else ""
    following = masked[stop.end() : stop.end() + 8].lstrip()[:1]
    if word in _BEFORE_NUMBER:
        return not following.isdigit()
    if word in _NEVER_LAST:
        return False
    if word in _SELDOM_LAST:
        return following.isupper()
    line = before[: len(before) - len(word)].rpartition("\n")[2]
    if word.isdigit() and not line.strip():
        return False  # "1. First": a list number
    return not (len(word) == 1 and word.isalpha() and match is not None and match.group().isupper())
