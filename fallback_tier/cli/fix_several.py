"""Several advisories: planned together, proved so that one which fails sinks no other, delivered once.

By recipe only: a model's plan raises one dependency, so a model is asked for one advisory at a time.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from fallback_audit.events import Digest
from fallback_tier.advisory import AdvisorySet
from fallback_tier.batch.beginning import Desk
from fallback_tier.batch.outcome import advisory_ends, said_in_part
from fallback_tier.batch.part import merged
from fallback_tier.batch.running import BatchEnd, BatchRun
from fallback_tier.cli.batch_report import batch_document, combined_exit_code, report_batch
from fallback_tier.cli.handover import Landed, Put, hand_over, setup_of
from fallback_tier.cli.output import print_json
from fallback_tier.cli.plan import check_clients
from fallback_tier.cli.progress import FixProgress, PlanProgress
from fallback_tier.cli.remediation import line
from fallback_tier.gates.journal.holding import holding
from fallback_tier.gates.journal.inputs import Setup
from fallback_tier.handover.delivery import deliver
from fallback_tier.handover.landing import complete
from fallback_tier.repo import RepoContext
from fallback_tier.wiring import Services


def fix_several(
    given: AdvisorySet, repo: RepoContext, services: Services, arguments: argparse.Namespace
) -> int:
    """Plan, prove what holds of each ecosystem on the base commit, deliver it as one patch.

    The same command goes on with a run of it that was interrupted.
    """
    ids = [advisory.id for advisory in given.advisories]
    setup = setup_of(arguments, ids, repo, services.clients)
    if given.advisories:
        check_clients(given, repo, services.clients, services.plugins)
        services.sandbox()  # where there is none, that is said before the long work
    begun = _desk(services, quiet=arguments.json).begin(given, repo, setup)
    if begun.goes_on:
        said = "this run was interrupted: what is on record is not done again"
        line(Console(stderr=True, quiet=arguments.json), said)
    put = complete if begun.goes_on else deliver
    setup = begun.run.record.setup
    return _to_the_end(begun.run, services, put, setup, as_json=arguments.json)


def go_on_with_several(digest: Digest, services: Services, arguments: argparse.Namespace) -> int:
    """``resume`` of a part: the run that ``digest`` names goes on to its end."""
    repository = Path(arguments.repository) if arguments.repository else None
    desk = _desk(services, quiet=arguments.json)
    run = desk.go_on(digest, repository, arguments.fix_id)
    began = run.record.setup
    output, dry_run = arguments.output or began.output, arguments.dry_run or began.dry_run
    setup = began.model_copy(update={"output": output, "dry_run": dry_run})
    return _to_the_end(run, services, complete, setup, as_json=arguments.json)


def _desk(services: Services, *, quiet: bool) -> Desk:
    errors = Console(stderr=True, quiet=quiet)
    return Desk(services.recipes_only(), lambda: FixProgress(errors), lambda: PlanProgress(errors))


def _to_the_end(run: BatchRun, services: Services, put: Put, setup: Setup, *, as_json: bool) -> int:
    with holding(services.configuration.state_dir, run.record.batch_id):
        end = run.run()
        ends = advisory_ends(end.planned, end.parts)
        end = replace(end, parts=said_in_part(end.parts, ends))
        landed = _delivered(run, end, services, put, setup)
    code = combined_exit_code(end.planned, end.parts)
    if as_json:
        print_json(batch_document(end, ends, landed, code=code))
    else:
        report_batch(end, ends, landed, Console(), has_model=services.has_model)
    return code


def _delivered(run: BatchRun, end: BatchEnd, services: Services, put: Put, setup: Setup) -> Landed:
    """One patch for all that holds."""
    due = [part for part in end.parts if part.fixed]
    patch = merged([part.application for part in due if part.application])
    if patch is None:
        return Landed()
    before = [run.delivery(part) for part in due]
    if all(before) and before[0] is not None:
        put = before[0]
    fixes = [part.fixed for part in due if part.fixed]
    return hand_over(fixes, patch, run.repo, services, setup, put)
