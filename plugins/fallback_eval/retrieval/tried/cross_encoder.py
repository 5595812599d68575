"""A cross-encoder: a model that reads question and candidate together and gives one score.

Nogueira and Cho, "Passage re-ranking with BERT", 2019. Its weights are no package's: whoever has
some as ONNX, with the tokenizer that belongs to them, names both files.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fallback_eval.retrieval.tried.shown import shown
from fallback_plugins.solved_examples.index.embedding import open_session
from fallback_plugins.solved_examples.interfaces import Candidate, EmbeddingError, Question

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

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
