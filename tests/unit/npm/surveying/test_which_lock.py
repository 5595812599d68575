"""Which lock decides: each client's own, unless one of them is named; locks of clients that only read."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_plugins.npm.surveying.survey import survey
from fallback_tier.outcome import NotApplicable, Selected
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Universe, serve
from tests.unit.npm.world import Counting, World, at, bad, lock, manifest, world
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import FakeClients, repository, tracked

LEAF = bad("leaf", ("0", "1.2.0"))
BAD, GOOD = "1.0.0", "1.2.0"


def berry(version: str) -> str:
    return f"""__metadata:
  version: 8
  cacheKey: 10c0

"app@workspace:.":
  version: 0.0.0-use.local
  resolution: "app@workspace:."
  dependencies:
    mid: "npm:^1.0.0"
  languageName: unknown
  linkType: soft

"l@npm:leaf@^1.0.0, leaf@npm:^1.0.0":
  version: {version}
  resolution: "leaf@npm:{version}"
  languageName: node
  linkType: hard

"mid@npm:^1.0.0":
  version: 1.0.0
  resolution: "mid@npm:1.0.0"
  dependencies:
    leaf: "npm:^1.0.0"
  languageName: node
  linkType: hard
"""


def bun(version: str) -> str:
    return """{
  "lockfileVersion": 1,
  "workspaces": {"": {"name": "app", "dependencies": {"mid": "^1.0.0"}}},
  "packages": {
    "mid": ["mid@1.0.0", "", { "dependencies": { "leaf": "^1.0.0", "@s/x": "1", } }, "sha512-A=="],
    "leaf": ["leaf@1.9.0", "", {}, "sha512-A=="],
    "@s/x": ["@s/x@1.0.0", "", { "dependencies": { "leaf": "^1.0.0" } }, "sha512-A=="],
    "mid/leaf": ["leaf@VERSION", "", {}, "sha512-A=="],
  },
}
""".replace("VERSION", version)


def classic(version: str, spec: str = "^1.0.0") -> str:
    resolved = f"https://host/leaf/-/leaf-{version}.tgz"
    return f'# yarn lockfile v1\n\n\nleaf@{spec}:\n  version "{version}"\n  resolved "{resolved}"\n'


def npm(version: str, spec: str = "^1.0.0") -> str:
    return lock({"dependencies": {"leaf": spec}}, {"leaf": at(version)})


def select(root: Path, files: Mapping[str, str]) -> Selected | NotApplicable:
    return build_ecosystem(FakeClients()).select(LEAF, repository(root, files))


READ_ONLY = {"yarn.lock": berry, "bun.lock": bun}


@pytest.mark.parametrize("name", READ_ONLY)
def test_a_lock_that_is_only_read_decides_all_the_same(tmp_path: Path, name: str) -> None:
    files = {"package.json": manifest(dependencies={"mid": "^1.0.0"}), name: READ_ONLY[name](GOOD)}
    selection = select(tmp_path, files)
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.NOT_AFFECTED


@pytest.mark.parametrize(
    ("name", "command"), [("yarn.lock", "`yarn up -R leaf`"), ("bun.lock", "`bun update leaf`")]
)
def test_an_affected_one_is_refused_with_its_clients_command(
    tmp_path: Path, name: str, command: str
) -> None:
    files = {"package.json": manifest(dependencies={"mid": "^1.0.0"}), name: READ_ONLY[name](BAD)}
    selection = select(tmp_path, files)
    assert isinstance(selection, NotApplicable)
    (found,) = survey(tracked(tmp_path), "leaf")
    assert selection.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert f"Run {command}." in selection.sentence
    assert f"holds leaf {BAD}" in selection.sentence
    assert BAD in found.installed.values()


def test_a_binary_lock_is_unknown_and_named(tmp_path: Path) -> None:
    selection = select(tmp_path, {"package.json": manifest(), "bun.lockb": "x"})
    assert isinstance(selection, NotApplicable)
    assert selection.reason is RefusalReason.UNKNOWN
    assert [item.path for item in selection.unread] == ["bun.lockb"]


LOCKS: dict[str, Any] = {
    "package-lock.json": npm,
    "npm-shrinkwrap.json": npm,
    "yarn.lock": classic,
}


@pytest.mark.parametrize(
    ("locks", "named", "affected"),
    [
        ({"package-lock.json": GOOD, "yarn.lock": GOOD}, None, False),
        ({"package-lock.json": GOOD, "yarn.lock": BAD}, None, True),
        ({"package-lock.json": BAD, "yarn.lock": GOOD}, None, True),
        ({"package-lock.json": BAD, "yarn.lock": GOOD}, "yarn@1.22.22", False),
        ({"package-lock.json": GOOD, "yarn.lock": BAD}, "yarn@1.22.22", True),
        ({"package-lock.json": GOOD, "yarn.lock": BAD}, "pnpm@9.0.0", True),
        ({"package-lock.json": BAD, "npm-shrinkwrap.json": GOOD}, None, False),
        ({"package-lock.json": GOOD, "npm-shrinkwrap.json": BAD}, None, True),
    ],
)
def test_each_lock_is_an_install_command_unless_one_client_is_named(
    tmp_path: Path, locks: dict[str, str], named: str | None, affected: bool
) -> None:
    more = {"packageManager": named} if named else {}
    files = {"package.json": manifest(dependencies={"leaf": "^1.0.0"}, **more)}
    files |= {name: LOCKS[name](version) for name, version in locks.items()}
    assert isinstance(select(tmp_path, files), Selected) is affected


@pytest.fixture
def yarn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is provisioned."""
    provisioned(tmp_path / "cache" / "fallback-tier" / "clients", YARN)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.registry("npm")
