"""What every campaign against the audit trail is given, and what it hands back."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

#: Told after each case: how many were done, how many there are.
Told = Callable[[int, int], object]


class Skipped(Exception):  # noqa: N818 (not a failure)
    """This campaign can't run here, and why."""


class BrokenRecordError(AssertionError):
    """The record did not hold: a sentence with the seed and the case that show it again."""


@dataclass
class Ask:
    """One run of a campaign. Case number n draws from ``chance(n)`` alone, so it can be repeated alone."""

    count: int
    place: Path
    seed: int = 1
    backend: str = "sqlite"
    told: Told = lambda done, total: None
    first: int = 0
    #: When to begin no further case (``time.monotonic``).
    until: float = inf
    #: Which of how many processes this is, that share the cases.
    worker: int = 0
    workers: int = 1

    def chance(self, case: int | str) -> random.Random:
        return random.Random(f"{self.seed}/{case}")

    def mine(self, number: int) -> bool:
        """Whether this process does what has that number; each number is one process's."""
        return number % self.workers == self.worker

    @property
    def cases(self) -> Iterator[int]:
        for case in range(self.first, self.first + self.count):
            if time.monotonic() > self.until:
                return
            if self.mine(case):
                yield case

    def broken(self, case: int, why: str) -> BrokenRecordError:
        return BrokenRecordError(f"case {case} of seed {self.seed} ({self.backend}): {why}")


@dataclass
class Tally:
    """What a campaign did: ``cases`` in all, how many of each sort, and what a reader should know."""

    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    #: How many cases there are at all, where they can be counted.
    possible: int | None = None


Campaign = Callable[[Ask], Tally]
