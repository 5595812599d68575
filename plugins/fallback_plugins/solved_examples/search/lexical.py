"""Search by words: BM25 over the chunks, from posting lists, or by SQLite (FTS5) with a bound.

A large store that was indexed has posting lists (``word_index``): then every word is searched, exactly.

FTS5 reads every chunk that has any of the words, about 3 µs each; a common word of a memory of
100,000 chunks costs 100 ms and hardly matters. So only the rarest words of a question are searched, as
many as have MAX_POSTINGS occurrences together (ADR-0019 has the figures, of time and of what the
answers lose). Even counting a word's chunks means reading them: here they are counted only up to
the bound.

Scores are FTS5's (Robertson's BM25, k1 = 1.2, b = 0.75), with the sign reversed: higher is better.
"""

import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fallback_plugins.solved_examples.index.word_index import Postings

#: Chunks that the words of one question may find together, each counted once per word: 25 ms. At
#: 3,351 chunks of real fixes the ten best are then those of no bound (98.7 %), with the same nDCG;
#: at half of it, 94 %.
MAX_POSTINGS = 8_000

#: Words of a question that are searched, in their order: each is counted first, at up to 0.2 ms.
MAX_TERMS = 256

#: If every word is too common, a chunk must have so many of the rarest together.
_CONJUNCTION = 3

#: Shorter words are list marks and articles; longer ones are hashes and encoded data.
_WORD = re.compile(r"[^\W_]{2,40}")
#: A word that is one token to FTS5 and to any other tokenizer.
_PLAIN = re.compile(r"[a-z0-9]+")

_STOP_WORDS = """
a about above after all also although an and any are as at be because been before being below
between both but by can could did do does doing down during each either etc few for from further
had has have having he her here his how however if in into is it its itself just may me might
more most must my no nor not of off on once only onto or other our out over own per she should
since so some such than that the their them then there these they this those though through thus
to too under until up upon us very via was we were what when where whether which while who whom
whose why will with within without would you your
"""

#: English words without a subject of their own. Words that mean nothing in *this* memory (version,
#: vulnerability) are left to BM25's weights.
STOP_WORDS = frozenset(_STOP_WORDS.split())


@dataclass(frozen=True)
class LexicalHit:
    """A chunk. ``share``: its BM25 as a share of what all searched words would add.

    A chunk of average length that has each word once is near 1. Words that no chunk has count against it;
    common ones that were not searched don't count.
    """

    chunk: int
    bm25: float
    share: float


def terms(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text as FTS5 splits them, in order, without stop words and numbers.

    Underscores split, capitals inside a word don't: with ``inner`` and ``html`` added to ``innerHTML``,
    answers did not get better (nDCG@4 0.259 instead of 0.269).
    """
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text))
    return tuple(word for word in words if word not in STOP_WORDS and not word.isdecimal())


def search(
    connection: sqlite3.Connection,
    question: Sequence[str],
    *,
    limit: int,
    ecosystems: Sequence[str] = (),
    max_postings: int = MAX_POSTINGS,
    postings: "Postings | None" = None,
) -> list[LexicalHit]:
    """Return the best chunks for any of these words (``terms``), best BM25 first, then by id.

    ``ecosystems``: only chunks of their records; empty for all. ``postings``: of this snapshot
    (``word_index.words_of``); without them FTS5 is searched, up to ``max_postings``.
    """
    words = question[:MAX_TERMS]
    matches = _by_postings(connection, postings, words) if postings is not None else None
    if matches is None:
        matches = _by_fts5(connection, words, max_postings)
    return [
        LexicalHit(chunk, score, min(1.0, score / matches.ideal))
        for chunk, score in islice(_of_ecosystems(connection, matches.ranked, ecosystems), limit)
    ]


@dataclass(frozen=True)
class _Found:
    """Chunks and their BM25, best first; and the BM25 that all the words would add."""

    ranked: Iterator[tuple[int, float]]
    ideal: float


def _by_postings(
    connection: sqlite3.Connection, postings: "Postings", words: Sequence[str]
) -> _Found | None:
    """Return the matches by posting lists; None if only FTS5 knows how it splits one of the words."""
    counts = postings.counts(words)
    for word, count in counts.items():
        # FTS5 folds and cuts by its own tables: a word that it never has as one token may be two to it.
        if not count and not _PLAIN.fullmatch(word) and _counts(connection, [word], 0)[word]:
            return None
    ideal = _ideal(postings.chunks, counts.values())
    return _Found(postings.ranked([word for word in counts if counts[word]]), ideal)


def _by_fts5(connection: sqlite3.Connection, words: Sequence[str], bound: int) -> _Found:
    counts = _counts(connection, words, bound)
    present = sorted((word for word in counts if counts[word]), key=lambda word: counts[word])
    searched = _within(present, counts, bound)
    match = " OR ".join(map(_quoted, searched))
    if not searched:
        # The first word already exceeds the bound. Words were not counted beyond it, so they keep their
        # order.
        searched = present[:_CONJUNCTION]
        match = " AND ".join(map(_quoted, searched))
    if not searched:
        return _Found(iter(()), 1.0)
    absent = [word for word in counts if not counts[word]]
    (chunks,) = connection.execute("SELECT count(*) FROM chunks_fts_docsize").fetchone()
    ideal = _ideal(chunks, (counts[word] for word in (*searched, *absent)))
    return _Found(_matches(connection, match), ideal)


def _counts(connection: sqlite3.Connection, words: Iterable[str], bound: int) -> dict[str, int]:
    """Count the chunks of each word, up to one past ``bound``. chunks_terms would read all."""
    sql = "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
    return {
        word: connection.execute(sql, [_quoted(word), bound + 1]).fetchone()[0] for word in words
    }


def _within(words: Sequence[str], counts: Mapping[str, int], bound: int) -> list[str]:
    """Return the first words, as many as have ``bound`` postings together."""
    running = accumulate(counts[word] for word in words)
    return [word for word, postings in zip(words, running, strict=True) if postings <= bound]


def _ideal(chunks: int, counts: Iterable[int]) -> float:
    """Return the sum of the words' weights. As in Lucene a weight is never 0, unlike FTS5's for words
    of half of the chunks: a chunk with only such words has a share near 0, not near 1."""
    return sum(math.log1p((chunks - count + 0.5) / (count + 0.5)) for count in counts)


def _matches(connection: sqlite3.Connection, match: str) -> Iterator[tuple[int, float]]:
    rows = connection.execute(
        "SELECT rowid, -bm25(chunks_fts) AS score FROM chunks_fts WHERE chunks_fts MATCH ? "
        "ORDER BY score DESC, rowid",
        [match],
    )
    yield from rows


def _of_ecosystems(
    connection: sqlite3.Connection,
    matches: Iterator[tuple[int, float]],
    ecosystems: Sequence[str],
) -> Iterator[tuple[int, float]]:
    """Yield the matches of these ecosystems, best first: in the same query, SQLite would look up all."""
    sql = "SELECT ecosystem FROM chunks JOIN examples ON examples.id = example WHERE chunks.id = ?"
    for chunk, score in matches:
        if not ecosystems or connection.execute(sql, [chunk]).fetchone()[0] in ecosystems:
            yield chunk, score


def _quoted(word: str) -> str:
    """Return a word as a string of FTS5's query language. Inside quotes only the quote itself is syntax."""
    return '"' + word.replace('"', '""') + '"'
