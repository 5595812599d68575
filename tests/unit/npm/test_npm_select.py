"""When the npm ladder is selected, and what is refused by name before any client runs."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_tier.outcome import Selected
from fallback_tier.repo import Settings
from tests.unit.npm.npm_files import RECORD, lock, manifest
from tests.unit.shared.recipes import (
    FakeClients,
    advisory,
    after,
    fix,
    refusal,
    repository,
)

V1 = json.dumps({"lockfileVersion": 1, "dependencies": {"minimist": {"version": "1.2.0"}}})


@pytest.mark.parametrize(
    "files",
    [
        {"package.json": manifest(dependencies={"minimist": "^1.2.0"})},
        {"package.json": manifest(dependencies={"m": "npm:minimist@1.2.0"})},
        # What a project without a lock pulls in, only a resolver can tell.
        {"package.json": manifest(dependencies={"minimist": "1.2.3"})},
        {"package.json": manifest(dependencies={"other": "*"})},
        {"package-lock.json": lock({"minimist": "1.2.0"})},
        {"package.json": manifest(), "package-lock.json": lock({"minimist": "1.2.0"})},
        {
            "package.json": manifest(),
            "package-lock.json": lock({"a/node_modules/minimist": "0.1.0"}),
        },
        {
            "package.json": manifest(workspaces=["packages/*"]),
            "packages/a/package.json": manifest(dependencies={"minimist": "^1.2.0"}),
        },
    ],
)
def test_the_ladder_is_selected_and_no_client_runs(tmp_path: Path, files: dict[str, str]) -> None:
    selection = build_ecosystem(FakeClients()).select(RECORD, repository(tmp_path, files))
    assert selection == Selected(recipe="npm-ladder")


def test_offline_what_has_no_lock_is_unknown(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"package.json": manifest(dependencies={"other": "*"})})
    quiet = repo.model_copy(update={"settings": Settings(offline=True)})
    reported = refusal(build_ecosystem(FakeClients()), RECORD, quiet)
    assert reported.reason is RefusalReason.UNKNOWN
    assert [item.path for item in reported.unread] == ["package.json"]


def test_without_a_lock_specs_are_raised_as_text_and_nothing_else(tmp_path: Path) -> None:
    text = (
        '{\r\n    "name": "app",\r\n    "dependencies": { "minimist" : "~1.2.0" },\r\n'
        '    "devDependencies": {"minimist":"^0.1.0", "m": "npm:minimist@2.0.0"}\r\n}'
    )
    repo = repository(tmp_path, {"sub/package.json": text})
    quiet = repo.model_copy(update={"settings": Settings(offline=True)})
    result = fix(build_ecosystem(FakeClients()), RECORD, quiet)
    assert result.proof_level is ProofLevel.PINS
    assert {(move.before, move.after) for move in result.moves} == {
        (("1.2.0",), "1.2.3"),
        (("0.1.0",), "0.2.1"),
    }
    assert after(result, "sub/package.json") == text.replace("~1.2.0", "~1.2.3").replace(
        "^0.1.0", "^0.2.1"
    )
    assert (tmp_path / "sub/package.json").read_bytes() == text.encode()


def test_the_outline_names_the_first_step_of_every_copy(tmp_path: Path) -> None:
    packages = {
        "": {"dependencies": {"minimist": "~1.2.0", "a": "1", "b": "1"}},
        "node_modules/minimist": {"version": "1.2.0"},
        "node_modules/a": {"version": "1.0.0", "dependencies": {"minimist": "^0.2.0"}},
        "node_modules/a/node_modules/minimist": {"version": "0.2.0"},
        "node_modules/b": {"version": "1.0.0", "dependencies": {"minimist": "0.1.0"}},
        "node_modules/b/node_modules/minimist": {"version": "0.1.0"},
    }
    text = json.dumps({"lockfileVersion": 3, "packages": packages})
    files = {"package.json": manifest(), "package-lock.json": text}
    reported = build_ecosystem(FakeClients()).outline(RECORD, repository(tmp_path, files))
    assert [(move.before, move.step.value, move.after) for move in reported.moves] == [
        (("1.2.0",), "lock_refresh", "1.2.3"),
        (("0.2.0",), "lock_refresh", "0.2.1"),
        (("0.1.0",), "parent_bump", "0.2.1"),
    ]
    assert "b 1.0.0 in package-lock.json" in reported.moves[2].declined[0].reason
    assert reported.left == ()


@pytest.mark.parametrize(
    ("asked", "peer", "step", "raised"),
    [
        # Only a peer excludes the fixed release: it may move along in a lock refresh.
        ("~1.2.0", "1.2.0", "lock_refresh", ("plugin",)),
        # The project's own declaration and a peer: that declaration is raised first.
        ("1.2.0", "1.2.0", "direct_bump", ()),
        ("1.2.0", "^1.2.0", "direct_bump", ()),
        ("~1.2.0", "^1.2.0", "lock_refresh", ()),
    ],
)
def test_the_outline_calls_no_peer_a_parent(
    tmp_path: Path, asked: str, peer: str, step: str, raised: tuple[str, ...]
) -> None:
    packages = {
        "": {"dependencies": {"minimist": asked, "plugin": "1"}},
        "node_modules/minimist": {"version": "1.2.0"},
        "node_modules/plugin": {"version": "1.0.0", "peerDependencies": {"minimist": peer}},
    }
    text = json.dumps({"lockfileVersion": 3, "packages": packages})
    own = manifest(dependencies={"minimist": asked, "plugin": "1"})
    files = {"package.json": own, "package-lock.json": text}
    reported = build_ecosystem(FakeClients()).outline(RECORD, repository(tmp_path, files))
    (move,) = reported.moves
    assert (move.step, move.after, move.raised) == (step, "1.2.3", raised)
    assert not any("plugin" in one.reason for one in move.declined)
    assert bool(move.declined) == (step == "direct_bump")


def test_the_outline_never_raises_for_a_file_that_cant_be_read(tmp_path: Path) -> None:
    repo = repository(tmp_path, {"package.json": "minimist", "a/package-lock.json": "minimist"})
    reported = build_ecosystem(FakeClients()).outline(RECORD, repo)
    assert [item.manifest for item in reported.left] == ["package.json", "a/package-lock.json"]


@pytest.mark.parametrize(
    ("files", "reason", "words"),
    [
        ({"README.md": "x"}, RefusalReason.MANIFEST_MISSING, "package.json"),
        ({"package.json": manifest()}, RefusalReason.NOT_AFFECTED, "minimist"),
        (
            {"node_modules/x/package.json": manifest(dependencies={"minimist": "1.2.0"})},
            RefusalReason.MANIFEST_MISSING,
            "package.json",
        ),
        (
            {"package.json": manifest(peerDependencies={"minimist": "^1.0.0"})},
            RefusalReason.RECIPE_UNSUPPORTED,
            "peerDependencies",
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
            {"package.json": manifest(dependencies={"minimist": "1"}), "bun.lockb": "x"},
            RefusalReason.UNKNOWN,
            "bun.lockb",
        ),
        (
            {"package-lock.json": V1},
            RefusalReason.MANIFEST_MISSING,
            "package-lock.json locks minimist 1.2.0",
        ),
        ({"package.json": '{"minimist"'}, RefusalReason.UNKNOWN, "is not JSON"),
        (
            {"package.json": '["minimist"]'},
            RefusalReason.UNKNOWN,
            "is not a JSON object",
        ),
    ],
)
def test_refusals_by_name(
    tmp_path: Path, files: dict[str, str], reason: RefusalReason, words: str
) -> None:
    reported = refusal(build_ecosystem(FakeClients()), RECORD, repository(tmp_path, files))
    assert reported.reason is reason, reported
    assert words in reported.sentence


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
    reported = refusal(build_ecosystem(FakeClients()), RECORD, repo)
    assert reported.reason is RefusalReason.UNKNOWN
    assert "package.json" in reported.sentence


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
        "overrides",
        "resolutions",
        "pnpm.overrides",
    )
    assert plugin.editable_keys("package-lock.json") == ()
    assert plugin.editable_keys("a.js") is None
    assert isinstance(plugin.bump("a", "1.0.0"), Selected)
