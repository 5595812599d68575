"""Opens the fix of an order on this machine: in a checkout at its commit, with the place's secrets."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import hold
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.fixer import EndedFix, SeveralFixesError, open_fixer
from fallback_tier.fix.open_fix import OpenFix
from fallback_tier.fleet.errors import OrderError
from fallback_tier.fleet.fix_order import FixOrder, FleetSecrets, Place, store_at
from fallback_tier.fleet.store_limiter import StoreLimiter
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.workers.checkouts import Checkouts, lock_path

#: Digits of a commit in a folder's name.
_SHORT = 16


@contextmanager
def ordered_fix(
    order: FixOrder,
    place: Place,
    keys: FleetSecrets,
    decided: Callable[[str], None] = lambda _: None,
) -> Iterator[OpenFix | EndedFix]:
    """Yield the fix of an order: begun in a checkout at its commit, or resumed if it is on record, and with
    the delivery that it began with. Every engine opens fixes this way.

    ``place.record``: with its database's address. ``decided``: called with the commit of an order that has
    none yet. Raises FallbackError.
    """
    clients, _ = clients_and_plugins()
    checkouts = Checkouts(place.state_dir, clients, place.home)
    commit = order.base_commit
    if commit is None:
        commit = checkouts.commit_of(order.repository, order.source)
        decided(commit)
    advisory = parse_advisory(json.dumps(order.advisory).encode(), "the order")
    advisory_set = AdvisorySet(advisories=(advisory,))
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
            store = stack.enter_context(store_at(place.state_dir, keys.store))
            limiter = StoreLimiter(store.tables, order.provider)
        repository = stack.enter_context(_checkout(order, commit, place, checkouts))
        fixer = stack.enter_context(open_fixer(configured, advisory_set, limiter=limiter))
        for path in (order.output, order.report):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
        opening = fixer.open(
            advisory_set, repository, fix_id=order.fix_id, delivery=_delivery(order)
        )
        try:
            fix = stack.enter_context(opening)
        except SeveralFixesError as error:
            raise OrderError(
                f"{advisory.id} concerns packages of several ecosystems in this repository, and an "
                "order is for one of them.",
                next_step="Submit the record once an ecosystem, with only that one's packages.",
                kind="several_ecosystems",
            ) from error
        yield fix


def _delivery(order: FixOrder) -> Delivery:
    """Return the delivery. The checkout is temporary: a commit goes to the repository that it was
    cloned from.
    """
    into = order.source.path if order.branch else None
    return Delivery(
        dry_run=into is None,
        commit=None if into is None else "",
        into=into,
        output=order.output,
        report=order.report,
    )


@contextmanager
def _checkout(order: FixOrder, commit: str, place: Place, checkouts: Checkouts) -> Iterator[Path]:
    """Yield a checkout. All fixes of one commit use the same path, one after the other, so that what
    was built for the base commit (trees, test runs) is reused. Raises RepositoryError, ToolError.
    """
    if place.own_checkouts:
        with checkouts.made(order.fix_id, order.repository, order.source, commit) as checkout:
            yield checkout
        return
    name = f"{order.repository}-{commit[:_SHORT]}"
    with writing_below(place.state_dir):
        path = lock_path(place.home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = hold(path, limit_s=place.fix_s)
    with lock, checkouts.made(name, order.repository, order.source, commit) as checkout:
        yield checkout
