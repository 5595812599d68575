"""Fusion: what it must keep whatever the scores are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_eval.retrieval.alternatives import reciprocal_rank
from fallback_plugins.solved_examples.search.ranking import count, standardised, weighted
from tests.kinds import RaisedIn

SCORES = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=1, max_size=12)


def test_reciprocal_rank_as_published() -> None:
    fused = reciprocal_rank({"a": [0.9, 0.5, 0.1], "b": [1.0, 3.0, 2.0]}, {"a": 1.0, "b": 1.0})
    assert fused == pytest.approx([1 / 61 + 1 / 63, 1 / 62 + 1 / 61, 1 / 63 + 1 / 62])


def test_equal_scores_share_a_rank() -> None:
    assert reciprocal_rank({"a": [2.0, 2.0, 1.0]}, {"a": 1.0}) == [1 / 61, 1 / 61, 1 / 63]


@given(SCORES)
def test_either_fusion_of_one_component_keeps_its_order(scores: list[float]) -> None:
    for fuse in (reciprocal_rank, weighted):
        fused = fuse({"a": scores}, {"a": 2.0})
        for i, one in enumerate(scores):
            for j, other in enumerate(scores):
                if fused[i] > fused[j]:
                    assert one > other


@given(SCORES, st.floats(0.1, 10), st.floats(-50, 50))
def test_weighted_fusion_knows_no_scale(scores: list[float], scale: float, shift: float) -> None:
    moved = [score * scale + shift for score in scores]
    assert weighted({"a": moved}, {"a": 1.0}) == pytest.approx(
        weighted({"a": scores}, {"a": 1.0}), abs=1e-4
    )


@given(SCORES)
def test_standardised_has_mean_0_and_spread_1_or_none(scores: list[float]) -> None:
    z = standardised(scores)
    assert sum(z) == pytest.approx(0, abs=1e-6)
    spread = math.sqrt(sum(value * value for value in z) / len(z))
    assert spread == pytest.approx(1) or set(z) == {0.0}


def test_a_component_without_a_weight_or_a_spread_says_nothing() -> None:
    scores = {"a": [3.0, 1.0], "b": [1.0, 9.0], "same": [5.0, 5.0]}
    assert weighted(scores, {"a": 1.0, "same": 7.0}) == [1.0, -1.0]
    assert reciprocal_rank(scores, {"a": 1.0}) == [1 / 61, 1 / 62]


def test_nothing_to_fuse() -> None:
    assert weighted({}, {}) == reciprocal_rank({}, {}) == standardised([]) == []
    assert weighted({"a": []}, {"a": 1.0}) == []


@pytest.mark.parametrize("fuse", [weighted, reciprocal_rank])
def test_components_score_the_same_candidates(fuse: object) -> None:
    with pytest.raises(ValueError, check=RaisedIn(count)):
        fuse({"a": [1.0], "b": [1.0, 2.0]}, {"a": 1.0, "b": 1.0})  # type: ignore[operator]
