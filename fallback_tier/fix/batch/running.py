"""A batch in one process: its parts are run, or read from the audit trail (ADR-0051).

The batch's input is stored as evidence. Each part is a separate fix that names this document, so the audit
trail is also the batch's journal (ADR-0028).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest, FixStarted, PatchDelivered
from fallback_audit.evidence.store import get_document, put_document
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader, EvidenceStore
from fallback_audit.vocabulary import EscalationReason, RefusalReason
from fallback_tier.advisory import Advisory, AdvisoryBundle, AdvisorySet
from fallback_tier.errors import InputError
from fallback_tier.fix.batch.outcome import Part, held_back
from fallback_tier.fix.decision import IN_PARTS
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.inputs import Setup
from fallback_tier.fix.journal.recorded_fix import RecordedFix, check_judged_by
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import fix_parts
from fallback_tier.fix.watching import Watcher
from fallback_tier.fix_result import Escalated, FixResult, RefusedFix, WithPatch
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.inspection import as_found, look_at, tags_of
from fallback_tier.planning import (
    DivisiblePlan,
    EcosystemPlan,
    Remaining,
    RemediationPlan,
    divisible_plan,
)
from fallback_tier.prompt.redact import without_secrets
from fallback_tier.repo import RepoContext, new_id
from fallback_tier.wiring import Services

_STARTS = frozenset({FixStarted.__name__})

#: The key of a part: its ecosystem, and the advisories that it fixes.
_PartKey = tuple[str, frozenset[str]]

#: How many advisories a progress message names: as many as fit on a line.
_NAMED = 4

_DELIVERIES = frozenset({PatchDelivered.__name__})

#: The digest of a batch without parts, which has no evidence.
_NOTHING_TO_PROVE = "0" * 64


class BatchRecord(Frozen):
    """The beginning of a batch, as evidence. ``given``: all advisories, for a smaller plan; ``plan``: the
    fixes to prove, whose advisories are in ``bundles``, by ecosystem."""

    batch_id: str
    repository: Path
    base_commit: str
    tool_version: str
    setup: Setup
    given: tuple[Advisory, ...]
    plan: dict[str, JsonValue]
    bundles: dict[str, AdvisoryBundle | Advisory]

    @property
    def begun_with(self) -> Digest:
        """A digest that is equal for the same command on the same commit, by the same version."""
        document: Any = self.model_dump(mode="json", exclude={"batch_id", "plan", "bundles"})
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    @property
    def planned(self) -> RemediationPlan:
        """The plan, as it was recorded."""
        document: dict[str, Any] = dict(self.plan)
        fixes = [{**fix, "advisory": self.bundles[fix["ecosystem"]]} for fix in document["fixes"]]
        return RemediationPlan.model_validate({**document, "fixes": fixes})


def _kept_plan(plan: RemediationPlan) -> dict[str, Any]:
    bundles = {fix.ecosystem: fix.advisory for fix in plan.fixes}
    return {"plan": without_secrets(plan).model_dump(mode="json"), "bundles": bundles}


def _parts_on_record(audit: AuditReader, batch: Digest) -> dict[_PartKey, str]:
    return {
        (start.ecosystem, frozenset(start.advisory_ids)): fix_id
        for fix_id, start in _starts(audit)
        if start.batch_sha256 == batch
    }


def _latest_like(
    audit: AuditReader, evidence: EvidenceStore, wanted: BatchRecord
) -> tuple[Digest, BatchRecord] | None:
    """Return the latest recorded batch with the same input as this one, or None if none can be read."""
    digests = (
        start.batch_sha256
        for _, start in reversed([*_starts(audit)])
        if start.batch_sha256 and start.base_commit == wanted.base_commit
    )
    for digest in dict.fromkeys(digests):
        try:
            record = get_document(evidence, BatchRecord, digest)
        except EvidenceError:
            continue  # deleted, or in another version's format: skip it
        if record.begun_with == wanted.begun_with:
            return digest, record
    return None


def _starts(audit: AuditReader) -> Iterator[tuple[str, FixStarted]]:
    for event in audit.events(kinds=_STARTS):
        if isinstance(event.payload, FixStarted):
            yield event.scope.fix_id, event.payload


@dataclass(frozen=True)
class BatchEnd:
    """The end of a batch. ``planned``: the plan, including what could not be planned without something that
    gates refused; ``taken_apart``: recorded fixes that were then proved in smaller parts; ``trials``: the
    number of patches that gates were run on."""

    planned: RemediationPlan
    parts: tuple[Part, ...]
    taken_apart: tuple[str, ...] = ()
    trials: int = 0


_UnitT = TypeVar("_UnitT")

#: The advisories of one package, or of several that one move clears together: they can't be separated.
Unit = tuple[str, ...]

#: Run the gates on the patch of an advisory, or find their recorded result; the flag: it can be split.
Prove = Callable[[Advisory, bool], FixResult]

#: Return the fix of some of the planned advisories without the others, or None and what remains.
Only = Callable[[Sequence[str]], tuple[Advisory | None, tuple[Remaining, ...]]]


def most_that_hold(
    units: Sequence[_UnitT], holds: Callable[[tuple[_UnitT, ...]], bool]
) -> tuple[_UnitT, ...]:
    """Return as many units as ``holds`` accepts in one set, in order.

    ``holds`` has accepted exactly this set, and refused it with any other unit added. It is first called
    with all units, and should cache its results.
    """
    accepted: list[int] = []

    def try_with(numbers: Sequence[int]) -> bool:
        candidate = sorted({*accepted, *numbers})
        if holds(tuple(units[number] for number in candidate)):
            accepted[:] = candidate
            return True
        return False

    def take(numbers: Sequence[int]) -> None:
        if not try_with(numbers) and len(numbers) > 1:
            middle = len(numbers) // 2
            take(numbers[:middle])
            take(numbers[middle:])

    all_numbers = range(len(units))
    if units:
        take(all_numbers)
    # A unit that failed in a smaller set may hold in a larger one.
    while any(try_with([number]) for number in all_numbers if number not in accepted):
        pass
    return tuple(units[number] for number in accepted)


@dataclass(frozen=True)
class ProofTrial:
    """The trial of some advisories in one patch. ``result`` None: no patch is possible without the others,
    for the reasons in ``left``."""

    advisory: Advisory | None
    result: FixResult | None
    left: tuple[Remaining, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the patch was proved."""
        return isinstance(self.result, WithPatch)


