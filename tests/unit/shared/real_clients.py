"""Real yarn and pnpm over packages that are made up: provisioned once a session, then on loopback only."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient
from fallback_tier.errors import RecipeError
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry.server import Registry, serve
from tests.registry.universe import Universe


def provisioned(folder: Path, *clients: PinnedClient) -> Path:
    """The folder with these clients in it; skips, with npm's own words, where they can't be had.

    npm unpacks each once a session, for all workers; the folder's files are links to those.
    """
    shared = ClientStore(SubprocessClients(), Path.home() / "provisioned-clients")
    for client in clients:
        try:
            shared.script(client)
        except RecipeError as error:
            pytest.skip(error.problem)
        shutil.copytree(shared.place / client.folder, folder / client.folder, copy_function=os.link)
    return folder


@contextmanager
def loopback(universe: Universe, scratch: Path) -> Iterator[tuple[SubprocessClients, Registry]]:
    """Clients that know this registry only, with caches of their own (pnpm's lie under XDG_CACHE_HOME)."""
    with serve(universe) as registry:
        environ = {**os.environ, **registry.environ, "XDG_CACHE_HOME": str(scratch / "cache")}
        yield SubprocessClients({k: v for k, v in environ.items() if v}), registry
