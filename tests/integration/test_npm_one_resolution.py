"""One resolution per fix (ADR-0102, ADR-0113): what the recipe resolved is what gates install."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.provision import PinnedClient
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.installing import installation
from fallback_plugins.shared.resolution import Resolution
from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from tests.e2e.command import osv, repository
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Registry, Universe, serve
from tests.unit.shared.real_clients import provisioned

pytestmark = [pytest.mark.sandbox, pytest.mark.registry("npm")]

#: Client runs of a whole fix before a resolution was shared, by projects: with git's, a fix of pins made 18
#: and 30. Of a chain, gates refused the first candidate, since they resolved the patch in another way.
PINS_BEFORE, CHAIN_BEFORE = {1: 6, 5: 18}, {1: 11, 5: 35}


@dataclass
class Watched:
    """Client runs, and the documents of packages that each asked the registry for."""

    registry: Registry
    runs: list[tuple[str, ...]] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)

    @property
    def of_installs(self) -> int:
        """Documents that installations asked for."""
        pairs = zip(self.runs, self.documents, strict=True)
        return sum(count for run, count in pairs if "--package-lock" in run)


@pytest.fixture
def own_clients(tmp_path: Path) -> None:
    """yarn and pnpm in the user's cache, from the registry that the tests' session has."""
    provisioned(tmp_path / "cache" / "fallback-tier" / "clients", YARN, PNPM["9"])


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    needs_sandbox()
    universe = Universe().npm("left", "1.0.0").npm("left", "1.1.0")
    universe.npm("qs", "1.0.0").npm("qs", "1.1.0")
    universe.npm("body", "1.0.0", {"qs": "1.0.0"}).npm("body", "1.1.0", {"qs": "^1.1.0"})
    universe.npm("pinning", "1.0.0", {"qs": "1.0.0"}).npm("other", "1.0.0")
    universe.npm("express", "1.0.0", {"body": "1.0.0"}).npm("express", "1.0.1", {"body": "^1.0.0"})
    run = SubprocessClients.run
    with serve(universe) as registry:
        for name, value in {
            **registry.environ,
            "HOME": str(tmp_path / "home"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        found = Watched(registry)

        def counted(
            clients: SubprocessClients, tool: str, args: Sequence[str], **options: object
        ) -> CommandResult:
            before = len(registry.requests)
            result = run(clients, tool, args, **options)  # type: ignore[arg-type]
            if tool != "git":
                asked = registry.paths()[before:]
                found.runs.append((tool, *args))
                found.documents.append(len([path for path in asked if not path.endswith(".tgz")]))
            return result

        monkeypatch.setattr(SubprocessClients, "run", counted)
        yield found


def fixed(
    place: Path, package: str, count: int, dependencies: dict[str, str], **facts: object
) -> Path:
    """A whole fix of so many projects without a lock; its patch as a file."""
    files = {"Makefile": "lint:\n\tnpx other@1.0.0\n"} | {
        ("" if count == 1 else f"p{number}/") + "package.json": json.dumps(
            {"name": f"app{number}", "version": "1.0.0", **facts, "dependencies": dependencies},
            indent=2,
        )
        for number in range(count)
    }
    repo = repository(place / "repo", files)
    advisory, patch = place / "advisory.json", place / "fix.patch"
    advisory.write_text(osv(package, ecosystem="npm", fixed="1.1.0"))
    own = ["--state-dir", str(place / "state"), "--keys", str(place / "keys")]
    words = [
        "fix",
        str(repo),
        "--advisory",
        str(advisory),
        "--dry-run",
        "--output",
        str(patch),
        *own,
    ]
    assert main(words) == exit_codes.OK
    return patch


@pytest.mark.parametrize("count", [1, 5])
def test_a_chain_is_resolved_by_the_recipe_alone(
    watched: Watched, tmp_path: Path, count: int
) -> None:
    """The parent only widens its range: gates that kept the base's lock kept what is affected."""
    patch = fixed(tmp_path, "qs", count, {"express": "1.0.0"}).read_text()
    assert patch.count('+    "express": "1.0.1"') == count
    assert "overrides" not in patch
    # For each project: the base, the patch, and both installations. Once: three questions, two versions,
    # and what the Makefile installs.
    assert len(watched.runs) == 4 * count + 5 + 1 < CHAIN_BEFORE[count]
    assert watched.of_installs == 0


@pytest.mark.parametrize("count", [1, 5])
def test_pins_are_resolved_once(watched: Watched, tmp_path: Path, count: int) -> None:
    fixed(tmp_path, "left", count, {"left": "1.0.0", "express": "1.0.1"})
    assert len(watched.runs) == 3 * count + 3 + 1 == PINS_BEFORE[count] + 1
    assert (
        watched.of_installs == count
    )  # the base commit's own left, which the patch's lock has not


def test_the_recipe_and_the_gates_hold_the_same_resolutions(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[Resolution] = []
    make = installation.Installation._make

    def kept(made: installation.Installation, entry: Path, recorded: Resolution | None) -> object:
        found, resolution = make(made, entry, recorded)
        installed.append(resolution)
        return found, resolution

    monkeypatch.setattr(installation.Installation, "_make", kept)
    locks = []
    resolve = installation.CommandResolution.remember

    def remembered(command: object, made: object, patch_of: object = None) -> None:
        locks.append(made.lock_text)  # type: ignore[attr-defined]
        resolve(command, made, patch_of)  # type: ignore[arg-type]

    monkeypatch.setattr(installation.CommandResolution, "remember", remembered)
    fixed(tmp_path, "qs", 1, {"express": "1.0.0"})
    base, patched = (json.loads(one.lock)["packages"] for one in installed)
    recipes = [json.loads(text)["packages"] for text in locks]
    assert [it for it in recipes if it[""]["name"] == "app0"] == [base, patched]
    assert base["node_modules/qs"]["version"] == "1.0.0"
    assert patched["node_modules/qs"]["version"] == "1.1.0"


@pytest.mark.parametrize("client", [YARN, PNPM["9"]], ids=["yarn", "pnpm"])
def test_what_yarn_or_pnpm_resolved_is_installed_by_it(
    own_clients: None, watched: Watched, tmp_path: Path, client: PinnedClient
) -> None:
    """npm, which gates ran in their place, reads neither yarn's resolutions nor pnpm's overrides."""
    manager = f"{client.name}@{client.version}"
    patch = fixed(tmp_path, "qs", 1, {"pinning": "1.0.0"}, packageManager=manager).read_text()
    assert '"pinning": "1.0.0"' in patch
    assert "overrides" in patch or "resolutions" in patch
    installs = [run for run in watched.runs if run[0] == "node" and "--frozen-lockfile" in run]
    assert len(installs) == 2
    assert watched.of_installs == 0
