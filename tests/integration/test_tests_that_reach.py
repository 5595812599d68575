"""Suites that take too long, in a real sandbox: tests that reach what the patch changes are compared."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_plugins.npm.gates import testing as npm_testing
from fallback_plugins.npm.gates.all_gates import TestsGate as NpmTests
from fallback_plugins.pypi.gates import testing
from fallback_plugins.pypi.gates import testing as python_testing
from fallback_plugins.pypi.gates.testing import TestsGate as PythonTests
from fallback_plugins.shared.gates.test_commands import TestCommand as Command
from fallback_tier.gate_ports import Gate, GateVerdict
from tests.choice import a_choice
from tests.integration import gate_setup
from tests.integration.gate_setup import (
    advisory,
    clients_in,
    needs_sandbox,
    our_pytest_stands_in,
    patched,
)
from tests.registry import Universe, serve

pytestmark = pytest.mark.sandbox

#: Seconds of a suite. A test that has none left sleeps longer than all of them.
LIMIT_S = 12
NEVER_S = 600


@pytest.fixture(autouse=True)
def _sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    monkeypatch.setattr(gate_setup, "CACHE", tmp_path / "cache")


def judge(
    gate: Gate,
    place: Path,
    files: Mapping[str, str],
    changes: Mapping[str, str],
    *,
    environ: Mapping[str, str] | None = None,
    limit_s: float | None = LIMIT_S,
    timeout_s: float = 120,
) -> GateVerdict:
    ecosystem = "PyPI" if isinstance(gate, PythonTests) else "npm"
    about = advisory("calc", ecosystem)
    with patched(place, files, changes, about=about, timeout_s=timeout_s) as case:
        repo = case.context.repo
        settings = repo.settings.model_copy(update={"test_timeout_s": limit_s})
        clients = clients_in(os.environ | dict(environ or {}))
        repo = repo.model_copy(update={"settings": settings})
        return gate.judge(case.with_(repo=repo, clients=clients).context)


def without_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner in (python_testing.OwnTests, npm_testing.Suite):
        monkeypatch.setattr(owner, "part", lambda *_: "the test leaves it out")


# --- Python ---------------------------------------------------------------------------------------

PYTHON = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "totals.py": "from calc import add\n\ndef total(them):\n    return add(*them)\n",
    "tests/test_a_slow.py": "import time, unittest\n"
    "class Slow(unittest.TestCase):\n"
    "    def test_quick(self): pass\n"
    f"    def test_slow(self): time.sleep({NEVER_S})\n",
    "tests/test_totals.py": "import unittest\nfrom totals import total\n"
    "class Totals(unittest.TestCase):\n"
    "    def test_total(self): self.assertEqual(total((1, 2)), 3)\n"
    "    def test_old(self): self.fail()\n",
}
GOOD = {"calc.py": "def add(a, b):\n    return b + a\n"}
BAD = {"calc.py": "def add(a, b):\n    return a\n"}


def by_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    our_pytest_stands_in(monkeypatch)


def by_its_own_command(monkeypatch: pytest.MonkeyPatch) -> None:
    command = Command("python -m unittest discover -v tests", "Makefile")
    monkeypatch.setattr(testing, "own_commands", lambda *_, **__: (command,))


Way = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("by", a_choice([by_pytest, by_its_own_command], step=2))
def test_python_suite_that_is_late_fails_for_a_test_that_reaches_the_patch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: Way
) -> None:
    by(monkeypatch)
    verdict = judge(PythonTests(), tmp_path, PYTHON, BAD)
    assert verdict.failure_kind is FailureKind.TESTS_FAILED, verdict
    assert len(verdict.broken) == 1
    assert "test_total" in verdict.broken[0]


@pytest.mark.parametrize("by", a_choice([by_its_own_command, by_pytest], step=2))
def test_python_suite_that_is_late_passes_with_the_count_of_what_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: Way
) -> None:
    by(monkeypatch)
    verdict = judge(PythonTests(), tmp_path, PYTHON, GOOD)
    assert verdict.status is GateStatus.PASSED, verdict
    assert [it.tests_level for it in verdict.tests] == [Level.COMPARED, Level.RAN]
    assert verdict.tests_level is Level.RAN, "the others were not compared"
    assert len(verdict.failing_before) == 1
    of = "4" if by is by_pytest else "more than 2"
    what = f"2 of {of} tests (in at most 1 of 2 test files), those that reach calc.py"
    assert verdict.tests[0].reason == what
    assert what in verdict.detail
    assert "do not end within 12 s" in verdict.detail


def test_without_the_selection_the_broken_test_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_pytest(monkeypatch)
    without_selection(monkeypatch)
    verdict = judge(PythonTests(), tmp_path, PYTHON, BAD)
    assert verdict.status is GateStatus.SKIPPED, verdict
    assert verdict.tests_level is Level.RAN
    assert any("the test leaves it out" in note for note in verdict.notes)


@pytest.mark.campaign
def test_part_that_is_late_too_says_so_and_the_suite_is_judged_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_pytest(monkeypatch)
    files = dict(PYTHON)
    files["tests/test_a_slow.py"] += "import calc\n"
    files["tests/test_none.py"] = files["tests/test_no_other.py"] = "def test_none(): pass\n"
    verdict = judge(PythonTests(), tmp_path, files, GOOD)
    assert verdict.status is GateStatus.SKIPPED, verdict
    assert [it.tests_level for it in verdict.tests] == [Level.RAN]
    assert (
        "tests in at most 2 of 4 test files, those that reach calc.py, could not be compared"
        in verdict.detail
    )


def test_files_that_are_left_out_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading in all files of a suite can take longer than the tests of some."""
    by_pytest(monkeypatch)
    files = dict(PYTHON)
    files["tests/test_a_slow.py"] = f"import time\ntime.sleep({NEVER_S})\n"
    files["tests/test_0_quick.py"] = "def test_quick(): pass\n"
    asked = judge(PythonTests(), tmp_path / "1", files, BAD)
    # Nothing was reported before the end, but the runner is one that can be asked.
    assert asked.failure_kind is FailureKind.TESTS_FAILED, asked


