"""The learned ranker in the order: tried, fused with the default's score or alone, and off."""

from collections.abc import Sequence

from fallback_plugins.solved_examples.interfaces import Candidate, Question
from fallback_plugins.solved_examples.search.rerank.linear import PROBABILITY, Coefficients


class LinearRanker:
    """``Reranker`` by given coefficients; looks at ``Candidate.scores`` only."""

    name = PROBABILITY

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def scores(self, question: Question, candidates: Sequence[Candidate]) -> Sequence[float]:  # noqa: ARG002 (the port's signature)
        """One probability a candidate."""
        return [self._coefficients.probability(candidate.scores) for candidate in candidates]