@dataclass(frozen=True)
class Ended:
    """The end of an ecosystem's fixes. ``parts``: first the patch to deliver, if any, then those that gates
    refused, package by package; ``taken_apart``: fixes that were then proved in smaller parts; ``trials``:
    the number of patches that gates were run on."""

    parts: tuple[Part, ...]
    left: tuple[Remaining, ...] = ()
    taken_apart: tuple[str, ...] = ()
    trials: int = 0


class _StoppedError(Exception):
    """The gates can't be run, whatever the patch."""

    def __init__(self, trial: ProofTrial) -> None:
        super().__init__("the gates can't be run")
        self.trial = trial


@dataclass
class EcosystemProof:
    """Proves the fixes of one ecosystem."""

    plan: EcosystemPlan
    prove: Prove
    only: Only
    _trials: dict[frozenset[Unit], ProofTrial] = field(default_factory=dict)

    def run(self) -> Ended:
        """Prove as many of the planned fixes in one patch as hold. Raises as the gate runner does."""
        units, stopped = units_of(self.plan), None
        try:
            accepted = most_that_hold(units, self._holds)
        except _StoppedError as stop:
            stopped = stop.trial
            passed = [trial_units for trial_units, trial in self._trials.items() if trial.holds]
            accepted = tuple(unit for unit in units if passed and unit in passed[-1])
        parts = [self._part(self._trials[frozenset(accepted)])] if accepted else []
        remaining: list[Remaining] = []
        if stopped is not None:
            handled_ids = {name for unit in accepted for name in unit}
            other_ids = tuple(name for name in self.plan.advisory_ids if name not in handled_ids)
            parts.append(replace(self._part(stopped), speaks_for=other_ids))
        for unit in units if stopped is None else ():
            if unit in accepted:
                continue
            alone = self._trial((unit,))
            if alone.result is None:
                remaining += alone.left
            else:
                part = self._part(alone)
                parts.append(self._not_with(accepted, part, unit) if alone.holds else part)
        return Ended(
            tuple(parts),
            tuple(remaining),
            self._taken_apart(),
            sum(trial.result is not None for trial in self._trials.values()),
        )

    def _holds(self, units: tuple[Unit, ...]) -> bool:
        trial = self._trial(units)
        if _is_in_the_way(trial.result):
            raise _StoppedError(trial)
        return trial.holds

    def _trial(self, units: tuple[Unit, ...]) -> ProofTrial:
        key = frozenset(units)
        if key not in self._trials:
            self._trials[key] = self._tried(units)
        return self._trials[key]

    def _tried(self, units: tuple[Unit, ...]) -> ProofTrial:
        wanted = {name for unit in units for name in unit}
        ids = [name for name in self.plan.advisory_ids if name in wanted]
        if len(ids) == len(self.plan.advisory_ids):
            return self._proved_in_one(self.plan.advisory, units)
        narrowed, remaining = self.only(ids)
        if narrowed is not None and wanted.issubset(narrowed.ids):
            return self._proved_in_one(narrowed, units)
        return ProofTrial(None, None, remaining or (self._not_alone(ids),))

    def _proved_in_one(self, advisory: Advisory, units: tuple[Unit, ...]) -> ProofTrial:
        return ProofTrial(advisory, self.prove(advisory, len(units) > 1))

    def _not_alone(self, ids: Sequence[str]) -> Remaining:
        moves = [move for move in self.plan.moves if set(move.advisory_ids) & set(ids)]
        names = ", ".join(dict.fromkeys(move.package for move in moves))
        return Remaining(
            ecosystem=self.plan.ecosystem,
            package=names,
            advisory_ids=tuple(ids),
            reason=RefusalReason.RESOLVER_FAILED,
            sentence=f"{names or ', '.join(ids)} can't be fixed without the changes that gates refused.",
            next_step="Fix those first.",
        )

    def _part(self, trial: ProofTrial) -> Part:
        if trial.advisory is None or trial.result is None:
            raise AssertionError("a part was tried")
        return Part(self.plan.ecosystem, trial.advisory, trial.result)

    def _not_with(self, accepted: tuple[Unit, ...], part: Part, unit: Unit) -> Part:
        """Return a part that works alone, marked as held back because of the others."""
        others = tuple(name for accepted_unit in accepted for name in accepted_unit)
        together = self._trials[frozenset((*accepted, unit))]
        why = together.result.sentence if isinstance(together.result, RefusedFix) else ""
        why = why.removesuffix(IN_PARTS).rstrip() or "; ".join(
            remaining.sentence for remaining in together.left
        )
        chosen = " --advisory ".join(unit)
        reason = (
            f"It works alone, and so does the fix of {', '.join(others)}; together they don't: {why} To "
            f"have this one instead, or on top once the other is committed (what fails then is asked "
            f"of a model, if there is one, and of a person): `fallback-tier fix REPO --advisory {chosen}`."
        )
        return replace(part, held_back=reason, fails_with=others)

    def _taken_apart(self) -> tuple[str, ...]:
        results = (trial.result for trial in self._trials.values())
        return tuple(
            result.fix_id
            for result in results
            if isinstance(result, RefusedFix) and result.reason is RefusalReason.FAILS_TOGETHER
        )


