"""What the npm direct bump selects, and what it refuses by name."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_tier.outcome import Selected
from tests.unit.recipes.npm_files import RECORD, lock, manifest
from tests.unit.recipes.support import (
    FakeClients,
    advisory,
    refusal,
    repository,
)


def test_the_lowest_fixed_version_is_selected(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"package.json": manifest(dependencies={"minimist": "^1.2.0"})})
    selection = build_ecosystem(FakeClients()).select(RECORD, repo)
    assert selection == build_ecosystem(FakeClients()).bump("minimist", "1.2.3")


@pytest.mark.parametrize(
    ("files", "reason", "words"),
    [
        ({"README.md": "x"}, RefusalReason.MANIFEST_MISSING, "package.json"),
        ({"package.json": manifest()}, RefusalReason.NOT_AFFECTED, "minimist"),
        (
            {"package.json": manifest(dependencies={"minimist": "1.2.3"})},
            RefusalReason.NOT_AFFECTED,
            "minimist",
        ),
        (
            {"package.json": manifest(dependencies={"minimist": "*"})},
            RefusalReason.NOT_AFFECTED,
            "minimist",
        ),
        (
            {"node_modules/x/package.json": manifest(dependencies={"minimist": "1.2.0"})},
            RefusalReason.MANIFEST_MISSING,
            "package.json",
        ),
        (
            {"package-lock.json": lock({"minimist": "1.2.0"})},
            RefusalReason.MANIFEST_MISSING,
            "package-lock.json locks minimist 1.2.0",
        ),
        (
            {"package.json": json.dumps({"name": "minimist", "version": "1.0.0"})},
            RefusalReason.OWN_CODE,
            "is minimist itself",
        ),
        (
            {"package.json": manifest(), "package-lock.json": lock({"minimist": "1.2.0"})},
            RefusalReason.RECIPE_UNSUPPORTED,
            "transitive dependency",
        ),
        (
            {
                "package.json": manifest(dependencies={"minimist": "^1.2.3"}),
                "package-lock.json": lock(
                    {"minimist": "1.2.3", "a/node_modules/minimist": "0.1.0"}
                ),
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "transitive dependency",
        ),
        (
            {"package.json": manifest(peerDependencies={"minimist": "^1.0.0"})},
            RefusalReason.RECIPE_UNSUPPORTED,
            "peerDependencies",
        ),
        (
            {"package.json": manifest(dependencies={"m": "npm:minimist@1.2.0"})},
            RefusalReason.RECIPE_UNSUPPORTED,
            "an alias",
        ),
        (
            {"package.json": manifest(dependencies={"minimist": "github:x/minimist"})},
            RefusalReason.RECIPE_UNSUPPORTED,
            "git repository",
        ),
        (
            {"package.json": manifest(dependencies={"minimist": "<1.2.3"})},
            RefusalReason.RECIPE_UNSUPPORTED,
            "upper end is affected",
        ),
        (
            {
                "package.json": manifest(dependencies={"minimist": "^1.2.0"}),
                "yarn.lock": "minimist@^1.2.0:\n  version 1.2.0\n",
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "yarn.lock",
        ),
        (
            {"package.json": manifest(), "pnpm-lock.yaml": "  /minimist@1.2.0:\n"},
            RefusalReason.RECIPE_UNSUPPORTED,
            "pnpm-lock.yaml",
        ),
        (
            {
                "package.json": manifest(workspaces=["packages/*"]),
                "packages/a/package.json": manifest(dependencies={"minimist": "^1.2.0"}),
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "workspaces",
        ),
        (
            {
                "package.json": manifest(dependencies={"minimist": "^1.2.0"}),
                "package-lock.json": lock({"minimist": "1.2.0"}),
                "npm-shrinkwrap.json": lock({"minimist": "1.2.0"}),
            },
            RefusalReason.RECIPE_UNSUPPORTED,
            "side by side",
        ),
        ({"package.json": '{"minimist"'}, RefusalReason.RECIPE_UNSUPPORTED, "is not JSON"),
        (
            {"package.json": '["minimist"]'},
            RefusalReason.RECIPE_UNSUPPORTED,
            "is not a JSON object",
        ),
    ],
)
def test_refusals_by_name(
    tmp_path: Path, files: dict[str, str], reason: RefusalReason, words: str
) -> None:
    told = refusal(build_ecosystem(FakeClients()), RECORD, repository(tmp_path, files))
    assert told.reason is reason, told
    assert words in told.sentence


def test_no_fixed_version(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"package.json": manifest(dependencies={"minimist": "^1.2.0"})})
    plugin = build_ecosystem(FakeClients())
    open_ended = advisory("npm", "minimist", [("0", None)])
    assert refusal(plugin, open_ended, repo).reason is RefusalReason.NO_FIXED_VERSION
    only_lower = advisory("npm", "minimist", [("0", "0.2.1"), ("1.0.0", None)])
    assert refusal(plugin, only_lower, repo).reason is RefusalReason.NO_FIXED_VERSION


def test_a_manifest_that_is_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"package.json": "{}"})
    (tmp_path / "package.json").write_bytes(b'{"dependencies": {"minimist": "\xff"}}')
    told = refusal(build_ecosystem(FakeClients()), RECORD, repo)
    assert told.reason is RefusalReason.RECIPE_UNSUPPORTED
    assert "package.json" in told.sentence


def test_what_the_plugin_says_of_itself() -> None:
    plugin = build_ecosystem(FakeClients())
    assert plugin.name == "npm"
    assert plugin.manifests(["a/package.json", "node_modules/a/package.json", "x.js"]) == (
        "a/package.json",
    )
    assert plugin.editable_keys("a/package.json") == (
        "dependencies",
        "devDependencies",
        "optionalDependencies",
    )
    assert plugin.editable_keys("package-lock.json") == ()
    assert plugin.editable_keys("a.js") is None
    assert isinstance(plugin.bump("a", "1.0.0"), Selected)
