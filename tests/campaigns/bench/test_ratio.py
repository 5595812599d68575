"""Ratios are pairwise, in turn, and without the warm-up."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.campaigns.bench.measure import BenchError, Sample
from tests.campaigns.bench.ratio import Comparison, Spread, compare


def samples(*walls: float, cpu_s: float = 1.0) -> list[Sample]:
    return [Sample(wall, cpu_s, 1) for wall in walls]


@dataclass
class Scripted:
    """A side that takes the times that it was given, and writes down that it was asked."""

    label: str
    walls: list[float]
    asked: list[str] = field(default_factory=list)

    def measure(self) -> Sample:
        self.asked.append(self.label)
        return Sample(self.walls.pop(0), 1.0, 1)


def test_sides_take_turns_and_the_warm_up_does_not_count() -> None:
    asked: list[str] = []
    ours = Scripted("a", [100.0, 1.0, 2.0], asked)
    theirs = Scripted("b", [1.0, 2.0, 4.0], asked)
    comparison = compare(ours, theirs, rounds=2)
    assert "".join(asked) == "ababab"
    assert comparison.wall_ratio == Spread(0.5, 0.5, 0.5, 0.5, 0.5)


def test_the_ratio_is_of_pairs_not_of_medians() -> None:
    """Where the machine drifts, both of a pair drift: the pairs still agree."""
    comparison = Comparison(samples(1.0, 10.0, 3.0), samples(2.0, 20.0, 6.0))
    assert comparison.wall_ratio.median == 0.5
    shuffled = Comparison(samples(1.0, 10.0, 3.0), samples(20.0, 2.0, 6.0))
    assert (shuffled.wall_ratio.low, shuffled.wall_ratio.high) == (0.05, 5.0)


def test_sides_of_different_length_are_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        _ = Comparison(samples(1.0), samples(1.0, 2.0)).wall_ratio


def test_no_processor_time_no_processor_ratio() -> None:
    """A timer's grain can round a short process down to nothing."""
    assert Comparison(samples(1.0), samples(1.0, cpu_s=0.0)).cpu_ratio is None
    spread = Comparison(samples(1.0, cpu_s=3.0), samples(1.0, cpu_s=2.0)).cpu_ratio
    assert spread is not None
    assert spread.median == 1.5


@given(st.lists(st.floats(0.001, 1000), min_size=1))
def test_a_spread_is_in_order_and_inside(values: list[float]) -> None:
    spread = Spread.of(values)
    ordered = [spread.low, spread.quartile_1, spread.median, spread.quartile_3, spread.high]
    assert ordered == sorted(ordered)
    assert (spread.low, spread.high) == (min(values), max(values))


def test_known_quartiles() -> None:
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == Spread(3.0, 1.0, 2.0, 4.0, 5.0)


def test_a_side_that_fails_ends_the_comparison() -> None:
    class Broken:
        label = "broken"

        def measure(self) -> Sample:
            raise BenchError("no")

    with pytest.raises(BenchError):
        compare(Scripted("a", [1.0]), Broken(), rounds=1)
