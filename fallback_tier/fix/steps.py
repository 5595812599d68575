"""The keyed steps of a fix, and their order: pure functions, so that any engine can run them."""

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
    #: The number of the recipe's candidate, on a first attempt.
    candidate: int = 1

    @property
    def gate(self) -> str | None:
        """The name of the gate that this step runs; None for another step."""
        kind, _, name = self.name.partition(":")
        return name if kind == "gate" else None


@dataclass(frozen=True)
class RecordedPatch:
    """A patch of an earlier gate transition, with the number of its attempt."""

    proposal: PatchProposed
    application: Applied


@dataclass(frozen=True)
class FixProgress:
    """The state of a fix: everything that a step needs from the steps before it."""

    prior_attempts: tuple[AttemptSummary, ...] = ()
    signatures: tuple[Digest, ...] = ()
    application: RecipeApplication | None = None
    isolated: bool = False
    verdicts: tuple[GateVerdict, ...] = ()
    #: Candidates of the recipe that gates refused on this first attempt.
    failed_candidates: tuple[RecipeCandidateFailed, ...] = ()
    #: The cap that stopped the current attempt.
    reached: BudgetReached | None = None
    #: The current attempt's failure and its signature, if an interrupted run has recorded them.
    failed: tuple[AttemptSummary, Digest] | None = None
    #: The patch that only the gates are run on again: no tier is asked, and there is no retry.
    recorded: RecordedPatch | None = None
    result: FixResult | None = None

    @property
    def candidate(self) -> int:
        """The number of the recipe's current candidate (ADR-0048)."""
        return len(self.failed_candidates) + 1

    @property
    def left_out(self) -> tuple[LadderStep, ...]:
        """The ladder's steps that the current candidate may not take."""
        return self.failed_candidates[-1].left_out if self.failed_candidates else ()

    @property
    def attempt(self) -> int:
        """The number of the current attempt."""
        if self.recorded is not None:
            return self.recorded.application.attempt
        return next_attempt(self.prior_attempts)

    def gates_with(self, status: GateStatus) -> tuple[str, ...]:
        """Return the names of the gates that gave this verdict on the current attempt."""
        return tuple(verdict.gate for verdict in self.verdicts if verdict.status is status)


def next_step(state: FixProgress, gates: Sequence[str]) -> StepKey | None:
    """Return the next step; None if the fix has ended. The first failed gate ends an attempt."""
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
