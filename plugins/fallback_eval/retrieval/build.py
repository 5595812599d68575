"""From a variant's settings to something that answers queries: where plugin and evaluation meet."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fallback_eval.retrieval.data import Task
from fallback_eval.retrieval.golden import Query
from fallback_eval.retrieval.learned import (
    components_of,
    fold_coefficients,
    judged_by,
    judged_rows,
    of_query,
)
from fallback_eval.retrieval.results import DEPTH, EvaluationError, NotRun, VariantFacts
from fallback_eval.retrieval.runner import Ranked, Variant
from fallback_eval.retrieval.stores import Stores
from fallback_eval.retrieval.tried.corrective import search
from fallback_eval.retrieval.tried.cross_encoder import CrossEncoder
from fallback_eval.retrieval.tried.late_interaction import LateInteraction
from fallback_eval.retrieval.tried.learned_ranker import LinearRanker
from fallback_eval.retrieval.tried.reciprocal_rank import by_rank
from fallback_eval.retrieval.variants import (
    DEFAULT,
    FLOOR_COMPONENT,
    LEXICAL,
    VariantSpec,
    flat,
)
from fallback_plugins.solved_examples.interfaces import Embedder, Reranker
from fallback_plugins.solved_examples.search import selection
from fallback_plugins.solved_examples.search.ranking import Ranking
from fallback_plugins.solved_examples.search.rerank.linear import PROBABILITY, Coefficients, shipped
from fallback_plugins.solved_examples.search.retriever import SolvedExampleIndex
from fallback_plugins.solved_examples.search.settings import RetrievalSettings

Folds = Mapping[str, Mapping[str, Coefficients]]


@dataclass(frozen=True)
class CrossEncoderFiles:
    """Weights (ONNX) and tokenizer of a cross-encoder, where somebody has some."""

    model: Path
    tokenizer: Path


@dataclass(frozen=True)
class VariantBuilder:
    """Makes variants. ``embedder`` None: only those that need no vectors."""

    task: Task
    stores: Stores
    embedder: Embedder | None
    cross_encoder: CrossEncoderFiles | None = None

    def folds(self) -> Folds:
        """Mode → dev query → coefficients that never saw its repository."""
        specs = {"lexical": LEXICAL} | ({"hybrid": DEFAULT} if self.embedder else {})
        found = {}
        for mode, spec in specs.items():
            rows = judged_rows(self.task, self._index(spec, None).search)
            found[mode] = fold_coefficients(self.task, rows, components_of(mode))
        return found

    def why_not(self, spec: VariantSpec) -> NotRun | None:
        """Why a variant can't be run here; None: it can."""
        reason = ""
        if spec.needs_vectors and self.embedder is None:
            reason = "the extra `embeddings` is not installed"
        elif spec.reranker == "cross_encoder" and self.cross_encoder is None:
            reason = "no weights of one are at hand (--cross-encoder MODEL TOKENIZER)"
        return NotRun(name=spec.name, component=spec.component, reason=reason) if reason else None

    def variant(self, spec: VariantSpec, folds: Folds) -> Variant:
        """The variant, its store made. Raises ExampleStoreError, EmbeddingError."""
        fixed = self._reranker(spec)
        plain = self._index(spec, fixed)
        wide = spec.settings.model_copy(update={"k": DEPTH})

        def ask(query: Query) -> Ranked:
            mode = "hybrid" if spec.needs_vectors else "lexical"
            coefficients = of_query(query, mode, folds)
            index = plain
            if spec.reranker == "learned":
                index = self._index(spec, LinearRanker(coefficients or shipped(mode)))
            question = self.task.question(query, distilled=spec.distilled)
            ranking = search(index, question, spec.settings, spec.max_rewrites)
            if spec.fusion == "reciprocal_rank":
                ranking = by_rank(ranking, spec.settings)
            return _ranked(spec, judged_by(ranking, coefficients), wide)

        facts = VariantFacts(
            name=spec.name, component=spec.component, summary=spec.summary, settings=flat(spec)
        )
        return Variant(facts, ask)

    def _index(self, spec: VariantSpec, reranker: Reranker | None) -> SolvedExampleIndex:
        store = self.stores.of(spec.chunking, vectors=spec.needs_vectors)
        return SolvedExampleIndex(
            store, embedder=self.embedder, settings=spec.settings, reranker=reranker
        )

    def _reranker(self, spec: VariantSpec) -> Reranker | None:
        if spec.reranker == "late_interaction" and self.embedder is not None:
            return LateInteraction(self.embedder)
        if spec.reranker == "cross_encoder" and self.cross_encoder is not None:
            return CrossEncoder(self.cross_encoder.model, self.cross_encoder.tokenizer)
        return None


def _ranked(spec: VariantSpec, ranking: Ranking, settings: RetrievalSettings) -> Ranked:
    """What would be shown with room for DEPTH, and the scores that floors stand on (the chunks' only
    where floors are measured)."""
    if ranking.degraded:
        raise EvaluationError(
            f"Variant {spec.name!r} did not run as it is set: {ranking.degraded}",
            next_step="Mend that, or leave the variant out (--only).",
        )
    kept = [candidate for candidate, _ in selection.select((), ranking, settings).kept]
    routing = _score(settings, ranking, "routing")
    chunk = _score(settings, ranking, "chunk")
    return Ranked(
        [candidate.example.example_id for candidate in kept],
        [candidate.scores["fused"] for candidate in kept],
        max((one.scores.get(routing, 0.0) for one in ranking.candidates), default=0.0),
        "hit" if kept else "miss",
        [candidate.scores.get(chunk, 0.0) for candidate in kept]
        if spec.component == FLOOR_COMPONENT
        else [],
    )


def _score(settings: RetrievalSettings, ranking: Ranking, name: Literal["routing", "chunk"]) -> str:
    """The score that the floor of this mode is on, also where this variant has it switched off."""
    for one in (settings, DEFAULT.settings):
        floor = one.floor(name, ranking.mode)
        if floor is not None:
            return floor.score
    return PROBABILITY
