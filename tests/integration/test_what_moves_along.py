"""What holds a fixed version back moves along within its own range: `plan` says it, `fix` does it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.sandbox.clients import SubprocessClients
from tests.e2e.command import osv, repository, run
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Universe, serve
from tests.unit.npm.world import at, project

pytestmark = pytest.mark.sandbox

#: leaf 2 is fixed. tool 1 and plugin 1.0 hold leaf back; within its range, plugin 1.1 goes with either.
SAYS_ITS_NAME = {"index.js": "module.exports = require('./package.json').name;\n"}
UNIVERSE = (
    Universe()
    .npm("leaf", "1.0.0", files=SAYS_ITS_NAME)
    .npm("leaf", "2.0.0", files=SAYS_ITS_NAME)
    .npm("tool", "1.0.0", {"leaf": "^1.0.0"}, files=SAYS_ITS_NAME)
    .npm("tool", "1.1.0", {"leaf": "^2.0.0"}, files=SAYS_ITS_NAME)
    .npm("plugin", "1.0.0", files=SAYS_ITS_NAME, peerDependencies={"tool": "~1.0.0"})
    .npm("plugin", "1.1.0", files=SAYS_ITS_NAME, peerDependencies={"tool": "^1.0.0"})
    .npm("plugin", "2.0.0", files=SAYS_ITS_NAME, peerDependencies={"tool": "^1.1.0"})
    .pypi("leaf", "1.0.0")
    .pypi("leaf", "2.0.0")
    .pypi("parent", "1.0.0", ["leaf<2"])
    .pypi("parent", "1.1.0", ["leaf>=1,<3"])
    .pypi("parent", "2.0.0", ["leaf>=2"])
)


def planned_and_fixed(
    place: Path, files: Mapping[str, str], ecosystem: str, environ: Mapping[str, str]
) -> tuple[dict[str, Any], Path]:
    """The move, which is `plan`'s and `fix`'s, and the repository with the fix on its working tree."""
    record = place / "advisory.json"
    record.write_text(osv("leaf", ecosystem=ecosystem, fixed="2.0.0", id="LEAF-1"))
    repo = repository(place / "repo", files)
    own = ("--state-dir", place / "state", "--keys", place / "keys")
    plan = run("plan", repo, "--advisory", record, "--json", env=environ)
    fix = run("fix", repo, "--advisory", record, "--json", *own, env=environ)
    assert (plan.code, fix.code) == (exit_codes.OK, exit_codes.OK), fix
    assert fix.json["proof_level"] == "resolved_tree"
    (planned,), done = plan.json["fixes"], fix.json["application"]["remediation"]
    (move,) = planned["moves"]
    ids = move.pop("advisory_ids")
    assert (ids, done["moves"]) == (["LEAF-1"], [move])
    assert set(planned["notes"]) <= set(done["notes"])
    assert run("audit", "verify", *own).code == exit_codes.OK
    return {**move, "notes": planned["notes"]}, repo


def test_a_plugin_of_the_tool_that_brings_it_in(tmp_path: Path) -> None:
    needs_sandbox()
    installed = {
        "leaf": at("1.0.0"),
        "tool": at("1.0.0", leaf="^1.0.0"),
        "plugin": {"version": "1.0.0", "peerDependencies": {"tool": "~1.0.0"}},
    }
    files = project({"tool": "~1.0.0", "plugin": "^1.0.0"}, installed)
    with serve(UNIVERSE) as registry:
        move, repo = planned_and_fixed(tmp_path, files, "npm", registry.environ)
    assert (move["step"], move["after"]) == ("parent_bump", "2.0.0")
    assert move["raised"] == ["tool 1.1.0", "plugin 1.1.0"]
    assert (
        "plugin 1.0.0 requires tool ~1.0.0 as its peer, which does not admit 1.1.0: it goes to 1.1.0."
        in move["notes"]
    )
    declared = json.loads((repo / "package.json").read_text())["dependencies"]
    assert declared == {"tool": "~1.1.0", "plugin": "^1.0.0"}


def test_a_parent_in_uvs_lock(tmp_path: Path) -> None:
    needs_sandbox()
    text = (
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["parent==1.0.0"]\n'
    )
    with serve(UNIVERSE) as registry:
        place = tmp_path / "locked"
        place.mkdir()
        for pyproject in (text, text.replace("==1.0.0", "~=1.0")):  # the second keeps the release
            (place / "pyproject.toml").write_text(pyproject)
            clients = SubprocessClients({**os.environ, **registry.environ})
            assert clients.run("uv", ["lock"], cwd=place, timeout_s=60).ok
        files = {name: (place / name).read_text() for name in ("pyproject.toml", "uv.lock")}
        move, repo = planned_and_fixed(tmp_path, files, "PyPI", registry.environ)
    assert (move["step"], move["raised"]) == ("lock_refresh", ["parent 1.1.0"])
    assert (repo / "pyproject.toml").read_text() == files["pyproject.toml"]


def test_a_parent_of_requirements_beside_a_pin(tmp_path: Path) -> None:
    needs_sandbox()
    files = {"requirements.txt": "parent~=1.0\nleaf==1.0.0\n"}
    with serve(UNIVERSE) as registry:
        move, repo = planned_and_fixed(tmp_path, files, "PyPI", registry.environ)
    assert move["step"] == "direct_bump"
    assert (repo / "requirements.txt").read_text() == "parent~=1.0\nleaf==2.0.0\n"
