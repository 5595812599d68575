"""One question, one order of the memory's records: pool, components, fusion, reranker (ADR-0019)."""

import sqlite3
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fallback_audit.events import Digest
from fallback_plugins.solved_examples.index.indexing import open_vectors
from fallback_plugins.solved_examples.index.postings import Postings
from fallback_plugins.solved_examples.index.vectors import Vectors
from fallback_plugins.solved_examples.index.word_index import words_of
from fallback_plugins.solved_examples.interfaces import (
    Candidate,
    Embedder,
    EmbeddingError,
    ExampleStoreError,
    Question,
    Reranker,
)
from fallback_plugins.solved_examples.search import candidates as pool
from fallback_plugins.solved_examples.search.linear import PROBABILITY, Coefficients, shipped
from fallback_plugins.solved_examples.search.settings import Mode, RetrievalSettings
from fallback_plugins.solved_examples.search.weakness import weaknesses
from fallback_plugins.solved_examples.store import manifest
from fallback_plugins.solved_examples.store.example_store import ExampleStore, StoredExample
from fallback_plugins.solved_examples.store.schema import Meta, get_meta

#: What the order is by.
ORDER = "fused"


@dataclass(frozen=True)
class Ranking:
    """Candidates, best first, each with the score of every component that ran.

    ``routing``: the best score that the routing floor stands on (0 where there is no candidate).
    ``degraded``: why it could not work as configured, in sentences; empty where it could.
    """

    mode: Mode
    candidates: tuple[Candidate, ...] = ()
    routing: float = 0.0
    degraded: str = ""
    notes: tuple[str, ...] = ()
    manifest_sha256: Digest | None = None


@dataclass(frozen=True)
class _Ability:
    """What store, model and settings allow together."""

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
    """The ranking for a question. Raises ExampleStoreError where the store can't be read."""
    with store.reading() as connection:
        ability = _ability(store, connection, settings, embedder)
        words = words_of(store, connection)
        entries, ability = _pool(connection, question, settings, ability, words.postings, embedder)
        digest = manifest.recorded_sha256(connection) or None
    records = store.records([entry.row for entry in entries])
    found = _scored(question, entries, records)
    found = _ordered(found, settings)
    degraded = ability.degraded
    if reranker is not None and found:
        try:
            found = _reranked(question, found, settings, reranker)
        except EmbeddingError as error:
            degraded = f"{degraded} {error}".strip()
    judged = _judged(found, shipped(ability.mode))
    floor = settings.floor("routing", ability.mode)
    score = floor.score if floor else PROBABILITY
    return Ranking(
        mode=ability.mode,
        candidates=judged,
        routing=max((one.scores.get(score, 0.0) for one in judged), default=0.0),
        degraded=degraded,
        notes=tuple(filter(None, (ability.note, words.note))),
        manifest_sha256=digest,
    )


def _judged(found: Sequence[Candidate], by: Coefficients) -> tuple[Candidate, ...]:
    """With the probability that floors and readers understand; the order stays."""
    return tuple(
        pool.with_scores(candidate, {PROBABILITY: by.probability(candidate.scores)})
        for candidate in found
    )


def _ability(
    store: ExampleStore,
    connection: sqlite3.Connection,
    settings: RetrievalSettings,
    embedder: Embedder | None,
) -> _Ability:
    """Hybrid needs vectors in the store, and the model that made them."""
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
) -> tuple[list[pool.Entry], _Ability]:
    """The records to look at. A model that fails costs the vectors, not the answer."""
    entries = pool.by_words(connection, question, settings, postings)
    vectors = ability.vectors
    if vectors is None or embedder is None:
        return list(entries.values()), ability
    try:
        vector = embedder.embed([question.text])[0]
    except EmbeddingError as error:
        return list(entries.values()), _Ability(degraded=f"Searched by words alone. {error}")
    for row, near in pool.by_meaning(connection, vector, vectors, question, settings).items():
        before = entries.get(row, pool.Entry(row, {"bm25": 0.0}, ()))
        chunks = tuple(dict.fromkeys((*before.chunks, *near.chunks)))
        entries[row] = replace(before, chunks=chunks)
    cosines = pool.cosines(connection, vector, vectors, entries, settings.aggregation)
    return [
        replace(entry, scores={**entry.scores, "cosine": cosines.get(row, 0.0)})
        for row, entry in entries.items()
    ], ability


def _scored(
    question: Question, entries: Sequence[pool.Entry], records: Sequence[StoredExample]
) -> list[Candidate]:
    """A record that was withdrawn since the pool was read is left out."""
    asked = weaknesses(question.text, cwe=question.cwe)
    by_row = {stored.row: stored for stored in records}
    return [
        Candidate(
            stored.example,
            stored.content_sha256,
            {**entry.scores, **pool.of_record(question, asked, stored.example)},
            entry.chunks,
        )
        for entry in entries
        if (stored := by_row.get(entry.row)) is not None
    ]


def weighed(
    found: Sequence[Candidate], settings: RetrievalSettings
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """The scores that every candidate has and that count, by component; and what they count."""
    weights = {name: weight for name, weight in settings.weights if weight > 0}
    components = {
        name: [candidate.scores[name] for candidate in found]
        for name in weights
        if all(name in candidate.scores for candidate in found)
    }
    return components, weights


def _ordered(found: Sequence[Candidate], settings: RetrievalSettings) -> list[Candidate]:
    """By the fused score of all components."""
    components, weights = weighed(found, settings)
    scores = weighted(components, weights)
    scored = [
        pool.with_scores(candidate, {ORDER: score})
        for candidate, score in zip(found, scores, strict=bool(components))
    ]
    return by_score(scored)


def by_score(found: Iterable[Candidate]) -> list[Candidate]:
    """By the fused score; among equals by id, so that an answer is repeatable."""
    return sorted(found, key=lambda one: (-one.scores[ORDER], one.example.example_id))


def _reranked(
    question: Question,
    found: Sequence[Candidate],
    settings: RetrievalSettings,
    reranker: Reranker,
) -> list[Candidate]:
    """The best ones again, with one component more; the rest keeps its place behind them."""
    head, tail = found[: settings.rerank], found[settings.rerank :]
    scores = reranker.scores(question, head)
    fused = weighted(
        {ORDER: [c.scores[ORDER] for c in head], reranker.name: scores},
        {ORDER: 1.0, reranker.name: settings.weights.rerank},
    )
    again = [
        pool.with_scores(candidate, {reranker.name: score, ORDER: total})
        for candidate, score, total in zip(head, scores, fused, strict=True)
    ]
    return [*by_score(again), *tail]


def weighted(
    components: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> list[float]:
    """Σ weight · standardised score (CombSUM over z-scores: Renda and Straccia, SAC 2003).

    A component that says the same of every candidate says nothing.
    """
    fused = [0.0] * count(components)
    for name, scores in components.items():
        for position, score in enumerate(standardised(scores)):
            fused[position] += weights.get(name, 0.0) * score
    return fused


def standardised(scores: Sequence[float]) -> list[float]:
    """Distance from the mean in standard deviations; all 0 where there is no spread."""
    if not scores:
        return []
    mean = statistics.fmean(scores)
    spread = statistics.pstdev(scores, mean)
    return [(score - mean) / spread if spread > 1e-12 else 0.0 for score in scores]


def count(components: Mapping[str, Sequence[float]]) -> int:
    """How many candidates all of them score. Raises ValueError where they don't agree."""
    found = {len(scores) for scores in components.values()}
    if len(found) > 1:
        raise ValueError("components score different numbers of candidates")
    return max(found, default=0)
