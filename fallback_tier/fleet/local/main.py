"""The worker: one fix of a campaign, from its start or from where the record says that it stands."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.errors import FallbackError
from fallback_tier.files.locks import hold
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.fixer import Fixer, is_on_record, open_fixer
from fallback_tier.fleet.engine import EngineState, Phase
from fallback_tier.fleet.limiter import StoreLimiter
from fallback_tier.fleet.local.job import RESUME, FleetSecrets, Job, Place, leave_word
from fallback_tier.fleet.order import FixOrder
from fallback_tier.fleet.store.store import open_store
from fallback_tier.gates.trees.state_folder import writing_below
from fallback_tier.installed import clients_and_plugins
from fallback_tier.workers.checkouts import Checkouts, lock_path
from fallback_tier.workers.ending import Late, end_late, ending_in_order, is_late
from fallback_tier.workers.locks import write_holder
from fallback_tier.workers.problem import Problem, defect, problem_of, took_too_long

#: Of a commit, in a folder's name.
_SHORT = 16


def main() -> None:
    """Read the job, do it, leave a word. The exit code tells nothing."""
    with ending_in_order():
        job = Job.model_validate_json(sys.stdin.buffer.read())
        end_late(job.place.fix_s)
        os.set_inheritable(job.lock, False)  # no client of ours may outlive us with it
        work(job)


def work(job: Job) -> None:
    """Do it, and say how it ended. How the fix ended is on record."""
    fix_id = job.order.fix_id

    def failed(problem: Problem) -> None:
        leave_word(job.place, fix_id, EngineState(phase=Phase.FAILED, problem=problem))

    try:
        with writing_below(job.place.state_dir):
            write_holder(job.lock)
        run(job)
        leave_word(job.place, fix_id, EngineState(phase=Phase.ENDED))
    except (Late, Exception) as error:
        if is_late(error):
            failed(took_too_long(job.place.fix_s, RESUME))
        elif isinstance(error, FallbackError):
            failed(problem_of(error))
        else:
            failed(defect(error))
            raise  # its traceback goes to the worker's log


def run(job: Job) -> None:
    """The fix itself. Raises FallbackError."""
    order = job.order
    place = job.place.model_copy(update={"record": job.record()})
    with fixer_for(order, place, job.secrets) as (fixer, given, repository, delivery):
        if is_on_record(fixer.services.audit, order.fix_id):
            kept = Delivery(output=delivery.output)  # the rest as it began
            fixer.resume(order.fix_id, repository=repository, delivery=kept)
        else:
            fixer.fix(given, repository, delivery, fix_id=order.fix_id)


@contextmanager
def fixer_for(
    order: FixOrder, place: Place, keys: FleetSecrets
) -> Iterator[tuple[Fixer, AdvisorySet, Path, Delivery]]:
    """What an order is fixed with: its advisory, a checkout at its commit, and where its patch goes.

    ``place.record``: with its database's address. Raises FallbackError.
    """
    clients, _ = clients_and_plugins()
    checkouts = Checkouts(place.state_dir, clients, place.home)
    advisory = parse_advisory(json.dumps(order.advisory).encode(), "the campaign")
    given = AdvisorySet(advisories=(advisory,))
    secrets = tuple(value for _, value in keys if value is not None)
    configured = order.configured(
        place.state_dir,
        place.record,
        api_key=keys.api_key,
        judge_api_key=keys.judge_api_key,
        secrets=secrets,
    )
    with ExitStack() as stack:
        limiter = None
        if order.provider is not None:
            url = keys.store
            store = open_store(place.state_dir, None if url is None else url.get_secret_value())
            limiter = StoreLimiter(stack.enter_context(store).tables, order.provider)
        repository = stack.enter_context(_checkout(order, place, checkouts))
        fixer = stack.enter_context(open_fixer(configured, given, limiter=limiter))
        for path in (order.output, order.report):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
        yield fixer, given, repository, _delivery(order)


def _delivery(order: FixOrder) -> Delivery:
    """The checkout is a passing one: what is committed goes to the repository that it was cloned from."""
    into = order.source.path if order.branch else None
    return Delivery(
        dry_run=into is None,
        commit=None if into is None else "",
        into=into,
        output=order.output,
        report=order.report,
    )


@contextmanager
def _checkout(order: FixOrder, place: Place, checkouts: Checkouts) -> Iterator[Path]:
    """At the same place for all fixes of a repository's commit, one after the other: what was made of the
    base commit there (trees, test runs) is found again. Raises RepositoryError, ToolError."""
    name = f"{order.repository}-{order.base_commit[:_SHORT]}"
    with writing_below(place.state_dir):
        path = lock_path(place.home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = hold(path, limit_s=place.fix_s)
    with lock, checkouts.made(name, order.repository, order.source, order.base_commit) as made:
        yield made


if __name__ == "__main__":
    main()
