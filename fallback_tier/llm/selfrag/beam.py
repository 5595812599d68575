"""Beam search over segments, without a word to any model: what is kept, what is finished, what wins.

After the segment-level beam search of Asai et al. 2023 (Self-RAG, section 3.3). A path is as good as
the *mean* of its segments' scores, so that a longer plan is neither better nor worse for its length.
Equal scores are ordered by position, never by arrival: the same scores give the same plan.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, TypeVar

SegmentT = TypeVar("SegmentT")


@dataclass(frozen=True)
class Path(Generic[SegmentT]):
    """Segments in order, each with its score."""

    segments: tuple[SegmentT, ...] = ()
    scores: tuple[float, ...] = ()

    @property
    def score(self) -> float:
        """The mean of the scores; of the empty path, 0."""
        return fmean(self.scores) if self.scores else 0.0

    def then(self, segment: SegmentT, score: float) -> "Path[SegmentT]":
        """One segment longer."""
        return Path((*self.segments, segment), (*self.scores, score))


@dataclass(frozen=True)
class Scored(Generic[SegmentT]):
    """A valid continuation of path ``parent`` (its place in the frontier). ``is_final``: it ends it."""

    parent: int
    segment: SegmentT
    score: float
    is_final: bool


class Beam(Generic[SegmentT]):
    """The state of one search. ``frontier``: the paths to continue, best first; at first the empty one."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.frontier: tuple[Path[SegmentT], ...] = (Path(),)
        self._finished: list[Path[SegmentT]] = []
        self._stuck: list[Path[SegmentT]] = []
        self._seen: set[Hashable] = set()

    def is_new(self, key: Hashable) -> bool:
        """Whether no path with this key came before; from now on one has. Scores belong to new ones."""
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def advance(self, scored: Sequence[Scored[SegmentT]]) -> tuple[bool, ...]:
        """One step: of all continuations the best ``width`` are kept. Says which.

        A kept one that is final is finished; the others are the next frontier. A path that nothing
        continues has ended unfinished.
        """
        paths = [self.frontier[one.parent].then(one.segment, one.score) for one in scored]
        order = sorted(range(len(scored)), key=lambda place: (-paths[place].score, place))
        kept = order[: self.width]
        continued = {one.parent for one in scored}
        self._stuck += [path for place, path in enumerate(self.frontier) if place not in continued]
        self._finished += [paths[place] for place in kept if scored[place].is_final]
        self.frontier = tuple(paths[place] for place in kept if not scored[place].is_final)
        return tuple(place in kept for place in range(len(scored)))

    @property
    def has_finished(self) -> bool:
        """Some path is finished: the best one is, then."""
        return bool(self._finished)

    def best(self) -> Path[SegmentT] | None:
        """The best finished path; if none is, the best that has a segment; None: there is none.

        Of equal ones, the one that ended first.
        """
        ended = self._finished or [path for path in (*self._stuck, *self.frontier) if path.segments]
        return max(ended, key=lambda path: path.score, default=None)
