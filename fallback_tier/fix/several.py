"""Several advisories: planned together, proved so that one failure does not fail all, delivered once.

By recipe only: a model's plan raises one dependency, so a model is asked about one advisory at a time.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fallback_audit.events import Digest
from fallback_tier.advisory import AdvisorySet
from fallback_tier.fix.batch.outcome import (
    AdvisoryEnd,
    advisory_ends,
    merged,
    partial_fix_message,
)
from fallback_tier.fix.batch.running import BatchEnd, BatchRun, BatchStarter
from fallback_tier.fix.delivery import Deliver, Delivery, SeveralFixes, deliver_fixes
from fallback_tier.fix.journal.holding import holding
from fallback_tier.fix.journal.inputs import Setup
from fallback_tier.fix.preview import check_clients
from fallback_tier.fix.watching import Watch
from fallback_tier.fix_result import DeliveryOutcome
from fallback_tier.handover.working_tree import complete, put_on_working_tree
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services


def fix_several(
    given: AdvisorySet, repo: RepoContext, services: Services, delivery: Delivery, watch: Watch
) -> SeveralFixes:
    """Plan, prove per ecosystem, and deliver as one patch; the same call continues an interrupted run."""
    ids = [advisory.id for advisory in given.advisories]
    setup = delivery.checked(ids, repo, services.clients)
    if given.advisories:
        check_clients(given, repo, services.clients, services.plugins)
        services.sandbox()  # raises before the long work if there is none
    run, is_resumed = _batch_starter(services, watch).begin(given, repo, setup)
    if is_resumed:
        watch.note("resuming an interrupted run: what is on record is not done again")
    deliver_patch = complete if is_resumed else put_on_working_tree
    return _to_the_end(run, services, deliver_patch, run.record.setup)


def resume_several(
    digest: Digest,
    fix_id: str,
    repository: Path | None,
    services: Services,
    delivery: Delivery,
    watch: Watch,
) -> SeveralFixes:
    """Continue the batch that ``digest`` names, of which the fix ``fix_id`` is a part."""
    run = _batch_starter(services, watch).go_on(digest, repository, fix_id)
    return _to_the_end(run, services, complete, delivery.instead_of(run.record.setup))


def _batch_starter(services: Services, watch: Watch) -> BatchStarter:
    return BatchStarter(services.recipes_only(), watch.fixing, watch.planning)


def _to_the_end(run: BatchRun, services: Services, deliver: Deliver, setup: Setup) -> SeveralFixes:
    with holding(services.configuration.state_dir, run.record.batch_id):
        end = run.run()
        ends = advisory_ends(end.planned, end.parts)
        end = replace(end, parts=partial_fix_message(end.parts, ends))
        return SeveralFixes(end, ends, _delivered(run, end, ends, services, deliver, setup))


def _delivered(
    run: BatchRun,
    end: BatchEnd,
    ends: Sequence[AdvisoryEnd],
    services: Services,
    deliver: Deliver,
    setup: Setup,
) -> DeliveryOutcome:
    proved_parts = [part for part in end.parts if part.fixed]
    patch = merged([part.application for part in proved_parts if part.application])
    if patch is None:
        return DeliveryOutcome()
    deliveries = [run.delivery(part) for part in proved_parts]
    if all(deliveries) and deliveries[0] is not None:
        deliver = deliveries[0]
    fixes = [part.fixed for part in proved_parts if part.fixed]
    return deliver_fixes(fixes, patch, run.repo, services, setup, deliver, ends)
