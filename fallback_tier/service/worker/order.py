"""What a worker is given on its standard input, and the lock that it holds for as long as it lives."""

import json
from pathlib import Path

from pydantic import Field, SecretStr

from fallback_audit.frozen import Frozen
from fallback_tier.service.configuring import Secrets
from fallback_tier.service.database import service_dir
from fallback_tier.service.settings import ServiceSettings
from fallback_tier.workers.locks import WorkerLocks


class WorkOrder(Frozen):
    """Which fix, in which service. ``lock``: the number of the inherited file that holds its lock."""

    fix_id: str
    state_dir: Path
    settings: ServiceSettings
    lock: int
    secrets: dict[str, SecretStr] = Field(default_factory=dict)

    def to_pipe(self, secrets: Secrets) -> bytes:
        """Its bytes, keys in them: they go through a pipe, and stand in no argument or file."""
        plain = self.model_dump(mode="json") | {"secrets": secrets.revealed()}
        return json.dumps(plain).encode()


#: How a fix of the service continues.
RESUME = "resume the fix"


def locks(state_dir: Path) -> WorkerLocks:
    """Those of the service's workers."""
    return WorkerLocks(state_dir, service_dir(state_dir))
