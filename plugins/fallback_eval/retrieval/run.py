"""One evaluation of retrieval, from golden set and data set to raw results."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from fallback_eval.retrieval.build import REPEATS, CrossEncoderFiles, VariantBuilder, evaluate
from fallback_eval.retrieval.data import Task, load_data, task
from fallback_eval.retrieval.defaults import Basis, Bound, Claim
from fallback_eval.retrieval.fixed_size import FixedSizeSplitter, cut_units, record_texts
from fallback_eval.retrieval.goals import BM25, EMBEDDINGS
from fallback_eval.retrieval.golden import Split, load_golden
from fallback_eval.retrieval.publish import queries_sha256
from fallback_eval.retrieval.results import Answer, CutUnits, Latency, Results, Run, results_of
from fallback_eval.retrieval.stores import Progress, Remembering, Stores
from fallback_eval.retrieval.variants import DEFAULT, VariantSpec, alternatives, variants
from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.index.embedding import load_embedder
from fallback_plugins.solved_examples.store.example_store import Manifest
from fallback_tier.errors import InputError

#: What the reserved split is asked with: the final table, and nothing to choose from.
FINAL = (DEFAULT.name, BM25, EMBEDDINGS, "lexical")

#: Sizes at which both splitters are counted (tokens, overlap).
_COUNTED_SIZES = ((512, 64), (256, 32), (128, 16))


@dataclass(frozen=True)
class Options:
    """What to run. ``only``: names of variants; empty for all (on dev) or FINAL (on reserved)."""

    data: Path
    golden: Path
    #: Folder that keeps the vectors of chunks from run to run.
    cache: Path
    split: Split = "dev"
    only: tuple[str, ...] = ()
    repeats: int = REPEATS
    embeddings: bool = True
    cross_encoder: CrossEncoderFiles | None = None
    #: Count the units that splitting cuts (some seconds).
    units: bool = True


def run(options: Options, progress: Progress) -> Results:
    """Every variant over one split.

    Raises InputError (GoldenSetError among them), ExampleStoreError, EmbeddingError, EvaluationError.
    """
    specs = chosen(options)
    progress("reading the data set", 0, 1)
    subject = task(load_golden(options.golden), load_data(options.data))
    embedder = load_embedder(many=True) if options.embeddings else None
    with TemporaryDirectory(prefix="fallback-tier-evaluation-") as scratch:
        remembering = None
        if embedder is not None:
            remembering = Remembering(embedder, options.cache / f"{embedder.sha256[:16]}.npz")
        stores = Stores(Path(scratch), subject.corpus, remembering, progress)
        builder = VariantBuilder(
            subject, stores, load_embedder() if embedder else None, options.cross_encoder
        )
        return _run(options, specs, builder, progress)


def chosen(options: Options) -> tuple[VariantSpec, ...]:
    """The variants to run. Raises InputError: a name that is none."""
    every = {spec.name: spec for spec in variants()}
    wanted = options.only or (FINAL if options.split == "reserved" else tuple(every))
    if unknown := [name for name in wanted if name not in every]:
        raise InputError(
            f"There is no variant {unknown[0]!r}.",
            next_step=f"Choose among: {', '.join(every)}.",
        )
    return tuple(every[name] for name in wanted)


def claims() -> tuple[Claim, ...]:
    """Why each default is what it is, with its alternatives."""
    return tuple(
        Claim(
            one.setting,
            Basis(one.basis),
            one.reason,
            (*alternatives(one.setting), *one.also),
            Bound(*one.bound) if one.bound else None,
            one.despite,
        )
        for one in CLAIMS
    )


def _run(
    options: Options, specs: Sequence[VariantSpec], builder: VariantBuilder, progress: Progress
) -> Results:
    subject = builder.task
    not_run = {spec.name: reason for spec in specs if (reason := builder.why_not(spec))}
    ready = [spec for spec in specs if spec.name not in not_run]
    # Shipped coefficients never saw the reserved split.
    folds = builder.folds() if options.split == "dev" else {}
    queries = subject.golden.of(options.split)
    answers: list[Answer] = []
    latencies: list[Latency] = []
    facts = []
    for done, spec in enumerate(ready):
        progress(f"asking {spec.name}", done, len(ready))
        variant = builder.variant(spec, folds)
        found, latency = evaluate(
            variant, queries, clock=time.perf_counter, repeats=options.repeats
        )
        answers += found
        latencies.append(latency)
        facts.append(variant.facts)
    progress("counting units", len(ready), len(ready))
    store = builder.stores.of(DEFAULT.chunking, vectors=builder.embedder is not None)
    made = store.manifest()
    about = Run(
        split=options.split,
        queries_sha256=queries_sha256(options.golden),
        corpus_sha256=made.corpus_sha256,
        corpus=tuple(example.example_id for example in subject.corpus),
        parts=dict(_parts(made)),
        variants=tuple(facts),
        not_run=tuple(not_run.values()),
        units=tuple(_units(subject)) if options.units else (),
        notes=tuple(_notes(builder)),
    )
    return results_of(about, answers, latencies)


def _parts(made: Manifest) -> Iterator[tuple[str, str]]:
    yield "chunker", str(made.chunker)
    yield "chunks", str(made.chunks)
    if made.embedding is not None:
        yield "embedding model", made.embedding.model
        yield "weights", made.embedding.sha256[:12]
        yield "dimension", str(made.embedding.dimension)


def _units(subject: Task) -> Iterator[CutUnits]:
    texts = [text for example in subject.corpus for text in record_texts(example)]
    for size, overlap in _COUNTED_SIZES:
        for splitter in (FixedSizeSplitter(size, overlap), StructureChunker(size, overlap)):
            report = cut_units(texts, splitter)
            yield CutUnits(
                splitter=report.splitter,
                kinds={
                    kind.value: (count.cut, count.total, count.too_large)
                    for kind, count in report.counts.items()
                },
            )


def _notes(builder: VariantBuilder) -> Iterator[str]:
    if builder.embedder is None:
        yield "The extra `embeddings` is not installed: only lexical variants ran."
    queries = builder.task.golden.queries.values()
    groups = {builder.task.group(query) for query in queries}
    yield (
        f"{len(queries)} queries are about {len(groups)} repositories; intervals resample queries as if "
        "they were independent, and those of one repository are not quite."
    )


@dataclass(frozen=True)
class DefaultClaim:
    """One default. ``also``: alternatives that differ in something else as well. ``bound``: the
    variant without floors, and the score, that a floor is read from. ``despite``: why it stays
    although an alternative is better, or a floor refuses what is right.
    """

    setting: str
    basis: Literal["quality", "safety", "speed", "contract"]
    reason: str
    also: tuple[str, ...] = ()
    bound: tuple[str, Literal["routing", "chunk"]] | None = None
    despite: str = ""


def _weight(component: str, reason: str) -> DefaultClaim:
    return DefaultClaim(f"retrieval.weights.{component}", "quality", reason)


def _floors() -> tuple[DefaultClaim, ...]:
    unbounded = {"hybrid": "no-floors", "lexical": "lexical-no-floors"}
    scores: tuple[Literal["routing", "chunk"], ...] = ("routing", "chunk")
    return tuple(
        claim
        for score in scores
        for mode, variant in unbounded.items()
        for claim in (
            DefaultClaim(
                f"retrieval.floors.{score}.{mode}",
                "safety",
                "A safety bound just below the lowest relevant score, no tuned optimum.",
                bound=(variant, score),
            ),
            DefaultClaim(
                f"retrieval.floors.{score}.{mode}.score",
                "contract",
                "Of the scores tried it tells answerable questions best; lexical has no cosine.",
            ),
        )
    )


CLAIMS: tuple[DefaultClaim, ...] = (
    DefaultClaim(
        "retrieval.mode",
        "quality",
        "Hybrid wherever vectors can be had, words alone elsewhere; it says which.",
    ),
    DefaultClaim(
        "retrieval.k",
        "contract",
        "What a prompt shows (MAX_EXAMPLES); the report's curve has what other values would give.",
    ),
    DefaultClaim(
        "retrieval.pool",
        "speed",
        "Large enough that a larger one finds nothing more.",
    ),
    DefaultClaim(
        "retrieval.rerank",
        "speed",
        "Counts only where a reranker is given; its time grows with it.",
    ),
    DefaultClaim(
        "retrieval.fusion",
        "quality",
        "Keeps how much better a candidate is, which ranks throw away.",
    ),
    DefaultClaim(
        "retrieval.reciprocal_rank_k", "contract", "As published (Cormack et al., SIGIR 2009)."
    ),
    DefaultClaim(
        "retrieval.aggregation",
        "quality",
        "The best chunk speaks for its record; the others can't be told from it.",
    ),
    DefaultClaim(
        "retrieval.ecosystem",
        "quality",
        "A flaw and its remedy cross ecosystems; language has a weight instead.",
    ),
    _weight("bm25", "Equal weights, as long as no other is better."),
    _weight("cosine", "Equal weights, as long as no other is better."),
    _weight("family", "Equal weights, as long as no other is better."),
    _weight("language", "Half: an edit in another language can still show the remedy."),
    DefaultClaim(
        "retrieval.weights.rerank",
        "contract",
        "Counts only where a reranker is given; as the rest.",
    ),
    DefaultClaim(
        "retrieval.reranker",
        "quality",
        "A reranker costs a model's run a candidate, and has to earn it.",
        also=("learned-alone",),
    ),
    DefaultClaim(
        "retrieval.max_rewrites",
        "quality",
        "Off: asking again has not helped, and it can only turn misses into answers.",
    ),
    *_floors(),
    DefaultClaim(
        "retrieval.coefficients",
        "contract",
        "Learned on the dev split alone; dev figures use coefficients of other repositories' folds.",
    ),
    DefaultClaim(
        "retrieval.weakness_lexicon",
        "contract",
        "Written from CWE, not from the queries; no-family says what it brings.",
    ),
    DefaultClaim(
        "question.distilled",
        "quality",
        "Boilerplate finds other advisories with the same boilerplate.",
    ),
    DefaultClaim(
        "lexical.max_postings", "speed", "Bounds the time of common words (docs/benchmarks.md)."
    ),
    DefaultClaim("lexical.max_terms", "speed", "Each word is counted first, at up to 0.2 ms."),
    DefaultClaim(
        "chunking.splitter",
        "quality",
        "Cuts no unit that fits: a prompt never shows half a rule, which ranking can't measure.",
    ),
    DefaultClaim(
        "chunking.max_tokens",
        "quality",
        "Whole functions and sections stay together; the model reads a long chunk's beginning.",
    ),
    DefaultClaim(
        "chunking.overlap_tokens",
        "quality",
        "Only a unit above the cap is told twice.",
    ),
    DefaultClaim(
        "chunking.code",
        "quality",
        "The fix's own words are found as well as its advisory's.",
    ),
)
