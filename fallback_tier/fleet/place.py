"""Where a fleet's fixes are made on this machine, and what an order is fixed with there."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.files.locks import hold
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.fixer import EndedFix, open_fixer
from fallback_tier.fleet.limiter import StoreLimiter
from fallback_tier.fleet.order import FixOrder
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.gates.open_fix import OpenFix
from fallback_tier.gates.trees.state_folder import writing_below
from fallback_tier.installed import clients_and_plugins
from fallback_tier.wiring import RecordSettings
from fallback_tier.workers.checkouts import Checkouts, lock_path
from fallback_tier.workers.locks import WorkerLocks

#: Of a commit, in a folder's name.
_SHORT = 16


class FleetSecrets(Frozen):
    """What stands in the environment and in no file: keys, and addresses of databases."""

    api_key: SecretStr | None = None
    judge_api_key: SecretStr | None = None
    database: SecretStr | None = None
    store: SecretStr | None = None


class Place(Frozen):
    """Where a fleet is on this machine, and how long a fix may take there (seconds)."""

    state_dir: Path
    record: RecordSettings
    fix_s: float

    @property
    def home(self) -> Path:
        """All that is the fleet's own, below the state folder."""
        return self.state_dir / "fleet"

    @property
    def locks(self) -> WorkerLocks:
        """Of its workers."""
        return WorkerLocks(self.state_dir, self.home)


def store_at(state_dir: Path, address: SecretStr | None) -> FleetStore:
    """The fleet's store at its address; None: in the state folder. Raises as ``open_store`` does."""
    return open_store(state_dir, None if address is None else address.get_secret_value())


@contextmanager
def ordered_fix(order: FixOrder, place: Place, keys: FleetSecrets) -> Iterator[OpenFix | EndedFix]:
    """The fix that is ordered, open: begun in a checkout at its commit, or resumed if it is on record, and
    delivered as it began. Every engine opens it so.

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
            store = stack.enter_context(store_at(place.state_dir, keys.store))
            limiter = StoreLimiter(store.tables, order.provider)
        repository = stack.enter_context(_checkout(order, place, checkouts))
        fixer = stack.enter_context(open_fixer(configured, given, limiter=limiter))
        for path in (order.output, order.report):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
        fix = fixer.open(given, repository, fix_id=order.fix_id, delivery=_delivery(order))
        yield stack.enter_context(fix)


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
