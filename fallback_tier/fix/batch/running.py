"""A run over several advisories in one process: its parts are run, or found on record (ADR-0051).

What it began with is evidence. Each part is a fix of its own and names this document, so the audit trail is
the run's journal as well (ADR-0028).
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest, FixStarted, PatchDelivered
from fallback_audit.evidence.store import get_document, put_document
from fallback_audit.frozen import Frozen
from fallback_audit.ports import AuditReader, EvidenceStore
from fallback_tier.advisory import Advisory, AdvisoryBundle, AdvisorySet
from fallback_tier.errors import InputError
from fallback_tier.fix.batch.outcome import Part, held_back
from fallback_tier.fix.batch.proving import EcosystemProof, Ended
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.inputs import Setup
from fallback_tier.fix.journal.recorded_fix import RecordedFix, check_judged_by
from fallback_tier.fix.open_fix import run_fix
from fallback_tier.fix.parts import fix_parts
from fallback_tier.fix.watching import Watcher
from fallback_tier.fix_result import FixResult
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.installed import as_found, look_at, new_id, tags_of
from fallback_tier.planning import DivisiblePlan, Remaining, RemediationPlan, divisible_plan
from fallback_tier.prompt.prose import without_secrets
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services

_STARTS = frozenset({FixStarted.__name__})

#: A part by what it is about: its ecosystem, and the advisories that it is to fix.
_PartKey = tuple[str, frozenset[str]]

#: Advisories that a progress message names: what fits on a line.
_NAMED = 4

_DELIVERIES = frozenset({PatchDelivered.__name__})

#: Stands for the evidence of a run that has no parts.
_NOTHING_TO_PROVE = "0" * 64


class BatchRecord(Frozen):
    """``batch_id``: unique. ``given``: all advisories, for a smaller plan; ``plan``: what is to be
    proved, whose bundles are in ``bundles``, by ecosystem."""

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
        """Equal for the same command on the same commit, by the same version."""
        reported: Any = self.model_dump(mode="json", exclude={"batch_id", "plan", "bundles"})
        return hashlib.sha256(json.dumps(reported, sort_keys=True).encode()).hexdigest()

    @property
    def planned(self) -> RemediationPlan:
        """The plan, as it was made."""
        reported: dict[str, Any] = dict(self.plan)
        fixes = [{**fix, "advisory": self.bundles[fix["ecosystem"]]} for fix in reported["fixes"]]
        return RemediationPlan.model_validate({**reported, "fixes": fixes})


def _kept_plan(plan: RemediationPlan) -> dict[str, Any]:
    """The members of a BatchRecord that say what was planned."""
    bundles = {fix.ecosystem: fix.advisory for fix in plan.fixes}
    return {"plan": without_secrets(plan).model_dump(mode="json"), "bundles": bundles}


def _parts_on_record(audit: AuditReader, batch: Digest) -> dict[_PartKey, str]:
    """The fixes that are parts of a run, by what they are about."""
    return {
        (start.ecosystem, frozenset(start.advisory_ids)): fix_id
        for fix_id, start in _starts(audit)
        if start.batch_sha256 == batch
    }


def _latest_like(
    audit: AuditReader, evidence: EvidenceStore, like: BatchRecord
) -> tuple[Digest, BatchRecord] | None:
    """The latest run on record that began with the same; None: there is none that can be read."""
    digests = (
        start.batch_sha256
        for _, start in reversed([*_starts(audit)])
        if start.batch_sha256 and start.base_commit == like.base_commit
    )
    for digest in dict.fromkeys(digests):
        try:
            found = get_document(evidence, BatchRecord, digest)
        except EvidenceError:
            continue  # collected, or of another version's form: then it is begun anew
        if found.begun_with == like.begun_with:
            return digest, found
    return None


def _starts(audit: AuditReader) -> Iterator[tuple[str, FixStarted]]:
    for stored in audit.events(kinds=_STARTS):
        if isinstance(stored.payload, FixStarted):
            yield stored.scope.fix_id, stored.payload


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
    _on_record: dict[_PartKey, str] = field(init=False)

    def __post_init__(self) -> None:
        self._on_record = _parts_on_record(self.services.audit, self.digest)

    def run(self) -> BatchEnd:
        """Prove what is not proved yet. Raises as the gate runner does: the run can be resumed.

        An interruption between two parts has a note on how; within a part, that fix adds its own.
        """
        try:
            return self._through(self._prove, self._only)
        except KeyboardInterrupt as error:
            if not getattr(error, "__notes__", ()):
                error.add_note("The same command continues where it stopped.")
            raise

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
class StartedRun:
    """A run, and whether an earlier process began it."""

    run: BatchRun
    goes_on: bool = False


@dataclass(frozen=True)
class BatchStarter:
    """Begins or continues runs. ``services``: recipes only; ``watch``: progress of a part while it runs;
    ``planning``: called with each step of a plan while it is made."""

    services: Services
    watch: Callable[[], AbstractContextManager[Watcher]]
    planning: Callable[[], AbstractContextManager[Callable[[str], None]]]

    def begin(self, given: AdvisorySet, repo: RepoContext, setup: Setup) -> StartedRun:
        """Plan it, or go on with the same command's run that has not come to its end."""
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
        if (found := _latest_like(services.audit, services.evidence, record)) is not None:
            digest, before = found
            run = self._run(before, digest, given, repo)
            if _can_go_on(run):
                return StartedRun(run, goes_on=True)
        planned = self._plan(given, repo)
        record = BatchRecord.model_validate({**dict(record), **_kept_plan(planned.plan)})
        digest = _NOTHING_TO_PROVE
        if planned.plan.fixes:
            digest = put_document(services.evidence, record)
        return StartedRun(self._run(record, digest, given, repo, planned))

    def go_on(self, digest: Digest, repository: Path | None, fix_id: str) -> BatchRun:
        """The run that ``digest`` names, wherever its checkout is now; ``fix_id``: one of its parts.

        Raises InputError where that is at another commit, RepositoryError where it is not clean though
        something is still to be proved, EvidenceError.
        """
        services = self.services
        record = get_document(services.evidence, BatchRecord, digest)
        now = services.configuration.recorded()
        check_judged_by(record.setup.configuration, now, fix_id)
        remove_leftovers(services.configuration.state_dir)
        place = repository or record.repository
        settings = services.configuration.settings
        repo = as_found(inspect_repository(place, services.clients), settings)
        if repo.base_commit != record.base_commit:
            raise InputError(
                f"Fix {fix_id} is a part of a run at commit {record.base_commit[:12]}, and this is "
                f"{repo.base_commit[:12]}.",
                next_step="Check out that commit to resume, or start a new run.",
            )
        given = AdvisorySet(advisories=record.given)
        run = self._run(record, digest, given, repo.model_copy(update={"fix_id": fix_id}))
        if run.on_record() is None:
            look_at(place, services.clients, settings)  # says what is not clean
        return run

    def _run(
        self,
        record: BatchRecord,
        digest: Digest,
        given: AdvisorySet,
        repo: RepoContext,
        planned: DivisiblePlan | None = None,
    ) -> BatchRun:
        again = cache(lambda: self._plan(given, repo))
        replan = again if planned is None else (lambda: planned)
        return BatchRun(record, digest, repo, self.services, self.watch, replan)

    def _plan(self, given: AdvisorySet, repo: RepoContext) -> DivisiblePlan:
        services = self.services
        tags = tags_of(repo, services.clients)
        with self.planning() as observe:
            return divisible_plan(given, repo, services.plugins, tags=tags, observe=observe)


def _can_go_on(run: BatchRun) -> bool:
    """Something is left of it, and all that it needs is there: evidence may have been collected."""
    try:
        return not run.is_over()
    except (EvidenceError, InputError):
        return False
