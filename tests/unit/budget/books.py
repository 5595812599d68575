"""A trail of calls to write to, meters over it, and the time of day."""

from bisect import bisect
from datetime import UTC, datetime

from fallback_audit.events import (
    AnswerReused,
    AuditEvent,
    BudgetRaised,
    Charge,
    ModelAnswered,
    ModelCalled,
    ModelFailed,
)
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import (
    BudgetLimit,
    CallType,
    ModelFailureKind,
    PromptShape,
    Provenance,
)
from fallback_tier.budget.audited import AuditMeter
from fallback_tier.budget.meter import BudgetLimits, OverBudget
from fallback_tier.budget.prices import Prices
from tests.fakes.audit import NO_DIGEST, MemoryAudit

TODAY, YESTERDAY = "2026-03-02T12:00:00.000000Z", "2026-03-01T23:59:59.000000Z"


class Clock:
    """What time it is for the store and for the meter."""

    def __init__(self) -> None:
        self.now = TODAY

    def __call__(self) -> datetime:
        return datetime.fromisoformat(self.now).astimezone(UTC)


class Books:
    """A trail to write to, and meters over it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.audit = MemoryAudit(clock=lambda: self.clock.now)

    def meter(self, prices: Prices | None = None, **limits: str | int) -> AuditMeter:
        return AuditMeter(self.audit, BudgetLimits.model_validate(limits), prices, clock=self.clock)

    def limited(self, limit: BudgetLimit, cap: int) -> AuditMeter:
        limits = {limit.value: str(cap) if "usd" in limit.value else cap}
        return AuditMeter(self.audit, BudgetLimits.model_validate(limits), clock=self.clock)

    def called(self, call: int = 1, fix: str = "fix-1", **charge: int | str | None) -> None:
        reserved = Charge.model_validate({"tokens": 100, **charge})
        self._append(
            fix,
            ModelCalled(
                attempt=1,
                call=call,
                call_type=CallType.AUTHOR,
                model="test-model",
                provenance=Provenance.SCRIPTED,
                prompt_shape=PromptShape.INITIAL,
                prompt_sha256=NO_DIGEST,
                prompt_bytes=1,
                request_key=NO_DIGEST,
                reserved=reserved,
            ),
        )

    def answered(self, call: int = 1, fix: str = "fix-1", cost: str | None = None) -> None:
        self._append(
            fix,
            ModelAnswered(
                attempt=1,
                call=call,
                call_type=CallType.AUTHOR,
                input_tokens=10,
                output_tokens=5,
                cache_read_tokens=3,
                cache_write_tokens=2,
                cost_usd_estimate=cost,
                stop_reason="end_turn",
                answer_sha256=NO_DIGEST,
            ),
        )

    def failed(self, failure: ModelFailureKind, call: int = 1, fix: str = "fix-1") -> None:
        self._append(
            fix,
            ModelFailed(
                attempt=1, call=call, call_type=CallType.AUTHOR, reason="no", failure=failure
            ),
        )

    def raised(self, **caps: str | int) -> None:
        self._append("fix-1", BudgetRaised.model_validate({"by": "Ada", "reason": "go", **caps}))

    def reused(self) -> None:
        self._append(
            "fix-1",
            AnswerReused(
                attempt=1,
                call=1,
                call_type=CallType.AUTHOR,
                model="test-model",
                prompt_shape=PromptShape.INITIAL,
                request_key=NO_DIGEST,
                answer_sha256=NO_DIGEST,
                answer_evidence=NO_DIGEST,
            ),
        )

    def _append(self, fix: str, event: AuditEvent) -> None:
        self.audit.append(scope(fix), event)


def scope(fix: str = "fix-1") -> Scope:
    return Scope(fix_id=fix, gate_transition_id="gate-1")


def fits(meter: AuditMeter, tokens: int, cost: str | None = None, fix: str = "fix-1") -> bool:
    try:
        meter.check(scope(fix), Charge(tokens=tokens, cost_usd_estimate=cost))
    except OverBudget:
        return False
    return True


def left(meter: AuditMeter, fix: str = "fix-1", upto: int = 2_000) -> int:
    """The largest charge in tokens that still fits."""
    return bisect(range(upto + 1), x=False, key=lambda size: not fits(meter, size, fix=fix)) - 1
