"""A fix is patched, not fixed, if old code still runs: committed bundles, commands (ADR-0101)."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.cli.main import main
from tests.e2e.command import osv, repository
from tests.registry import Universe, serve
from tests.unit.npm.world import manifest

pytestmark = [pytest.mark.registry("npm"), pytest.mark.sandbox]

ACTION = {
    "action.yml": "name: x\nruns:\n  using: node20\n  main: dist/index.js\n",
    "dist/index.js": f"{'x' * 6_000}\n",
}
DOCKERFILE = {"Dockerfile": "FROM node:20\nRUN npm install -g leaf@1.0.0\n"}
NEWER = {"Dockerfile": "FROM node:20\nRUN npm install -g leaf@1.2.0\n"}
TOOL = {"Dockerfile": "FROM node:20\nRUN npm install -g tool@1\n"}
MEMBERS = {
    "pnpm-workspace.yaml": "packages:\n  - p/*\n",
    "p/a/package.json": manifest(dependencies={"leaf": "^1.0.0"}),
    "p/a/yarn.lock": '# yarn lockfile v1\n\n\nleaf@^1.0.0:\n  version "1.0.0"\n',
}


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ""),
        (ACTION, "users run dist/index.js"),
        (DOCKERFILE, "leaf@1.0.0"),
        (NEWER, ""),
        (TOOL, "leaf 1.0.0"),
        (MEMBERS, "p/a/yarn.lock"),
    ],
)
def test_the_old_code_that_still_runs_is_not_called_fixed(
    tmp_path: Path,
    more: Mapping[str, str],
    names: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    universe = Universe().npm("leaf", "1.0.0").npm("leaf", "1.2.0")
    universe.npm("tool", "1.0.0", {"leaf": "1.0.0"})
    with serve(universe) as registry:
        dependencies = {"leaf": "^1.0.0"}
        held = {
            "version": "1.0.0",
            "resolved": f"{registry.npm_url}leaf/-/leaf-1.0.0.tgz",
            "integrity": universe.npm_packages["leaf"]["1.0.0"].integrity,
        }
        root = {"name": "app", "version": "1.0.0", "dependencies": dependencies}
        packages = {"": root, "node_modules/leaf": held}
        lock = {"name": "app", "version": "1.0.0", "lockfileVersion": 3, "packages": packages}
        files = {
            "package.json": manifest(dependencies=dependencies, scripts={"test": "node --test"}),
            "package-lock.json": json.dumps(lock, indent=2) + "\n",
            "a.test.js": "require('node:test')('a', () => {});\n",
            **more,
        }
        repo = repository(tmp_path / "repo", files)
        record = tmp_path / "a.json"
        record.write_text(osv("leaf", ecosystem="npm", fixed="1.2.0"))
        for name, value in registry.environ.items():
            monkeypatch.setenv(name, value)
        command = ["fix", repo, "--advisory", record, "--state-dir", tmp_path / "s", "--dry-run"]
        code = main([*map(str, command), "--json"])
    ended = capsys.readouterr()
    assert code == (exit_codes.PATCHED if names else exit_codes.OK), ended.out
    assert names in ended.out
