"""Runs of made-up variants over the planted golden set."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

from pydantic import JsonValue

from fallback_eval.retrieval.build import Ranked, Variant, evaluate
from fallback_eval.retrieval.golden import Query, Split, load_golden
from fallback_eval.retrieval.publish import queries_sha256
from fallback_eval.retrieval.results import (
    DEFAULT,
    CutUnits,
    NotRun,
    Results,
    Run,
    VariantFacts,
    results_of,
)

CODE: Mapping[str, JsonValue] = {"k": 4, "mode": "hybrid", "routing_floor": 0.49}
DIGEST = "0" * 64

#: What each made-up variant ranks; a nothing-here query has a low routing score.
RANKS: Mapping[str, Sequence[str]] = {
    DEFAULT: ("e0", "e1", "e2"),
    "bm25-only": ("e2", "e1", "e0"),
    "embeddings-only": ("e3", "e2", "e1"),
    "same-as-default": ("e0", "e1", "e2"),
}
SETTINGS: Mapping[str, Mapping[str, JsonValue]] = {
    DEFAULT: CODE,
    "bm25-only": {**CODE, "mode": "lexical"},
    "embeddings-only": {**CODE, "mode": "dense"},
    "same-as-default": {**CODE, "k": 3},
}


def variant(name: str, ask: Callable[[Query], Ranked] | None = None) -> Variant:
    def answer(query: Query) -> Ranked:
        scores = [1.0 / place for place in range(1, len(RANKS[name]) + 1)]
        if query.nothing_here:
            return Ranked((), (), routing=0.1, verdict="miss")
        return Ranked(RANKS[name], scores, routing=0.5, bounds=scores)

    facts = VariantFacts(
        name=name,
        component="mode",
        summary=f"What {name} does.",
        settings=SETTINGS.get(name, CODE),
    )
    return Variant(facts, ask or answer)


def run_all(
    golden_folder: Path, *, split: Split = "dev", names: Sequence[str] = tuple(RANKS)
) -> Results:
    golden = load_golden(golden_folder)
    # Whole steps of a binary fraction: sums of them are exact.
    ticks = count()
    variants = [variant(name) for name in names]
    run = Run(
        split=split,
        queries_sha256=queries_sha256(golden_folder),
        corpus_sha256=DIGEST,
        corpus=("e0", "e1", "e2", "e3"),
        parts={"chunker": "structure-1"},
        variants=tuple(one.facts for one in variants),
        not_run=(NotRun(name="cross", component="reranker", reason="no weights"),),
        units=(CutUnits(splitter="fixed", kinds={"table": (3, 4, 1)}),),
    )
    answers, latencies = [], []
    for one in variants:
        found, latency = evaluate(one, golden.of(split), clock=lambda: next(ticks) / 1024)
        answers += found
        latencies.append(latency)
    return results_of(run, answers, latencies)
