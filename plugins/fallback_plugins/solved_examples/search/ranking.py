"""Ranking of the memory's records for one question: pool, components, fusion, reranker (ADR-0019).

Channels bring records into a pool, and components score each of them. Fusion makes one order of the scores.
A small learned ranker, a logistic regression over the components, gives each candidate a calibrated
probability that it is relevant. Unlike the fused score, it is on one scale for every question, so floors
apply to it. Its coefficients are committed next to this module with their provenance.
"""

import json
import math
import sqlite3
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_plugins.solved_examples.index.indexing import live_chunks, open_vectors
from fallback_plugins.solved_examples.index.vectors import Vectors
from fallback_plugins.solved_examples.index.word_index import Postings, words_of
from fallback_plugins.solved_examples.interfaces import (
    Candidate,
    Embedder,
    EmbeddingError,
    ExampleStoreError,
    Question,
    Reranker,
)
from fallback_plugins.solved_examples.question import flaw_text, same_language
from fallback_plugins.solved_examples.search import lexical
from fallback_plugins.solved_examples.search.settings import (
    Aggregation,
    EcosystemUse,
    Mode,
    RetrievalSettings,
)
from fallback_plugins.solved_examples.search.weakness import Profile, affinity, weaknesses
from fallback_plugins.solved_examples.store.example_store import (
    ExampleStore,
    StoredExample,
    recorded_sha256,
)
from fallback_plugins.solved_examples.store.schema import Meta, get_meta
from fallback_tier.retrieval import SolvedExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The score that determines the order.
ORDER = "fused"


@dataclass(frozen=True)
class Ranking:
    """Candidates, best first, each with the score of every component that ran.

    ``routing``: the best of the scores that the routing floor applies to (0 if there is no candidate).
    ``degraded``: why it did not work as configured, in sentences; empty if it did.
    """

    mode: Mode
    candidates: tuple[Candidate, ...] = ()
    routing: float = 0.0
    degraded: str = ""
    notes: tuple[str, ...] = ()
    manifest_sha256: Digest | None = None


@dataclass(frozen=True)
class _Entry:
    """A record of the pool. ``scores``: component → score, for the components that ran."""

    row: int
    scores: Mapping[str, float]
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class _Ability:
    """The ways of searching that store, model and settings allow together."""

    vectors: Vectors | None = None
    degraded: str = ""
    note: str = ""

    @property
    def mode(self) -> Mode:
        return "hybrid" if self.vectors is not None else "lexical"


def rank(
    store: ExampleStore,
    question: Question,
    settings: RetrievalSettings,
    embedder: Embedder | None,
    reranker: Reranker | None,
) -> Ranking:
    """Return the ranking for a question. Raises ExampleStoreError if the store can't be read."""
    with store.reading() as connection:
        ability = _ability(store, connection, settings, embedder)
        words = words_of(store, connection)
        entries, ability = _pool(connection, question, settings, ability, words.postings, embedder)
        digest = recorded_sha256(connection) or None
    records = store.records([entry.row for entry in entries])
    candidates = _scored(question, entries, records)
    candidates = _ordered(candidates, settings)
    degraded = ability.degraded
    if reranker is not None and candidates:
        try:
            candidates = _reranked(question, candidates, settings, reranker)
        except EmbeddingError as error:
            degraded = f"{degraded} {error}".strip()
    # The probability does not change the order: floors and readers use it.
    coefficients = shipped(ability.mode)
    judged = tuple(
        with_scores(candidate, {PROBABILITY: coefficients.probability(candidate.scores)})
        for candidate in candidates
    )
    floor = settings.floor("routing", ability.mode)
    score = floor.score if floor else PROBABILITY
    return Ranking(
        mode=ability.mode,
        candidates=judged,
        routing=max((candidate.scores.get(score, 0.0) for candidate in judged), default=0.0),
        degraded=degraded,
        notes=tuple(filter(None, (ability.note, words.note))),
        manifest_sha256=digest,
    )


def _ability(
    store: ExampleStore,
    connection: sqlite3.Connection,
    settings: RetrievalSettings,
    embedder: Embedder | None,
) -> _Ability:
    if settings.mode == "lexical":
        return _Ability(note="by words alone, as configured")
    name = get_meta(connection, Meta.EMBEDDING_MODEL)
    if name is None:
        note = (
            "by words alone: the store has no vectors (`fallback-tier examples index` makes them)"
        )
        wanted = settings.mode == "hybrid"
        return _Ability(degraded=f"Searched {note}." if wanted else "", note=note)
    if embedder is None:
        return _Ability(
            degraded=f"Searched by words alone: the store has vectors of {name}, and the extra "
            "`embeddings` is not installed."
        )
    try:
        return _Ability(open_vectors(store, connection, embedder))
    except ExampleStoreError as error:
        return _Ability(degraded=f"Searched by words alone. {error}")


