"""A closed system of workers: each takes the next fix and leads it through its phases, one after another.

Discrete events, by a heap of workers and the time at which each is free. What is shared is a ``Line``: one
server, first come first served. That is exact for lines whose customers arrive in the order of time, which
the heap sees to. No distribution is assumed: a fix is one of those that were measured, drawn at random.
"""

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Line:
    """One server. ``free_at``: when it has served everybody who came so far; ``busy``: seconds served."""

    free_at: float = 0.0
    busy: float = 0.0

    def serve(self, now: float, service: float) -> float:
        """When the customer who comes now has been served."""
        self.free_at = max(now, self.free_at) + service
        self.busy += service
        return self.free_at


@dataclass(frozen=True)
class Phase:
    """``cpu``: seconds of a core's work; ``pause``: seconds that nothing shared is needed; ``lines``: by
    name, the seconds that each takes to serve it, one after the other."""

    cpu: float = 0.0
    pause: float = 0.0
    lines: Mapping[str, float] = field(default_factory=dict)


#: What one fix is.
Fix = Sequence[Phase]


@dataclass(frozen=True)
class Machine:
    """Cores, and how many others want one all the time. ``cores`` None: each worker has its own."""

    cores: float | None = None
    others: float = 0.0

    def slowness(self, working: int) -> float:
        """How much longer a core's work takes while so many workers of ours want a core."""
        if self.cores is None:
            return 1.0
        return max(1.0, (self.others + working) / self.cores)


@dataclass(frozen=True)
class Outcome:
    """``busy``: by line, the share of the time that it served; ``workers_busy``: of all workers' time."""

    fixes: int
    workers: int
    seconds: float
    busy: Mapping[str, float]

    @property
    def per_hour(self) -> float:
        """Fixes an hour."""
        return self.fixes / self.seconds * 3_600


def simulate(
    kinds: Sequence[Fix], fixes: int, workers: int, machine: Machine = Machine(), seed: int = 1
) -> Outcome:
    """``fixes`` drawn from ``kinds`` by ``workers``, until all have ended."""
    draw = random.Random(seed)
    lines: dict[str, Line] = {name: Line() for kind in kinds for one in kind for name in one.lines}
    left, ended = fixes, 0.0
    # (time, number of the worker, its fix, the phase that follows)
    heap: list[tuple[float, int, Fix, int]] = []
    for number in range(min(workers, fixes)):
        heap.append((0.0, number, draw.choice(kinds), 0))
        left -= 1
    heapq.heapify(heap)
    while heap:
        now, number, fix, at = heap[0]
        if at == len(fix):
            ended = now
            if left == 0:
                heapq.heappop(heap)
                continue
            left -= 1
            fix, at = draw.choice(kinds), 0
        phase = fix[at]
        then = now
        for name, service in phase.lines.items():
            then = lines[name].serve(then, service)
        if phase.cpu:
            then += phase.cpu * machine.slowness(len(heap))
        heapq.heapreplace(heap, (then + phase.pause, number, fix, at + 1))
    return Outcome(fixes, workers, ended, {name: line.busy / ended for name, line in lines.items()})
