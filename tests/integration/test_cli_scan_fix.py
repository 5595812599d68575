"""`scan --fix` from the command line: the real npm and uv, registries and an OSV database on loopback, the
real gates. What is shown is fixed, nothing is looked up twice, and what stays is never called clean."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fallback_tier.cli import exit_codes
from fallback_tier.scan.document import WhyLeft
from fallback_tier.wiring import audit_db
from tests.e2e.command import Ended, repository, run, snapshot
from tests.fakes.osv_api import OsvApi, osv_api
from tests.fakes.repository import commit_all, git
from tests.integration.gate_setup import needs_sandbox
from tests.integration.test_cli_scan import record
from tests.registry import Universe, serve
from tests.unit.npm.world import at, project
from tests.unit.shared.locks_support import poetry_block, poetry_lock

pytestmark = pytest.mark.sandbox

LEFT, RIGHT, STUCK, LEAF = (f"GHSA-2222-3333-444{number}" for number in range(4, 8))

UNIVERSE = (
    Universe()
    .pypi("left", "1.0.0")
    .pypi("left", "1.5.0")
    .pypi("right", "1.0.0")
    .pypi("right", "1.5.0")
    .pypi("stuck", "1.0.0")
    .npm("leaf", "1.0.0", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("leaf", "1.5.0", files={"index.js": "module.exports = 'leaf';\n"})
    .npm("bough", "1.0.0", {"leaf": "^1.0.0"}, files={"index.js": "require('leaf');\n"})
)

PYTHON_TEST = """import unittest


class AppTest(unittest.TestCase):
    def test_imports(self):
        import app
