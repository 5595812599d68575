"""Intervals and tests against scipy's, and what they must never say."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fallback_eval.statistics import bootstrap, holm, randomisation
from tests.kinds import RaisedIn

RANDOM = np.random.RandomState(3)
SHARES = RANDOM.beta(2, 2, 60)
OTHER = np.clip(SHARES + RANDOM.normal(-0.02, 0.15, 60), 0, 1)

SCIPYS = pytest.mark.xdist_group("scipy")

values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@pytest.fixture(scope="module")
def stats() -> ModuleType:
    """scipy's: a second of imports, which every worker would have to collect this module."""
    from scipy import stats

    return stats


@SCIPYS
def test_interval_as_scipys(stats: ModuleType) -> None:
    found = bootstrap(list(SHARES))
    assert found is not None
    theirs = stats.bootstrap(
        (SHARES,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.mean == pytest.approx(SHARES.mean())
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=0.003)


@SCIPYS
def test_p_value_as_scipys(stats: ModuleType) -> None:
    theirs = stats.permutation_test(
        (SHARES, OTHER),
        lambda one, other, axis: np.mean(one - other, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=10_000,
        rng=np.random.default_rng(1),
    ).pvalue
    assert 0.01 < theirs < 0.5
    assert randomisation(list(SHARES), list(OTHER)) == pytest.approx(theirs, abs=0.015)


def test_a_small_case_by_counting() -> None:
    # All three pairs differ one way: 2 of the 8 assignments are as extreme.
    assert randomisation([1, 1, 1], [0, 0, 0]) == pytest.approx(0.25, abs=0.015)


def test_the_same_values_give_the_same_answer() -> None:
    assert bootstrap(list(SHARES)) == bootstrap(list(SHARES))
    assert randomisation(list(SHARES), list(OTHER)) == randomisation(list(SHARES), list(OTHER))


def test_nothing_to_compare() -> None:
    assert bootstrap([]) is None
    assert randomisation([0.5, 1], [0.5, 1]) == 1
    with pytest.raises(ValueError, check=RaisedIn(randomisation)):
        randomisation([1], [1, 0])


@settings(max_examples=30, deadline=None)
@given(values)
def test_an_interval_holds_its_mean(found: list[float]) -> None:
    interval = bootstrap(found)
    assert interval is not None
    assert interval.low - 1e-9 <= interval.mean <= interval.high + 1e-9
    assert min(found) - 1e-9 <= interval.low
    assert interval.high <= max(found) + 1e-9


@settings(max_examples=30, deadline=None)
@given(values)
def test_a_test_has_no_side(found: list[float]) -> None:
    shifted = [value / 2 for value in found]
    p_value = randomisation(found, shifted)
    assert 0 < p_value <= 1
    assert p_value == randomisation(shifted, found)


def test_holm_by_hand() -> None:
    # Holm 1979: smallest times n, the next times n - 1, never falling.
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


def test_correction_takes_a_lone_alarm_away() -> None:
    alone = holm({"lucky": 0.04})
    among = holm({"lucky": 0.04} | {f"other{number}": 0.5 for number in range(9)})
    assert alone["lucky"] < 0.05 < among["lucky"]
