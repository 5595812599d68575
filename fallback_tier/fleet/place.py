"""Where fixes are made on this machine, and the secrets that they are made with there."""

import json
from pathlib import Path

from pydantic import ConfigDict, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.wiring import RecordSettings
from fallback_tier.workers.locks import WorkerLocks

#: How a fix of a campaign continues.
RESUME = "`fleet resume`"


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