"""

NODE_TEST = """const { test } = require('node:test');
test('loads', () => require('bough'));
"""


def python(*packages: str) -> dict[str, str]:
    return {
        "requirements.txt": "".join(f"{name}==1.0.0\n" for name in packages),
        "app.py": "".join(f"import {name}\n" for name in packages),
        "test_app.py": PYTHON_TEST,
    }


def about(package: str, name: str, ecosystem: str = "PyPI", **facts: Any) -> dict[str, Any]:
    """A record of ``package``, affected below 1.5.0."""
    document = record(name, ecosystem, **facts)
    document["affected"][0]["package"]["name"] = package
    return document


class Scenario:
    """A repository, an OSV API and a registry."""

    def __init__(self, place: Path, api: OsvApi, environ: Mapping[str, str]) -> None:
        self.place, self.api, self.environ = place, api, environ
        self.own = ("--state-dir", place / "state", "--keys", place / "keys")

    def commit(self, files: Mapping[str, str]) -> None:
        self.repo = repository(self.place / "repo", files)
        git(self.repo, "config", "user.name", "A Person")
        git(self.repo, "config", "user.email", "person@example.invalid")

    def lists(self, package: str, name: str, ecosystem: str = "PyPI", **facts: Any) -> None:
        """The database has a record of ``package``, and lists 1.0.0."""
        self.api.records[name] = about(package, name, ecosystem, **facts)
        self.api.affected.setdefault((ecosystem, package, "1.0.0"), []).append(name)

    def run(self, verb: str, *more: str) -> Ended:
        url = ("--advisory-url", self.api.url)
        return run(verb, self.repo, *url, *self.own, *more, env=self.environ)

    def fix(self, *more: str) -> Ended:
        needs_sandbox()
        return self.run("scan", "--fix", "--json", *more)

    def is_clean_now(self) -> None:
        """What is on the working tree, committed, is scanned again."""
        commit_all(self.repo)
        ended = self.run("scan", "--json")
        assert (ended.code, ended.json["findings"]) == (exit_codes.OK, []), ended
        assert ended.json["packages"] > 0

    @property
    def has_trail(self) -> bool:
        return audit_db(self.place / "state").exists()


@pytest.fixture(scope="module")
def environ() -> Iterator[Mapping[str, str]]:
    with serve(UNIVERSE) as registry:
        yield registry.environ


@pytest.fixture
def scenario(tmp_path: Path, environ: Mapping[str, str]) -> Iterator[Scenario]:
    with osv_api({}) as api:
        yield Scenario(tmp_path, api, environ)


def test_what_is_shown_is_fixed_and_scans_clean_again(scenario: Scenario) -> None:
    """Two advisories of two ecosystems: one run, one patch, one look-up of each record, a whole trail."""
    scenario.commit(
        {
            **python("left"),
            **project(
                {"bough": "^1.0.0"},
                {"bough": at("1.0.0", leaf="^1.0.0"), "leaf": at("1.0.0")},
                scripts={"test": "node --test"},
            ),
            "test/app.test.js": NODE_TEST,
        }
    )
    scenario.lists("left", LEFT)
    scenario.lists("leaf", LEAF, "npm")
    ended = scenario.fix()
    document = ended.json
    assert ended.code == document["exit_code"] == exit_codes.OK, ended
    assert {finding["id"] for finding in document["findings"]} == {LEFT, LEAF}
    assert document["not_fixed"] == []
    fix = document["fix"]
    assert (fix["exit_code"], fix["delivered"], fix["left"]) == (exit_codes.OK, True, [])
    assert {one["id"]: one["outcome"] for one in fix["advisories"]} == {
        LEFT: "fixed",
        LEAF: "fixed",
    }
    assert sorted(scenario.api.requests) == [LEFT, LEAF]
    assert len(scenario.api.batches) == 1
    assert (scenario.repo / "requirements.txt").read_text() == "left==1.5.0\n"
    lock = json.loads((scenario.repo / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/leaf"]["version"] == "1.5.0"
    assert scenario.has_trail
    assert run("audit", "verify", *scenario.own).code == exit_codes.OK
    scenario.is_clean_now()


def test_a_step_that_was_not_resolved_in_time_is_looked_for_by_the_fix(scenario: Scenario) -> None:
    """It is not "no step": the fix has all the time that it needs, and fixes it."""
    scenario.commit(python("left"))
    scenario.lists("left", LEFT)
    ended = scenario.fix("--time-limit", "0.001")
    assert ended.code == exit_codes.UNKNOWN, (
        ended
    )  # not all that the fix is not given was looked at
    (finding,) = ended.json["findings"]
    assert (finding["not_resolved"], finding["steps"], ended.json["stopped"]) == (
        True,
        [],
        "time_limit",
    )
    assert (ended.json["not_fixed"], ended.json["fix"]["delivered"]) == ([], True)
    assert (scenario.repo / "requirements.txt").read_text() == "left==1.5.0\n"


def test_one_is_fixed_as_fix_would(scenario: Scenario) -> None:
    """The same patch, outcome and gates as `fix --advisory ID`, in the same form of a document."""
    scenario.commit(python("left"))
    scenario.lists("left", LEFT)
    needs_sandbox()
    before = snapshot(scenario.repo)
    alone = scenario.run("fix", "--advisory", LEFT, "--dry-run", "--json")
    dry = scenario.fix("--dry-run")
    assert dry.code == alone.code == exit_codes.OK, (alone, dry)
    assert snapshot(scenario.repo) == before
    of_scan, of_fix = dry.json["fix"], alone.json
    assert of_scan.keys() == of_fix.keys() - {"advisory_sources"}
    assert dry.json["advisory_sources"] == [
        {**one, "fetched": dry.json["advisory_sources"][0]["fetched"]}
        for one in of_fix["advisory_sources"]
    ]
    for name in ("outcome", "advisory_id", "headline", "delivered", "proof_level", "tests_level"):
        assert of_scan[name] == of_fix[name], name
    assert of_scan["application"]["diff"] == of_fix["application"]["diff"]
    assert [(it["gate"], it["status"]) for it in of_scan["verdicts"]] == [
        (it["gate"], it["status"]) for it in of_fix["verdicts"]
    ]
    ended = scenario.fix("--commit", "fix/left", "--output", str(scenario.place / "it.patch"))
    assert ended.code == exit_codes.OK, ended
    assert ended.json["fix"]["commit"]["branch"] == "fix/left"
    assert snapshot(scenario.repo).status == ""
    assert "+left==1.5.0" in (scenario.place / "it.patch").read_text()
    git(scenario.repo, "switch", "--quiet", "fix/left")
    again = scenario.run("scan", "--json")
    assert (again.code, again.json["findings"]) == (exit_codes.OK, [])


@pytest.mark.parametrize("several", [False, True])
def test_what_is_patched_alone_is_not_called_fixed(scenario: Scenario, several: bool) -> None:
    """The lock of a fixture has a format that is not read, so no gate sees the flaw gone."""
    lock = poetry_lock(poetry_block(UNIVERSE, "left", "1.0.0")).replace('"2.0"', '"9.0"')
    manifest = '[tool.poetry]\nname = "a"\n[tool.poetry.dependencies]\nleft = ">=1.0"\n'
    fixture = "tests/fixtures/a"
    packages = ("left", "right") if several else ("left",)
    files = {f"{fixture}/poetry.lock": lock, f"{fixture}/pyproject.toml": manifest}
    scenario.commit({**python(*packages), **files})
    scenario.lists("left", LEFT)
    if several:
        scenario.lists("right", RIGHT)
    needs_sandbox()
    ended = scenario.run("scan", "--fix", "--dry-run")
    assert f"fixed: 0 of {len(packages)} findings; patched" in ended.out, ended
    assert ended.code == exit_codes.UNKNOWN  # the scan could not read the lock either


def test_what_can_not_be_fixed_is_listed_and_the_rest_is_fixed(scenario: Scenario) -> None:
    scenario.commit(python("left", "stuck"))
    scenario.lists("left", LEFT)
    scenario.lists("stuck", STUCK)
    scenario.api.records[STUCK]["affected"][0]["ranges"][0]["events"] = [{"introduced": "0"}]
    needs_sandbox()
    ended = scenario.run("scan", "--fix")
    assert ended.code == exit_codes.REFUSED, ended
    assert f"not fixed: stuck ({STUCK}):" in ended.out
    assert "not fixed: left" not in ended.out
    assert "fixed: 1 of 2 findings" in ended.out
    assert (scenario.repo / "requirements.txt").read_text() == "left==1.5.0\nstuck==1.0.0\n"
    commit_all(scenario.repo)
    ended = scenario.fix()
    assert ended.code == exit_codes.REFUSED
    assert [it["id"] for it in ended.json["findings"]] == [STUCK]
    (left,) = ended.json["not_fixed"]
    assert (left["id"], left["package"], left["why"]) == (STUCK, "stuck", WhyLeft.NOT_FIXED)
    assert left["reason"]


def test_of_an_advisory_that_is_fixed_in_part_the_rest_is_listed(scenario: Scenario) -> None:
    scenario.commit(python("left", "right", "stuck"))
    scenario.lists("left", LEFT)
    scenario.lists("right", RIGHT)
    scenario.lists("stuck", LEFT)
    both = about("left", LEFT)
    both["affected"] += about("stuck", LEFT)["affected"]
    both["affected"][1]["ranges"][0]["events"] = [{"introduced": "0"}]
    scenario.api.records[LEFT] = both
    ended = scenario.fix()
    assert ended.code == exit_codes.REFUSED, ended
    assert len(ended.json["findings"]) == 3
    assert [(it["id"], it["package"]) for it in ended.json["not_fixed"]] == [(LEFT, "stuck")]
    text = (scenario.repo / "requirements.txt").read_text()
    assert text == "left==1.5.0\nright==1.5.0\nstuck==1.0.0\n"


def test_what_the_rules_leave_out_is_not_fixed(scenario: Scenario) -> None:
    scenario.commit(python("left", "right"))
    scenario.lists("left", LEFT)
    scenario.lists("right", RIGHT)
    ended = scenario.fix("--no-resolve", "--ignore", f"{RIGHT},2999-12-31,no untrusted input")
    assert ended.code == exit_codes.OK, ended
    assert [it["finding"]["id"] for it in ended.json["ignored"]] == [RIGHT]
    assert ended.json["fix"]["advisory_id"] == LEFT
    assert (scenario.repo / "requirements.txt").read_text() == "left==1.5.0\nright==1.0.0\n"


def test_a_fix_does_not_hide_what_is_unknown(scenario: Scenario) -> None:
    """A lock that can't be read: the patch is made, and the whole is not called fixed."""
    scenario.commit({**python("left"), "other/package.json": "{}", "other/yarn.lock": "<<<<<<<\n"})
    scenario.lists("left", LEFT)
    ended = scenario.fix()
    assert ended.json["unread"]
    assert ended.code == ended.json["exit_code"] == exit_codes.UNKNOWN, ended


