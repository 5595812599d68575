"""How much of a figure is chance: intervals, paired tests, and many comparisons at once.

Needs the extra ``eval`` (numpy). Seeded: the same values give the same answer, on every machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

#: Resamples of a bootstrap and of a randomisation test: the third digit of a p-value is stable.
RESAMPLES = 10_000
#: Intervals hold 95 % of the resamples.
CONFIDENCE = 0.95
_SEED = 20_260_101
#: Means that differ by less are the same number, added up in another order.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % percentile bootstrap interval."""

    mean: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """The value is inside."""
        return self.low <= value <= self.high


def bootstrap(values: Sequence[float]) -> Interval | None:
    """The mean over queries, with an interval (Efron 1979); None of no values."""
    if not values:
        return None
    means = resamples(len(values)) @ np.asarray(values, float) / len(values)
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(means, [tail, 100 - tail])
    return Interval(float(np.mean(values)), float(low), float(high))


def randomisation(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided p-value of a paired randomisation test on the mean difference (Fisher; Smucker et
    al., CIKM 2007). 1 where no pair differs. ValueError: not of the same length."""
    if len(first) != len(second):
        raise ValueError("a paired test needs the same queries on both sides")
    differences = np.asarray(first, float) - np.asarray(second, float)
    if not differences.any():
        return 1.0
    found = np.abs(_signs(len(differences)) @ differences)
    extreme = int((found >= abs(differences.sum()) - _ROUNDING).sum())
    # The observed one is one of the possible assignments: a p-value of 0 can't be.
    return (extreme + 1) / (RESAMPLES + 1)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjusted p-values: all of them below 0.05 keep the chance of any false alarm below 0.05 (Holm
    1979)."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    ordered = sorted(p_values.items(), key=lambda item: (item[1], item[0]))
    for done, (name, p_value) in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - done) * p_value))
        adjusted[name] = largest
    return {name: adjusted[name] for name in p_values}


# RandomState, because its streams are frozen for good (NEP 19): a Generator's may change with
# numpy, and the committed tables with it.
@cache
def resamples(size: int) -> NDArray[np.float64]:
    """How often each value is in each of RESAMPLES resamples: one product gives every mean."""
    drawn = np.random.RandomState(_SEED).randint(0, size, (RESAMPLES, size), dtype=np.int64)
    places = (np.arange(RESAMPLES)[:, None] * size + drawn).ravel()
    counts = np.bincount(places, minlength=RESAMPLES * size)
    return counts.reshape(RESAMPLES, size).astype(np.float64)


@cache
def _signs(size: int) -> NDArray[np.float64]:
    drawn = np.random.RandomState(_SEED + 1).randint(0, 2, (RESAMPLES, size), dtype=np.int64)
    return (drawn * 2 - 1).astype(np.float64)
