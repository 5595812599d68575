"""A run over several advisories in one process: its parts are run, or found on record (ADR-0051)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from fallback_audit.events import Digest, PatchDelivered
from fallback_tier.advisory import Advisory
from fallback_tier.attempt.task import TierEvent
from fallback_tier.batch.part import Part, held_back
from fallback_tier.batch.proving import EcosystemProof, Ended
from fallback_tier.batch.record import BatchRecord, PartKey, parts_on_record
from fallback_tier.errors import InputError
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.gates.journal.recorded_fix import RecordedFix
from fallback_tier.gates.open_fix import run_fix
from fallback_tier.gates.result import FixResult
from fallback_tier.gates.steps import StepKey
from fallback_tier.installed import new_id
from fallback_tier.planning import DivisiblePlan, Remaining, RemediationPlan
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services

#: Advisories that who watches is told of by name: what fits on a line.
_NAMED = 4

_DELIVERIES = frozenset({PatchDelivered.__name__})


class Watcher(Protocol):
    """Who is told what a part does."""

    def __call__(self, event: TierEvent | StepKey, /) -> None:
        """Each step and event."""
        ...

    def report(self, what: str, /) -> None:
        """What is waited for."""
        ...

    def report_proof(self, what: str, /) -> None:
        """What is done before there are events: the proof that was given is tried."""
        ...


@dataclass(frozen=True)
class BatchEnd:
    """How a run ended. ``planned``: with what could not be planned without something that gates refused;
    ``taken_apart``: fixes on record that were proved in smaller parts; ``trials``: patches put to gates."""

    planned: RemediationPlan
    parts: tuple[Part, ...]
    taken_apart: tuple[str, ...] = ()
    trials: int = 0


class _NotOnRecordError(Exception):
    """Something of the run is still to be done."""


@dataclass
class BatchRun:
    """The run that ``record`` began, which is evidence under ``digest``; held (``holding``) by its caller.

    ``services``: recipes only. ``replan`` plans all of it again, for who needs less of it.
    """

    record: BatchRecord
    digest: Digest
    repo: RepoContext
    services: Services
    watch: Callable[[], AbstractContextManager[Watcher]]
    replan: Callable[[], DivisiblePlan]
    _on_record: dict[PartKey, str] = field(init=False)

    def __post_init__(self) -> None:
        self._on_record = parts_on_record(self.services.audit, self.digest)

    def run(self) -> BatchEnd:
        """Prove what is not proved yet. Raises as the gate runner does: the run can be resumed."""
        return self._through(self._prove, self._only)

    def on_record(self) -> BatchEnd | None:
        """The end, where all of it is on record; None: something is still to be proved."""
        try:
            return self._through(self._proved_before, self._planned_before)
        except _NotOnRecordError:
            return None

    def delivery(self, part: Part) -> PatchDelivered | None:
        """Where its patch was put, as it is on record."""
        events = self.services.audit.events(part.result.fix_id, kinds=_DELIVERIES)
        found = [stored.payload for stored in events if isinstance(stored.payload, PatchDelivered)]
        return found[-1] if found else None

    def is_over(self) -> bool:
        """Nothing is left to prove or to deliver."""
        end = self.on_record()
        if end is None:
            return False
        due = [] if self.record.setup.dry_run else [part for part in end.parts if part.fixed]
        return all(self.delivery(part) is not None for part in due)

    def _through(
        self,
        prove: Callable[[Advisory, bool], FixResult],
        only: Callable[[str, Sequence[str]], tuple[Advisory | None, tuple[Remaining, ...]]],
    ) -> BatchEnd:
        planned = self.record.planned
        ends: list[Ended] = []
        for plan in planned.fixes:

            def less(
                ids: Sequence[str], ecosystem: str = plan.ecosystem
            ) -> tuple[Advisory | None, tuple[Remaining, ...]]:
                return only(ecosystem, ids)

            ends.append(EcosystemProof(plan, prove, less).run())
        left = (*planned.left, *(item for end in ends for item in end.left))
        parts = [part for end in ends for part in end.parts]
        return BatchEnd(
            planned.model_copy(update={"left": left}),
            tuple(held_back(parts, whole=len(self.record.given) == 1)),
            tuple(fix_id for end in ends for fix_id in end.taken_apart),
            sum(end.trials for end in ends),
        )

    @cached_property
    def _plan(self) -> DivisiblePlan:
        return self.replan()

    def _only(
        self, ecosystem: str, ids: Sequence[str]
    ) -> tuple[Advisory | None, tuple[Remaining, ...]]:
        if (fix_id := self._on_record.get((ecosystem, frozenset(ids)))) is not None:
            return self._begun_with(fix_id), ()
        fix, left = self._plan.only(ecosystem, ids)
        return (None if fix is None else fix.advisory), left

    def _planned_before(
        self, ecosystem: str, ids: Sequence[str]
    ) -> tuple[Advisory | None, tuple[Remaining, ...]]:
        fix_id = self._on_record.get((ecosystem, frozenset(ids)))
        if fix_id is None:
            raise _NotOnRecordError
        return self._begun_with(fix_id), ()

    def _begun_with(self, fix_id: str) -> Advisory:
        return self._recorded(fix_id).inputs.advisory

    def _recorded(self, fix_id: str) -> RecordedFix:
        return RecordedFix(self.services.audit, self.services.evidence, fix_id)

    def _proved_before(self, advisory: Advisory, _divisible: bool) -> FixResult:
        fix_id = self._on_record.get(_key(advisory))
        result = None if fix_id is None else self._part(fix_id, advisory).result
        if result is None:
            raise _NotOnRecordError
        return result

    def _prove(self, advisory: Advisory, divisible: bool) -> FixResult:
        known = self._on_record.get(_key(advisory))
        fix_id = known or new_id("fix")
        with holding(self.services.configuration.state_dir, fix_id):
            recorded = self._part(fix_id, advisory) if known else None
            result = None if recorded is None else recorded.result
            return result or self._judged(advisory, fix_id, recorded, divisible)

    def _part(self, fix_id: str, advisory: Advisory) -> RecordedFix:
        """Raises InputError if a person has reopened or abandoned it: it is not part of this run then."""
        recorded = self._recorded(fix_id)
        recorded.check_not_abandoned()
        recorded.check_advisory(advisory)
        if recorded.is_reopened:
            raise InputError(
                f"Fix {fix_id}, a part of this run, was reopened by a person.",
                next_step="Run that `fallback-tier fix` again: it starts from the beginning.",
            )
        return recorded

    def _judged(
        self,
        advisory: Advisory,
        fix_id: str,
        recorded: RecordedFix | None,
        divisible: bool,
    ) -> FixResult:
        with self.watch() as watcher:
            watcher.report(f"to be proved in one patch: {_some(advisory.ids)}")
            inputs = self.services.choose_recipe(
                self.repo,
                advisory,
                fix_id=fix_id,
                gate_transition_id=recorded.gate_transition_id if recorded else None,
                affected=recorded.affected if recorded else None,
            )
            parts = self.services.fix_parts(
                advisory,
                watcher,
                Setup(several=True, batch_sha256=self.digest, divisible=divisible),
                repo=inputs.repo_ctx,
                report=watcher.report,
            )
            if recorded is not None:
                recorded.check_gates(parts.gate_names, parts.setup.configuration)
            work = inputs.advisory, inputs.repo_ctx, inputs.recipe_selection
            return run_fix(parts, *work, recorded)


def _some(ids: Sequence[str]) -> str:
    more = len(ids) - _NAMED
    return ", ".join(ids[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _key(advisory: Advisory) -> PartKey:
    return ", ".join(advisory.ecosystems), frozenset(advisory.ids)
