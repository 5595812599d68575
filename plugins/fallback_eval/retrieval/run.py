"""One evaluation of retrieval, from golden set and data set to raw results."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fallback_eval.retrieval.build import CrossEncoderFiles, VariantBuilder
from fallback_eval.retrieval.claims import CLAIMS
from fallback_eval.retrieval.data import Task, load_data, task
from fallback_eval.retrieval.defaults import Basis, Bound, Claim
from fallback_eval.retrieval.goals import BM25, EMBEDDINGS
from fallback_eval.retrieval.golden import Split, load_golden
from fallback_eval.retrieval.publish import queries_sha256
from fallback_eval.retrieval.results import Answer, CutUnits, Latency, Results, Run, results_of
from fallback_eval.retrieval.runner import REPEATS, evaluate
from fallback_eval.retrieval.stores import Progress, Remembering, Stores
from fallback_eval.retrieval.tried.fixed_size import FixedSizeSplitter, cut_units, record_texts
from fallback_eval.retrieval.variants import (
    DEFAULT,
    VariantSpec,
    alternatives,
    variants,
)
from fallback_plugins.solved_examples.chunking.chunker import StructureChunker
from fallback_plugins.solved_examples.index.embedding import load_embedder
from fallback_plugins.solved_examples.store.manifest import Manifest
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
