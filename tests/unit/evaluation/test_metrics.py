"""Our figures against those of trec_eval and scikit-learn, and by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_eval.retrieval import metrics
from fallback_eval.retrieval.abstention import (
    Abstention,
    Routed,
    abstention,
    auroc,
    operating_curve,
)
from fallback_eval.retrieval.golden import Opinion, agreement, weighted_kappa

REFERENCE = json.loads((Path(__file__).parent / "reference.json").read_text())

FIGURES: dict[str, Callable[[metrics.Ranking, metrics.Grades], float | None]] = {
    "ndcg@4": lambda ranking, grades: metrics.ndcg(ranking, grades, 4),
    "ndcg@10": lambda ranking, grades: metrics.ndcg(ranking, grades, 10),
    "hit@1": lambda ranking, grades: metrics.hit(ranking, grades, 1),
    "hit@4": lambda ranking, grades: metrics.hit(ranking, grades, 4),
    "rr": metrics.reciprocal_rank,
    "precision@1": lambda ranking, grades: metrics.precision(ranking, grades, 1),
    "precision@4": lambda ranking, grades: metrics.precision(ranking, grades, 4),
    "recall@4": lambda ranking, grades: metrics.recall(ranking, grades, 4),
    "recall@10": lambda ranking, grades: metrics.recall(ranking, grades, 10),
    "judged@4": lambda ranking, grades: metrics.judged(ranking, grades, 4),
}

IDS = [f"e{number}" for number in range(12)]
rankings = st.lists(st.sampled_from(IDS), unique=True, max_size=10)
judgements = st.dictionaries(st.sampled_from(IDS), st.integers(0, 2))


@pytest.mark.parametrize("figure", FIGURES)
def test_as_trec_eval(figure: str) -> None:
    compared = 0
    for case in REFERENCE["rankings"]:
        if figure in case["expected"]:
            found = FIGURES[figure](case["ranking"], case["grades"])
            assert found == pytest.approx(case["expected"][figure], abs=1e-8)
            compared += 1
    assert compared >= 20


def test_by_hand() -> None:
    # Gains 3, 0, 1 at places 1 to 3, of an ideal 3, 1.
    found = metrics.ndcg(["a", "x", "b"], {"a": 2, "b": 1}, 4)
    assert found == pytest.approx((3 + 0.5) / (3 + 1 / 1.584962500721156))
    assert metrics.hit(["x", "b"], {"a": 2, "b": 1}, 4, grade=metrics.SHOWS_THE_FIX) == 0


def test_what_is_not_defined_is_left_out() -> None:
    nothing = {"a": 0}
    for figure, call in FIGURES.items():
        if figure != "judged@4":
            assert call(["a"], nothing) is None
    assert metrics.judged([], nothing, 4) is None
    assert metrics.hit(["a"], {"a": 1}, 4, grade=metrics.SHOWS_THE_FIX) is None
    assert metrics.mean([None, 1.0, 0.0, None]) == 0.5
    assert metrics.mean([None]) is None


def test_the_unjudged_count_as_nothing_and_condensed_leaves_them_out() -> None:
    assert metrics.ndcg(["x", "y", "a"], {"a": 2}, 2) == 0
    assert metrics.condensed_ndcg(["x", "y", "a"], {"a": 2}, 2) == 1


@given(ranking=rankings, grades=judgements, k=st.integers(1, 10))
def test_bounds_and_order(ranking: list[str], grades: dict[str, int], k: int) -> None:
    found = metrics.ndcg(ranking, grades, k)
    if found is None:
        assert not any(grades.values())
        return
    assert 0 <= found <= 1
    best = sorted(grades, key=lambda name: -grades[name])
    assert metrics.ndcg(best, grades, k) == pytest.approx(1)
    wider, narrower = metrics.hit(ranking, grades, k + 1), metrics.hit(ranking, grades, k)
    assert wider is not None
    assert narrower is not None
    assert wider >= narrower


def test_kappa_as_scikit_learn() -> None:
    case = REFERENCE["kappa"]
    found = weighted_kappa(list(zip(case["first"], case["second"], strict=True)))
    assert found == pytest.approx(case["expected"], abs=1e-8)


@pytest.mark.parametrize(
    ("grades", "kappa"),
    [([], None), ([(1, 1)] * 3, None), ([(0, 0), (2, 2)], 1.0), ([(0, 2), (2, 0)], -1.0)],
)
def test_kappa_at_its_ends(grades: list[tuple[int, int]], kappa: float | None) -> None:
    assert weighted_kappa(grades) == kappa


def test_agreement_is_over_what_both_graded() -> None:
    def graded(**grades: Any) -> list[Opinion]:
        return [
            Opinion(query="q", example=name, grade=grade, reason="r")
            for name, grade in grades.items()
        ]

    found = agreement(graded(a=2, b=0, c=1), graded(a=2, b=1, d=0))
    assert (found.pairs, found.same, found.share) == (2, 1, 0.5)
    assert agreement(graded(a=1), graded(b=1)).share is None


def test_auroc_as_scikit_learn() -> None:
    case = REFERENCE["auroc"]
    found = auroc(case["positive"], case["negative"])
    assert found == pytest.approx(case["expected"], abs=1e-8)


def test_abstention() -> None:
    routed = [
        Routed(0.9, missed=False, nothing_here=False),
        Routed(0.4, missed=True, nothing_here=False),
        Routed(0.5, missed=False, nothing_here=True),
        Routed(0.1, missed=True, nothing_here=True),
    ]
    assert abstention(routed) == Abstention(rightly=0.5, wrongly=0.5, auroc=0.75, free=0.5)
    curve = {(one.floor, one.rightly, one.wrongly) for one in operating_curve(routed)}
    assert curve == {(0.1, 0, 0), (0.4, 0.5, 0), (0.5, 0.5, 0.5), (0.9, 1, 0.5)}


def test_abstention_without_one_kind() -> None:
    only = [Routed(0.9, missed=False, nothing_here=False)]
    assert abstention(only) == Abstention(rightly=None, wrongly=0.0, auroc=None, free=None)
    assert operating_curve(only) == []
