"""Every variant of the retrieval that is measured: the default with one thing switched (ADR-0020).

``code_defaults`` is what the code does by default, flat; ``claims`` says why. A default that no claim
explains fails ``eval retrieval --check``.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal

from fallback_eval.retrieval.alternatives import RECIPROCAL_RANK_K
from fallback_plugins.solved_examples.chunking.chunker import MAX_TOKENS, OVERLAP_TOKENS
from fallback_plugins.solved_examples.search import lexical
from fallback_plugins.solved_examples.search.settings import (
    Aggregation,
    EcosystemUse,
    RetrievalSettings,
    Weights,
)

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Chunking:
    """How the store of a variant was cut. ``code``: chunks of the edits, too."""

    splitter: Literal["structure", "fixed"] = "structure"
    max_tokens: int = MAX_TOKENS
    overlap_tokens: int = OVERLAP_TOKENS
    code: bool = True


@dataclass(frozen=True)
class VariantSpec:
    """A variant by its settings. ``component``: what it switches."""

    name: str
    component: str
    summary: str
    settings: RetrievalSettings = field(default_factory=RetrievalSettings)
    chunking: Chunking = Chunking()
    #: The question is the advisory's words about the flaw (``question.flaw_text``), not its text.
    distilled: bool = True
    reranker: Literal["none", "late_interaction", "learned", "cross_encoder"] = "none"
    fusion: Literal["weighted", "reciprocal_rank"] = "weighted"
    #: Rounds of the corrective loop at most.
    max_rewrites: int = 0

    @property
    def needs_vectors(self) -> bool:
        """It can't be run without the extra ``embeddings``."""
        return self.settings.mode != "lexical" or self.reranker != "none"


def flat(spec: VariantSpec) -> dict[str, Value]:
    """Every setting of a variant by its dotted name, constants of the code among them."""
    settings: dict[str, Any] = spec.settings.model_dump(mode="json", exclude={"weights", "floors"})
    found = {f"retrieval.{name}": value for name, value in settings.items()}
    found["retrieval.fusion"] = spec.fusion
    found["retrieval.max_rewrites"] = spec.max_rewrites
    for name, weight in spec.settings.weights:
        found[f"retrieval.weights.{name}"] = weight
    for floor, mode in FLOORS:
        given = spec.settings.floor(floor, mode)
        found[f"retrieval.floors.{floor}.{mode}"] = given.value if given else None
        found[f"retrieval.floors.{floor}.{mode}.score"] = given.score if given else None
    return found | {
        "retrieval.reranker": spec.reranker,
        "retrieval.reciprocal_rank_k": RECIPROCAL_RANK_K,
        "retrieval.coefficients": _digest("linear.json"),
        "retrieval.weakness_lexicon": _digest("weaknesses.toml"),
        "question.distilled": spec.distilled,
        "lexical.max_postings": lexical.MAX_POSTINGS,
        "lexical.max_terms": lexical.MAX_TERMS,
        "chunking.splitter": spec.chunking.splitter,
        "chunking.max_tokens": spec.chunking.max_tokens,
        "chunking.overlap_tokens": spec.chunking.overlap_tokens,
        "chunking.code": spec.chunking.code,
    }


FLOORS: tuple[tuple[Literal["routing", "chunk"], Literal["hybrid", "lexical"]], ...] = (
    ("routing", "hybrid"),
    ("routing", "lexical"),
    ("chunk", "hybrid"),
    ("chunk", "lexical"),
)

#: The component of the variants that floors are read from.
FLOOR_COMPONENT = "floors"

DEFAULT = VariantSpec("default", "default", "What the code does without being told otherwise.")

#: The default where the extra ``embeddings`` is not installed.
LEXICAL = VariantSpec(
    "lexical",
    "channels",
    "The default without vectors: words, weakness family and language.",
    RetrievalSettings(mode="lexical"),
)


def code_defaults() -> Mapping[str, Value]:
    """What the code does by default, as the table of defaults names it."""
    return flat(DEFAULT)


def alternatives(setting: str) -> tuple[str, ...]:
    """The variants that differ from the default in this setting and in nothing else."""
    defaults = code_defaults()
    return tuple(
        spec.name
        for spec in variants()
        if {name for name, value in flat(spec).items() if value != defaults[name]} == {setting}
    )


def variants() -> tuple[VariantSpec, ...]:
    """All of them, the default first."""
    return (
        DEFAULT,
        *_channels(),
        *_fusion(),
        *_weights(),
        *_pool(),
        *_question_and_filters(),
        *_chunks(),
        *_rerankers(),
        *_loop_and_floors(),
    )


def _with(name: str, component: str, summary: str, **settings: Any) -> VariantSpec:
    return VariantSpec(name, component, summary, RetrievalSettings(**settings))


def _only(**weights: float) -> Weights:
    every = dict.fromkeys(Weights.model_fields, 0.0)
    return Weights(**{**every, **weights})


