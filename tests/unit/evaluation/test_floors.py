"""Floors lie just below the lowest relevant score, and nowhere else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_eval.retrieval.floors import PLACES, JudgedRanking, floors, trade_off

K = 4

CANDIDATES = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2)), max_size=8).map(
    lambda found: sorted(found, reverse=True)
)
RANKINGS = st.lists(CANDIDATES, min_size=1, max_size=8).map(
    lambda every: [
        JudgedRanking(str(n), found, any(grade for _, grade in found))
        for n, found in enumerate(every)
    ]
)


@given(RANKINGS)
def test_no_relevant_candidate_falls_below(rankings: list[JudgedRanking]) -> None:
    if not any(ranking.relevant(K) for ranking in rankings):
        with pytest.raises(ValueError, match="no relevant"):
            floors(rankings, score="s", mode="hybrid", k=K)
        return
    routing, chunk = floors(rankings, score="s", mode="hybrid", k=K)
    relevant = [score for ranking in rankings for score in ranking.relevant(K)]
    assert chunk.value <= min(relevant) < chunk.value + 10**-PLACES + 1e-9
    assert chunk.value <= routing.value
    for ranking in rankings:
        if ranking.relevant(K):
            assert ranking.best >= routing.value
    assert (routing.name, chunk.name, routing.score, routing.mode) == (
        "routing",
        "chunk",
        "s",
        "hybrid",
    )


def test_only_what_would_be_shown_counts() -> None:
    deep = [(0.9, 0), (0.8, 0), (0.7, 1), (0.1, 2)]
    _, chunk = floors([JudgedRanking("q", deep, answerable=True)], score="s", mode="lexical", k=3)
    assert chunk.value == pytest.approx(0.7)


def test_the_trade_off_counts_both_sides() -> None:
    rankings = [
        JudgedRanking("found", [(0.8, 2)], answerable=True),
        JudgedRanking("weak", [(0.3, 1)], answerable=True),
        JudgedRanking("not ranked", [(0.9, 0)], answerable=True),
        JudgedRanking("nothing", [(0.5, 0)], answerable=False),
        JudgedRanking("empty", [], answerable=False),
    ]
    low, high = trade_off(rankings, [0.2, 0.6], k=K)
    assert (low.kept, low.missed) == (1.0, 0.5)
    assert (high.kept, high.missed) == (0.5, 1.0)
    assert math.isnan(trade_off([], [0.5], k=K)[0].kept)
