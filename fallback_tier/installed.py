"""What is installed here, the clients and the ecosystem plugins, and the repository that they look at.

All that a plan needs: no store is opened, and nothing is written.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from fallback_tier.errors import RepositoryError
from fallback_tier.execution import ClientRunner
from fallback_tier.gates.running.clients import SubprocessClients
from fallback_tier.gates.trees.isolation import RepositoryFacts, contained_tags, inspect_repository
from fallback_tier.ports import EcosystemPlugin
from fallback_tier.repo import RepoContext, Settings

ECOSYSTEMS_GROUP = "fallback_tier.ecosystems"

#: Random bytes of an identifier (64 bit).
ID_BYTES = 8

#: Changed files that an error names: enough to recognise one's own work.
MAX_DIRTY_NAMED = 5


def clients_and_plugins() -> tuple[ClientRunner, Mapping[str, EcosystemPlugin]]:
    """The reference clients, and every installed plugin on top of them."""
    clients = SubprocessClients()
    return clients, InstalledPlugins(clients)


def new_id(kind: str) -> str:
    """An identifier that nobody has used."""
    return f"{kind}-{secrets.token_hex(ID_BYTES)}"


def look_at(repository: Path, clients: ClientRunner, settings: Settings) -> RepoContext:
    """A repository at its clean base commit; no plugin was asked for its manifests yet.

    Raises RepositoryError: not a git repository, dirty, no commit.
    """
    facts = inspect_repository(repository, clients)
    if facts.dirty:
        raise RepositoryError(
            f"{facts.root} has uncommitted changes: {', '.join(facts.dirty[:MAX_DIRTY_NAMED])}.",
            next_step="Commit or stash them: a fix starts from a commit and is put on top of it.",
        )
    return as_found(facts, settings)


def tags_of(repo: RepoContext, clients: ClientRunner) -> Callable[[], tuple[str, ...]]:
    """Asks git for the tags that the base commit contains, when it is called."""
    return lambda: contained_tags(repo.root, repo.base_commit, clients)


def as_found(facts: RepositoryFacts, settings: Settings) -> RepoContext:
    """A repository at its base commit, whatever its working tree has on top of it."""
    return RepoContext(
        root=facts.root,
        base_commit=facts.base_commit,
        tracked_files=facts.tracked_files,
        tracked_files_cut=facts.tracked_files_cut,
        odd_names=facts.odd_names,
        manifests=(),
        fix_id=new_id("fix"),
        gate_transition_id=new_id("gate"),
        settings=settings,
    )


class InstalledPlugins(Mapping[str, EcosystemPlugin]):
    """Every installed ecosystem plugin, by its OSV name (ADR-0004), loaded when it is asked for."""

    def __init__(self, clients: ClientRunner) -> None:
        self._clients = clients
        self._found: dict[str, EntryPoint] = {
            found.name: found for found in entry_points(group=ECOSYSTEMS_GROUP)
        }
        self._loaded: dict[str, EcosystemPlugin] = {}

    def __getitem__(self, ecosystem: str) -> EcosystemPlugin:
        if ecosystem not in self._loaded:
            self._loaded[ecosystem] = self._found[ecosystem].load()(self._clients)
        return self._loaded[ecosystem]

    def __contains__(self, ecosystem: object) -> bool:
        return ecosystem in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
