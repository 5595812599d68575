"""How a run over several advisories begins: anew, or where one that was interrupted stands."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fallback_audit.errors import EvidenceError
from fallback_audit.events import Digest
from fallback_audit.evidence.store import get_document, put_document
from fallback_tier.advisory import AdvisorySet
from fallback_tier.batch.record import BatchRecord, kept_plan, latest_like
from fallback_tier.batch.running import BatchRun, Watcher
from fallback_tier.errors import InputError
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.gates.journal.recorded_fix import check_judged_by
from fallback_tier.gates.trees.isolation import inspect_repository
from fallback_tier.gates.trees.worktrees import remove_leftovers
from fallback_tier.installed import as_found, look_at, new_id, tags_of
from fallback_tier.planning import DivisiblePlan, divisible_plan
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services

#: Stands for the evidence of a run that has no parts.
_NOTHING_TO_PROVE = "0" * 64


@dataclass(frozen=True)
class StartedRun:
    """A run, and whether an earlier process began it."""

    run: BatchRun
    goes_on: bool = False


@dataclass(frozen=True)
class BatchStarter:
    """What every run needs. ``services``: recipes only; ``watch``: who is told of a part, while it runs;
    ``planning``: who is told each step of a plan, while it is made."""

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
        if (found := latest_like(services.audit, services.evidence, record)) is not None:
            digest, before = found
            run = self._run(before, digest, given, repo)
            if _can_go_on(run):
                return StartedRun(run, goes_on=True)
        planned = self._plan(given, repo)
        record = BatchRecord.model_validate({**dict(record), **kept_plan(planned.plan)})
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
