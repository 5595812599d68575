"""The worker: one fix, from its start or from where the record says that it stands, to its end.

Started by ``dispatch.py``, under a guard, as a process of its own, with its order on standard input. It
writes its end to the queue itself, so that the end is kept whether the service lives or not.
"""

import json
import sys

from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.document import document
from fallback_tier.fix.fixer import SeveralFixesError, open_fixer
from fallback_tier.gates.result import OneFix, RefusedFix
from fallback_tier.installed import clients_and_plugins
from fallback_tier.service.configuring import Secrets, configuration
from fallback_tier.service.database import Database, service_db, service_dir
from fallback_tier.service.queue.orders import Order, OrderState
from fallback_tier.service.queue.queue import OrderQueue
from fallback_tier.service.refusals import NotFoundError, NotServedError
from fallback_tier.service.worker.order import RESUME, WorkOrder
from fallback_tier.workers.checkouts import Checkouts
from fallback_tier.workers.ending import carry_out, end_late, ending_in_order
from fallback_tier.workers.locks import write_holder
from fallback_tier.workers.problem import Problem

#: The patch is handed out by the service: no repository is written.
_KEEP = Delivery(dry_run=True)


def main() -> None:
    """Read the order, do it. The exit code tells nothing: the queue does."""
    with ending_in_order():
        order = WorkOrder.model_validate_json(sys.stdin.buffer.read())
        end_late(order.settings.limits.fix_s)
        write_holder(order.lock)
        work(order)


def work(order: WorkOrder) -> None:
    """Do what the queue says of this fix, and write down how it ended."""
    with Database(service_db(order.state_dir)) as database:
        queue = OrderQueue(database)

        def to_its_end() -> None:
            found = queue.get(order.fix_id)
            if found.state is not OrderState.RUNNING:
                return  # cancelled, or taken back, before we were there
            result = _fixed(order, found, queue).result
            unknown = isinstance(result, RefusedFix) and result.is_unknown
            outcome = "unknown" if unknown else result.outcome
            queue.end(order.fix_id, outcome, json.dumps(document(result)))

        def failed(problem: Problem) -> None:
            queue.fail(order.fix_id, problem)

        carry_out(to_its_end, failed, limit_s=order.settings.limits.fix_s, resume=RESUME)


def _fixed(order: WorkOrder, found: Order, queue: OrderQueue) -> OneFix:
    repository = order.settings.repositories.get(found.repository)
    if repository is None:
        raise NotFoundError(
            f"Repository {found.repository!r} is not configured any more.",
            next_step="Configure it as before, then resume the fix.",
            kind="no_such_repository",
        )
    clients, _ = clients_and_plugins()
    checkouts = Checkouts(order.state_dir, clients, service_dir(order.state_dir))
    commit = found.base_commit
    if commit is None:
        commit = checkouts.commit_of(found.repository, repository, found.submission.ref)
        queue.begin_at(order.fix_id, commit)
    advisory = parse_advisory(json.dumps(found.submission.advisory).encode(), "the submission")
    with checkouts.made(order.fix_id, found.repository, repository, commit) as place:
        configured = configuration(
            order.settings, order.state_dir, _secrets(order), repository, found.submission
        )
        given = AdvisorySet(advisories=(advisory,))
        try:
            with (
                open_fixer(configured, given) as fixer,
                fixer.open(given, place, fix_id=order.fix_id, delivery=_KEEP) as fix,
            ):
                return fix.to_the_end()
        except SeveralFixesError as error:
            raise NotServedError(
                f"{advisory.id} concerns packages of several ecosystems in this repository, and an "
                "order is for one of them.",
                next_step="Submit the record once an ecosystem, with only that one's packages.",
                kind="several_ecosystems",
            ) from error


def _secrets(order: WorkOrder) -> Secrets:
    return Secrets(**order.secrets)


if __name__ == "__main__":
    main()
