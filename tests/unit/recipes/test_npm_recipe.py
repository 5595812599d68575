"""The npm direct bump: what is selected, what is refused by name, what npm's answer must hold."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_tier.errors import RecipeError
from fallback_tier.outcome import Selected
from tests.unit.recipes.support import (
    FakeClients,
    advisory,
    after,
    fix,
    real_clients,
    refusal,
    repository,
)

RECORD = advisory("npm", "minimist", [("0", "0.2.1"), ("1.0.0", "1.2.3")])


def manifest(**sections: Any) -> str:
    return json.dumps({"name": "app", "version": "1.0.0", **sections}, indent=2) + "\n"


def lock(installed: dict[str, str], version: int = 3, **root: Any) -> str:
    packages = {
        f"node_modules/{path}": {"version": number, "resolved": "https://host/x.tgz"}
        for path, number in installed.items()
    }
    return json.dumps(
        {"name": "app", "lockfileVersion": version, "packages": {"": root, **packages}}
    )


def bumping(*locks: str) -> FakeClients:
    """An npm that answers each run with the next of these locks."""
    answers = list(locks)

    def act(tool: str, args: Sequence[str], cwd: Path) -> tuple[int, str]:
        (cwd / "package-lock.json").write_text(answers.pop(0))
        return 0, ""

    return FakeClients(act)


# --- Selection ------------------------------------------------------------------------------------


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
            RefusalReason.RECIPE_UNSUPPORTED,
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


# --- Without a lock: pins -------------------------------------------------------------------------


def test_without_a_lock_only_the_spec_changes(tmp_path: Path) -> None:
    text = (
        '{\r\n    "name": "app",\r\n    "dependencies": { "minimist" : "~1.2.0" },\r\n'
        '    "devDependencies": {"minimist":"^0.1.0"}\r\n}'
    )
    repo = repository(tmp_path, {"sub/package.json": text})
    result = fix(build_ecosystem(FakeClients()), RECORD, repo)
    assert result.proof_level is ProofLevel.PINS
    assert result.before_versions == ("0.1.0", "1.2.0")
    assert after(result, "sub/package.json") == text.replace("~1.2.0", "~1.2.3").replace(
        "^0.1.0", "^1.2.3"
    )
    assert (tmp_path / "sub/package.json").read_bytes() == text.encode()


def test_a_peer_range_that_excludes_the_fix_is_refused(tmp_path: Path) -> None:
    record = advisory("npm", "minimist", [("0", "2.0.0")])
    files = manifest(devDependencies={"minimist": "^1.2.0"}, peerDependencies={"minimist": "^1"})
    repo = repository(tmp_path, {"package.json": files})
    plugin = build_ecosystem(FakeClients())
    with pytest.raises(RecipeError, match="peerDependencies"):
        fix(plugin, record, repo)
    # A peer range that admits the fix stays as it is.
    result = fix(plugin, RECORD, repo)
    assert json.loads(after(result, "package.json"))["peerDependencies"] == {"minimist": "^1"}


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.2.1", "itself affected"), ("0.2.1", "downgrade"), ("latest", "not a version")],
)
def test_apply_checks_a_version_that_someone_else_chose(
    tmp_path: Path, version: str, words: str
) -> None:
    repo = repository(tmp_path, {"package.json": manifest(dependencies={"minimist": "^1.2.0"})})
    plugin = build_ecosystem(FakeClients())
    with pytest.raises(RecipeError, match=words):
        plugin.apply(plugin.bump("minimist", version), RECORD, repo)


# --- With a lock: what npm answers is checked ------------------------------------------------------


def locked(tmp_path: Path, old: str, spec: str = "^1.2.0") -> Any:
    return repository(
        tmp_path,
        {"package.json": manifest(dependencies={"minimist": spec}), "package-lock.json": old},
    )


def test_an_in_range_fix_changes_the_lock_only(tmp_path: Path) -> None:
    repo = locked(tmp_path, lock({"minimist": "1.2.0"}))
    clients = bumping(lock({"minimist": "1.2.3"}), lock({"minimist": "1.2.3"}, ok=True))
    result = fix(build_ecosystem(clients), RECORD, repo)
    assert [change.path for change in result.changes] == ["package-lock.json"]
    assert result.proof_level is ProofLevel.RESOLVED_TREE
    assert result.after_version == "1.2.3"
    assert not any(folder.exists() for folder in clients.folders)
    assert all(folder != tmp_path for folder in clients.folders)


def test_options_keep_the_lock_as_found_and_run_nothing(tmp_path: Path) -> None:
    repo = locked(tmp_path, lock({"minimist": "1.2.0"}, 2), "1.2.0")
    clients = bumping(lock({"minimist": "1.2.3"}, 2))
    fix(build_ecosystem(clients), RECORD, repo)
    (call,) = clients.calls
    assert {
        "--package-lock-only",
        "--ignore-scripts",
        "--allow-git=none",
        "--omit-lockfile-registry-resolved=false",
        "--lockfile-version=2",
    } <= set(call)
    bare = lock({"minimist": "1.2.0"}).replace('"resolved"', '"x"')
    clients = bumping(lock({"minimist": "1.2.3"}))
    fix(build_ecosystem(clients), RECORD, locked(tmp_path, bare, "1.2.0"))
    assert "--omit-lockfile-registry-resolved=true" in clients.calls[0]


def test_legacy_peer_deps_of_the_repository_are_honoured(tmp_path: Path) -> None:
    files = {
        "package.json": manifest(dependencies={"minimist": "1.2.0"}),
        "package-lock.json": lock({"minimist": "1.2.0"}),
        ".npmrc": "git=/tmp/program\nlegacy-peer-deps = true\n",
    }
    clients = bumping(lock({"minimist": "1.2.3"}))
    fix(build_ecosystem(clients), RECORD, repository(tmp_path, files))
    assert "--legacy-peer-deps" in clients.calls[0]


@pytest.mark.parametrize(
    ("answers", "reason", "words"),
    [
        (
            # A nested copy stays affected, also after an update of it.
            [{"minimist": "1.2.3", "a/node_modules/minimist": "0.1.0"}] * 3,
            RefusalReason.RECIPE_UNSUPPORTED,
            "0.1.0 at node_modules/a/node_modules/minimist",
        ),
        ([{"other": "1.0.0"}] * 2, RefusalReason.RESOLVER_FAILED, "dropped minimist"),
        (
            [{"minimist": "1.2.3", "other": "1.0.0"}] * 2,
            RefusalReason.RESOLVER_FAILED,
            "node_modules/other would go down from 2.0.0 to 1.0.0",
        ),
    ],
)
def test_a_bad_answer_of_npm_is_no_fix(
    tmp_path: Path, answers: list[dict[str, str]], reason: RefusalReason, words: str
) -> None:
    old = {"minimist": "1.2.0", "other": "2.0.0"}
    clients = bumping(*(lock(answer) for answer in answers))
    with pytest.raises(RecipeError, match=words) as caught:
        fix(build_ecosystem(clients), RECORD, locked(tmp_path, lock(old)))
    assert caught.value.reason is reason


def test_nested_copies_are_raised_where_their_ranges_allow(tmp_path: Path) -> None:
    old = {"minimist": "1.2.0", "a/node_modules/minimist": "1.1.0"}
    mended = {"minimist": "1.2.3", "a/node_modules/minimist": "1.2.8"}
    half = old | {"minimist": "1.2.3"}
    clients = bumping(lock(half), lock(half), lock(mended))
    result = fix(build_ecosystem(clients), RECORD, locked(tmp_path, lock(old)))
    assert clients.calls[2][:3] == ("npm", "update", "minimist")
    assert after(result, "package-lock.json") == lock(mended)


def test_hoisting_is_no_downgrade(tmp_path: Path) -> None:
    old = {"minimist": "1.2.0", "o": "2.0.0", "a/node_modules/o": "1.0.0"}
    new = {"minimist": "1.2.3", "o": "1.0.0", "b/node_modules/o": "2.0.0"}
    clients = bumping(lock(new))
    assert fix(build_ecosystem(clients), RECORD, locked(tmp_path, lock(old), "1.2.0")).changes


def test_npm_own_words_are_repeated(tmp_path: Path) -> None:
    said = "npm error code ERESOLVE\nnpm error could not resolve\nnpm error A complete log of x\n"
    clients = FakeClients(lambda tool, args, cwd: (1, said))
    with pytest.raises(RecipeError, match="ERESOLVE; could not resolve") as caught:
        fix(build_ecosystem(clients), RECORD, locked(tmp_path, lock({"minimist": "1.2.0"})))
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED
    assert "complete log" not in str(caught.value)
    clients = FakeClients(lambda tool, args, cwd: (None, ""))
    with pytest.raises(RecipeError, match="no answer in"):
        fix(build_ecosystem(clients), RECORD, locked(tmp_path, lock({"minimist": "1.2.0"})))


def test_an_unchanged_lock_is_not_called_fixed(tmp_path: Path) -> None:
    # Declared below the fix, locked above nothing: npm answers with the lock it was given.
    old = lock({"other": "1.0.0"})
    clients = bumping(old, old)
    with pytest.raises(RecipeError) as caught:
        fix(build_ecosystem(clients), RECORD, locked(tmp_path, old))
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED


# --- The real npm ---------------------------------------------------------------------------------


@pytest.mark.registry
@pytest.mark.parametrize("version", [1, 2, 3])
def test_real_npm_bumps_and_keeps_the_locks_shape(tmp_path: Path, version: int) -> None:
    files = {
        "package.json": '{\n    "name": "app",\n    "version": "1.0.0",\n'
        '    "dependencies": { "minimist": "^1.1.0" }\n}\n'
    }
    repo = repository(tmp_path / "repo", files)
    scratch = tmp_path / "made"
    repository(scratch, {"package.json": files["package.json"].replace("^1.1.0", "1.1.0")})
    options = ["--package-lock-only", "--no-audit", "--no-fund", f"--lockfile-version={version}"]
    made = real_clients().run(
        "npm",
        ["install", *options, "--omit-lockfile-registry-resolved=false"],
        cwd=scratch,
        timeout_s=120,
    )
    assert made.ok, made.output
    old = (
        (scratch / "package-lock.json")
        .read_text()
        .replace('"minimist": "1.1.0"', '"minimist": "^1.1.0"')
    )
    (tmp_path / "repo/package-lock.json").write_text(old)
    repo = repository(tmp_path / "repo", {})

    result = fix(build_ecosystem(real_clients()), RECORD, repo)

    new = json.loads(after(result, "package-lock.json"))
    assert new["lockfileVersion"] == version
    tree = new["dependencies"] if version == 1 else new["packages"]
    entry = tree["minimist" if version == 1 else "node_modules/minimist"]
    # The range would take a higher one: the lowest fixed version was asked for.
    assert entry["version"] == "1.2.3"
    assert entry["resolved"].endswith("/minimist-1.2.3.tgz")
    assert entry["integrity"]
    assert after(result, "package-lock.json").startswith('{\n    "name"')
    assert [change.path for change in result.changes] == ["package-lock.json"]
    assert result.proof_level is ProofLevel.RESOLVED_TREE


@pytest.mark.registry
def test_real_npm_raises_a_spec_and_its_lock_together(tmp_path: Path) -> None:
    record = advisory("npm", "ms", [("0", "2.0.0")])
    text = '{"name":"app","version":"1.0.0","devDependencies":{"ms":"~0.7.0"}}'
    old = json.dumps(
        {
            "name": "app",
            "version": "1.0.0",
            "lockfileVersion": 3,
            "requires": True,
            "packages": {
                "": {"name": "app", "version": "1.0.0", "devDependencies": {"ms": "~0.7.0"}},
                "node_modules/ms": {"version": "0.7.3", "dev": True},
            },
        }
    )
    repo = repository(tmp_path, {"package.json": text, "package-lock.json": old})
    result = fix(build_ecosystem(real_clients()), record, repo)
    assert after(result, "package.json") == text.replace("~0.7.0", "~2.0.0")
    packages = json.loads(after(result, "package-lock.json"))["packages"]
    assert packages[""]["devDependencies"] == {"ms": "~2.0.0"}
    assert packages["node_modules/ms"]["version"] == "2.0.0"
    # The lock had no "resolved": none was added.
    assert "resolved" not in packages["node_modules/ms"]


@pytest.mark.registry
def test_real_npm_that_cant_resolve_is_a_typed_refusal(tmp_path: Path) -> None:
    record = advisory("npm", "minimist", [("0", "1.2.999")])
    repo = locked(tmp_path, lock({"minimist": "1.2.0"}))
    with pytest.raises(RecipeError, match="ETARGET") as caught:
        fix(build_ecosystem(real_clients()), record, repo)
    assert caught.value.reason is RefusalReason.RESOLVER_FAILED


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
