"""Quality of one ranking against graded judgements. Examples that nobody judged count as grade 0.

``ranking``: ids, best first, none twice. ``grades``: id → 0, 1 or 2. Where a figure is not defined
(nothing relevant was judged) the answer is None, and the mean leaves the query out. Definitions as in
trec_eval (tests compare with it), but for nDCG's gain of 2^grade - 1 (Burges et al., ICML 2005).
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from math import log2

Ranking = Sequence[str]
Grades = Mapping[str, int]
#: A figure of one query; None where it is not defined.
Metric = Callable[[Ranking, Grades], float | None]

#: From this grade on an example is relevant; "strict" figures ask for SHOWS_THE_FIX.
HELPS, SHOWS_THE_FIX = 1, 2


def hit(ranking: Ranking, grades: Grades, k: int, *, grade: int = HELPS) -> float | None:
    """1 where one of the first k is relevant, else 0."""
    if not _relevant(grades, grade):
        return None
    return float(any(grades.get(name, 0) >= grade for name in ranking[:k]))


def ndcg(ranking: Ranking, grades: Grades, k: int) -> float | None:
    """Discounted gain of the first k, as a share of that of the best order of all judged ones."""
    ideal = _dcg(sorted(grades.values(), reverse=True), k)
    if not ideal:
        return None
    return _dcg([grades.get(name, 0) for name in ranking], k) / ideal


def condensed_ndcg(ranking: Ranking, grades: Grades, k: int) -> float | None:
    """nDCG with the unjudged left out of the ranking (Sakai, SIGIR 2007): how much it matters that
    they count as 0."""
    return ndcg([name for name in ranking if name in grades], grades, k)


def reciprocal_rank(ranking: Ranking, grades: Grades) -> float | None:
    """1 / place of the first relevant one; 0 where none was returned."""
    if not _relevant(grades, HELPS):
        return None
    places = (place for place, name in enumerate(ranking, 1) if grades.get(name, 0) >= HELPS)
    return next((1 / place for place in places), 0.0)


def precision(ranking: Ranking, grades: Grades, k: int) -> float | None:
    """Share of k places that a relevant one takes; an empty place counts against it."""
    if not _relevant(grades, HELPS):
        return None
    return sum(grades.get(name, 0) >= HELPS for name in ranking[:k]) / k


def recall(ranking: Ranking, grades: Grades, k: int) -> float | None:
    """Share of the relevant ones that stands among the first k."""
    relevant = _relevant(grades, HELPS)
    if not relevant:
        return None
    return sum(grades.get(name, 0) >= HELPS for name in ranking[:k]) / relevant


def judged(ranking: Ranking, grades: Grades, k: int) -> float | None:
    """Share of the first k that somebody judged; None where nothing was returned."""
    first = ranking[:k]
    return sum(name in grades for name in first) / len(first) if first else None


def mean(values: Sequence[float | None]) -> float | None:
    """Over the queries for which the figure is defined."""
    defined = [value for value in values if value is not None]
    return sum(defined) / len(defined) if defined else None


def _relevant(grades: Grades, grade: int) -> int:
    return sum(one >= grade for one in grades.values())


def _dcg(grades: Sequence[int], k: int) -> float:
    return sum(
        ((1 << grade) - 1) / log2(place + 1) for place, grade in enumerate(islice(grades, k), 1)
    )
