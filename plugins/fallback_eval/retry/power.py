"""Which difference a paired comparison of two policies can show, by exact sums.

A pair is a failing first attempt that both policies continued from. Concordant pairs (both fix it, or
neither does) say nothing about the difference, so what counts is the share of discordant ones.
"""

from functools import cache
from math import comb
from typing import Final

#: A difference is shown if the exact two-sided test is below it …
ALPHA: Final = 0.05
#: … and can be shown if that happens with this chance.
POWER: Final = 0.8

#: Differences are tried in steps of one percentage point.
_STEP: Final = 0.01


def sign_test(wins: int, losses: int) -> float:
    """Return the two-sided exact p-value of discordant pairs (McNemar's exact test). 1 of no pairs."""
    pairs, fewer = wins + losses, min(wins, losses)
    tail = sum(comb(pairs, k) for k in range(fewer + 1)) / (1 << pairs)
    return min(1.0, 2 * tail)


def power_of(pairs: int, discordance: float, difference: float) -> float:
    """Return the chance that ``pairs`` show a ``difference`` of fix rates at ALPHA.

    ``discordance``: share of pairs that one policy alone fixes; at least the difference. Raises ValueError.
    """
    if not 0 <= difference <= discordance <= 1:
        raise ValueError("the difference is at most the discordance, and both are shares")
    wins = (1 + difference / discordance) / 2 if discordance else 0.5
    return sum(_chance(pairs, m, discordance) * _shown(m, wins) for m in range(pairs + 1))


def smallest_difference(pairs: int, discordance: float) -> float | None:
    """Return the smallest difference that ``pairs`` show with POWER; None: not even the largest."""
    steps = round(discordance / _STEP)
    for step in range(1, steps + 1):
        difference = min(step * _STEP, discordance)
        if power_of(pairs, discordance, difference) >= POWER:
            return difference
    return None


def _chance(pairs: int, m: int, share: float) -> float:
    return comb(pairs, m) * share**m * (1 - share) ** (pairs - m)


def _shown(m: int, wins: float) -> float:
    """Return the chance that ``m`` discordant pairs are significant, on either side."""
    few = _critical(m)
    if few < 0:
        return 0.0
    low = sum(_chance(m, k, wins) for k in range(few + 1))
    high = sum(_chance(m, k, wins) for k in range(m - few, m + 1))
    return low + high


@cache
def _critical(m: int) -> int:
    """Return the most losses of ``m`` pairs that are still significant; -1: none are."""
    return max((k for k in range(m // 2 + 1) if sign_test(k, m - k) < ALPHA), default=-1)
