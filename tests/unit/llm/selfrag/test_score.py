"""The score: the paper's weights and values, every part counts, absent parts are left out."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallback_audit.vocabulary import Support
from fallback_tier.answers.critique import Critique
from fallback_tier.llm.selfrag import likelihood, segment_score, unread

ORDER = (Support.NONE, Support.PARTIAL, Support.FULL)

critiques = st.builds(
    Critique,
    relevant=st.sampled_from([None, False, True]),
    support=st.sampled_from(ORDER),
    usefulness=st.integers(1, 5),
    is_final=st.booleans(),
)
lm_scores = st.none() | st.floats(0.001, 1)


def critique(relevant: bool | None, support: Support, usefulness: int) -> Critique:
    return Critique(relevant=relevant, support=support, usefulness=usefulness, is_final=False)


@pytest.mark.parametrize(
    ("reported", "lm_score", "score"),
    [
        (critique(True, Support.FULL, 5), 1.0, 1.0),
        # (1 * 1 + 1 * 0.5 + 0.5 * 0.5 + 1 * 0.5) / 3.5
        (critique(True, Support.PARTIAL, 4), 0.5, 0.642857),
        # The likelihood is not there: its weight isn't either. 1.75 / 2.5
        (critique(True, Support.PARTIAL, 4), None, 0.7),
        # No example, no relevance: 0.75 / 1.5
        (critique(None, Support.PARTIAL, 4), None, 0.5),
        (critique(False, Support.NONE, 1), None, -0.2),
        (critique(None, Support.NONE, 1), None, -0.333333),
    ],
)
def test_the_formula(reported: Critique, lm_score: float | None, score: float) -> None:
    assert segment_score(reported, lm_score) == score


@given(critiques, critiques, lm_scores, st.floats(0, 1))
def test_worse_in_no_part_is_not_less(
    one: Critique, two: Critique, lm_score: float | None, share: float
) -> None:
    """Against the one that has the worse of both in each part."""
    worse = critique(
        None if one.relevant is None else one.relevant and bool(two.relevant),
        min(one.support, two.support, key=ORDER.index),
        min(one.usefulness, two.usefulness),
    )
    less = None if lm_score is None else lm_score * share
    assert segment_score(worse, less) <= segment_score(one, lm_score)


@given(critiques, lm_scores)
def test_every_part_counts(reported: Critique, lm_score: float | None) -> None:
    score = segment_score(reported, lm_score)
    if reported.usefulness < 5:
        better = reported.model_copy(update={"usefulness": reported.usefulness + 1})
        assert segment_score(better, lm_score) > score
    if reported.support is not Support.FULL:
        better = reported.model_copy(update={"support": ORDER[ORDER.index(reported.support) + 1]})
        assert segment_score(better, lm_score) > score
    if reported.relevant is False:
        assert segment_score(reported.model_copy(update={"relevant": True}), lm_score) > score
    if lm_score is not None and lm_score < 0.9:
        assert segment_score(reported, lm_score + 0.1) > score


@given(critiques, lm_scores)
def test_nothing_counts_less_than_an_unread_critique(
    reported: Critique, lm_score: float | None
) -> None:
    worst = unread(shown=reported.relevant is not None)
    assert segment_score(worst, lm_score) <= segment_score(reported, lm_score) <= 1


@pytest.mark.parametrize(
    ("mean_logprob", "score"),
    [(None, None), (math.nan, None), (0.0, 1.0), (0.2, 1.0), (-1.0, 0.367879), (-math.inf, 0.0)],
)
def test_likelihood(mean_logprob: float | None, score: float | None) -> None:
    assert likelihood(mean_logprob) == score
