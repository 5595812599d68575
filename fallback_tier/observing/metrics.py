"""Metrics: names, labels, buckets; counting events of the audit trail; Prometheus' text and JSON.

``docs/observability.md`` says what each is for. One object holds them all, over a registry that is passed
in: two services in one process, or two tests, don't meet. Every label has few values: closed vocabularies,
route templates, or ``Few``.

What an event moves is declared with it (``Event.moves``); the rest is declared here. The audit trail is the
one source: events of other processes count as much as this process's own, and a restart counts the same
events again, from the first.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from fallback_audit.checkpoints.log import CheckpointLog
from fallback_audit.errors import AuditError
from fallback_audit.events import KINDS, METRICS, Event
from fallback_audit.metrics import Metric, Move
from fallback_audit.ports import StoredEvent
from fallback_tier.errors import FallbackError
from fallback_tier.observing.following import Follower
from fallback_tier.observing.record import ChainLag, chain_lag
from fallback_tier.wiring.trail import ReadOnlyTrail

AnyMetric = Counter | Gauge | Histogram

#: Maximum number of distinct values of a label that others choose (a gate's name, a model's).
_MAX_LABEL_VALUES = 50

#: Maximum number of characters of such a value.
_MAX_LABEL_CHARS = 60

#: Replaces all later values.
_OTHER = "other"

#: Buckets (seconds): answers take milliseconds; streams last for hours.
_HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

#: Maximum number of gate transitions whose last begin is remembered for durations: far more than run at
#: once.
_MAX_REMEMBERED = 1_000

#: The number of fixes per state.
QueueDepth = Callable[[], Mapping[Any, int]]


class Few:
    """Values for a label: the first ones are unchanged, every later one becomes ``other``."""

    def __init__(self, limit: int = _MAX_LABEL_VALUES) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """Return the label for this value."""
        value = value[:_MAX_LABEL_CHARS]
        if value not in self._seen:
            if len(self._seen) >= self._limit:
                return _OTHER
            self._seen.add(value)
        return value


class Families:
    """All our metrics. Raises ValueError if the registry has one of these names already.

    ``moved``: the metrics that events of the audit trail change.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._http()
        self.moved: dict[Metric, AnyMetric] = {metric: self._made(metric) for metric in METRICS}
        self._record()
        self._zeros()

    @property
    def all(self) -> tuple[AnyMetric, ...]:
        """Return all metrics, in the order of the documentation page."""
        direct = [metric for metric in vars(self).values() if isinstance(metric, AnyMetric)]
        return (self.http_requests, self.http_duration, *self.moved.values(), *direct[2:])

    def begin_again(self) -> None:
        """Reset the metrics that events change to their state before the first event."""
        for declared, metric in self.moved.items():
            if declared.labels:
                metric.clear()
            elif isinstance(metric, Counter):
                metric.reset()
            elif isinstance(metric, Gauge):
                metric.set(0)
        self._zeros()

    def _zeros(self) -> None:
        """Create labelled metrics with value zero, so that a rate is right from the first event on."""
        for declared, metric in self.moved.items():
            for labels in declared.zeros:
                metric.labels(*labels)

    def _made(self, declared: Metric) -> AnyMetric:
        name, description, labels = declared.name, declared.says, declared.labels
        if declared.kind == "counter":
            return self._counter(name, description, *labels)
        if declared.kind == "gauge":
            return self._gauge(name, description, *labels)
        return self._histogram(name, description, declared.buckets, *labels)

    def _counter(self, name: str, description: str, *labels: str) -> Counter:
        return Counter(name, description, labels, registry=self.registry)

    def _gauge(self, name: str, description: str, *labels: str) -> Gauge:
        return Gauge(name, description, labels, registry=self.registry)

    def _histogram(
        self, name: str, description: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, description, labels, registry=self.registry, buckets=buckets)

    def _http(self) -> None:
        self.http_requests = self._counter(
            "http_requests_total", "Requests answered.", "method", "route", "status"
        )
        self.http_duration = self._histogram(
            "http_request_duration_seconds",
            "From a request's arrival to the end of its answer; event streams are not in it.",
            _HTTP_BUCKETS,
            "method",
            "route",
        )

    def _record(self) -> None:
        self.chain_events = self._gauge(
            "fallback_tier_chain_events", "Number of the record's last event."
        )
        self.chain_lag = self._gauge(
            "fallback_tier_chain_lag_events", "Events that no checkpoint covers."
        )
        self.chain_lag_seconds = self._gauge(
            "fallback_tier_chain_lag_seconds", "Age of the oldest of them; 0 where there is none."
        )
        self.trail_behind = self._gauge(
            "fallback_tier_trail_behind_events", "Events that these metrics have not counted yet."
        )
        self.trail_readable = self._gauge(
            "fallback_tier_trail_readable",
            "1: the record could be read when it was last asked for.",
        )
        self.queue_depth = self._gauge(
            "fallback_tier_queue_depth", "Fixes that were submitted, by where they stand.", "state"
        )
        self.check_ok = self._gauge(
            "fallback_tier_check_ok", "A check of readiness: 1 passed, 0 failed.", "check"
        )
        self.ready = self._gauge("fallback_tier_ready", "1: every check that counts has passed.")
        self.build = self._gauge(
            "fallback_tier_build_info", "1, with the release in its label.", "version"
        )


