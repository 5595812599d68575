"""`plan` runs nothing of a target on the host: no script, hook, configured program or client of its own."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_plugins.npm import build_ecosystem
from fallback_plugins.npm.clients.pnpm import PNPM
from fallback_plugins.npm.clients.yarn import YARN
from fallback_tier.outcome import Selected
from fallback_tier.sandbox.clients import SubprocessClients
from tests.registry import Universe, serve
from tests.unit.npm.world import bad
from tests.unit.shared.real_clients import provisioned
from tests.unit.shared.recipes import repository

pytestmark = pytest.mark.registry("npm")

#: Scripts that clients run while they install.
SCRIPTS = (
    "preinstall",
    "install",
    "postinstall",
    "prepare",
    "prepublish",
    "preprepare",
    "dependencies",
)

LOCKS = {
    "none": {},
    "package-lock.json": {"package-lock.json": '{"lockfileVersion": 3, "packages": {"": {}}}'},
    "yarn.lock": {"yarn.lock": "# yarn lockfile v1\n\n\n"},
    "pnpm-lock.yaml": {"pnpm-lock.yaml": "lockfileVersion: '9.0'\nimporters:\n  .: {}\n"},
}


def target(canary: Path) -> dict[str, str]:
    """Each way in which a repository names a program."""
    touch = f"touch {canary}"
    code = f"require('fs').writeFileSync({json.dumps(str(canary))}, 'ran');"
    scripts = dict.fromkeys(SCRIPTS, touch)
    member = {"name": "member", "version": "1.0.0", "scripts": scripts}
    root = {
        "name": "app",
        "version": "1.0.0",
        "private": True,
        "scripts": scripts,
        "dependencies": {"mid": "1.0.0"},
        "workspaces": ["packages/*"],
        "pnpm": {"onlyBuiltDependencies": ["mid"]},
    }
    settings = [
        f"script-shell={canary.parent}/run",
        f"node-options=--require {canary.parent}/hook.js",
    ]
    settings += [
        f"git={canary.parent}/run",
        f"pnpmfile={canary.parent}/hook.js",
        "ignore-scripts=false",
    ]
    return {
        "package.json": json.dumps(root),
        "packages/member/package.json": json.dumps(member),
        "pnpm-workspace.yaml": "packages:\n  - packages/*\n",
        ".pnpmfile.cjs": code,
        ".npmrc": "".join(f"{line}\n" for line in settings),
        ".yarnrc": f'yarn-path "./yarn.js"\npreinstall "{touch}"\n',
        ".yarnrc.yml": "yarnPath: ./yarn.js\nplugins:\n  - ./yarn.js\n",
        "yarn.js": code,
        "hook.js": code,
        "run": f"#!/bin/sh\n{touch}\n",
        "binding.gyp": "{}",
    }


def universe(canary: Path) -> Universe:
    """What is published has scripts, too."""
    scripts = {"scripts": dict.fromkeys(SCRIPTS, f"touch {canary}"), "hasInstallScript": True}
    found = Universe().npm("leaf", "1.2.0", manifest=scripts)
    found.npm("leaf", "1.0.0", manifest=scripts)
    found.npm("mid", "1.0.0", {"leaf": "1.0.0"}, manifest=scripts)
    return found.npm("mid", "1.0.1", {"leaf": "1.2.0"}, manifest=scripts)


@pytest.mark.parametrize("lock", LOCKS)
def test_the_canary_is_alive_after_a_plan(
    tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = tmp_path / "cache" / "fallback-tier" / "clients"
    # Without a lock, pnpm-workspace.yaml says whose project it is.
    provisioned(clients, *{"yarn.lock": [YARN], "package-lock.json": []}.get(lock, [PNPM["9"]]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    canary = tmp_path / "repo" / "canary"
    files: Mapping[str, str] = {**target(canary), **LOCKS[lock]}
    repo = repository(tmp_path / "repo", files)
    (tmp_path / "repo" / "run").chmod(0o755)
    record = bad("leaf", ("0", "1.2.0"))
    with serve(universe(canary)) as registry:
        plugin = build_ecosystem(SubprocessClients({**os.environ, **registry.environ}))
        selection = plugin.select(record, repo)
        assert isinstance(selection, Selected), selection
        assert plugin.apply(selection, record, repo).moves
        asked = registry.paths()
    assert any("mid" in path for path in asked)
    assert not canary.exists()


def test_the_canary_sings_when_the_target_is_installed(tmp_path: Path) -> None:
    """Otherwise the test above would show nothing."""
    canary = tmp_path / "repo" / "canary"
    files = {path: text for path, text in target(canary).items() if path != ".npmrc"}
    repository(tmp_path / "repo", files)
    with serve(universe(canary)) as registry:
        clients = SubprocessClients({**os.environ, **registry.environ})
        clients.run("npm", ["install"], cwd=tmp_path / "repo", timeout_s=120)
    assert canary.exists()
