"""BM25 of a few words over texts (Robertson & Zaragoza 2009), by SQLite's FTS5 in memory.

FTS5 parts snake_case by itself and camelCase is parted before. Words and code meet in two ways:

- ``bm25`` stems both sides (Porter), so that "parsing" in an advisory finds ``parse_value``;
- ``bm25_whole``, for a package's own code, takes a word that stands alone for more than a part of an
  identifier, and only inflected forms for the same word: by Porter "regular" finds ``regularized``.
"""

import re
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing

# A set of letters comes first: a search for it is quicker than one that begins by looking back.
_CAMEL = re.compile(r"[A-Z](?<=[a-z0-9][A-Z])")

#: A match in what a unit is called (its path, the names that it defines) counts for so many in its text.
_NAME_WEIGHT = 4.0

#: … and one in a part of an identifier for so many of a whole word.
_PART_WEIGHT = 0.25

#: An identifier of several words.
_COMPOUND = re.compile(r"\b\w*(?:[a-z0-9][A-Z]|[^\W_]_+[^\W_])\w*")

_INFLECTION = re.compile(r"(?<=\w{3})(?:ing|ed|es|e|s)$")
_INFLECTED = ("", "s", "e", "es", "ed", "ing")


def bm25(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """Return for each (names, body) how well it matches, from 0 (not at all) to 1 (the best of them).

    ``words`` are letters only.
    """
    rows = ((_parted(name), _parted(body), "") for name, body in texts)
    return _scores(rows, len(texts), words, "porter unicode61")


def bm25_whole(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """Return the same of whole words before parts of identifiers, each in its inflected forms alone."""
    stems = dict.fromkeys(_INFLECTION.sub("", word) for word in words)
    forms = [f"{stem}{ending}" for stem in stems for ending in _INFLECTED]
    rows = (
        (_parted(name), _COMPOUND.sub(" ", body), _parted(" ".join(_COMPOUND.findall(body))))
        for name, body in texts
    )
    return _scores(rows, len(texts), forms, "unicode61")


def _scores(
    rows: Iterable[tuple[str, str, str]], count: int, words: Sequence[str], tokenizer: str
) -> list[float]:
    """Of rows of (names, whole words, parts of identifiers)."""
    scores = [0.0] * count
    if not words or not count:
        return scores
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute(
            # No copy of the texts is kept. (With detail=column besides, bm25() is 0: SQLite 3.40.)
            "CREATE VIRTUAL TABLE unit USING "
            f"fts5(name, body, part, content='', tokenize='{tokenizer}')"
        )
        memory.execute("BEGIN")
        memory.executemany(
            "INSERT INTO unit(rowid, name, body, part) VALUES (?, ?, ?, ?)",
            ((number, *row) for number, row in enumerate(rows, start=1)),
        )
        found = memory.execute(
            "SELECT rowid, bm25(unit, ?, 1.0, ?) FROM unit WHERE unit MATCH ?",
            (_NAME_WEIGHT, _PART_WEIGHT, " OR ".join(f'"{word}"' for word in words)),
        ).fetchall()
    best = min((score for _, score in found), default=0.0)
    for number, score in found:
        scores[number - 1] = score / best if best else 0.0
    return scores


def _parted(text: str) -> str:
    return _CAMEL.sub(r" \g<0>", text)
