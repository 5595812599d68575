"""The end of a fix (verified, patched, refused or escalated), and the delivery of its patch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from fallback_audit.event_types import JudgedTests, ProvedProject
from fallback_audit.events import Charge, Digest, RecipeCandidateFailed
from fallback_audit.frozen import Frozen
from fallback_audit.vocabulary import (
    TESTS_GATE,
    EscalationReason,
    FailureKind,
    GateStatus,
    LadderStep,
    ProofLevel,
    RefusalReason,
    TestsLevel,
)
from fallback_tier.advisory import Advisory
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.outcome import Applied, AttemptSummary, CallUsage, StepDeclined, UnreadItem


class FailedCandidate(Frozen):
    """A patch of the recipe that gates refused, so that another one was tried (ADR-0048): the steps that
    led to it, and the gates that failed."""

    candidate: int
    steps: tuple[LadderStep, ...]
    failure_kind: FailureKind
    failing_gates: tuple[str, ...]
    patch_sha256: Digest

    @classmethod
    def of(cls, events: Sequence[RecipeCandidateFailed]) -> "tuple[FailedCandidate, ...]":
        """Return the candidates on record. Each one's steps are those that the next one leaves out."""
        before = ((), *(event.left_out for event in events))
        return tuple(
            cls(
                candidate=event.candidate,
                steps=tuple(step for step in event.left_out if step not in earlier),
                failure_kind=event.failure_kind,
                failing_gates=event.failing_gates,
                patch_sha256=event.patch_sha256,
            )
            for event, earlier in zip(events, before, strict=False)
        )

    @property
    def sentence(self) -> str:
        """One line about the candidate, for a summary."""
        steps = " and ".join(step.label for step in self.steps)
        gates = ", ".join(self.failing_gates)
        return f"candidate {self.candidate} ({steps}) failed at {gates}: {self.failure_kind}"


class _Ended(Frozen):
    """``usage`` is that of all attempts together, as the servers reported it; ``unreported``: the
    pre-charges of calls of which nobody learned what they used (a crash, a broken connection)."""

    fix_id: str
    gate_transition_id: str
    advisory_id: str
    attempts: int
    prior_attempts: tuple[AttemptSummary, ...] = ()
    failed_candidates: tuple[FailedCandidate, ...] = ()
    verdicts: tuple[GateVerdict, ...] = ()
    usage: tuple[CallUsage, ...] = ()
    unreported: Charge | None = None


class Verified(_Ended):
    """Every gate that ran on this patch passed, and one of them saw the flaw gone."""

    outcome: Literal["verified"] = "verified"
    application: Applied

    @property
    def proof_level(self) -> ProofLevel:
        """The level that the gates have shown; if none looked at versions, the attempt's own."""
        return shown_by(self.verdicts) or self.application.proof_level


class Patched(_Ended):
    """Every gate that ran on this patch passed, the base commit's tests among them; nothing shows the flaw
    gone."""

    outcome: Literal["patched"] = "patched"
    application: Applied

    @property
    def proof_level(self) -> ProofLevel:
        """Always tests alone."""
        return ProofLevel.TESTS_ONLY


#: The ends with a patch to hand over.
WithPatch = Verified | Patched


class RefusedFix(_Ended):
    """No patch is possible. ``unread``: the sources that were not read, if the reason is UNKNOWN;
    ``declined``: the recipe's steps that did not work, each with what blocked it."""

    outcome: Literal["refused"] = "refused"
    reason: RefusalReason
    sentence: str
    unread: tuple[UnreadItem, ...] = ()
    declined: tuple[StepDeclined, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether it could not be found out if the repository is affected."""
        return self.reason is RefusalReason.UNKNOWN


class Escalated(_Ended):
    """A person is asked: a typed question, with the evidence."""

    outcome: Literal["escalated"] = "escalated"
    reason: EscalationReason
    question: str
    evidence: tuple[Digest, ...] = ()


FixResult = Annotated[Verified | Patched | RefusedFix | Escalated, Field(discriminator="outcome")]


class Committed(Frozen):
    """Where a patch was committed. ``existed``: it was there already, so no branch was made."""

    branch: str
    commit: str
    existed: bool = False

    @property
    def reference(self) -> str:
        """The commit as a delivery records it."""
        return f"{self.branch} {self.commit}"


@dataclass(frozen=True)
class DeliveryOutcome:
    """Delivery of a proved patch. ``folder``: the report's; ``committed``: None on the working tree."""

    delivered: bool = False
    committed: Committed | None = None
    folder: str | None = None

    def document(self) -> dict[str, object]:
        """Return it as JSON, for machines."""
        commit = None if self.committed is None else self.committed.model_dump()
        return {"delivered": self.delivered, "commit": commit, "report": self.folder}


@dataclass(frozen=True)
class OneFix:
    """The end of the fix of one advisory, and the delivery of its patch."""

    result: FixResult
    advisory: Advisory
    delivery: DeliveryOutcome = field(default_factory=DeliveryOutcome)

    @classmethod
    def delivered(
        cls, result: FixResult, advisory: Advisory, put: Callable[[WithPatch], DeliveryOutcome]
    ) -> "OneFix":
        """Deliver a proved patch by ``put``. Raises what ``put`` raises."""
        if isinstance(result, WithPatch):
            return cls(result, advisory, put(result))
        return cls(result, advisory)


def projects_of(verdicts: Sequence[GateVerdict]) -> tuple[ProvedProject, ...]:
    """Return what each project has of the advisory's packages, by the gates that passed."""
    passed = (verdict for verdict in verdicts if verdict.status is GateStatus.PASSED)
    return tuple(project for verdict in passed for project in verdict.projects)


def notes_of(verdicts: Sequence[GateVerdict]) -> tuple[str, ...]:
    """Return what gates noted with their verdicts, each sentence once."""
    return tuple(dict.fromkeys(note for verdict in verdicts for note in verdict.notes))


def tests_level_of(verdicts: Sequence[GateVerdict]) -> TestsLevel | None:
    """Return how far the tests were judged: not at all if no gate looked. None: an older version's verdict,
    which does not state it."""
    levels = [verdict.tests_level for verdict in verdicts if verdict.gate == TESTS_GATE]
    return levels[-1] if levels else TestsLevel.NOT_JUDGED


def tests_of(verdicts: Sequence[GateVerdict]) -> tuple[JudgedTests, ...]:
    """Return how far each project's tests were judged, and by which command."""
    return tuple(tests for verdict in verdicts for tests in verdict.tests)


def shown_by(verdicts: Sequence[GateVerdict]) -> ProofLevel | None:
    """Return the level that a gate has seen, which counts more than the attempt's; None if none looked."""
    levels = [verdict.proof_level for verdict in verdicts if verdict.status is GateStatus.PASSED]
    return next((level for level in levels if level is not None), None)
