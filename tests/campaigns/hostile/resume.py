"""kill -9 everywhere, as a campaign.

``python -m tests.campaigns.hostile.resume [--boundaries N] [--pairs N]``

Every boundary of two stories, or so many of them, drawn by ``--seed``; then random pairs and triples of
kills: a run is killed, and so is the one that resumes it. Prints how far it is, stops at the first fix
that ends otherwise.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.fakes.crashing import Kill, boundaries
from tests.integration.crash_scenario import CrashScenario, Ended, check_killed

#: Seconds between two lines that say how far it is: whoever waits sees that it does not hang.
_TELL_AGAIN_S = 30.0


def _tell(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def _check(whole: CrashScenario, expected: Ended, place: Path, *kills: Kill) -> None:
    check_killed(whole, expected, place, *kills)
    shutil.rmtree(place)


def run(
    place: Path, *, long: bool, pairs: int, seed: int, limit: int | None = None
) -> tuple[int, int]:
    """One story: at how many of its boundaries it was killed, of how many. ``limit`` None: at all."""
    whole = CrashScenario(place / "whole", long=long)
    expected = whole.ended(whole.fix())
    every = boundaries(len(whole.events))
    chance = random.Random(seed)
    chosen = every if limit is None else chance.sample(every, min(limit, len(every)))
    cases = [(kill,) for kill in chosen]
    cases += [
        tuple(chance.choice(every[2:]) for _ in range(chance.choice([2, 3]))) for _ in range(pairs)
    ]
    name, told = "long" if long else "short", time.monotonic()
    for number, kills in enumerate(cases):
        if time.monotonic() > told + _TELL_AGAIN_S:
            told = time.monotonic()
            _tell(f"{name} story: {number} of {len(cases)}")
        _check(whole, expected, place / "scenario", *kills)
    _tell(
        f"{name} story: {len(chosen)} boundaries of {len(every)}, and {pairs} runs that were killed again"
        f" while they resumed: the same end each time (seed {seed})"
    )
    return len(chosen), len(every)


def main() -> None:
    """The whole campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boundaries", type=int, metavar="N", help="of each story; all without it")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for long in (False, True):
        with tempfile.TemporaryDirectory() as place:
            limits = {"pairs": given.pairs, "limit": given.boundaries}
            run(Path(place), long=long, seed=given.seed, **limits)


if __name__ == "__main__":
    main()