def test_nothing_to_fix_is_clear_and_leaves_no_trail(scenario: Scenario) -> None:
    scenario.commit(python("left"))
    ended = scenario.run("scan", "--fix", "--json")
    assert ended.code == exit_codes.OK, ended
    assert (ended.json["fix"], ended.json["not_fixed"], ended.json["findings"]) == (None, [], [])
    assert not scenario.has_trail
    text = scenario.run("scan", "--fix")
    assert (text.code, "0 of " in text.out) == (exit_codes.OK, True)


def test_a_disputed_finding_is_neither_fixed_nor_clean(scenario: Scenario) -> None:
    """The database lists it, and the ranges of its record do not: a fix has nothing to go by."""
    scenario.commit(python("left"))
    scenario.lists("left", LEFT)
    scenario.api.records[LEFT]["affected"][0]["ranges"][0]["events"][1] = {"fixed": "0.9"}
    ended = scenario.run("scan", "--fix", "--json")
    assert ended.code == exit_codes.REFUSED, ended
    assert ended.json["fix"] is None
    (left,) = ended.json["not_fixed"]
    assert (left["id"], left["why"]) == (LEFT, WhyLeft.NOT_TRIED)
    assert not scenario.has_trail


def test_what_is_disputed_stays_though_the_rest_of_its_advisory_is_fixed(
    scenario: Scenario,
) -> None:
    scenario.commit(python("left", "right"))
    scenario.lists("left", LEFT)
    scenario.api.affected["PyPI", "right", "1.0.0"] = [LEFT]
    other = about("right", LEFT)["affected"][0]
    other["ranges"][0]["events"][1] = {"fixed": "0.9"}
    scenario.api.records[LEFT]["affected"].append(other)
    ended = scenario.fix()
    assert ended.json["fix"]["outcome"] == "verified", ended
    (left,) = ended.json["not_fixed"]
    assert (left["package"], left["why"]) == ("right", WhyLeft.NOT_AFFECTED)
    assert ended.code == exit_codes.REFUSED


def test_a_record_without_versions_is_not_taken_for_the_projects_own(scenario: Scenario) -> None:
    """`fix` takes one that names commits alone for the package's own source; this one is installed."""
    scenario.commit(python("left"))
    scenario.lists("left", LEFT)
    scenario.api.records[LEFT]["affected"][0]["ranges"] = [
        {"type": "GIT", "repo": "https://example.invalid/left", "events": [{"introduced": "0"}]}
    ]
    ended = scenario.run("scan", "--fix", "--json")
    assert ended.code == exit_codes.REFUSED, ended
    assert [it["why"] for it in ended.json["not_fixed"]] == [WhyLeft.NOT_TRIED]


@pytest.mark.parametrize(
    "words",
    [
        ("--dry-run",),
        ("--output", "it.patch"),
        ("--commit",),
        ("--report", "folder"),
        ("--no-sandbox",),
        ("--require-tests",),
    ],
)
def test_an_option_of_a_fix_needs_one(scenario: Scenario, words: tuple[str, ...]) -> None:
    scenario.commit(python("left"))
    ended = scenario.run("scan", *words)
    assert ended.code == exit_codes.BAD_INPUT
    assert words[0] in ended.problem
    assert scenario.api.batches == []
