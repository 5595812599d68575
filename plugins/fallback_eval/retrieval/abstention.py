"""Does a retriever know when it has nothing? A query is *answerable* or a *nothing here* one."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Routed:
    """What the router made of one query; a higher ``score`` speaks for an answer."""

    score: float
    missed: bool
    nothing_here: bool


@dataclass(frozen=True)
class Abstention:
    """``rightly``: share of the nothing-here queries that missed. ``wrongly``: share of the
    answerable ones that did. ``auroc``: chance that an answerable query has a higher score than a
    nothing-here one. ``free``: share of nothing-here queries below every answerable one: what a floor
    could refuse at no cost. None where there are no such queries."""

    rightly: float | None
    wrongly: float | None
    auroc: float | None
    free: float | None


@dataclass(frozen=True)
class Operating:
    """One floor: what it would refuse of either kind."""

    floor: float
    rightly: float
    wrongly: float


def abstention(routed: Sequence[Routed]) -> Abstention:
    """The figures of one variant."""
    nothing, answerable = _sides(routed)
    return Abstention(
        _share([one.missed for one in nothing]),
        _share([one.missed for one in answerable]),
        auroc([one.score for one in answerable], [one.score for one in nothing]),
        _free([one.score for one in answerable], [one.score for one in nothing]),
    )


def auroc(positive: Sequence[float], negative: Sequence[float]) -> float | None:
    """Area under the ROC curve, ties counted half (Mann and Whitney's U over all pairs)."""
    if not positive or not negative:
        return None
    won = sum((one > other) + (one == other) / 2 for one in positive for other in negative)
    return won / (len(positive) * len(negative))


def operating_curve(routed: Sequence[Routed]) -> list[Operating]:
    """For each floor that changes anything: what falls below it. Empty without both kinds."""
    nothing, answerable = _sides(routed)
    if not nothing or not answerable:
        return []
    return [
        Operating(
            floor,
            sum(one.score < floor for one in nothing) / len(nothing),
            sum(one.score < floor for one in answerable) / len(answerable),
        )
        for floor in sorted({one.score for one in routed})
    ]


def _sides(routed: Sequence[Routed]) -> tuple[list[Routed], list[Routed]]:
    nothing = [one for one in routed if one.nothing_here]
    return nothing, [one for one in routed if not one.nothing_here]


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _free(answerable: Sequence[float], nothing: Sequence[float]) -> float | None:
    if not answerable or not nothing:
        return None
    return sum(score < min(answerable) for score in nothing) / len(nothing)
