"""A test script of several commands, one of which fails for years: its runner alone tells tests apart."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_audit.vocabulary import GateStatus
from fallback_plugins.npm.gates.all_gates import TestsGate as NpmTests
from fallback_tier.gate_ports import GateVerdict
from tests.choice import a_choice
from tests.integration import gate_setup
from tests.integration.gate_setup import advisory, clients_in, needs_sandbox, patched
from tests.registry import Registry, Universe, serve

pytestmark = [pytest.mark.sandbox, pytest.mark.registry("npm")]

#: Runs test.js, which names its tests; says and writes what jest says and writes.
JEST = """#!/usr/bin/env node
const tests = Object.entries(require(process.cwd() + '/test.js'));
const was = tests.map(([title, run]) => ({ancestorTitles: [], title, status: run() ? 'passed' : 'failed'}));
const count = (status) => was.filter((one) => one.status === status).length;
const [passed, failed] = [count('passed'), count('failed')];
const place = process.argv.map((word) => /^--outputFile=(.*)/.exec(word)).find(Boolean);
const name = process.cwd() + '/test.js';
const results = [{name, status: failed ? 'failed' : 'passed', assertionResults: was}];
const told = {numPassedTests: passed, numFailedTests: failed, testResults: results};
if (place) require('fs').writeFileSync(place[1], JSON.stringify(told));
console.log(`${Math.random()}`);  // no two logs are alike
console.log(`Tests:       ${failed ? failed + ' failed, ' : ''}${passed} passed, ${was.length} total`);
process.exit(failed ? 1 : 0);
"""

TESTS = """const sum = require('./index.js');
module.exports = {adds: () => sum(1, 2) === 3, old: () => OLD, zero: () => sum(0, 0) === 0};
"""


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    universe = Universe()
    universe.npm("jest", "29.0.0", files={"jest.js": JEST}, manifest={"bin": {"jest": "jest.js"}})
    with serve(universe) as registry:
        yield registry


def judge(
    place: Path, registry: Registry, change: str, script: str, *, old: bool = True
) -> GateVerdict:
    """What is seen at the base commit is kept: of one script it is seen once."""
    needs_sandbox()
    manifest = {
        "name": "calc",
        "version": "1.0.0",
        "scripts": {"test": script},
        "devDependencies": {"jest": "^29.0.0"},
    }
    files = {
        "package.json": json.dumps(manifest),
        "index.js": "module.exports = (a, b) => a + b;\n",
        "test.js": TESTS.replace("OLD", json.dumps(old)),
    }
    clients = clients_in(os.environ | registry.environ)
    with patched(place, files, {"index.js": change}, about=advisory("calc")) as case:
        return NpmTests().judge(case.with_(clients=clients).context)


GOOD = "module.exports = (a, b) => b + a;\n"
BAD = "module.exports = (a, b) => a + b + (a ? 1 : 0);\n"

#: What fails behind the tests, and what it says. With ``OTHER`` it says something else.
SAYING = (
    "true && jest --ci && node -e "
    "\"console.log(require('./index.js')(1, 1) ? 'no network' : 'no password asked'); process.exit(1)\""
)
OTHER = "module.exports = (a, b) => (a === 1 && b === 1 ? 0 : a + b);\n"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_setup, "CACHE", tmp_path / "cache")


def test_a_test_that_is_red_for_years_is_told_by_name(tmp_path: Path, registry: Registry) -> None:
    found = judge(tmp_path, registry, GOOD, "jest && echo done", old=False)
    assert found.status is GateStatus.PASSED, found.detail
    assert found.detail.startswith("2 test(s) pass; 1 fail as at the base commit: test.js > old")


def test_what_the_patch_breaks_behind_the_tests_fails(tmp_path: Path, registry: Registry) -> None:
    script = "jest && node -e \"process.exit(require('./index.js').length === 2 ? 0 : 1)\""
    change = "module.exports = (a, b, c = 0) => a + b + c;\n".replace("c = 0", "c").replace(
        "+ c", "+ (c || 0)"
    )
    found = judge(tmp_path, registry, change, script)
    assert found.status is GateStatus.FAILED


# With the suite: a command that fails behind the tests and says why; one says nothing, one is not there.
@pytest.mark.parametrize(
    "script",
    a_choice((SAYING, "true && jest --ci && no-such-program", "jest && false"), step=3),
    ids=["says why", "not there", "says nothing"],
)
def test_what_fails_behind_the_tests_is_no_reason_to_know_nothing(
    tmp_path: Path, registry: Registry, script: str
) -> None:
    good = judge(tmp_path / "1", registry, GOOD, script)
    assert (good.status, good.broken) == (GateStatus.PASSED, ()), good.detail
    assert good.detail.startswith("3 test(s) pass; the run itself fails (exit code")
    bad = judge(tmp_path / "2", registry, BAD, script)
    assert bad.status is GateStatus.FAILED
    assert [one.rpartition(" > ")[2] for one in bad.broken] == ["adds"]
    if script == SAYING:  # all tests pass, with the same exit code: only the words tell
        other = judge(tmp_path / "3", registry, OTHER, script)
        assert other.status is GateStatus.FAILED
