"""The order of one fix, of a campaign or of the service, and the place where its worker runs.

An order has all that a worker needs, except keys: those are in ``FleetSecrets``.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, JsonValue, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.campaign_file import Campaign, Deliver
from fallback_tier.fleet.store.store import FleetStore, Ordered, open_store
from fallback_tier.fleet.store_limiter import ProviderLimits
from fallback_tier.wiring import Configuration, RecordSettings
from fallback_tier.workers.processes import WorkerLocks
from fallback_tier.workers.tables import RepositoryName, RepositorySettings


class FixOrder(Frozen):
    """One advisory in one repository, at a commit that is decided once: ``base_commit``, or (None) by the
    first worker, from the ref of ``source``.

    ``advisory``: an OSV record. ``configuration``: as ``Configuration.recorded`` returns it; keys and the
    location of the audit trail come from the worker's environment (``configured``). ``output``: the patch's
    file; ``report``: a folder for a reviewer; ``branch``: commit the patch on its own branch in ``source``.
    None of them: the patch is only in the audit trail. ``provider``: what the model's provider allows in a
    minute, all workers together (``StoreLimiter``). ``campaign`` and ``ecosystem`` None: an order of the
    service.

    Workers of other machines read orders from evidence, and those of an earlier version refuse fields that
    they don't know.
    """

    fix_id: str
    campaign: str | None = None
    repository: RepositoryName
    source: RepositorySettings
    base_commit: str | None
    advisory_id: str
    advisory: dict[str, Any]
    ecosystem: str | None = None
    configuration: dict[str, JsonValue] = Field(default_factory=dict)
    output: Path | None = None
    report: Path | None = None
    branch: bool = False
    provider: ProviderLimits | None = None

    def configured(
        self,
        state_dir: Path,
        record: RecordSettings,
        *,
        api_key: SecretStr | None = None,
        judge_api_key: SecretStr | None = None,
        secrets: tuple[SecretStr, ...] = (),
    ) -> Configuration:
        """Return the configuration on the worker's own machine."""
        return Configuration.model_validate(
            {
                **self.configuration,
                "state_dir": state_dir,
                "record": record,
                "api_key": api_key,
                "judge_api_key": judge_api_key,
                "secrets": secrets,
                "gates": self.source.gates,
            }
        )


def listed_order(store: FleetStore, fix_id: str) -> FixOrder:
    """Return the order of a fix, from the list alone. Raises CampaignError if no campaign there has it,
    FleetStoreError.
    """
    ordered = store.ordered(fix_id)
    settings = store.settings(ordered.fix.campaign)
    return order_of(ordered, Campaign.model_validate_json(settings))


def order_of(ordered: Ordered, campaign: Campaign) -> FixOrder:
    """Return the order of a fix, from what was planned and the campaign's current settings."""
    fix, delivery = ordered.fix, campaign.delivery
    configuration = campaign.configuration().recorded()
    if ordered.proof is not None:
        configuration["proof"] = json.loads(ordered.proof)
    below = f"{fix.repository}/{fix.fix_id}"
    return FixOrder(
        fix_id=fix.fix_id,
        campaign=fix.campaign,
        repository=fix.repository,
        source=RepositorySettings.model_validate_json(ordered.source),
        base_commit=ordered.base_commit,
        advisory_id=fix.advisory_id,
        advisory=json.loads(ordered.advisory),
        ecosystem=fix.ecosystem,
        configuration=configuration,
        output=None if delivery.patches is None else delivery.patches / f"{below}.patch",
        report=None if delivery.reports is None else delivery.reports / below,
        branch=delivery.deliver is Deliver.BRANCH,
        provider=campaign.provider_limits(),
    )


#: How a fix of a campaign is continued.
RESUME = "`fleet resume`"


class DatabaseSecrets(Frozen):
    """Addresses of databases, from the environment and from no file: of the audit trail, and of the
    list.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    database: SecretStr | None = None
    store: SecretStr | None = None


class FleetSecrets(DatabaseSecrets):
    """Addresses of databases, and keys: for the model of a fix, and for its judge."""

    api_key: SecretStr | None = None
    judge_api_key: SecretStr | None = None


class Place(Frozen):
    """Where the workers of one owner (a fleet, a service) run on this machine, and how long a fix may take
    there (seconds).

    ``folder``: the owner's own folder, below the state folder; ``resume``: how a fix is continued, as a
    clause; ``keeps_documents``: a worker also writes the document of its fix; ``own_checkouts``: each fix
    has its own checkout, so that several of a repository run at once; otherwise those of one commit share
    one and take turns.
    """

    state_dir: Path
    record: RecordSettings
    fix_s: float
    folder: str = "fleet"
    resume: str = RESUME
    keeps_documents: bool = False
    own_checkouts: bool = False

    @property
    def home(self) -> Path:
        """Return the owner's own folder."""
        return self.state_dir / self.folder

    @property
    def locks(self) -> WorkerLocks:
        """Return the locks of its workers."""
        return WorkerLocks(self.state_dir, self.home)


class PipedJob(Frozen):
    """The standard input of the process of one fix. Errors don't quote it, since they go to logs."""

    model_config = ConfigDict(hide_input_in_errors=True)

    place: Place
    secrets: DatabaseSecrets

    def to_pipe(self) -> bytes:
        """Return its bytes, including keys: they go through a pipe, and are in no argument or file."""
        plain = self.model_dump(mode="json", exclude={"secrets"})
        revealed = {
            name: value.get_secret_value() for name, value in self.secrets if value is not None
        }
        return json.dumps(plain | {"secrets": revealed}).encode()

    def whole_place(self) -> Place:
        """Return the place with the audit trail's address, which is sent separately."""
        record = self.place.record.model_copy(update={"database": self.secrets.database})
        return self.place.model_copy(update={"record": record})


def store_at(state_dir: Path, address: SecretStr | None) -> FleetStore:
    """Return the fleet's store at this address; None: in the state folder. Raises as ``open_store``
    does.
    """
    return open_store(state_dir, None if address is None else address.get_secret_value())
