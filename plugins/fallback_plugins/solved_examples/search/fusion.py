"""Putting the scores of components together, by standardised score (ADR-0019)."""

import statistics
from collections.abc import Mapping, Sequence


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
