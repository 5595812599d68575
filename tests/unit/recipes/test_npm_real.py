"""The npm recipe with the real npm, on tiny packages."""

import json
from pathlib import Path

import pytest

from fallback_audit.vocabulary import ProofLevel, RefusalReason
from fallback_plugins.npm import build_ecosystem
from fallback_tier.errors import RecipeError
from tests.unit.recipes.npm_files import RECORD, lock, locked
from tests.unit.recipes.support import advisory, after, fix, real_clients, repository


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
