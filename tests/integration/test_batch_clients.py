"""Several advisories with the real npm and uv, registries on loopback, and the real gates."""

import json
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from tests.choice import a_choice
from tests.e2e.command import Ended, osv, repository, run
from tests.fakes.repository import git
from tests.integration.gate_setup import needs_sandbox
from tests.registry import Universe, serve
from tests.unit.npm.world import at, project

pytestmark = pytest.mark.sandbox

#: page 2 no longer does what the application needs; old-dependent keeps a copy of leaf below 1.
UNIVERSE = (
    Universe()
    .npm("leaf", "0.5.0", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("leaf", "1.0.0", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("leaf", "1.0.1", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("page", "1.0.0", files={"index.js": "module.exports = (text) => text;\n"})
    .npm("page", "2.0.0", files={"index.js": "exports.page = (text) => text;\n"})
    .npm("old-asker", "1.0.0", {"leaf": "0.5.0"}, files={"index.js": "require('leaf');\n"})
)
TEST = """const { test } = require('node:test');
const assert = require('node:assert');
test('has a leaf', () => assert.strictEqual(require('leaf'), 'leaf'));
"""
PAGE_TEST = "test('shows a page', () => assert.strictEqual(require('page')('tea'), 'tea'));\n"


def fixed(
    tmp_path: Path, declared: dict[str, str], *more: str, tests: str = TEST + PAGE_TEST
) -> tuple[Path, Ended]:
    """The repository, and how `fix` ended for the advisories on leaf and page."""
    needs_sandbox()
    installed = {"leaf": at("1.0.0"), "page": at("1.0.0")}
    if "old-asker" in declared:
        installed["old-asker"] = at("1.0.0", leaf="0.5.0")
        installed["old-asker/node_modules/leaf"] = at("0.5.0")
    files = project(declared, installed, scripts={"test": "node --test"})
    repo = repository(tmp_path / "repo", {**files, "test/app.test.js": tests})
    git(repo, "config", "user.name", "A Person")
    git(repo, "config", "user.email", "person@example.invalid")
    records = tmp_path / "advisories"
    records.mkdir()
    leaf = osv("leaf", ecosystem="npm", fixed="1.0.1", id="LEAF-1")
    (records / "leaf.json").write_text(leaf)
    (records / "page.json").write_text(osv("page", ecosystem="npm", fixed="2.0.0", id="PAGE-1"))
    own = ("--state-dir", tmp_path / "state", "--keys", tmp_path / "keys")
    with serve(UNIVERSE) as registry:
        ended = run(
            *("fix", repo, "--advisory", records, "--json", *own, *more), env=registry.environ
        )
    assert run("audit", "verify", *own).code == exit_codes.OK
    return repo, ended


def versions(repo: Path) -> dict[str, str]:
    lock = json.loads((repo / "package-lock.json").read_text())
    return {
        place.removeprefix("node_modules/"): str(one["version"])
        for place, one in lock["packages"].items()
        if place
    }


def by_id(reported: Any) -> dict[str, Any]:
    return {one["id"]: one for one in reported["advisories"]}


def test_a_major_that_breaks_the_tests_sinks_no_other(tmp_path: Path) -> None:
    repo, ended = fixed(tmp_path, {"leaf": "^1.0.0", "page": "^1.0.0"}, "--commit")
    reported = ended.json
    assert ended.code == exit_codes.ESCALATED
    assert {name: one["outcome"] for name, one in by_id(reported).items()} == {
        "LEAF-1": "fixed",
        "PAGE-1": "not_fixed",
    }
    (why,) = by_id(reported)["PAGE-1"]["why"]
    assert (why["reason"], why["failing_gates"]) == ("tests_failed", ["tests"])
    assert "shows a page" in why["sentence"]
    assert reported["commit"]["branch"] == "fallback-tier/LEAF-1"
    # `resume` of any part tells how the run ended, and asks nobody anything again.
    own = ("--state-dir", tmp_path / "state", "--keys", tmp_path / "keys")
    before = run("audit", "verify", *own, "--json").json["events"]
    for part in reported["fixes"]:
        again = run("resume", part["fix_id"], *own, "--json")
        assert (again.code, again.json["advisories"]) == (ended.code, reported["advisories"]), again
        assert again.json["commit"] == reported["commit"]
    assert run("audit", "verify", *own, "--json").json["events"] == before
    git(repo, "checkout", "-q", reported["commit"]["branch"])
    assert versions(repo) == {"leaf": "1.0.1", "page": "1.0.0"}


@pytest.mark.parametrize(
    ("tests", "code", "together"),
    a_choice(
        [
            (TEST, exit_codes.REFUSED, "LEAF-1+PAGE-1"),
            (TEST + PAGE_TEST, exit_codes.ESCALATED, "LEAF-1"),
        ],
        step=2,
    ),
    ids=["page is raised with it", "page breaks"],
)
def test_one_copy_is_fixed_and_one_stays(
    tmp_path: Path, tests: str, code: int, together: str
) -> None:
    """old-dependent keeps a copy below the fix: the other one is raised, and nothing calls it fixed."""
    repo, ended = fixed(
        tmp_path,
        {"leaf": "^1.0.0", "old-asker": "^1.0.0", "page": "^1.0.0"},
        *("--commit", "--report", str(tmp_path / "report")),
        tests=tests,
    )
    reported = ended.json
    assert ended.code == code
    leaf = by_id(reported)["LEAF-1"]
    assert leaf["outcome"] == "fixed_in_part"
    (why,) = leaf["why"]
    assert why["reason"] == "blocked_by_constraint"
    assert "old-asker 1.0.0" in why["sentence"]
    assert (by_id(reported)["PAGE-1"]["outcome"] == "fixed") == ("PAGE-1" in together)
    fix, *others = reported["fixes"]
    assert len(others) == ("PAGE-1" not in together)
    assert (fix["outcome"], fix["in_part"]) == ("verified", ["LEAF-1"])
    git(repo, "checkout", "-q", reported["commit"]["branch"])
    assert versions(repo)["leaf"] == "1.0.1"
    assert versions(repo)["old-asker/node_modules/leaf"] == "0.5.0"
    (seen,) = (one for one in fix["verdicts"] if one["gate"] == "not_vulnerable")
    assert (
        "stays affected, as was planned: node_modules/old-asker/node_modules/leaf" in seen["detail"]
    )
    message = git(repo, "log", "-1", "--format=%B")
    assert message.startswith(
        f"Fix {together} in part\n\nLEAF-1: in part only, something of it stays"
    )
    said = json.loads((tmp_path / "report" / "openvex.json").read_text())["statements"]
    assert {one["vulnerability"]["name"]: one["status"] for one in said} == {
        name: "under_investigation" if name == "LEAF-1" else "fixed" for name in together.split("+")
    }


#: page 2 no longer does what the application needs; nobody fixes stuck.
PYTHON = (
    Universe()
    .pypi("left", "1.0.0")
    .pypi("left", "2.0.0")
    .pypi("stuck", "1.0.0")
    .pypi("page", "1.0.0", files={"page/__init__.py": "def page(text):\n    return text\n"})
    .pypi("page", "2.0.0", files={"page/__init__.py": "def show(text):\n    return text\n"})
)
APPLICATION = {
    "requirements.txt": "left==1.0.0\npage==1.0.0\nstuck==1.0.0\n",
    "app.py": "import left\nimport stuck\nfrom page import page\n",
    "test_app.py": "import unittest\n\n\nclass AppTest(unittest.TestCase):\n"
    "    def test_shows_a_page(self):\n        import app\n"
    "        self.assertEqual(app.page('tea'), 'tea')\n",
}


def test_python_what_breaks_is_left_and_what_cannot_be_fixed_stays(tmp_path: Path) -> None:
    """One advisory is about left and about stuck: left is raised, and stuck stays with its name."""
    needs_sandbox()
    repo = repository(tmp_path / "repo", APPLICATION)
    page = json.loads(osv("page", id="PAGE-1"))
    two = json.loads(osv("left", id="TWO-1"))
    two["affected"] += json.loads(osv("stuck", fixed=None))["affected"]
    for record in (page, two):
        (tmp_path / f"{record['id']}.json").write_text(json.dumps(record))
    own = ("--state-dir", tmp_path / "state", "--keys", tmp_path / "keys")
    given = ("--advisory", tmp_path / "PAGE-1.json", "--advisory", tmp_path / "TWO-1.json")
    with serve(PYTHON) as registry:
        ended = run("fix", repo, *given, "--json", *own, env=registry.environ)
    reported = ended.json
    ends = by_id(reported)
    assert ended.code == exit_codes.ESCALATED
    assert {name: one["outcome"] for name, one in ends.items()} == {
        "PAGE-1": "not_fixed",
        "TWO-1": "fixed_in_part",
    }
    assert ends["PAGE-1"]["why"][0]["failing_gates"]
    assert ends["TWO-1"]["why"][0]["reason"] == "no_fixed_version"
    assert (repo / "requirements.txt").read_text() == "left==2.0.0\npage==1.0.0\nstuck==1.0.0\n"
    (seen,) = (one for one in reported["fixes"][0]["verdicts"] if one["gate"] == "not_vulnerable")
    assert (seen["status"], seen["detail"]) == ("passed", "resolved tree: left 2.0.0")
    assert reported["fixes"][0]["in_part"] == ["TWO-1"]
    assert run("audit", "verify", *own).code == exit_codes.OK
