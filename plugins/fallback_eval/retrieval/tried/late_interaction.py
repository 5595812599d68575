"""Late interaction: every word of the question looks for its nearest in the candidate (MaxSim).

Khattab and Zaharia, "ColBERT", SIGIR 2020. Here the token vectors are of the sentence embedding
model: it was not trained for this, and no weights beyond the ones at hand are needed.
"""

from collections.abc import Sequence

from fallback_eval.retrieval.tried.shown import shown
from fallback_plugins.solved_examples.interfaces import Candidate, Embedder, Question


class LateInteraction:
    """Mean over the question's tokens of the best cosine among the candidate's: -1 to 1.

    It runs the model once a candidate: some 10 to 40 ms each.
    """

    name = "maxsim"

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def scores(self, question: Question, candidates: Sequence[Candidate]) -> Sequence[float]:
        """One score a candidate; 0 where either side has no token. Raises EmbeddingError."""
        asked = self._embedder.token_vectors(question.text)
        scores: list[float] = []
        for candidate in candidates:
            tokens = self._embedder.token_vectors(shown(candidate))
            both = len(asked) and len(tokens)
            scores.append(float((asked @ tokens.T).max(axis=1).mean()) if both else 0.0)
        return scores
