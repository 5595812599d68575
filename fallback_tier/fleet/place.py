"""Where fixes are made on this machine, and what an order is fixed with there."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import ConfigDict, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.advisory import AdvisorySet, parse_advisory
from fallback_tier.files.folders import writing_below
from fallback_tier.files.locks import hold
from fallback_tier.fix.delivery import Delivery
from fallback_tier.fix.fixer import EndedFix, SeveralFixesError, open_fixer
from fallback_tier.fix.open_fix import OpenFix
from fallback_tier.fleet.limiter import StoreLimiter
from fallback_tier.fleet.order import FixOrder
from fallback_tier.fleet.refusals import OrderError
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.installed import clients_and_plugins
from fallback_tier.wiring import RecordSettings
from fallback_tier.workers.checkouts import Checkouts, lock_path
from fallback_tier.workers.locks import WorkerLocks

#: How a fix of a campaign continues.
RESUME = "`fleet resume`"

#: Of a commit, in a folder's name.
_SHORT = 16


class DatabaseSecrets(Frozen):
    """Addresses of databases, from the environment and from no file: the record's, and the list's."""

    model_config = ConfigDict(hide_input_in_errors=True)

    database: SecretStr | None = None
    store: SecretStr | None = None


class FleetSecrets(DatabaseSecrets):
    """Keys, too: of the model that a fix asks, and of its judge."""

    api_key: SecretStr | None = None
    judge_api_key: SecretStr | None = None


class Place(Frozen):
    """Where the workers of one owner (a fleet, a service) are on this machine, and how long a fix may take
    there (seconds). ``folder``: what is the owner's own, below the state folder; ``resume``: how a fix
    continues, as a clause; ``keeps_documents``: a worker leaves the document of its fix, too;
    ``own_checkouts``: each fix has a checkout, so that several of a repository run at once; otherwise those
    of one commit take turns in one."""

    state_dir: Path
    record: RecordSettings
    fix_s: float
    folder: str = "fleet"
    resume: str = RESUME
    keeps_documents: bool = False
    own_checkouts: bool = False

    @property
    def home(self) -> Path:
        """All that is the owner's own."""
        return self.state_dir / self.folder

    @property
    def locks(self) -> WorkerLocks:
        """Of its workers."""
        return WorkerLocks(self.state_dir, self.home)


class PipedJob(Frozen):
    """What the process of one fix is given on its standard input. No error quotes it: they go to logs."""

    model_config = ConfigDict(hide_input_in_errors=True)

    place: Place
    secrets: DatabaseSecrets

    def to_pipe(self) -> bytes:
        """Its bytes, keys in them: they go through a pipe, and stand in no argument or file."""
        plain = self.model_dump(mode="json", exclude={"secrets"})
        revealed = {name: it.get_secret_value() for name, it in self.secrets if it is not None}
        return json.dumps(plain | {"secrets": revealed}).encode()

    def whole_place(self) -> Place:
        """With the record's address, which came apart from it."""
        record = self.place.record.model_copy(update={"database": self.secrets.database})
        return self.place.model_copy(update={"record": record})


def store_at(state_dir: Path, address: SecretStr | None) -> FleetStore:
    """The fleet's store at its address; None: in the state folder. Raises as ``open_store`` does."""
    return open_store(state_dir, None if address is None else address.get_secret_value())


@contextmanager
def ordered_fix(
    order: FixOrder,
    place: Place,
    keys: FleetSecrets,
    decided: Callable[[str], None] = lambda _: None,
) -> Iterator[OpenFix | EndedFix]:
    """The fix that is ordered, open: begun in a checkout at its commit, or resumed if it is on record, and
    delivered as it began. Every engine opens it so.

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
        repository = stack.enter_context(_checkout(order, commit, place, checkouts))
        fixer = stack.enter_context(open_fixer(configured, given, limiter=limiter))
        for path in (order.output, order.report):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
        opening = fixer.open(given, repository, fix_id=order.fix_id, delivery=_delivery(order))
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
def _checkout(order: FixOrder, commit: str, place: Place, checkouts: Checkouts) -> Iterator[Path]:
    """At the same place for all fixes of a repository's commit, one after the other: what was made of the
    base commit there (trees, test runs) is found again. Raises RepositoryError, ToolError."""
    if place.own_checkouts:
        with checkouts.made(order.fix_id, order.repository, order.source, commit) as made:
            yield made
        return
    name = f"{order.repository}-{commit[:_SHORT]}"
    with writing_below(place.state_dir):
        path = lock_path(place.home, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = hold(path, limit_s=place.fix_s)
    with lock, checkouts.made(name, order.repository, order.source, commit) as made:
        yield made
