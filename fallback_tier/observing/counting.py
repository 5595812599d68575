"""Count what events of the audit trail do to metrics.

The audit trail is the one source: what another process did counts as much as what this one did, and a
restart counts the same events again, from the first. What an event moves is declared with it
(``Event.moves``).
"""

from collections import OrderedDict, defaultdict
from datetime import datetime

from prometheus_client import Gauge, Histogram

from fallback_audit.events import KINDS, Event
from fallback_audit.metrics import Metric, Move
from fallback_audit.ports import StoredEvent
from fallback_tier.observing.families import Families, Few

#: Gate transitions whose last beginning is remembered, to know how long what began took: far more than run
#: at once.
MAX_REMEMBERED = 1_000


class Counting:
    """Moves the metrics. Not for several threads at once."""

    #: The kinds of events that move a metric.
    kinds = frozenset(kind.__name__ for kind in KINDS if kind.moves is not Event.moves)

    def __init__(self, families: Families) -> None:
        self._families = families
        self._few: defaultdict[str, Few] = defaultdict(Few)
        self._began: OrderedDict[tuple[Metric, str], datetime] = OrderedDict()

    def take(self, stored: StoredEvent) -> None:
        """Count one event. Each must come once, in the record's order."""
        for move in stored.payload.moves():
            self._apply(move, stored)

    def begin_again(self) -> None:
        """From zero, as after a restart, which Prometheus knows."""
        self._began.clear()
        self._families.begin_again()

    def _apply(self, move: Move, stored: StoredEvent) -> None:
        value, key = move.value, (move.metric, stored.scope.gate_transition_id)
        if move.action == "begin":
            self._remember(key, stored)
            return
        if move.action == "end":
            began = self._began.pop(key, None)
            if began is None:
                return
            value = max(0.0, (_when(stored) - began).total_seconds())  # clocks are set back
        metric = self._families.moved[move.metric]
        if move.labels:
            metric = metric.labels(*self._bounded(move))
        if isinstance(metric, Histogram):
            metric.observe(value)
        elif isinstance(metric, Gauge) and move.action == "set":
            metric.set(value)
        else:
            metric.inc(value)

    def _bounded(self, move: Move) -> list[str]:
        declared = move.metric
        return [
            self._few[label](value) if label in declared.chosen else value
            for label, value in zip(declared.labels, move.labels, strict=True)
        ]

    def _remember(self, key: tuple[Metric, str], stored: StoredEvent) -> None:
        self._began[key] = _when(stored)
        self._began.move_to_end(key)
        while len(self._began) > MAX_REMEMBERED:
            self._began.popitem(last=False)


def _when(stored: StoredEvent) -> datetime:
    return datetime.fromisoformat(stored.recorded_at)
