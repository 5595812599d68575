"""What the npm direct bump changes, and what its client's answer must hold."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_tier.errors import RecipeError
from tests.unit.recipes.npm_files import RECORD, bumping, lock, locked, manifest
from tests.unit.recipes.support import (
    FakeClients,
    advisory,
    after,
    fix,
    repository,
)

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
