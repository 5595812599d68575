"""Putting the scores of components together: by rank, or by standardised score (ADR-0019)."""

import statistics
from collections.abc import Mapping, Sequence

#: The constant of reciprocal-rank fusion, as published: Cormack, Clarke and Büttcher, "Reciprocal
#: rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009.
RECIPROCAL_RANK_K = 60


def reciprocal_rank(
    components: Mapping[str, Sequence[float]],
    weights: Mapping[str, float],
    k: int = RECIPROCAL_RANK_K,
) -> list[float]:
    """Σ weight / (k + rank), ranks from 1; equal scores share the better rank.

    ``components``: name → one score a candidate; a name without a weight counts nothing.
    """
    _check(components)
    fused = [0.0] * _count(components)
    for name, scores in components.items():
        ranks = {score: rank for rank, score in reversed([*enumerate(sorted(scores)[::-1], 1)])}
        for position, score in enumerate(scores):
            fused[position] += weights.get(name, 0.0) / (k + ranks[score])
    return fused


def weighted(
    components: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> list[float]:
    """Σ weight · standardised score (CombSUM over z-scores: Renda and Straccia, SAC 2003).

    A component that says the same of every candidate says nothing.
    """
    _check(components)
    fused = [0.0] * _count(components)
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


def _count(components: Mapping[str, Sequence[float]]) -> int:
    return max(map(len, components.values()), default=0)


def _check(components: Mapping[str, Sequence[float]]) -> None:
    if len({len(scores) for scores in components.values()}) > 1:
        raise ValueError("components score different numbers of candidates")
