"""The score below which no relevant example was seen: what a floor is set just below."""

from collections.abc import Iterator, Mapping
from typing import Literal

from fallback_eval.retrieval.analysis import K
from fallback_eval.retrieval.golden import GoldenSet
from fallback_eval.retrieval.metrics import HELPS
from fallback_eval.retrieval.results import Answer


def lowest_relevant(
    answers: Mapping[str, Answer], golden: GoldenSet, score: Literal["routing", "chunk"]
) -> float | None:
    """Of a variant without floors: the lowest routing score of a query for which one of the first K
    is relevant, or the lowest score of such an example itself. None: there is none.
    """
    scores = _routing if score == "routing" else _chunk
    return min((one for name in answers for one in scores(answers[name], golden)), default=None)


def _routing(answer: Answer, golden: GoldenSet) -> Iterator[float]:
    grades = golden.grades.get(answer.query, {})
    if any(grades.get(name, 0) >= HELPS for name in answer.ids[:K]):
        yield answer.routing


def _chunk(answer: Answer, golden: GoldenSet) -> Iterator[float]:
    grades = golden.grades.get(answer.query, {})
    for name, score in zip(answer.ids[:K], answer.bounds, strict=False):
        if grades.get(name, 0) >= HELPS:
            yield score
