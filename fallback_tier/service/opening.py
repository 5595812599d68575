"""Assembly of the service from its parts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fallback_tier.files.folders import remove_tree, writing_below
from fallback_tier.installed_plugins import clients_and_plugins
from fallback_tier.service.database import Database, service_db, service_dir
from fallback_tier.service.dispatch import Dispatcher
from fallback_tier.service.keys import KeyStore
from fallback_tier.service.operations.attempts import Attempts
from fallback_tier.service.operations.campaigns import Campaigns
from fallback_tier.service.operations.feed import Feed
from fallback_tier.service.operations.fixes import Fixes
from fallback_tier.service.operations.record import Audits, TrailAndEvidence, exports_dir
from fallback_tier.service.operations.reviews import Reviews
from fallback_tier.service.people import People
from fallback_tier.service.queue import OrderQueue
from fallback_tier.service.settings import Secrets, ServiceSettings, configuration, record_settings
from fallback_tier.wiring import wire
from fallback_tier.workers.checkouts import Checkouts


@dataclass(frozen=True)
class Service:
    """The parts of the service, for routes, pages and tests alike."""

    settings: ServiceSettings
    state_dir: Path
    secrets: Secrets
    database: Database
    keys: KeyStore
    people: People
    queue: OrderQueue
    record: TrailAndEvidence
    fixes: Fixes
    reviews: Reviews
    audits: Audits
    campaigns: Campaigns
    attempts: Attempts
    feed: Feed
    dispatcher: Dispatcher


@contextmanager
def open_service(settings: ServiceSettings, state_dir: Path, secrets: Secrets) -> Iterator[Service]:
    """Open all parts, and close them at the end. The dispatcher is not started.

    Raises StateFolderError, AuditStoreError, KeyringError, ConfigurationError.
    """
    clients, plugins = clients_and_plugins()
    configured = configuration(settings, state_dir, secrets)
    with ExitStack() as stack:
        database = stack.enter_context(Database(service_db(state_dir)))
        record = TrailAndEvidence(state_dir, record_settings(settings, secrets))
        record.make()
        with writing_below(state_dir):
            remove_tree(exports_dir(state_dir))  # an earlier version may have left files there
        stack.callback(record.close)
        queue = OrderQueue(database, max_queued=settings.limits.queued_fixes)
        dispatcher = Dispatcher(queue, settings, state_dir, secrets)
        fixes = Fixes(queue, record, settings.repositories, tuple(plugins), dispatcher.wake)
        checkouts = Checkouts(state_dir, clients, service_dir(state_dir))
        threads = settings.limits.concurrent_attempts
        attempts = Attempts(fixes, database, partial(wire, configured), checkouts, threads)
        stack.callback(attempts.close)
        campaigns = Campaigns(record, secrets.fleet)
        stack.callback(campaigns.close)
        yield Service(
            settings=settings,
            state_dir=state_dir,
            secrets=secrets,
            database=database,
            keys=KeyStore(database),
            people=People(database),
            queue=queue,
            record=record,
            fixes=fixes,
            reviews=Reviews(record),
            audits=Audits(record),
            campaigns=campaigns,
            attempts=attempts,
            feed=Feed(queue, record, settings.limits.followers),
            dispatcher=dispatcher,
        )
