"""Metrics that events change: declared next to the event, counted elsewhere.

A declaration needs no metrics library. ``fallback_tier.observing`` makes the metrics from the declarations.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, NamedTuple

#: Value of a label if there is nothing to say.
NONE: Final = "none"


@dataclass(frozen=True, eq=False)
class Metric:
    """One metric. ``says`` is its help text; ``buckets`` are a histogram's, in seconds.

    ``zeros``: label values that are 0 before the first event, so that rates are right from that event on.
    ``chosen``: labels whose values others choose (a gate's name): the code that counts bounds their number.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    says: str
    labels: tuple[str, ...] = ()
    zeros: tuple[tuple[str, ...], ...] = ()
    chosen: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class Move(NamedTuple):
    """The change of a metric by one event.

    ``add`` and ``set`` apply to counters and gauges, ``observe`` to histograms. ``begin`` and ``end``:
    observe the time between two events of a gate transition, by their times in the audit trail.
    """

    metric: Metric
    labels: tuple[str, ...] = ()
    value: float = 1
    action: Literal["add", "set", "observe", "begin", "end"] = "add"


def zeros(*vocabularies: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return every combination of these labels' values."""
    return tuple(tuple(map(str, values)) for values in product(*vocabularies))