def _channels() -> Iterator[VariantSpec]:
    yield _with(
        "bm25-only",
        "channels",
        "BM25 over the chunks, nothing else.",
        mode="lexical",
        weights=_only(bm25=1.0),
    )
    yield _with(
        "embeddings-only",
        "channels",
        "Cosine of the embeddings, nothing else.",
        weights=_only(cosine=1.0),
    )
    yield LEXICAL
    yield _with(
        "bm25-and-embeddings",
        "channels",
        "Both, weighted, without weakness family and language.",
        weights=_only(bm25=1.0, cosine=1.0),
    )
    textbook = _with(
        "bm25-and-embeddings-rrf",
        "channels",
        "Both by reciprocal rank: the textbook's hybrid.",
        weights=_only(bm25=1.0, cosine=1.0),
    )
    yield replace(textbook, fusion="reciprocal_rank")


def _fusion() -> Iterator[VariantSpec]:
    name = "reciprocal-rank"
    by_rank = _with(name, "fusion", f"Fusion by {name} in place of the default.")
    yield replace(by_rank, fusion="reciprocal_rank")
    for how in Aggregation:
        if how is not DEFAULT.settings.aggregation:
            name = f"cosine-{how.value}".replace("_", "-")
            yield _with(name, "aggregation", f"Cosines by {how.value}.", aggregation=how)


def _weights() -> Iterator[VariantSpec]:
    for component, weight in DEFAULT.settings.weights:
        if component == "rerank":
            continue
        for name, factor in (("no", 0.0), ("half", 0.5), ("double", 2.0)):
            weights = DEFAULT.settings.weights.model_copy(update={component: weight * factor})
            yield _with(
                f"{name}-{component}",
                "weights",
                f"{component} at {weight * factor:g}.",
                weights=weights,
            )


def _pool() -> Iterator[VariantSpec]:
    for size in (20, 50, 100, 200):
        if size != DEFAULT.settings.pool:
            yield _with(f"pool-{size}", "pool", f"{size} records a channel.", pool=size)


def _question_and_filters() -> Iterator[VariantSpec]:
    summary = "The question is the advisory's whole text."
    yield replace(
        DEFAULT, name="whole-advisory", component="question", summary=summary, distilled=False
    )
    for use in EcosystemUse:
        if use is not DEFAULT.settings.ecosystem:
            name = f"ecosystem-{use.value}"
            yield _with(name, "filter", f"Other ecosystems: {use.value}.", ecosystem=use)


def _chunks() -> Iterator[VariantSpec]:
    base = Chunking()
    cuts = {
        "advisory-chunks-only": replace(base, code=False),
        "chunks-128": replace(base, max_tokens=128),
        "chunks-256": replace(base, max_tokens=256),
        "overlap-0": replace(base, overlap_tokens=0),
        "overlap-128": replace(base, overlap_tokens=128),
        "fixed-size": replace(base, splitter="fixed"),
        "fixed-size-128": replace(base, splitter="fixed", max_tokens=128),
    }
    for name, cut in cuts.items():
        code = "" if cut.code else ", no code"
        what = f"{cut.splitter}, {cut.max_tokens} tokens, overlap {cut.overlap_tokens}{code}"
        yield replace(DEFAULT, name=name, component="chunking", summary=f"{what}.", chunking=cut)


def _rerankers() -> Iterator[VariantSpec]:
    late = replace(
        DEFAULT,
        name="late-interaction",
        component="reranker",
        summary="Token vectors of the embedding model, MaxSim, fused with the default's score.",
        reranker="late_interaction",
    )
    yield late
    yield replace(
        late,
        name="learned",
        summary="The learned ranker's probability, fused; on dev cross-validated by repository.",
        reranker="learned",
    )
    alone = DEFAULT.settings.weights.model_copy(update={"rerank": 1_000.0})
    yield replace(
        late,
        name="learned-alone",
        summary="Order by the learned probability alone; on dev cross-validated by repository.",
        settings=DEFAULT.settings.model_copy(update={"weights": alone}),
        reranker="learned",
    )
    yield replace(
        late,
        name="cross-encoder",
        summary="A cross-encoder reads question and candidate together, fused.",
        reranker="cross_encoder",
    )


def _loop_and_floors() -> Iterator[VariantSpec]:
    for times in (0, 1, 2):
        if times != DEFAULT.max_rewrites:
            summary = f"{times} rewritings at most."
            yield VariantSpec(f"rewrites-{times}", "loop", summary, max_rewrites=times)
    yield _with("no-floors", FLOOR_COMPONENT, "Everything is believed.", floors=())
    yield _with(
        "lexical-no-floors",
        FLOOR_COMPONENT,
        "As lexical; everything is believed.",
        mode="lexical",
        floors=(),
    )


def _digest(name: str) -> str:
    data = files("fallback_plugins.solved_examples.search").joinpath(name).read_bytes()
    return hashlib.sha256(data).hexdigest()[:12]
