"""The metrics: names, labels, buckets. ``docs/observability.md`` says what each is for.

One object holds them all, over a registry that is passed in: two services in one process, or two tests,
don't meet. Every label has few values: closed vocabularies, route templates, or ``Few``. What events move
is declared with them (``fallback_audit.events``); the rest is declared here.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fallback_audit.events import METRICS
from fallback_audit.metrics import Metric

AnyMetric = Counter | Gauge | Histogram

#: Distinct values that a label may take which others choose (a gate's name, a model's).
MAX_LABEL_VALUES = 50

#: Characters of such a value.
MAX_LABEL_CHARS = 60

#: Stands for all that come after.
OTHER = "other"

#: Seconds: answers of milliseconds; streams last for hours.
HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Few:
    """Values for a label, as they come: the first ones as they are, every later one ``other``."""

    def __init__(self, limit: int = MAX_LABEL_VALUES) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """What stands in the label for this value."""
        value = value[:MAX_LABEL_CHARS]
        if value not in self._seen:
            if len(self._seen) >= self._limit:
                return OTHER
            self._seen.add(value)
        return value


class Families:
    """Every metric of ours. Raises ValueError where the registry has one of these names already.

    ``moved``: those that events of the audit trail move.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._http()
        self.moved: dict[Metric, AnyMetric] = {one: self._made(one) for one in METRICS}
        self._record()
        self._zeros()

    @property
    def all(self) -> tuple[AnyMetric, ...]:
        """Every metric, in the order in which the page has them."""
        own = [one for one in vars(self).values() if isinstance(one, AnyMetric)]
        return (self.http_requests, self.http_duration, *self.moved.values(), *own[2:])

    def begin_again(self) -> None:
        """What the record's events move is as before the first of them."""
        for declared, metric in self.moved.items():
            if declared.labels:
                metric.clear()
            elif isinstance(metric, Counter):
                metric.reset()
            elif isinstance(metric, Gauge):
                metric.set(0)
        self._zeros()

    def _zeros(self) -> None:
        """So that a rate is right from the first event on."""
        for declared, metric in self.moved.items():
            for labels in declared.zeros:
                metric.labels(*labels)

    def _made(self, declared: Metric) -> AnyMetric:
        name, says, labels = declared.name, declared.says, declared.labels
        if declared.kind == "counter":
            return self._counter(name, says, *labels)
        if declared.kind == "gauge":
            return self._gauge(name, says, *labels)
        return self._histogram(name, says, declared.buckets, *labels)

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(name, says, labels, registry=self.registry)

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        return Gauge(name, says, labels, registry=self.registry)

    def _histogram(
        self, name: str, says: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, says, labels, registry=self.registry, buckets=buckets)

    def _http(self) -> None:
        self.http_requests = self._counter(
            "http_requests_total", "Requests answered.", "method", "route", "status"
        )
        self.http_duration = self._histogram(
            "http_request_duration_seconds",
            "From a request's arrival to the end of its answer; event streams are not in it.",
            HTTP_BUCKETS,
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
