"""The process of one fix of a campaign, as a Temporal worker starts it, under a guard.

Its order, with keys in it, is the first line of its standard input.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import SecretStr

from fallback_audit.errors import EvidenceError
from fallback_audit.evidence.store import get_document
from fallback_tier.engines.opened import OpenedFix
from fallback_tier.engines.sessions.serving import serve_standard_input
from fallback_tier.fleet.order import FixOrder, listed_order
from fallback_tier.fleet.ordered_fix import ordered_fix
from fallback_tier.fleet.place import DatabaseSecrets, FleetSecrets, PipedJob, store_at
from fallback_tier.fleet.refusals import CampaignError
from fallback_tier.wiring.trail import open_evidence


class WorkerKeys(DatabaseSecrets):
    """What a worker has in its environment. ``provider``: of the default model server; ``other``: of any
    other one that an order names; ``judge``: of the judge's."""

    provider: SecretStr | None = None
    other: SecretStr | None = None
    judge: SecretStr | None = None

    def for_order(self, order: FixOrder) -> FleetSecrets:
        """Those that this order's model servers are sent."""
        told = order.configuration
        return FleetSecrets(
            api_key=self.other if told.get("base_url") else self.provider,
            judge_api_key=self.judge if told.get("judge_base_url") else self.provider,
            database=self.database,
            store=self.store,
        )


class Job(PipedJob):
    """One fix for its process, its order by digest: as its runner put it into evidence."""

    fix_id: str
    order_sha256: str
    secrets: WorkerKeys


@contextmanager
def opened(line: bytes) -> Iterator[OpenedFix]:
    """The fix that is ordered, begun or gone on with. Raises FallbackError."""
    job = Job.model_validate_json(line)
    order = read_order(job)
    with ordered_fix(order, job.whole_place(), job.secrets.for_order(order)) as fix:
        yield fix


def read_order(job: Job) -> FixOrder:
    """As its runner put it into evidence. No event names it there, so ``audit evidence gc`` may have
    removed it while the fix waited: then as the campaign's list has it now.

    Raises EvidenceError if neither has it, or it was altered; FleetStoreError.
    """
    try:
        return get_document(open_evidence(job.place.state_dir), FixOrder, job.order_sha256)
    except EvidenceError as gone:
        if gone.kind != "missing":
            raise
        try:
            with store_at(job.place.state_dir, job.secrets.store) as store:
                return listed_order(store, job.fix_id)
        except CampaignError:  # a list of another machine
            raise gone from None


def main() -> None:
    """Serve requests about one fix, until it is closed."""
    serve_standard_input(opened)
