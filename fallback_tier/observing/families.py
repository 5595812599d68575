"""The metrics: names, labels, buckets. ``docs/observability.md`` says what each is for.

One object holds them all, over a registry that is passed in: two services in one process, or two tests,
don't meet. Every label has few values: closed vocabularies, route templates, or ``Few``.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    FailureKind,
    RetrievalVerdict,
    Tier,
)

#: Distinct values that a label may take which others choose (a gate's name, a model's).
MAX_LABEL_VALUES = 50

#: Characters of such a value.
MAX_LABEL_CHARS = 60

#: Stands for all that come after.
OTHER = "other"

#: Seconds. HTTP: answers of milliseconds; streams last for hours. Retrieval: a memory of thousands, to one
#: with reranking. Models: a short verdict, to a long answer of a slow server. Gates: to an hour.
HTTP_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
MODEL_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
GATE_BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

#: How a fix ends, and what became of a tier's patch.
FIX_OUTCOMES = ("verified", "patched", "refused", "unknown", "escalated")
TIER_OUTCOMES = ("proposed", "failed", "verified", "patched")

#: Kinds of tokens, as servers bill them.
DIRECTIONS = ("input", "output", "cache_read", "cache_write")


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
    """Every metric of ours. Raises ValueError where the registry has one of these names already."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        #: Those without labels.
        self._plain: list[Counter | Gauge | Histogram] = []
        self._http()
        before = set(vars(self))
        self._fixes()
        self._models()
        own = [value for name, value in vars(self).items() if name not in before]
        self._record()
        #: Those that the record's events move.
        self._moved: list[Counter | Gauge | Histogram] = [*own, self.flagged]
        self._zeros()

    def begin_again(self) -> None:
        """What the record's events move is as before the first of them."""
        for metric in self._moved:
            if metric not in self._plain:
                metric.clear()
            elif isinstance(metric, Counter):
                metric.reset()
            elif isinstance(metric, Gauge):
                metric.set(0)
        self._zeros()

    def _zeros(self) -> None:
        _at_zero(self.tier_outcomes, ((t, o) for t in Tier for o in TIER_OUTCOMES))
        _at_zero(self.rag_skipped, ((kind,) for kind in FailureKind))
        _at_zero(self.rag_phase, ((verdict,) for verdict in RetrievalVerdict))
        _at_zero(self.tokens, ((c, d) for c in CallType for d in DIRECTIONS))
        _at_zero(self.calls, ((c, o) for c in CallType for o in ("answered", "failed", "reused")))
        _at_zero(self.cost, ((call,) for call in CallType))
        _at_zero(self.budget_refusals, ((limit,) for limit in BudgetLimit))
        _at_zero(self.judgements, (("true",), ("false",)))

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        counter = Counter(name, says, labels, registry=self.registry)
        if not labels:
            self._plain.append(counter)
        return counter

    def _gauge(self, name: str, says: str, *labels: str) -> Gauge:
        gauge = Gauge(name, says, labels, registry=self.registry)
        if not labels:
            self._plain.append(gauge)
        return gauge

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

    def _fixes(self) -> None:
        self.fixes_started = self._counter(
            "fallback_tier_fixes_started_total", "Fixes that began.", "ecosystem"
        )
        self.fixes_ended = self._counter(
            "fallback_tier_fixes_ended_total", "Fixes that ended, and why.", "outcome", "reason"
        )
        self.attempts = self._counter("fallback_tier_attempts_total", "Attempts that began.")
        self.retries = self._counter(
            "fallback_tier_retries_total", "Those of them that were retries."
        )
        self.rag_skipped = self._counter(
            "fallback_tier_rag_skipped_total",
            "Retries that did without retrieval, by what had failed.",
            "last_failure_kind",
        )
        self.tier_outcomes = self._counter(
            "fallback_tier_tier_outcomes_total",
            "What became of a tier's patches.",
            "tier",
            "outcome",
        )
        self.attempt_refusals = self._counter(
            "fallback_tier_attempt_refusals_total", "Attempts without a patch, and why.", "reason"
        )
        self.attempt_failures = self._counter(
            "fallback_tier_attempt_failures_total", "Attempts that failed, and why.", "failure_kind"
        )
        self.gate_verdicts = self._counter(
            "fallback_tier_gate_verdicts_total", "Verdicts of gates.", "gate", "status"
        )
        self.gate_failures = self._counter(
            "fallback_tier_gate_failures_total",
            "Gates that failed a patch.",
            "gate",
            "failure_kind",
        )
        self.gate_duration = self._histogram(
            "fallback_tier_gate_duration_seconds", "What gates took.", GATE_BUCKETS, "gate"
        )
        self.sandbox_disabled = self._counter(
            "fallback_tier_sandbox_disabled_total", "Fixes whose gates ran without a sandbox."
        )
        self.rag_phase = self._histogram(
            "rag_phase_duration_seconds",
            "From the recipe's no to the memory's answer, as the record dates them.",
            RAG_BUCKETS,
            "verdict",
        )

    def _models(self) -> None:
        self.tokens = self._counter(
            "llm_tokens_total", "Tokens, as servers count them.", "call_type", "direction"
        )
        self.calls = self._counter(
            "llm_calls_total", "Model calls and their ends.", "call_type", "outcome"
        )
        self.call_duration = self._histogram(
            "llm_call_duration_seconds", "What answered calls took.", MODEL_BUCKETS, "call_type"
        )
        self.cost = self._counter(
            "llm_cost_usd_estimate_total", "Dollars, from dated list prices.", "call_type"
        )
        self.model_failures = self._counter(
            "llm_call_failures_total", "Calls without an answer, and why.", "call_type", "failure"
        )
        self.low_confidence = self._counter(
            "fallback_tier_low_confidence_total", "Patches that no judge found supported."
        )
        self.budget_refusals = self._counter(
            "fallback_tier_budget_refusals_total", "Calls that a cap did not let pass.", "limit"
        )
        self.judgements = self._counter(
            "fallback_tier_judgements_total", "Verdicts of the judge.", "supported"
        )
        self.judge_failing = self._gauge(
            "fallback_tier_judge_failing", "Calls of the judge that failed since its last verdict."
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
        self.flagged = self._counter(
            "fallback_tier_contract_breaches_total",
            "Events that broke a rule, recorded all the same.",
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


def _at_zero(metric: Counter | Histogram, values: Iterable[tuple[str, ...]]) -> None:
    """So that a rate is right from the first event on."""
    for labels in values:
        metric.labels(*(str(value) for value in labels))
