"""The keyed steps of a fix, and which one follows: pure, so that any engine can run them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fallback_audit.events import BudgetReached, Digest, PatchProposed, RecipeCandidateFailed
from fallback_audit.vocabulary import GateStatus, LadderStep
from fallback_tier.fix_result import FixResult
from fallback_tier.gate_ports import APPLIES, GateVerdict
from fallback_tier.outcome import Applied, AttemptSummary, RecipeApplication, Refused, next_attempt


@dataclass(frozen=True)
class StepKey:
    """One step of one gate transition; unique within it."""

    attempt: int
    name: str
    #: Of the recipe, on a first attempt.
    candidate: int = 1

    @property
    def gate(self) -> str | None:
        """The gate that this step judges, if it is such a step."""
        kind, _, name = self.name.partition(":")
        return name if kind == "gate" else None


@dataclass(frozen=True)
class RecordedPatch:
    """A patch of an earlier gate transition, which ``proposal`` names, under its attempt's number."""

    proposal: PatchProposed
    application: Applied


@dataclass(frozen=True)
class FixProgress:
    """Everything that a step needs from those before it, and nothing else."""

    prior_attempts: tuple[AttemptSummary, ...] = ()
    signatures: tuple[Digest, ...] = ()
    application: RecipeApplication | None = None
    isolated: bool = False
    verdicts: tuple[GateVerdict, ...] = ()
    #: The recipe's candidates that gates refused on this first attempt.
    failed_candidates: tuple[RecipeCandidateFailed, ...] = ()
    #: The cap that stopped the attempt in hand.
    reached: BudgetReached | None = None
    #: Its failure with its signature, if an interrupted run has recorded them already.
    failed: tuple[AttemptSummary, Digest] | None = None
    #: Gates alone are run again, on this patch: no tier is asked, and nothing is tried again.
    recorded: RecordedPatch | None = None
    result: FixResult | None = None

    @property
    def candidate(self) -> int:
        """Which of the recipe's candidates is in hand (ADR-0048)."""
        return len(self.failed_candidates) + 1

    @property
    def left_out(self) -> tuple[LadderStep, ...]:
        """The steps that it does without."""
        return self.failed_candidates[-1].left_out if self.failed_candidates else ()

    @property
    def attempt(self) -> int:
        """The number of the attempt in hand."""
        if self.recorded is not None:
            return self.recorded.application.attempt
        return next_attempt(self.prior_attempts)

    def gates_with(self, status: GateStatus) -> tuple[str, ...]:
        """Names of the gates that gave this verdict on the attempt in hand."""
        return tuple(verdict.gate for verdict in self.verdicts if verdict.status is status)


def next_step(state: FixProgress, gates: Sequence[str]) -> StepKey | None:
    """The step that follows; None where the fix has ended. The first failed gate ends an attempt."""
    if state.result is not None:
        return None

    def key(name: str) -> StepKey:
        return StepKey(state.attempt, name, state.candidate)

    if state.application is None:
        return key("attempt")
    pending = (APPLIES, *gates)[len(state.verdicts) :]
    refused = isinstance(state.application, Refused)
    if refused or state.gates_with(GateStatus.FAILED) or not pending:
        return key("decide")
    if not state.isolated:
        return key("isolate")
    return key(f"gate:{pending[0]}")
