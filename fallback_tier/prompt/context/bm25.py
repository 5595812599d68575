"""BM25 of a few words over texts (Robertson & Zaragoza 2009), by SQLite's FTS5 in memory.

FTS5 parts snake_case by itself and camelCase is parted before; both sides are stemmed (Porter), so
that "parsing" in an advisory finds ``parse_value``.
"""

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing

# A set of letters comes first: a search for it is quicker than one that begins by looking back.
_CAMEL = re.compile(r"[A-Z](?<=[a-z0-9][A-Z])")

#: A match in what a unit is called (its path, the names that it defines) counts for so many in its text.
_NAME_WEIGHT = 4.0


def bm25(texts: Sequence[tuple[str, str]], words: Sequence[str]) -> list[float]:
    """For each (names, body) how well it matches, from 0 (not at all) to 1 (the best of them).

    ``words`` are letters only.
    """
    scores = [0.0] * len(texts)
    if not words or not texts:
        return scores
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
        memory.execute(
            # No copy of the texts is kept. (With detail=column besides, bm25() is 0: SQLite 3.40.)
            "CREATE VIRTUAL TABLE unit USING fts5(name, body, content='', tokenize='porter unicode61')"
        )
        memory.execute("BEGIN")
        memory.executemany(
            "INSERT INTO unit(rowid, name, body) VALUES (?, ?, ?)",
            (
                (number, _parted(name), _parted(body))
                for number, (name, body) in enumerate(texts, start=1)
            ),
        )
        found = memory.execute(
            "SELECT rowid, bm25(unit, ?, 1.0) FROM unit WHERE unit MATCH ?",
            (_NAME_WEIGHT, " OR ".join(f'"{word}"' for word in words)),
        ).fetchall()
    best = min((score for _, score in found), default=0.0)
    for number, score in found:
        scores[number - 1] = score / best if best else 0.0
    return scores


def _parted(text: str) -> str:
    return _CAMEL.sub(r" \g<0>", text)
