"""Which client resolves which lock."""

from pathlib import PurePosixPath

from fallback_plugins.npm.client import Client
from fallback_plugins.shared.ladder import unknown
from fallback_tier.execution import ClientRunner

YARN_LOCK = "yarn.lock"
PNPM_LOCK = "pnpm-lock.yaml"


def client_for(lock: str | None, clients: ClientRunner) -> Client:
    """The client for a lock's path; without a lock, npm. Raises RecipeError: no client of ours reads it."""
    name = PurePosixPath(lock).name if lock else ""
    if name == YARN_LOCK:
        from fallback_plugins.npm.clients.yarn import YarnClient

        return YarnClient(clients)
    if name == PNPM_LOCK:
        from fallback_plugins.npm.clients.pnpm import PnpmClient

        return PnpmClient(clients)
    if name.startswith("bun."):
        raise unknown(
            str(lock),
            f"{lock} decides what is installed, and no client of ours resolves it.",
            next_step="Update the dependency with bun.",
        )
    from fallback_plugins.npm.clients.npm_client import NpmClient

    return NpmClient(clients)
