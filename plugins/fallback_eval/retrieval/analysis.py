"""From raw results and judgements to figures: one variant's, and two variants' against each other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from fallback_eval.retrieval import metrics
from fallback_eval.retrieval.abstention import Abstention, Routed, abstention
from fallback_eval.retrieval.golden import GoldenSet
from fallback_eval.retrieval.results import DEFAULT, DEPTH, Answer, Results
from fallback_eval.statistics import Interval, bootstrap, holm, randomisation
from fallback_tier.limits import MAX_EXAMPLES

#: What a prompt shows: the place up to which quality counts.
K = MAX_EXAMPLES

#: Two means above this can't tell two variants apart: there is no room left to be better in.
CEILING = 0.98

#: A comparison with a Holm-adjusted p-value below it is not called chance.
SIGNIFICANT = 0.05

#: The figures of a table, in its order. The first one decides comparisons.
FIGURES: Mapping[str, metrics.Metric] = {
    f"nDCG@{K}": lambda ranking, grades: metrics.ndcg(ranking, grades, K),
    f"hit-rate@{K}": lambda ranking, grades: metrics.hit(ranking, grades, K),
    f"strict hit-rate@{K}": lambda ranking, grades: metrics.hit(
        ranking, grades, K, grade=metrics.SHOWS_THE_FIX
    ),
    "MRR": metrics.reciprocal_rank,
    "precision@1": lambda ranking, grades: metrics.precision(ranking, grades, 1),
    f"recall@{K}": lambda ranking, grades: metrics.recall(ranking, grades, K),
    f"judged@{K}": lambda ranking, grades: metrics.judged(ranking, grades, K),
    f"condensed nDCG@{K}": lambda ranking, grades: metrics.condensed_ndcg(ranking, grades, K),
}
PRIMARY = next(iter(FIGURES))

#: The figures of the quality-against-k curve.
CURVE_FIGURES = ("hit-rate", "nDCG", "precision", "recall")


class Finding(StrEnum):
    """What a comparison of a variant with the default may be called."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "cannot be distinguished"
    SATURATED = "saturated"


@dataclass(frozen=True)
class Timing:
    """Milliseconds a query: median and nearest-rank 95th percentile over queries; ``noise`` as in
    ``results.Latency``."""

    median: float
    p95: float
    noise: float


@dataclass(frozen=True)
class Summary:
    """One variant's figures. ``figures``: name → mean with interval; None where not defined."""

    variant: str
    figures: Mapping[str, Interval | None]
    abstention: Abstention
    timing: Timing | None


@dataclass(frozen=True)
class Comparison:
    """A variant against the default on PRIMARY: ``difference`` is the variant's minus the default's."""

    variant: str
    difference: Interval
    p_value: float
    #: Adjusted for all comparisons of the run (Holm).
    adjusted: float
    finding: Finding


@dataclass(frozen=True)
class Analysis:
    """All figures of a run."""

    summaries: Mapping[str, Summary]
    comparisons: Mapping[str, Comparison]
    #: Variant → figure of CURVE_FIGURES → mean at k = 1 … DEPTH.
    curves: Mapping[str, Mapping[str, Sequence[float | None]]]


def analyse(results: Results, golden: GoldenSet) -> Analysis:
    """Figures of every variant, and each against DEFAULT where that ran."""
    return Analysis(
        {name: summary(results, golden, name) for name in results.answers},
        compare(results, golden),
        {name: curve(answers, golden) for name, answers in results.answers.items()},
    )


def summary(results: Results, golden: GoldenSet, variant: str) -> Summary:
    """One variant's figures."""
    answers = results.answers[variant]
    return Summary(
        variant,
        {
            name: bootstrap(list(per_query(answers, golden, metric).values()))
            for name, metric in FIGURES.items()
        },
        abstention(routed(answers, golden)),
        _timing(results, variant),
    )


def per_query(
    answers: Mapping[str, Answer], golden: GoldenSet, metric: metrics.Metric
) -> dict[str, float]:
    """A figure of each query for which it is defined."""
    found = {
        name: metric(answer.ids, golden.grades[name])
        for name, answer in answers.items()
        if name in golden.grades
    }
    return {name: value for name, value in found.items() if value is not None}


def routed(answers: Mapping[str, Answer], golden: GoldenSet) -> list[Routed]:
    """What the router made of each query."""
    return [
        Routed(answer.routing, answer.verdict == "miss", golden.queries[name].nothing_here)
        for name, answer in answers.items()
        if name in golden.queries
    ]


def unjudged(results: Results, golden: GoldenSet) -> dict[tuple[str, str], list[str]]:
    """(query, example) → the variants that have it among their first K, where nobody judged it: what a
    further round of labelling reads, those of most variants first."""
    found: dict[tuple[str, str], list[str]] = {}
    for variant, answers in results.answers.items():
        for query, answer in answers.items():
            for name in answer.ids[:K]:
                if query in golden.grades and name not in golden.grades[query]:
                    found.setdefault((query, name), []).append(variant)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def compare(results: Results, golden: GoldenSet, against: str = DEFAULT) -> dict[str, Comparison]:
    """Every other variant against one of them; empty where that did not run."""
    if against not in results.answers:
        return {}
    values = {
        name: per_query(answers, golden, FIGURES[PRIMARY])
        for name, answers in results.answers.items()
    }
    base = values.pop(against)
    pairs = {
        name: ([one[query] for query in base], list(base.values())) for name, one in values.items()
    }
    p_values = {name: randomisation(*pair) for name, pair in pairs.items()}
    adjusted = holm(p_values)
    found = {}
    for name, (ours, theirs) in pairs.items():
        difference = bootstrap([a - b for a, b in zip(ours, theirs, strict=True)])
        if difference is not None:
            finding = _finding(difference, adjusted[name], metrics.mean(ours), metrics.mean(theirs))
            found[name] = Comparison(name, difference, p_values[name], adjusted[name], finding)
    return found


def curve(answers: Mapping[str, Answer], golden: GoldenSet) -> dict[str, Sequence[float | None]]:
    """Quality against k, from 1 to DEPTH."""

    def at(metric: str, k: int) -> float | None:
        figure: Mapping[str, metrics.Metric] = {
            "hit-rate": lambda ranking, grades: metrics.hit(ranking, grades, k),
            "nDCG": lambda ranking, grades: metrics.ndcg(ranking, grades, k),
            "precision": lambda ranking, grades: metrics.precision(ranking, grades, k),
            "recall": lambda ranking, grades: metrics.recall(ranking, grades, k),
        }
        return metrics.mean(list(per_query(answers, golden, figure[metric]).values()))

    return {name: [at(name, k) for k in range(1, DEPTH + 1)] for name in CURVE_FIGURES}


def _finding(
    difference: Interval, adjusted: float, mean: float | None, base: float | None
) -> Finding:
    if min(mean or 0.0, base or 0.0) >= CEILING:
        return Finding.SATURATED
    # Both must speak: the interval for this pair, the adjusted test for so many pairs at once.
    if difference.holds(0.0) or adjusted >= SIGNIFICANT:
        return Finding.UNDECIDED
    return Finding.BETTER if difference.mean > 0 else Finding.WORSE


def _timing(results: Results, variant: str) -> Timing | None:
    latency = results.latencies.get(variant)
    if latency is None or not latency.medians:
        return None
    ordered = sorted(latency.medians)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return Timing(median(ordered), p95, latency.noise)
