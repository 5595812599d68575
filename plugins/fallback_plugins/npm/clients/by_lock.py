"""Choice of the client that resolves a lock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from fallback_plugins.npm.client import Client, Files, OverridePlace, WantedVersions
from fallback_plugins.npm.clients.yarn_draft import Lookups
from fallback_plugins.npm.locks.yarn_lock import berry_refusal, bun_tree, is_berry
from fallback_plugins.npm.manifests.manifest import PNPM_LOCK, YARN_LOCK
from fallback_plugins.npm.manifests.specs import admits, raised
from fallback_plugins.shared.bumping import unsupported
from fallback_plugins.shared.ladder import unknown
from fallback_plugins.shared.tree import DependencyTree, Node
from fallback_tier.errors import RecipeError
from fallback_tier.execution import ClientRunner


@dataclass(frozen=True)
class BunClient:
    """The protocol ``npm.client.Client`` over bun's locks: the text format is read, nothing is resolved."""

    lock: str
    name: str = field(default="bun", init=False)

    def tree(self, files: Files) -> DependencyTree:
        """Return the tree (``Client.tree``). Raises RecipeError (UNKNOWN) for a binary lock."""
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
        """Return no override: none could be raised."""
        return ()

    def with_override(self, files: Files, parent: str | None, package: str, version: str) -> Files:  # noqa: ARG002
        """Raise RecipeError, as ``resolve``."""
        raise self.refusal([package])

    def refusal(self, packages: Iterable[str] = ()) -> RecipeError:
        """Return the refusal to resolve, with the command that updates these packages."""
        command = " ".join(("bun update", *sorted(set(packages))))
        return unsupported(
            f"{self.lock} decides what is installed, and no client of ours resolves it.",
            f"Update what is affected with the project's own bun: `{command}`.",
        )


def own_command(lock: str, tree: DependencyTree, node: Node, target: str | None) -> str:
    """Return what a person does with the project's own client, yarn from version 2 on or bun, to bring an
    affected package to the target; None: no version is known to be safe."""
    is_bun = PurePosixPath(lock).name != YARN_LOCK
    name, client = node.name, "bun" if is_bun else "yarn"
    asks = [(dependent, ask) for dependent, ask in tree.dependents(node.key) if not ask.peer]
    blocking = [
        (dependent, ask) for dependent, ask in asks if target and not admits(ask.spec, target)
    ]
    if target is None:
        return (
            f"Replace {name}, or take the advisory's workaround: no safe version above it is known."
        )
    if not blocking:
        return f"Run `{'bun update' if is_bun else 'yarn up -R'} {name}`."
    for dependent, ask in blocking:
        spec = raised(ask.spec, target)
        if not tree.is_root(dependent) or spec is None or ask.name != name:
            forced = "overrides" if is_bun else "resolutions"
            return (
                f'{dependent.label} asks for {ask.name} {ask.spec}: add `"{ask.name}": "{target}"` to'
                f" {forced} of package.json, and run `{client} install`."
            )
    specs = {raised(ask.spec, target): None for _, ask in blocking}
    commands = (f"`{client} {'add' if is_bun else 'up'} {name}@{spec}`" for spec in specs)
    folders = sorted(
        {str(PurePosixPath(dependent.key).parent) for dependent, _ in blocking} - {"."}
    )
    where = f" in {', '.join(folders)}" if is_bun and folders else ""
    return f"Run {' and '.join(commands)}{where}."


def only_read(files: Files) -> RecipeError | None:
    """Return why no client of ours writes a lock that can be read; None if one does."""
    if PurePosixPath(files.lock or "").name == YARN_LOCK and is_berry(files.lock_text):
        return berry_refusal()
    return BunClient(str(files.lock)).refusal() if (files.lock or "").endswith("bun.lock") else None


def client_for(lock: str | None, clients: ClientRunner, lookups: Lookups | None = None) -> Client:
    """Return the client for a lock's path; without a lock, npm. ``lookups``: what a registry
    answered yarn before."""
    name = PurePosixPath(lock).name if lock else ""
    if name == YARN_LOCK:
        from fallback_plugins.npm.clients.yarn import YarnClient

        return YarnClient(clients, lookups=Lookups() if lookups is None else lookups)
    if name == PNPM_LOCK:
        from fallback_plugins.npm.clients.pnpm import PnpmClient

        return PnpmClient(clients)
    if name.startswith("bun."):
        return BunClient(str(lock))
    from fallback_plugins.npm.clients.npm_client import NpmClient

    return NpmClient(clients)
