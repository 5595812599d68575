"""A model's override with the real yarn and pnpm, over a made-up registry on loopback."""

import json
from collections.abc import Callable, Iterator

import pytest

from fallback_audit.vocabulary import LadderStep
from fallback_plugins.npm.client import Client, Files
from fallback_plugins.npm.clients.pnpm import PNPM, PnpmClient
from fallback_plugins.npm.clients.provision import ClientStore, PinnedClient
from fallback_plugins.npm.clients.yarn import YARN, YarnClient
from fallback_plugins.npm.strategies.all_strategies import Strategies
from fallback_plugins.npm.strategies.resolving import Resolver, judge_of
from fallback_plugins.npm.strategies.targets import Targets
from fallback_plugins.shared.ladder import Resolution
from fallback_tier.advisory import Advisory
from fallback_tier.execution import ClientRunner
from tests.registry.universe import Universe
from tests.unit.shared.real_clients import loopback, provisioned
from tests.unit.shared.recipes import advisory

pytestmark = [pytest.mark.registry("npm"), pytest.mark.xdist_group("force-real")]

LEAF = advisory("npm", "leaf", [("0", "1.2.0")])
UNIVERSE = (
    Universe()
    .npm("leaf", "1.0.0")
    .npm("leaf", "1.2.0")
    .npm("leaf", "1.3.0")
    .npm("strict", "1.0.0", {"leaf": "1.0.0"})
)
#: lock → (client to provision, what makes our client of it, the text of an empty lock)
CLIENTS: dict[str, tuple[PinnedClient, Callable[[ClientRunner, ClientStore], Client], str]] = {
    "yarn.lock": (YARN, YarnClient, ""),
    "pnpm-lock.yaml": (PNPM["9"], PnpmClient, "lockfileVersion: '9.0'\n"),
}


@pytest.fixture(scope="module", params=sorted(CLIENTS))
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Files]]:
    lock: str = request.param
    pinned, client_of, empty = CLIENTS[lock]
    folder = provisioned(tmp_path_factory.mktemp("force-clients"), pinned)
    with loopback(UNIVERSE, tmp_path_factory.mktemp("force")) as (clients, _):
        client = client_of(clients, ClientStore(clients, folder))
        root = {"name": "r", "version": "1.0.0", "private": True, "license": "MIT"}
        text = json.dumps({**root, "dependencies": {"strict": "^1.0.0"}}, indent=2) + "\n"
        yield client, client.resolve(Files(".", {"package.json": text}, lock, empty))


def force(client: Client, record: Advisory, files: Files, version: str) -> Resolution[Files]:
    resolver, judge = Resolver(client), judge_of(record)
    resolve = Resolution(judge, resolver.position(files))
    resolve.run([Strategies(resolver, Targets(record, None, version), judge).forced(version)])
    return resolve


def test_one_version_is_forced_on_the_parent(made: tuple[Client, Files]) -> None:
    client, files = made
    resolve = force(client, LEAF, files, "1.3.0")
    assert [node.version for node in resolve.at.tree.of("leaf")] == ["1.3.0"]
    assert [move.step for move in resolve.moves("lock")] == [LadderStep.OVERRIDE]
    written = json.loads(resolve.at.files.manifests["package.json"])
    key = {"yarn": "resolutions", "pnpm": "pnpm"}[client.name]
    assert "1.3.0" in json.dumps(written[key])
    # What is there already is raised, where it doesn't serve any more.
    again = advisory("npm", "leaf", [("0", "1.2.0"), ("1.3.0", None)])
    (left,) = force(client, again, resolve.at.files, "1.2.0").lefts("lock")
    assert "downgrade" in left.sentence


def test_an_override_that_is_there_is_raised(made: tuple[Client, Files]) -> None:
    client, files = made
    old = client.resolve(client.with_override(files, "strict", "leaf", "1.0.0"))
    resolve = force(client, LEAF, old, "1.2.0")
    assert [node.version for node in resolve.at.tree.of("leaf")] == ["1.2.0"]
    text = resolve.at.files.manifests["package.json"]
    assert text == old.manifests["package.json"].replace('leaf": "1.0.0"', 'leaf": "1.2.0"')
