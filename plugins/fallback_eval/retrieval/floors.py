"""Where a floor lies: just below the lowest score of any candidate that was judged relevant.

A floor is a safety bound and no tuned optimum: nothing that a reader called relevant may fall below
it. What it keeps out is then measured (``trade_off``), not chosen.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fallback_plugins.solved_examples.search.settings import Mode
from fallback_tier.retrieval import Floor

#: Floors are cut to so many decimal places: float noise of another machine stays above them.
PLACES = 3


@dataclass(frozen=True)
class JudgedRanking:
    """One question's candidates as they were ranked: the score in question, and the grade.

    ``answerable``: somebody found a relevant record for it (anywhere in the memory).
    """

    question: str
    candidates: Sequence[tuple[float, int]]
    answerable: bool

    @property
    def best(self) -> float:
        """The highest score: what the routing floor is held against; -inf without a candidate."""
        return max((score for score, _ in self.candidates), default=-math.inf)

    def relevant(self, k: int) -> list[float]:
        """Scores of the relevant ones among the first ``k``: those that a prompt would show."""
        return [score for score, grade in self.candidates[:k] if grade > 0]


@dataclass(frozen=True)
class TradeOff:
    """What a routing floor at ``value`` does. ``kept``: share of the questions with a relevant record
    in their first k that are still answered; ``missed``: share of those with nothing to find that
    miss."""

    value: float
    kept: float
    missed: float


def floors(
    rankings: Sequence[JudgedRanking], *, score: str, mode: Mode, k: int
) -> tuple[Floor, Floor]:
    """The routing and the chunk floor. Raises ValueError where nothing relevant was ever ranked.

    Routing: below the lowest best score of a question that has a relevant one in its first ``k``.
    Chunk: below the lowest score of a relevant one in the first ``k`` of any question.
    """
    answered = [ranking for ranking in rankings if ranking.relevant(k)]
    if not answered:
        raise ValueError("no relevant candidate was ranked: there is nothing to set a floor below")
    routing = min(ranking.best for ranking in answered)
    chunk = min(score for ranking in answered for score in ranking.relevant(k))
    return _floor("routing", routing, score, mode), _floor("chunk", chunk, score, mode)


def trade_off(
    rankings: Sequence[JudgedRanking], values: Iterable[float], *, k: int
) -> list[TradeOff]:
    """The curve that a reader needs to judge a routing floor."""
    answered = [ranking.best for ranking in rankings if ranking.relevant(k)]
    nothing = [ranking.best for ranking in rankings if not ranking.answerable]
    return [
        TradeOff(
            value,
            _share(best >= value for best in answered),
            _share(best < value for best in nothing),
        )
        for value in values
    ]


def _floor(name: Literal["routing", "chunk"], least: float, score: str, mode: Mode) -> Floor:
    value = math.floor(least * 10**PLACES) / 10**PLACES
    return Floor(name=name, score=score, mode=mode, value=value)


def _share(hits: Iterable[bool]) -> float:
    every = list(hits)
    return sum(every) / len(every) if every else math.nan
