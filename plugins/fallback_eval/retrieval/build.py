"""Variants of the retrieval made from their settings, and asked every query, with times."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from fallback_eval.retrieval.alternatives import (
    CrossEncoder,
    LateInteraction,
    LinearRanker,
    by_rank,
    search,
)
from fallback_eval.retrieval.data import Task
from fallback_eval.retrieval.golden import Query
from fallback_eval.retrieval.learned import (
    components_of,
    fold_coefficients,
    judged_by,
    judged_rows,
    of_query,
)
from fallback_eval.retrieval.results import (
    DEPTH,
    Answer,
    EvaluationError,
    Latency,
    NotRun,
    VariantFacts,
)
from fallback_eval.retrieval.stores import Stores
from fallback_eval.retrieval.variants import DEFAULT, FLOOR_COMPONENT, LEXICAL, VariantSpec, flat
from fallback_plugins.solved_examples.interfaces import Embedder, Reranker
from fallback_plugins.solved_examples.search import selection
from fallback_plugins.solved_examples.search.ranking import (
    PROBABILITY,
    Coefficients,
    Ranking,
    shipped,
)
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

    def variant(self, spec: VariantSpec, folds: Folds) -> "Variant":
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


def _ranked(spec: VariantSpec, ranking: Ranking, settings: RetrievalSettings) -> "Ranked":
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


#: Askings of each query: the median of three bears one disturbance.
REPEATS = 3

#: A query that took longer is not asked again (seconds): a disturbance hardly shows in so much work.
SLOW_SECONDS = 1.0

#: Digits of a kept score: the seventh of a float32 depends on the order of a sum.
_DIGITS = 5


@dataclass(frozen=True)
class Ranked:
    """A variant's answer: ids, best first. See ``Answer`` for the fields."""

    ids: Sequence[str]
    scores: Sequence[float]
    routing: float
    verdict: Literal["hit", "degraded", "miss"] = "hit"
    bounds: Sequence[float] = ()


@dataclass(frozen=True)
class Variant:
    """A retriever under one setting. ``ask`` must answer the same to the same query."""

    facts: VariantFacts
    ask: Callable[[Query], Ranked]


def evaluate(
    variant: Variant,
    queries: Sequence[Query],
    *,
    clock: Callable[[], float],
    repeats: int = REPEATS,
) -> tuple[list[Answer], Latency]:
    """One variant over the queries; ``clock`` gives seconds.

    Raises EvaluationError where it answers a query differently when asked again: no figure made from
    such answers could be checked.
    """
    answers: list[Answer] = []
    times: list[list[float]] = []
    for query in queries:
        taken, answer = _asked(variant, query, clock, repeats)
        answers.append(answer)
        times.append(taken)
    return answers, _latency(variant.facts.name, times)


def _asked(
    variant: Variant, query: Query, clock: Callable[[], float], repeats: int
) -> tuple[list[float], Answer]:
    taken: list[float] = []
    found: Answer | None = None
    for _ in range(repeats):
        begun = clock()
        ranked = variant.ask(query)
        taken.append((clock() - begun) * 1000)
        again = _answer(variant.facts.name, query, ranked)
        if found is not None and again != found:
            raise EvaluationError(
                f"Variant {variant.facts.name!r} answered query {query.query!r} differently when it "
                "was asked again.",
                next_step="Find what depends on chance or on state: its figures can't be checked.",
                kind="not_repeatable",
            )
        found = again
        if taken[-1] > SLOW_SECONDS * 1000:
            break
    if found is None:
        raise ValueError("each query is asked at least once")
    return taken, found


def _answer(name: str, query: Query, ranked: Ranked) -> Answer:
    ids = tuple(ranked.ids[:DEPTH])
    if len(set(ids)) != len(ids):
        raise EvaluationError(
            f"Variant {name!r} returned an example twice for query {query.query!r}.",
            next_step="Merge the chunks of an example before they are ranked.",
            kind="duplicate_example",
        )
    return Answer(
        variant=name,
        query=query.query,
        verdict=ranked.verdict,
        routing=_rounded(ranked.routing),
        ids=ids,
        scores=tuple(map(_rounded, ranked.scores[:DEPTH])),
        bounds=tuple(map(_rounded, ranked.bounds[:DEPTH])),
    )


def _latency(name: str, times: Sequence[Sequence[float]]) -> Latency:
    medians = [median(taken) for taken in times]
    noise = median(_spread(taken) for taken in times)
    repeats = max(map(len, times))
    kept = tuple(round(value, 3) for value in medians)
    return Latency(variant=name, repeats=repeats, medians=kept, noise=round(noise, 3))


def _spread(taken: Sequence[float]) -> float:
    middle = median(taken)
    return (max(taken) - min(taken)) / middle if middle else 0.0


def _rounded(score: float) -> float:
    return float(f"{score:.{_DIGITS}g}")