# --- npm ------------------------------------------------------------------------------------------

#: Reads what jest reads of its options, and writes what jest writes, once it is done.
JEST = """#!/usr/bin/env node
const fs = require('fs'), path = require('path');
const words = process.argv.slice(2);
const own = fs.readdirSync('test').sort().map((it) => 'test/' + it);
const files = words.includes('--runTestsByPath') ? words.filter((it) => it.endsWith('.test.js')) : own;
const results = [];
let passed = 0, failed = 0;
for (const file of files.map((it) => path.resolve(it))) {
  const assertionResults = [];
  global.test = (title, run) => {
    let status = 'passed';
    try { run(); passed++; } catch { status = 'failed'; failed++; }
    assertionResults.push({ancestorTitles: [], title, status});
  };
  require(file);
  const status = assertionResults.some((it) => it.status === 'failed') ? 'failed' : 'passed';
  results.push({name: file, status, assertionResults});
}
const place = words.map((it) => /^--outputFile=(.*)/.exec(it)).find(Boolean);
const told = {numPassedTests: passed, numFailedTests: failed, testResults: results};
if (place) fs.writeFileSync(place[1], JSON.stringify(told));
const fails = failed ? failed + ' failed, ' : '';
console.log(`Tests:       ${fails}${passed} passed, ${passed + failed} total`);
process.exit(failed ? 1 : 0);
"""
NODE = {
    "calc.js": "exports.add = (a, b) => a + b;\n",
    "totals.js": "const { add } = require('./calc');\nexports.total = (them) => add(...them);\n",
}
NODE_GOOD = {"calc.js": "exports.add = (a, b) => b + a;\n"}
NODE_BAD = {"calc.js": "exports.add = (a) => a;\n"}
SLOW = f"test('slow', () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, {NEVER_S}000));\n"
TOTALS = """const { total } = require('../totals.js');
test('total', () => { if (total([1, 2]) !== 3) throw new Error('no'); });
test('old', () => { throw new Error('for years'); });
"""


def node_project(runner: str) -> dict[str, str]:
    scripts = {"test": "jest"}
    before, facts = "", {}
    if runner == "node":
        scripts = {"test": "node --test --test-concurrency=1 test/"}
        before = "const { test } = require('node:test');\n"
    else:
        facts = {"devDependencies": {"jest": "*"}}
    manifest = {"name": "app", "version": "1.0.0", "scripts": scripts, **facts}
    return NODE | {
        "package.json": json.dumps(manifest),
        "test/a.test.js": before + SLOW,
        "test/totals.test.js": before + TOTALS,
    }


def judge_node(
    place: Path, runner: str, changes: Mapping[str, str], files: Mapping[str, str] | None = None
) -> GateVerdict:
    universe = Universe()
    universe.npm("jest", "29.0.0", files={"jest.js": JEST}, manifest={"bin": {"jest": "jest.js"}})
    with serve(universe) as registry:
        project = node_project(runner) | dict(files or {})
        return judge(NpmTests(), place, project, changes, environ=registry.environ)


@pytest.mark.registry("npm")
@pytest.mark.parametrize("runner", a_choice(["node", "jest"], step=2))
def test_npm_suite_that_is_late_fails_for_a_test_that_reaches_the_patch(
    tmp_path: Path, runner: str
) -> None:
    verdict = judge_node(tmp_path, runner, NODE_BAD)
    assert verdict.failure_kind is FailureKind.TESTS_FAILED, verdict
    assert verdict.broken == ("test/totals.test.js > total",)


@pytest.mark.registry("npm")
def test_npm_suite_that_is_late_passes_with_the_count_of_what_was_compared(
    tmp_path: Path,
) -> None:
    verdict = judge_node(tmp_path, "jest", NODE_GOOD)
    assert verdict.status is GateStatus.PASSED, verdict
    assert [it.tests_level for it in verdict.tests] == [Level.COMPARED, Level.RAN]
    assert verdict.failing_before == ("test/totals.test.js > old",)
    what = "2 of more than 2 tests (in at most 1 of 2 test files), those that reach calc.js"
    assert verdict.tests[0].reason == what
    assert what in verdict.detail


@pytest.mark.registry("npm")
@pytest.mark.campaign
def test_without_the_selection_the_broken_test_of_npm_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_selection(monkeypatch)
    verdict = judge_node(tmp_path, "jest", NODE_BAD)
    assert verdict.status is not GateStatus.FAILED, verdict


# --- The time of a suite --------------------------------------------------------------------------


def test_npm_suite_runs_as_long_as_it_prints(tmp_path: Path) -> None:
    """Longer than a gate's own time, of which the rest of this run is not aware."""
    script = (
        "const wait = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);\n"
        "for (let at = 0; at < 14; at += 1) { wait(1000); console.log(at); }\n"
        "require('node:test').test('sum', () => { if (require('./calc.js').add(1, 2) !== 3) throw 1; });\n"
    )
    manifest = {"name": "app", "version": "1.0.0", "scripts": {"test": "node --test all.test.js"}}
    files = NODE | {"package.json": json.dumps(manifest), "all.test.js": script}
    verdict = judge(NpmTests(), tmp_path, files, NODE_GOOD, limit_s=None, timeout_s=8)
    assert verdict.status is GateStatus.PASSED, verdict
    assert verdict.tests_level is Level.COMPARED