@pytest.mark.usefixtures("yarn")
@pytest.mark.parametrize(
    ("spec", "safe"),
    [("^1.0.0", ""), ("1.0.0", ""), ("^1.0.0", "package-lock.json"), ("^1.0.0", "yarn.lock")],
)
def test_two_locks_are_fixed_together(tmp_path: Path, spec: str, safe: str) -> None:
    """Both answer the manifest as it is then, also the one that held nothing affected."""
    with serve(Universe().npm("leaf", BAD).npm("leaf", GOOD)) as registry:
        files = {"package.json": manifest(dependencies={"leaf": spec})}
        for name in ("package-lock.json", "yarn.lock"):
            text = LOCKS[name](GOOD if name == safe else BAD, spec)
            files[name] = text.replace("https://host/", registry.npm_url)
        clients = SubprocessClients({**os.environ, **registry.environ})
        result = World(registry.universe, Counting(clients), tmp_path / "repo").fix(LEAF, files)
    after = {it.path: it.after or "" for it in result.changes}
    pinned = {"package.json"} if spec == "1.0.0" else set()
    assert set(after) == {"package-lock.json", "yarn.lock"} - {safe} | pinned
    for path, text in after.items():
        assert GOOD in text, path
        assert BAD not in text.replace('"version": "1.0.0"', "").replace("^1.0.0", ""), path
    if pinned:
        assert "leaf@1.2.0:" in after["yarn.lock"]


def test_a_lock_that_no_client_reads_is_noted(tmp_path: Path) -> None:
    files = {
        "package.json": manifest(dependencies={"leaf": "^1.0.0"}, packageManager="npm@11.0.0"),
        "package-lock.json": npm(BAD),
        "yarn.lock": classic(BAD),
    }
    with world(Universe().npm("leaf", BAD).npm("leaf", GOOD), tmp_path) as here:
        result = here.fix(LEAF, files)
    assert [it.path for it in result.changes] == ["package-lock.json"]
    assert any(note.startswith("yarn.lock is not what") for note in result.notes)
    assert json.loads(result.changes[0].after or "")["lockfileVersion"] == 3


@pytest.fixture
def provided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provisioned(tmp_path / "cache" / "fallback-tier" / "clients", YARN, PNPM["9"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.registry("npm")
@pytest.mark.usefixtures("provided")
@pytest.mark.parametrize("named", ["yarn@1.22.22", "pnpm@9.15.0", "yarn@4.1.0", "npm@11.0.0"])
def test_without_a_lock_the_projects_own_client_resolves(tmp_path: Path, named: str) -> None:
    """By ``packageManager``; of a yarn that none of ours replaces, npm. No lock is made of it."""
    universe = Universe().npm("leaf", BAD).npm("leaf", GOOD)
    universe.npm("mid", "1.0.0", {"leaf": BAD}).npm("mid", "1.0.1", {"leaf": GOOD})
    text = manifest(dependencies={"mid": "1.0.0"}, packageManager=named)
    with world(universe, tmp_path) as here:
        result = here.fix(LEAF, {"package.json": text})
        ran = " ".join(" ".join(call) for call in here.clients.calls)
    assert [it.path for it in result.changes] == ["package.json"]
    assert json.loads(result.changes[0].after or "")["dependencies"] == {"mid": "1.0.1"}
    assert ("yarn.js" in ran) is (named == "yarn@1.22.22")
    assert ("pnpm.cjs" in ran) is (named == "pnpm@9.15.0")
