"""From an event of the record to the metrics that it moves.

The record is the one source: what another process did counts as much as what this one did, and a restart
counts the same events again, from the first.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fallback_audit.events import (
    AnswerReused,
    AppendFlagged,
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    BudgetReached,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    GroundingJudged,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelFailed,
    PatchProposed,
    RagSkippedOnRetry,
    RecipeEvaluated,
    RetrievalQueried,
    SandboxDisabled,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.vocabulary import CallType, GateStatus, RefusalReason
from fallback_tier.observing.families import DIRECTIONS, Families, Few

#: Fixes whose last event is remembered, to know how long retrieval took: far more than run at once.
MAX_REMEMBERED = 1_000

#: Where a label has to say something, and nothing is to be said.
NONE = "none"


class Counting:
    """Moves the metrics. Not for several threads at once."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._gate, self._ecosystem = Few(), Few()
        self._asked_at: OrderedDict[str, datetime] = OrderedDict()
        self._judge_failing = 0
        self._takers: dict[str, Callable[[Any, StoredEvent], None]] = {
            FixStarted.__name__: self._fix_started,
            FixVerified.__name__: self._accepted("verified"),
            FixPatched.__name__: self._accepted("patched"),
            FixRefused.__name__: self._refused,
            FixEscalated.__name__: self._ended("escalated"),
            AttemptStarted.__name__: self._attempt_started,
            AttemptRefused.__name__: self._attempt_refused,
            AttemptFailed.__name__: self._attempt_failed,
            RagSkippedOnRetry.__name__: self._rag_skipped,
            RecipeEvaluated.__name__: self._retrieval_begins,
            RetrievalQueried.__name__: self._retrieved,
            PatchProposed.__name__: self._proposed,
            GateJudged.__name__: self._judged_by_gate,
            SandboxDisabled.__name__: self._one(families.sandbox_disabled.inc),
            ModelAnswered.__name__: self._answered,
            ModelFailed.__name__: self._failed,
            AnswerReused.__name__: self._reused,
            GroundingJudged.__name__: self._judged,
            LowConfidenceFlagged.__name__: self._one(families.low_confidence.inc),
            BudgetReached.__name__: self._budget_reached,
            AppendFlagged.__name__: self._one(families.flagged.inc),
        }

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of events that move a metric."""
        return frozenset(self._takers)

    def take(self, stored: StoredEvent) -> None:
        """Count one event. Each must come once, in the record's order."""
        taker = self._takers.get(stored.kind)
        if taker is not None:
            taker(stored.payload, stored)

    def begin_again(self) -> None:
        """From zero, as after a restart, which Prometheus knows."""
        self._asked_at.clear()
        self._judge_failing = 0
        self._families.begin_again()

    @staticmethod
    def _one(increment: Callable[[], None]) -> Callable[[object, StoredEvent], None]:
        return lambda _event, _stored: increment()

    # --- Fixes ------------------------------------------------------------------------------------

    def _fix_started(self, event: FixStarted, _: StoredEvent) -> None:
        self._families.fixes_started.labels(self._ecosystem(event.ecosystem)).inc()

    def _accepted(self, outcome: str) -> Callable[[FixVerified | FixPatched, StoredEvent], None]:
        def take(event: FixVerified | FixPatched, _: StoredEvent) -> None:
            self._families.fixes_ended.labels(outcome, NONE).inc()
            self._families.tier_outcomes.labels(event.tier.value, outcome).inc()

        return take

    def _refused(self, event: FixRefused, stored: StoredEvent) -> None:
        outcome = "unknown" if event.reason is RefusalReason.UNKNOWN else "refused"
        self._ended(outcome)(event, stored)

    def _ended(self, outcome: str) -> Callable[[FixRefused | FixEscalated, StoredEvent], None]:
        def take(event: FixRefused | FixEscalated, _: StoredEvent) -> None:
            self._families.fixes_ended.labels(outcome, event.reason.value).inc()

        return take

    # --- Attempts ---------------------------------------------------------------------------------

    def _attempt_started(self, event: AttemptStarted, _: StoredEvent) -> None:
        self._families.attempts.inc()
        if event.prior_attempt_count:
            self._families.retries.inc()

    def _attempt_refused(self, event: AttemptRefused, _: StoredEvent) -> None:
        self._families.attempt_refusals.labels(event.reason.value).inc()

    def _attempt_failed(self, event: AttemptFailed, _: StoredEvent) -> None:
        self._families.attempt_failures.labels(event.failure_kind.value).inc()
        if event.tier is not None:
            self._families.tier_outcomes.labels(event.tier.value, "failed").inc()

    def _rag_skipped(self, event: RagSkippedOnRetry, _: StoredEvent) -> None:
        self._families.rag_skipped.labels(event.last_failure_kind.value).inc()

    def _retrieval_begins(self, _: RecipeEvaluated, stored: StoredEvent) -> None:
        """The next thing that an attempt does after its recipe's no; the record dates both."""
        self._asked_at[stored.scope.gate_transition_id] = _when(stored)
        self._asked_at.move_to_end(stored.scope.gate_transition_id)
        while len(self._asked_at) > MAX_REMEMBERED:
            self._asked_at.popitem(last=False)

    def _retrieved(self, event: RetrievalQueried, stored: StoredEvent) -> None:
        began = self._asked_at.pop(stored.scope.gate_transition_id, None)
        if began is not None:
            took = max(0.0, (_when(stored) - began).total_seconds())  # clocks are set back
            self._families.rag_phase.labels(event.verdict.value).observe(took)

    def _proposed(self, event: PatchProposed, _: StoredEvent) -> None:
        if event.taken_from is None:  # else it was proposed, and counted, before
            self._families.tier_outcomes.labels(event.tier.value, "proposed").inc()

    def _judged_by_gate(self, event: GateJudged, _: StoredEvent) -> None:
        gate = self._gate(event.gate)
        self._families.gate_verdicts.labels(gate, event.status.value).inc()
        self._families.gate_duration.labels(gate).observe(event.duration_ms / 1000)
        if event.status is GateStatus.FAILED:
            why = NONE if event.failure_kind is None else event.failure_kind.value
            self._families.gate_failures.labels(gate, why).inc()

    # --- Models -----------------------------------------------------------------------------------

    def _answered(self, event: ModelAnswered, _: StoredEvent) -> None:
        call = event.call_type.value
        self._families.calls.labels(call, "answered").inc()
        self._families.call_duration.labels(call).observe(event.duration_ms / 1000)
        counts = (
            event.input_tokens,
            event.output_tokens,
            event.cache_read_tokens,
            event.cache_write_tokens,
        )
        for direction, count in zip(DIRECTIONS, counts, strict=True):
            self._families.tokens.labels(call, direction).inc(count)
        if event.cost_usd_estimate is not None:
            self._families.cost.labels(call).inc(float(event.cost_usd_estimate))

    def _failed(self, event: ModelFailed, _: StoredEvent) -> None:
        call = event.call_type.value
        why = NONE if event.failure is None else event.failure.value
        self._families.calls.labels(call, "failed").inc()
        self._families.model_failures.labels(call, why).inc()
        if event.call_type is CallType.JUDGE:
            self._judge_failing += 1
            self._families.judge_failing.set(self._judge_failing)

    def _reused(self, event: AnswerReused, _: StoredEvent) -> None:
        self._families.calls.labels(event.call_type.value, "reused").inc()

    def _judged(self, event: GroundingJudged, _: StoredEvent) -> None:
        self._families.judgements.labels("true" if event.supported else "false").inc()
        self._judge_failing = 0
        self._families.judge_failing.set(0)

    def _budget_reached(self, event: BudgetReached, _: StoredEvent) -> None:
        self._families.budget_refusals.labels(event.limit.value).inc()


def _when(stored: StoredEvent) -> datetime:
    return datetime.fromisoformat(stored.recorded_at)