def _pool(
    connection: sqlite3.Connection,
    question: Question,
    settings: RetrievalSettings,
    ability: _Ability,
    postings: Postings | None,
    embedder: Embedder | None,
) -> tuple[list[_Entry], _Ability]:
    """Return the records to rank. If the model fails, only words are searched."""
    entries = _by_words(connection, question, settings, postings)
    vectors = ability.vectors
    if vectors is None or embedder is None:
        return list(entries.values()), ability
    try:
        vector = embedder.embed([question.text])[0]
    except EmbeddingError as error:
        return list(entries.values()), _Ability(degraded=f"Searched by words alone. {error}")
    for row, near in _by_meaning(connection, vector, vectors, question, settings).items():
        before = entries.get(row, _Entry(row, {"bm25": 0.0}, ()))
        chunks = tuple(dict.fromkeys((*before.chunks, *near.chunks)))
        entries[row] = replace(before, chunks=chunks)
    cosines = _cosines(connection, vector, vectors, entries, settings.aggregation)
    return [
        replace(entry, scores={**entry.scores, "cosine": cosines.get(row, 0.0)})
        for row, entry in entries.items()
    ], ability


def _scored(
    question: Question, entries: Sequence[_Entry], records: Sequence[StoredExample]
) -> list[Candidate]:
    """Return candidates with scores, without records withdrawn since the pool was read."""
    profile = weaknesses(question.text, cwe=question.cwe)
    by_row = {stored.row: stored for stored in records}
    return [
        Candidate(
            stored.example,
            stored.content_sha256,
            {**entry.scores, **_of_record(question, profile, stored.example)},
            entry.chunks,
        )
        for entry in entries
        if (stored := by_row.get(entry.row)) is not None
    ]