def units_of(plan: EcosystemPlan) -> tuple[Unit, ...]:
    """Return the planned advisories in the plan's order, grouped if one package's move clears several."""
    groups: dict[str, set[str]] = {name: {name} for name in plan.advisory_ids}
    by_package: dict[str, set[str]] = {}
    for move in plan.moves:
        by_package.setdefault(move.package, set()).update(move.advisory_ids)
    for ids in by_package.values():
        joined = ids.union(*(groups[name] for name in ids))
        groups |= dict.fromkeys(joined, joined)
    order = plan.advisory_ids
    units = (tuple(name for name in order if name in groups[first]) for first in order)
    return tuple(dict.fromkeys(units))


def _is_in_the_way(result: FixResult | None) -> bool:
    match result:
        case Escalated(reason=EscalationReason.GATE_INFRASTRUCTURE):
            return True
        case RefusedFix(reason=RefusalReason.TOOL_MISSING):
            return True
        case _:
            return False


class _NotOnRecordError(Exception):
    """Raised if the audit trail does not have the whole batch: some of it is still to be done."""


@dataclass
class BatchRun:
    """The batch that ``record`` began (evidence ``digest``), held by its caller. ``services`` has recipes
    only; ``replan`` plans all advisories again."""

    record: BatchRecord
    digest: Digest
    repo: RepoContext
    services: Services
    watch: Callable[[], AbstractContextManager[Watcher]]
    replan: Callable[[], DivisiblePlan]
    _on_record: dict[_PartKey, str] = field(init=False)

    def __post_init__(self) -> None:
        self._on_record = _parts_on_record(self.services.audit, self.digest)

    def run(self) -> BatchEnd:
        """Prove the parts that are not recorded. Raises as the gate runner does: the batch can be resumed.

        An interruption between two parts has a note on how to resume; within a part, that fix adds its own.
        """
        try:
            return self._through(self._prove, self._only)
        except KeyboardInterrupt as error:
            if not getattr(error, "__notes__", ()):
                error.add_note("The same command continues where it stopped.")
            raise

    def on_record(self) -> BatchEnd | None:
        """Return the end if all of the batch is recorded, or None if a part is still to be proved."""
        try:
            return self._through(self._proved_before, self._planned_before)
        except _NotOnRecordError:
            return None

    def delivery(self, part: Part) -> PatchDelivered | None:
        """Return the recorded delivery of a part's patch, or None."""
        events = self.services.audit.events(part.result.fix_id, kinds=_DELIVERIES)
        deliveries = [
            event.payload for event in events if isinstance(event.payload, PatchDelivered)
        ]
        return deliveries[-1] if deliveries else None

    def is_over(self) -> bool:
        """Return whether nothing is left to prove or to deliver."""
        end = self.on_record()
        if end is None:
            return False
        deliverable = (
            [] if self.record.setup.dry_run else [part for part in end.parts if part.fixed]
        )
        return all(self.delivery(part) is not None for part in deliverable)

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
        remaining = (*planned.left, *(item for end in ends for item in end.left))
        parts = [part for end in ends for part in end.parts]
        return BatchEnd(
            planned.model_copy(update={"left": remaining}),
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
        fix, remaining = self._plan.only(ecosystem, ids)
        return (None if fix is None else fix.advisory), remaining

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
        recorded_id = self._on_record.get(_key(advisory))
        fix_id = recorded_id or new_id("fix")
        with holding(self.services.configuration.state_dir, fix_id):
            recorded = self._part(fix_id, advisory) if recorded_id else None
            result = None if recorded is None else recorded.result
            return result or self._judged(advisory, fix_id, recorded, divisible)

    def _part(self, fix_id: str, advisory: Advisory) -> RecordedFix:
        """Return a recorded part. Raises InputError if a person has reopened or abandoned it: it is no
        longer part of this batch."""
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
            parts = fix_parts(
                self.services,
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


def _key(advisory: Advisory) -> _PartKey:
    return ", ".join(advisory.ecosystems), frozenset(advisory.ids)


@dataclass(frozen=True)
class BatchStarter:
    """Begins or continues batches. ``services`` has recipes only; ``watch``: progress of a part while it
    runs; ``planning``: called with each step while a plan is made."""

    services: Services
    watch: Callable[[], AbstractContextManager[Watcher]]
    planning: Callable[[], AbstractContextManager[Callable[[str], None]]]

    def begin(self, given: AdvisorySet, repo: RepoContext, setup: Setup) -> tuple[BatchRun, bool]:
        """Plan a batch, or continue the same command's unfinished one; the second value: it continues."""
        services = self.services
        setup = setup.model_copy(update={"configuration": services.configuration.recorded()})
        record = BatchRecord(
            batch_id=new_id("batch"),
            repository=repo.root,
            base_commit=repo.base_commit,
            tool_version=version("fallback-tier"),
            setup=setup,
            given=given.advisories,
            plan={},
            bundles={},
        )
        if (latest := _latest_like(services.audit, services.evidence, record)) is not None:
            digest, recorded = latest
            run = self._run(recorded, digest, given, repo)
            if _can_go_on(run):
                return run, True
        planned = self._plan(given, repo)
        record = BatchRecord.model_validate({**dict(record), **_kept_plan(planned.plan)})
        digest = _NOTHING_TO_PROVE
        if planned.plan.fixes:
            digest = put_document(services.evidence, record)
        return self._run(record, digest, given, repo, planned), False

    def go_on(self, digest: Digest, repository: Path | None, fix_id: str) -> BatchRun:
        """Continue the batch ``digest``, in whichever checkout it is now; ``fix_id``: one of its parts.

        Raises InputError at another commit, RepositoryError if the checkout is not clean and something is
        unproved, EvidenceError.
        """
        services = self.services
        record = get_document(services.evidence, BatchRecord, digest)
        configuration = services.configuration.recorded()
        check_judged_by(record.setup.configuration, configuration, fix_id)
        remove_leftovers(services.configuration.state_dir)
        checkout = repository or record.repository
        settings = services.configuration.settings
        repo = as_found(inspect_repository(checkout, services.clients), settings)
        if repo.base_commit != record.base_commit:
            raise InputError(
                f"Fix {fix_id} is a part of a run at commit {record.base_commit[:12]}, and this is "
                f"{repo.base_commit[:12]}.",
                next_step="Check out that commit to resume, or start a new run.",
            )
        advisories = AdvisorySet(advisories=record.given)
        run = self._run(record, digest, advisories, repo.model_copy(update={"fix_id": fix_id}))
        if run.on_record() is None:
            look_at(checkout, services.clients, settings)  # raises if it is not clean
        return run

    def _run(
        self,
        record: BatchRecord,
        digest: Digest,
        advisories: AdvisorySet,
        repo: RepoContext,
        planned: DivisiblePlan | None = None,
    ) -> BatchRun:
        replanned = cache(lambda: self._plan(advisories, repo))
        replan = replanned if planned is None else (lambda: planned)
        return BatchRun(record, digest, repo, self.services, self.watch, replan)

    def _plan(self, advisories: AdvisorySet, repo: RepoContext) -> DivisiblePlan:
        services = self.services
        tags = tags_of(repo, services.clients)
        with self.planning() as observe:
            return divisible_plan(advisories, repo, services.plugins, tags=tags, observe=observe)


def _can_go_on(run: BatchRun) -> bool:
    try:
        return not run.is_over()
    except (EvidenceError, InputError):
        return False
