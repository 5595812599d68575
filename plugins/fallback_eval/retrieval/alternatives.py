"""Alternatives to the shipped retrieval, each a variant of the evaluation (ADR-0019 says why they are off).

- A bounded corrective loop: if an answer is below the routing floor, rewrite the question and search again.
  After Yan et al., "Corrective Retrieval Augmented Generation", 2024; here the grade is the score in hand
  and the rewriting is deterministic, so that no model is called.
- Fusion by rank in place of standardised scores.
- A cross-encoder, which reads question and candidate together: Nogueira and Cho, "Passage re-ranking with
  BERT", 2019. No package has its weights: a caller that has some as ONNX, with their tokenizer, names both.
- Late interaction: each word of the question is matched with its nearest in the candidate (MaxSim): Khattab
  and Zaharia, "ColBERT", SIGIR 2020. The token vectors are of the sentence embedding model, which was not
  trained for this.
- The learned ranker in the order, fused with the default's score or alone.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallback_plugins.solved_examples.index.embedding import open_session
from fallback_plugins.solved_examples.interfaces import (
    Candidate,
    Embedder,
    EmbeddingError,
    Question,
)
from fallback_plugins.solved_examples.question import flaw_text
from fallback_plugins.solved_examples.search import selection
from fallback_plugins.solved_examples.search.ranking import (
    ORDER,
    PROBABILITY,
    Coefficients,
    Ranking,
    by_score,
    count,
    weighed,
    with_scores,
)
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings
from fallback_plugins.solved_examples.search.weakness import weaknesses

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer


#: Families that a rewritten question names.
_NAMED = 2


def search(
    index: SolvedExampleIndex, question: Question, settings: RetrievalSettings, max_rewrites: int
) -> Ranking:
    """The best of the rankings for the question and at most ``max_rewrites`` rewritings of it.

    Raises ExampleStoreError.
    """
    ranking = index.search(question)
    for times in range(1, max_rewrites + 1):
        other = rewritten(question, times)
        if other is None or selection.routed(ranking, settings):
            break
        again = index.search(other)
        if again.routing > ranking.routing:
            ranking = again
    return ranking


def rewritten(question: Question, times: int) -> Question | None:
    """The question asked otherwise, for the first or second time; None: there is no other way.

    First the advisory's own words with the names of the weakness families they speak of; then these
    names with its title alone.
    """
    profile = weaknesses(question.text, cwe=question.cwe)
    names = sorted(profile, key=lambda name: (-profile[name], name))[:_NAMED]
    if not names or times not in {1, 2}:
        return None
    words = " ".join(name.replace("_", " ") for name in names)
    text = question.text if times == 1 else question.text.strip().partition("\n")[0]
    return replace(question, text=f"{words}\n{text}")


#: The constant of reciprocal-rank fusion, as published: Cormack, Clarke and Büttcher, "Reciprocal
#: rank fusion outperforms Condorcet and individual rank learning methods", SIGIR 2009.
RECIPROCAL_RANK_K = 60


def by_rank(ranking: Ranking, settings: RetrievalSettings) -> Ranking:
    """The same candidates, fused by the ranks of their components' scores."""
    fused = reciprocal_rank(*weighed(ranking.candidates, settings))
    scored = (
        with_scores(candidate, {ORDER: score})
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


#: Tokens of a pair: what BERT-like cross-encoders were trained on.
MAX_TOKENS = 512


class CrossEncoder:
    """A sequence-classification model with one output a pair (or two: the second is "relevant").

    ``model``: an ONNX file with the inputs ``input_ids``, ``attention_mask`` and, where it has it,
    ``token_type_ids``. ``tokenizer``: its ``tokenizer.json``. Both are loaded at the first question.
    """

    name = "cross_encoder"

    def __init__(self, model: Path, tokenizer: Path, *, max_tokens: int = MAX_TOKENS) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._loaded: tuple[InferenceSession, Tokenizer] | None = None

    def scores(self, question: Question, candidates: Sequence[Candidate]) -> Sequence[float]:
        """One finite score a candidate, higher is better. Raises EmbeddingError."""
        session, tokenizer = self._load()
        try:
            return [self._pair(session, tokenizer, question.text, shown(c)) for c in candidates]
        except EmbeddingError:
            raise
        except Exception as error:
            raise self._failed(error) from error

    def _pair(
        self, session: "InferenceSession", tokenizer: "Tokenizer", one: str, other: str
    ) -> float:
        import numpy as np

        encoded = tokenizer.encode(_clean(one), _clean(other))
        arrays: Mapping[str, Any] = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        wanted = {given.name for given in session.get_inputs()}
        inputs = {name: np.asarray([arrays[name]], np.int64) for name in arrays if name in wanted}
        output = np.asarray(session.run(None, inputs)[0], dtype=np.float64).reshape(-1)
        if output.size not in {1, 2} or not all(map(math.isfinite, output)):
            raise EmbeddingError(
                f"The cross-encoder {str(self._model)!r} gave {output.size} numbers for a pair, or one "
                "that is none.",
                next_step="Give a model with one finite score a pair.",
                kind="bad_scores",
            )
        return float(output[-1])

    def _load(self) -> "tuple[InferenceSession, Tokenizer]":
        if self._loaded is None:
            try:
                from tokenizers import Tokenizer

                threads = len(os.sched_getaffinity(0))
                session = open_session(self._model.read_bytes(), threads=threads, many=False)
                tokenizer = Tokenizer.from_file(str(self._tokenizer))
            except Exception as error:
                raise self._failed(error) from error
            tokenizer.no_padding()
            tokenizer.enable_truncation(self._max_tokens)
            self._loaded = (session, tokenizer)
        return self._loaded

    def _failed(self, error: Exception) -> EmbeddingError:
        reason = str(error).strip().partition("\n")[0]
        return EmbeddingError(
            f"The cross-encoder {str(self._model)!r} can't be used: {reason}.",
            next_step="Check both files, and that the extra `embeddings` is installed.",
            kind="unusable",
        )


def _clean(text: str) -> str:
    """The tokenizer refuses lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


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


class LinearRanker:
    """``Reranker`` by given coefficients; looks at ``Candidate.scores`` only."""

    name = PROBABILITY

    def __init__(self, coefficients: Coefficients) -> None:
        self._coefficients = coefficients

    def scores(self, question: Question, candidates: Sequence[Candidate]) -> Sequence[float]:  # noqa: ARG002 (the port's signature)
        """One probability a candidate."""
        return [self._coefficients.probability(candidate.scores) for candidate in candidates]


#: Characters of a record's advisory and of its edits: together some 256 tokens, of which a small
#: model reads the beginning best.
TEXT_CHARS = 500
CODE_CHARS = 700


def shown(candidate: Candidate) -> str:
    """What the record says of its flaw, then what its edits write."""
    example = candidate.example
    text = flaw_text(example.advisory_text, (example.package,))
    code = "\n".join(edit.new for edit in example.edits)
    return f"{text[:TEXT_CHARS]}\n{code[:CODE_CHARS]}"
