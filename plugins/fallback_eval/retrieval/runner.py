"""Asks every variant every query, and times it. Knows no retriever: a variant is a callable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fallback_eval.retrieval.golden import Query
from fallback_eval.retrieval.results import (
    DEPTH,
    Answer,
    EvaluationError,
    Latency,
    VariantFacts,
)

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
