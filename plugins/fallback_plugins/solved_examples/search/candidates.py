"""Which records are looked at, and what each component says of them: the pool (ADR-0019)."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from fallback_plugins.solved_examples.index.indexing import live_chunks
from fallback_plugins.solved_examples.index.postings import Postings
from fallback_plugins.solved_examples.index.vectors import Vectors
from fallback_plugins.solved_examples.interfaces import Candidate, Question
from fallback_plugins.solved_examples.question import flaw_text, same_language
from fallback_plugins.solved_examples.search import lexical
from fallback_plugins.solved_examples.search.settings import (
    Aggregation,
    EcosystemUse,
    RetrievalSettings,
)
from fallback_plugins.solved_examples.search.weakness import Profile, affinity, weaknesses
from fallback_tier.retrieval import SolvedExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Chunks that a channel finds for one record of its pool: a record has some three.
_CHUNKS_A_RECORD = 3

#: Profiles of records that a process keeps: the same ones are looked at again and again (1 ms each,
#: 2 KB).
_PROFILES = 4_096


@dataclass(frozen=True)
class Entry:
    """A record of the pool. ``scores``: component → score, as far as the component ran."""

    row: int
    scores: Mapping[str, float]
    chunks: tuple[int, ...]


def by_words(
    connection: sqlite3.Connection,
    question: Question,
    settings: RetrievalSettings,
    postings: Postings | None = None,
) -> dict[int, Entry]:
    """The pool's records by BM25: ``bm25`` is the best share of a record's chunks."""
    hits = lexical.search(
        connection,
        lexical.terms(question.text),
        limit=settings.pool * _CHUNKS_A_RECORD,
        ecosystems=_ecosystems(question, settings),
        postings=postings,
    )
    owners = _owners(connection, [hit.chunk for hit in hits])
    found: dict[int, Entry] = {}
    for hit in hits:
        if hit.chunk in owners:
            row = owners[hit.chunk]
            before = found.get(row, Entry(row, {"bm25": hit.share}, ()))
            found[row] = replace(before, chunks=(*before.chunks, hit.chunk))
    return dict(list(found.items())[: settings.pool])


def by_meaning(
    connection: sqlite3.Connection,
    vector: "NDArray[np.float32]",
    vectors: Vectors,
    question: Question,
    settings: RetrievalSettings,
) -> dict[int, Entry]:
    """The pool's records by cosine of their best chunk."""
    found: dict[int, Entry] = {}
    ranked = islice(vectors.ranked(vector), settings.pool * _CHUNKS_A_RECORD * 4)
    for near in live_chunks(connection, ranked, _ecosystems(question, settings)):
        before = found.get(near.record, Entry(near.record, {}, ()))
        found[near.record] = replace(before, chunks=(*before.chunks, near.chunk))
        if len(found) == settings.pool:
            break
    return found


def cosines(
    connection: sqlite3.Connection,
    vector: "NDArray[np.float32]",
    vectors: Vectors,
    rows: Iterable[int],
    how: Aggregation,
) -> dict[int, float]:
    """Each record's best chunk, or best two; records without a vector are left out."""
    import numpy as np

    owned: dict[int, list[int]] = {}
    for example, row in connection.execute(
        "SELECT example, row FROM vectors JOIN chunks ON chunks.id = chunk "
        "WHERE example IN (SELECT value FROM json_each(?)) ORDER BY row",
        [json.dumps([*rows])],
    ):
        owned.setdefault(example, []).append(row)
    best = 1 if how is Aggregation.MAX else 2
    return {
        example: float(np.sort(vectors.rows[places] @ vector)[-best:].mean())
        for example, places in owned.items()
    }


def of_record(question: Question, asked: Profile, example: SolvedExample) -> dict[str, float]:
    """What needs the record itself: the weakness family, the language."""
    text = "\n".join(filter(None, (example.advisory_text, example.fix_summary)))
    solved = _profile(text, example.package, example.cwe)
    return {
        "family": affinity(asked, solved),
        "language": float(same_language(question.language, example.language)),
    }


@lru_cache(_PROFILES)
def _profile(text: str, package: str, cwe: tuple[str, ...]) -> Profile:
    return weaknesses(flaw_text(text, (package,)), cwe=cwe)


def with_scores(candidate: Candidate, scores: Mapping[str, float]) -> Candidate:
    """The candidate, and what one more component says of it."""
    return replace(candidate, scores={**candidate.scores, **scores})


def _ecosystems(question: Question, settings: RetrievalSettings) -> tuple[str, ...]:
    return question.ecosystems if settings.ecosystem is EcosystemUse.FILTER else ()


def _owners(connection: sqlite3.Connection, chunks: Sequence[int]) -> dict[int, int]:
    """Chunk → record."""
    sql = "SELECT id, example FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
    return dict(connection.execute(sql, [json.dumps(chunks)]).fetchall())