def weighed(
    candidates: Sequence[Candidate], settings: RetrievalSettings
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the scores that every candidate has, by component, and the weights."""
    weights = {name: weight for name, weight in settings.weights if weight > 0}
    components = {
        name: [candidate.scores[name] for candidate in candidates]
        for name in weights
        if all(name in candidate.scores for candidate in candidates)
    }
    return components, weights


def _ordered(candidates: Sequence[Candidate], settings: RetrievalSettings) -> list[Candidate]:
    components, weights = weighed(candidates, settings)
    scores = weighted(components, weights)
    scored = [
        with_scores(candidate, {ORDER: score})
        for candidate, score in zip(candidates, scores, strict=bool(components))
    ]
    return by_score(scored)


def by_score(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Sort by the fused score, and equal ones by id, so that an answer is repeatable."""
    return sorted(
        candidates, key=lambda candidate: (-candidate.scores[ORDER], candidate.example.example_id)
    )


def _reranked(
    question: Question,
    candidates: Sequence[Candidate],
    settings: RetrievalSettings,
    reranker: Reranker,
) -> list[Candidate]:
    """Rank the best ones again with one more component; the others follow in their order."""
    head, tail = candidates[: settings.rerank], candidates[settings.rerank :]
    scores = reranker.scores(question, head)
    fused = weighted(
        {ORDER: [candidate.scores[ORDER] for candidate in head], reranker.name: scores},
        {ORDER: 1.0, reranker.name: settings.weights.rerank},
    )
    rescored = [
        with_scores(candidate, {reranker.name: score, ORDER: total})
        for candidate, score, total in zip(head, scores, fused, strict=True)
    ]
    return [*by_score(rescored), *tail]


def weighted(
    components: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> list[float]:
    """Return Σ weight · standardised score (CombSUM over z-scores: Renda and Straccia, SAC 2003)."""
    fused = [0.0] * count(components)
    for name, scores in components.items():
        for position, score in enumerate(standardised(scores)):
            fused[position] += weights.get(name, 0.0) * score
    return fused


def standardised(scores: Sequence[float]) -> list[float]:
    """Return distances from the mean in standard deviations; all 0 if there is no spread."""
    if not scores:
        return []
    mean = statistics.fmean(scores)
    spread = statistics.pstdev(scores, mean)
    return [(score - mean) / spread if spread > 1e-12 else 0.0 for score in scores]


def count(components: Mapping[str, Sequence[float]]) -> int:
    """Return how many candidates the components score. Raises ValueError if they don't agree."""
    counts = {len(scores) for scores in components.values()}
    if len(counts) > 1:
        raise ValueError("components score different numbers of candidates")
    return max(counts, default=0)


# --- The pool ---------------------------------------------------------------------------------------

#: Chunks that a channel finds for one record of its pool: a record has about three.
_CHUNKS_A_RECORD = 3

#: Profiles of records that a process keeps: the same ones are used again and again (1 ms each,
#: 2 KB).
_PROFILES = 4_096


def _by_words(
    connection: sqlite3.Connection,
    question: Question,
    settings: RetrievalSettings,
    postings: Postings | None = None,
) -> dict[int, _Entry]:
    """Return the pool's records by BM25: ``bm25`` is the best share of a record's chunks."""
    hits = lexical.search(
        connection,
        lexical.terms(question.text),
        limit=settings.pool * _CHUNKS_A_RECORD,
        ecosystems=_ecosystems(question, settings),
        postings=postings,
    )
    sql = "SELECT id, example FROM chunks WHERE id IN (SELECT value FROM json_each(?))"
    chunks = json.dumps([hit.chunk for hit in hits])
    owners = dict(connection.execute(sql, [chunks]).fetchall())
    pool: dict[int, _Entry] = {}
    for hit in hits:
        if hit.chunk in owners:
            row = owners[hit.chunk]
            before = pool.get(row, _Entry(row, {"bm25": hit.share}, ()))
            pool[row] = replace(before, chunks=(*before.chunks, hit.chunk))
    return dict(list(pool.items())[: settings.pool])


def _by_meaning(
    connection: sqlite3.Connection,
    vector: "NDArray[np.float32]",
    vectors: Vectors,
    question: Question,
    settings: RetrievalSettings,
) -> dict[int, _Entry]:
    """Return the pool's records by cosine of their best chunk."""
    pool: dict[int, _Entry] = {}
    ranked = islice(vectors.ranked(vector), settings.pool * _CHUNKS_A_RECORD * 4)
    for near in live_chunks(connection, ranked, _ecosystems(question, settings)):
        before = pool.get(near.record, _Entry(near.record, {}, ()))
        pool[near.record] = replace(before, chunks=(*before.chunks, near.chunk))
        if len(pool) == settings.pool:
            break
    return pool


def _cosines(
    connection: sqlite3.Connection,
    vector: "NDArray[np.float32]",
    vectors: Vectors,
    rows: Iterable[int],
    how: Aggregation,
) -> dict[int, float]:
    """Return the cosine of each record's best chunk, or mean of its best two; records without a vector
    have none."""
    import numpy as np

    rows_by_example: dict[int, list[int]] = {}
    for example, row in connection.execute(
        "SELECT example, row FROM vectors JOIN chunks ON chunks.id = chunk "
        "WHERE example IN (SELECT value FROM json_each(?)) ORDER BY row",
        [json.dumps([*rows])],
    ):
        rows_by_example.setdefault(example, []).append(row)
    best = 1 if how is Aggregation.MAX else 2
    return {
        example: float(np.sort(vectors.rows[chunk_rows] @ vector)[-best:].mean())
        for example, chunk_rows in rows_by_example.items()
    }


def _of_record(question: Question, profile: Profile, example: SolvedExample) -> dict[str, float]:
    """Return the scores that need the record itself: the weakness family, the language."""
    text = "\n".join(filter(None, (example.advisory_text, example.fix_summary)))
    solved = _profile(text, example.package, example.cwe)
    return {
        "family": affinity(profile, solved),
        "language": float(same_language(question.language, example.language)),
    }


@lru_cache(_PROFILES)
def _profile(text: str, package: str, cwe: tuple[str, ...]) -> Profile:
    return weaknesses(flaw_text(text, (package,)), cwe=cwe)


def with_scores(candidate: Candidate, scores: Mapping[str, float]) -> Candidate:
    """Return the candidate with the scores of further components."""
    return replace(candidate, scores={**candidate.scores, **scores})


def _ecosystems(question: Question, settings: RetrievalSettings) -> tuple[str, ...]:
    return question.ecosystems if settings.ecosystem is EcosystemUse.FILTER else ()


# --- The learned ranker -----------------------------------------------------------------------------

#: The name of its score, in ``Candidate.scores`` and floors.
PROBABILITY = "probability"


class Coefficients(Frozen):
    """Of one mode. ``weights``: component → weight; a component that did not run counts as 0."""

    bias: float
    weights: Mapping[str, float]
    #: The data that they were learned from, and how.
    provenance: str

    def probability(self, scores: Mapping[str, float]) -> float:
        """Return the probability that a record with these scores is relevant."""
        total = self.bias + sum(
            weight * scores.get(name, 0.0) for name, weight in self.weights.items()
        )
        return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))


@cache
def shipped(mode: str) -> Coefficients:
    """Return the committed coefficients of a mode (``hybrid``, ``lexical``)."""
    text = files("fallback_plugins.solved_examples.search").joinpath("linear.json").read_bytes()
    return TypeAdapter(dict[str, Coefficients]).validate_json(text)[mode]
