"""Fusion by rank in place of standardised scores: what the order of the candidates would be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fallback_plugins.solved_examples.search import candidates as pool
from fallback_plugins.solved_examples.search.fusion import count
from fallback_plugins.solved_examples.search.ranking import ORDER, Ranking, by_score, weighed
from fallback_plugins.solved_examples.search.settings import RetrievalSettings

#: The constant of reciprocal-rank fusion, as published: Cormack, Clarke and Büttcher, "Reciprocal
#: rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009.
RECIPROCAL_RANK_K = 60


def by_rank(ranking: Ranking, settings: RetrievalSettings) -> Ranking:
    """The same candidates, fused by the ranks of their components' scores."""
    fused = reciprocal_rank(*weighed(ranking.candidates, settings))
    scored = (
        pool.with_scores(candidate, {ORDER: score})
        for candidate, score in zip(ranking.candidates, fused, strict=True)
    )
    return replace(ranking, candidates=tuple(by_score(scored)))


def reciprocal_rank(
    components: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    k: int = RECIPROCAL_RANK_K,
) -> list[float]:
    """Σ weight / (k + rank), ranks from 1; equal scores share the better rank.

    ``components``: name → one score a candidate; a name without a weight counts nothing.
    """
    fused = [0.0] * count(components)
    for name, scores in components.items():
        ranks = {score: rank for rank, score in reversed([*enumerate(sorted(scores)[::-1], 1)])}
        for position, score in enumerate(scores):
            fused[position] += weights.get(name, 0.0) / (k + ranks[score])
    return fused