class Counting:
    """Moves the metrics. Not thread-safe."""

    #: The kinds of events that move a metric.
    kinds = frozenset(kind.__name__ for kind in KINDS if kind.moves is not Event.moves)

    def __init__(self, families: Families) -> None:
        self._families = families
        self._few: defaultdict[str, Few] = defaultdict(Few)
        self._began: OrderedDict[tuple[Metric, str], datetime] = OrderedDict()

    def take(self, stored: StoredEvent) -> None:
        """Count one event. Each must come once, in the audit trail's order."""
        for move in stored.payload.moves():
            self._apply(move, stored)

    def begin_again(self) -> None:
        """Start from zero, as after a restart, which Prometheus handles."""
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
            # A clock may have been set back.
            value = max(0.0, (_when(stored) - began).total_seconds())
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
        while len(self._began) > _MAX_REMEMBERED:
            self._began.popitem(last=False)


def _when(stored: StoredEvent) -> datetime:
    return datetime.fromisoformat(stored.recorded_at)


@dataclass(frozen=True)
class Figures:
    """The metrics, which follow the audit trail: ``refresh`` reads it first."""

    families: Families
    follower: Follower
    open_reader: Callable[[], ReadOnlyTrail | None]
    log: CheckpointLog
    _: KW_ONLY
    queue_depth: QueueDepth | None = None

    def __post_init__(self) -> None:
        self.families.build.labels(version("fallback-tier")).set(1)

    def refresh(self) -> None:
        """Read new events. An error of the audit trail is not raised: a metric shows it."""
        families, position = self.families, self.follower.catch_up()
        families.trail_behind.set(position.behind)
        readable = position.problem is None
        try:
            lag = self._lag()
        except AuditError:
            readable = False
        else:
            families.chain_events.set(lag.last)
            families.chain_lag.set(lag.events)
            families.chain_lag_seconds.set(lag.seconds)
        families.trail_readable.set(readable)
        self._look_at_the_queue()

    def _look_at_the_queue(self) -> None:
        """Set the number of fixes by state; if the queue can't be read, there is no value rather than
        an old one.
        """
        self.families.queue_depth.clear()
        if self.queue_depth is not None:
            with suppress(FallbackError):
                for state, count in self.queue_depth().items():
                    self.families.queue_depth.labels(str(state)).set(count)

    def prometheus(self, accept: str = "") -> tuple[bytes, str]:
        """Return the text in a format that the scraper accepts, and its content type. ``refresh`` first."""
        encode, content_type = choose_encoder(accept)
        return encode(self.families.registry), content_type

    def document(self) -> dict[str, Any]:
        """Return the metrics as JSON. ``refresh`` first."""
        return _as_document(self.families.registry)

    def _lag(self) -> ChainLag:
        reader = self.open_reader()
        if reader is None:
            return ChainLag()
        with closing(reader):
            return chain_lag(reader, self.log)


def _as_document(registry: CollectorRegistry) -> dict[str, Any]:
    """Return ``{name: {type, help, samples: [{labels, value}]}}``; for a histogram its sum and count."""
    metrics: dict[str, Any] = {}
    for family in registry.collect():
        samples = [
            {"name": sample.name, "labels": dict(sample.labels), "value": sample.value}
            for sample in family.samples
            if not sample.name.endswith(("_bucket", "_created"))
        ]
        metrics[family.name] = {
            "type": family.type,
            "help": family.documentation,
            "samples": samples,
        }
    return {"metrics": metrics}
