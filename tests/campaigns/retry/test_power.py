"""The exact sums against cases that are known."""

import pytest

from fallback_eval.retry.power import ALPHA, power_of, sign_test, smallest_difference


def test_exact_p_values() -> None:
    assert sign_test(0, 0) == 1
    assert sign_test(3, 3) == 1
    assert sign_test(0, 5) == pytest.approx(0.0625)
    assert sign_test(6, 0) == pytest.approx(0.03125)
    assert sign_test(2, 9) == sign_test(9, 2)


@pytest.mark.parametrize("pairs", [10, 40, 150])
@pytest.mark.parametrize("discordance", [0.1, 0.4, 1.0])
def test_no_difference_is_shown_no_more_often_than_alpha(pairs: int, discordance: float) -> None:
    assert power_of(pairs, discordance, 0) <= ALPHA


def test_power_grows_with_pairs_and_difference() -> None:
    assert power_of(40, 0.3, 0.2) < power_of(80, 0.3, 0.2) < power_of(160, 0.3, 0.2)
    assert power_of(80, 0.3, 0.1) < power_of(80, 0.3, 0.2)
    # Always won: power is the chance of six discordant pairs or more.
    assert power_of(6, 1.0, 1.0) == pytest.approx(1)
    assert power_of(5, 1.0, 1.0) == 0


def test_smallest_difference() -> None:
    found = smallest_difference(100, 0.3)
    assert found is not None
    assert power_of(100, 0.3, found) >= 0.8 > power_of(100, 0.3, found - 0.01)
    assert smallest_difference(10, 0.1) is None


def test_a_difference_above_the_discordance_is_refused() -> None:
    with pytest.raises(ValueError):
        power_of(10, 0.1, 0.2)
