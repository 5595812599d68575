"""kill -9 everywhere, as a campaign: ``python -m tests.hostile.resume [--pairs N] [--seed N]``.

Every boundary of two stories, then random pairs and triples of kills: a run is killed, and so is the one
that resumes it. Prints a line a kind of check, stops at the first fix that ends otherwise.
"""

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.fakes.crashing import Kill, boundaries
from tests.integration.crash_scenario import CrashScenario, Ended, check_killed


def _tell(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _check(whole: CrashScenario, expected: Ended, place: Path, *kills: Kill) -> None:
    check_killed(whole, expected, place, *kills)
    shutil.rmtree(place)


def run(place: Path, *, long: bool, pairs: int, seed: int) -> None:
    """One story."""
    whole = CrashScenario(place / "whole", long=long)
    expected = whole.ended(whole.fix())
    every = boundaries(len(whole.events))
    for kill in every:
        _check(whole, expected, place / "scenario", kill)
    _tell(f"{'long' if long else 'short'} story: {len(every)} boundaries, the same end each time")
    chance = random.Random(seed)
    for _ in range(pairs):
        kills = [chance.choice(every[2:]) for _ in range(chance.choice([2, 3]))]
        _check(whole, expected, place / "scenario", *kills)
    _tell(f"  and {pairs} runs that were killed again while they resumed (seed {seed})")


def main() -> None:
    """The whole campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for long in (False, True):
        with tempfile.TemporaryDirectory() as place:
            run(Path(place), long=long, pairs=given.pairs, seed=given.seed)


if __name__ == "__main__":
    main()
