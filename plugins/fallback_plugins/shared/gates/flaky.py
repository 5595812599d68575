"""Which failing tests are the patch's doing: told by what the same tests do at the base commit.

Rerunning with the patch alone would call a race that the patch brought in "flaky" (Luo et al., "An
Empirical Analysis of Flaky Tests", FSE 2014: a rerun hides, it does not explain). So a test counts as
flaky only where it was seen to fail *and* to pass at the base commit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: Runs of the base commit's suite, at most, to tell flaky from broken from sound: two beyond the one
#: that counts tests. A test that fails in half of all runs is seen both ways in three of four cases.
BASE_RUNS = 3

#: Further runs with the patch, for tests that are flaky at the base commit.
PATCHED_RERUNS = 2


@dataclass(frozen=True)
class SortedFailures:
    """Failing tests by what they do at the base commit; the three are disjoint."""

    #: Never failed there: the patch is to blame.
    new: tuple[str, ...]
    #: Failed in some runs, not in others.
    flaky: tuple[str, ...]
    #: Failed in every run.
    broken: tuple[str, ...]


def sort_failures(failing: Iterable[str], base: Sequence[frozenset[str]]) -> SortedFailures:
    """Sort failing tests by the tests that failed in each run of the base commit's suite.

    Without any such run nothing excuses a failure: all are new.
    """
    new, flaky, broken = [], [], []
    for test in sorted(set(failing)):
        times = sum(test in run for run in base)
        if not times:
            new.append(test)
        elif times < len(base):
            flaky.append(test)
        else:
            broken.append(test)
    return SortedFailures(tuple(new), tuple(flaky), tuple(broken))


def is_settled(failing: Iterable[str], base: Sequence[frozenset[str]]) -> bool:
    """Would further runs at the base commit change nothing? They can only make tests flaky."""
    return len(base) >= BASE_RUNS or not set(failing) - set(sort_failures(failing, base).flaky)
