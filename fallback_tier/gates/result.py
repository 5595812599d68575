"""How a fix ends: verified, refused or escalated."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from fallback_audit.events import Digest
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import EscalationReason, RefusalReason
from fallback_tier.outcome import Applied, AttemptSummary
from fallback_tier.ports import GateVerdict


class _Ended(Frozen):
    fix_id: str
    gate_transition_id: str
    advisory_id: str
    attempts: int
    prior_attempts: tuple[AttemptSummary, ...] = ()
    verdicts: tuple[GateVerdict, ...] = ()


class Verified(_Ended):
    """Every gate that ran on this patch passed, at least one of them a proof."""

    outcome: Literal["verified"] = "verified"
    application: Applied


class RefusedFix(_Ended):
    """No patch can be had."""

    outcome: Literal["refused"] = "refused"
    reason: RefusalReason
    sentence: str


class Escalated(_Ended):
    """A person is asked: a typed question, with the evidence."""

    outcome: Literal["escalated"] = "escalated"
    reason: EscalationReason
    question: str
    evidence: tuple[Digest, ...] = ()


FixResult = Annotated[Verified | RefusedFix | Escalated, Field(discriminator="outcome")]
result_adapter: TypeAdapter[FixResult] = TypeAdapter(FixResult)
