"""Which client resolves which lock."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fallback_plugins.npm.client import Client, Files, OverridePlace, WantedVersions
from fallback_plugins.npm.locks.yarn_berry import bun_tree
from fallback_plugins.npm.locks.yarn_lock import berry_refusal, is_berry
from fallback_plugins.npm.refusals import own_client, unsupported
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.tree import DependencyTree
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner

YARN_LOCK = "yarn.lock"
PNPM_LOCK = "pnpm-lock.yaml"


@dataclass(frozen=True)
class BunClient:
    """The protocol ``npm.client.Client`` over bun's locks: the text format is read, nothing is resolved."""

    lock: str
    name: str = field(default="bun", init=False)

    def tree(self, files: Files, names: Collection[str] | None = None) -> DependencyTree:  # noqa: ARG002
        """As ``Client.tree``. Raises RecipeError for a binary lock, with the reason UNKNOWN."""
        if self.lock.endswith(".lockb"):
            reason = f"{self.lock} is binary and is not read, so what is installed is unknown."
            step = "Run `bun install --save-text-lockfile` and commit bun.lock."
            raise unknown(self.lock, reason, next_step=step)
        return bun_tree(files)

    def resolve(self, files: Files, wanted_versions: WantedVersions | None = None) -> Files:  # noqa: ARG002
        """Raise RecipeError: no client of ours resolves it."""
        raise self.refusal([name for name, _ in wanted_versions or ()])

    def update(self, files: Files, packages: Sequence[str]) -> Files:  # noqa: ARG002
        """Raise RecipeError, as ``resolve``."""
        raise self.refusal(packages)

    def overrides(self, files: Files, package: str) -> tuple[OverridePlace, ...]:  # noqa: ARG002
        """None that could be raised."""
        return ()

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:  # noqa: ARG002
        """Raise RecipeError, as ``resolve``."""
        raise self.refusal([package])

    def refusal(self, packages: Iterable[str]) -> RecipeError:
        """Why nothing is resolved, and what to do about these packages."""
        return unsupported(
            f"{self.lock} decides what is installed, and no client of ours resolves it.",
            own_client("bun", "bun update", packages),
        )


def only_read(files: Files, packages: Collection[str] = ()) -> RecipeError | None:
    """Return why no client of ours writes a lock that can be read, and how the project's own does; None if
    one of ours does."""
    if PurePosixPath(files.lock or "").name == YARN_LOCK and is_berry(files.lock_text):
        return berry_refusal(packages)
    is_bun = (files.lock or "").endswith("bun.lock")
    return BunClient(str(files.lock)).refusal(packages) if is_bun else None


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
        return BunClient(str(lock))
    from fallback_plugins.npm.clients.npm_client import NpmClient

    return NpmClient(clients)
