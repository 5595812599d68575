"""Metrics that events move: declared beside the event, counted elsewhere.

A declaration needs no library that counts. ``fallback_tier.observing`` makes the metrics of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, NamedTuple

#: Where a label has to say something, and nothing is to be said.
NONE: Final = "none"


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric. ``says`` is its help text; ``buckets`` are a histogram's, in seconds.

    ``zeros``: label values that are 0 before the first event, so that a rate is right from that one on.
    ``chosen``: labels whose values others choose (a gate's name): whoever counts bounds their number.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    says: str
    labels: tuple[str, ...] = ()
    zeros: tuple[tuple[str, ...], ...] = ()
    chosen: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Move(NamedTuple):
    """What one event does to a metric.

    ``add`` and ``set`` are of counters and gauges, ``observe`` is of histograms. ``begin`` and ``end``: the
    time between two events of a gate transition is observed, as the audit trail dates them.
    """

    metric: Metric
    labels: tuple[str, ...] = ()
    value: float = 1
    action: Literal["add", "set", "observe", "begin", "end"] = "add"


def zeros(*vocabularies: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return every combination of these labels' values."""
    return tuple(tuple(map(str, values)) for values in product(*vocabularies))
