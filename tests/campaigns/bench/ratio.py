"""Pairwise ratios: two sides in turn (A B A B …), so that a drifting machine slows both."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.campaigns.bench.measure import Sample, Side


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds. Quartiles are those of ``statistics.quantiles`` (inclusive)."""

    median: float
    low: float
    quartile_1: float
    quartile_3: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The spread of at least one value."""
        ordered = sorted(values)
        quartiles = (
            statistics.quantiles(ordered, n=4, method="inclusive")
            if len(ordered) > 1
            else ordered * 3
        )
        return cls(
            median=statistics.median(ordered),
            low=ordered[0],
            quartile_1=quartiles[0],
            quartile_3=quartiles[2],
            high=ordered[-1],
        )


@dataclass(frozen=True)
class Comparison:
    """Ours against theirs, round by round."""

    ours: Sequence[Sample]
    theirs: Sequence[Sample]

    @property
    def wall_ratio(self) -> Spread:
        """Ours ÷ theirs in elapsed time, of each pair; the goals are about its median."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return Spread.of([a.wall_s / b.wall_s for a, b in pairs])

    @property
    def cpu_ratio(self) -> Spread | None:
        """The same in processor time, which a busy machine disturbs less; None where one had none."""
        if not all(sample.cpu_s for sample in self.theirs):
            return None
        pairs = zip(self.ours, self.theirs, strict=True)
        return Spread.of([a.cpu_s / b.cpu_s for a, b in pairs])


def compare(ours: Side, theirs: Side, *, rounds: int, warm_up: int = 1) -> Comparison:
    """Measure both sides in turn. Raises BenchError where either fails, also while warming up."""
    for _ in range(warm_up):
        ours.measure()
        theirs.measure()
    first, second = [], []
    for _ in range(rounds):
        first.append(ours.measure())
        second.append(theirs.measure())
    return Comparison(first, second)
