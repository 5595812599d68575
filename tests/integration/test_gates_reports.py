"""Suites compared test by test, in a real sandbox: red, hanging, and of code that forges its report."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.gates.all_gates import TestsGate as NpmTests
from fallback_plugins.pypi.gates.testing import TestsGate as PythonTests
from fallback_tier.gate_ports import GateVerdict
from tests.integration import gate_setup
from tests.integration.gate_setup import advisory, needs_sandbox, our_pytest_stands_in, patched

pytestmark = pytest.mark.sandbox

OWN, NPM = advisory("calc", "PyPI"), advisory("calc", "npm")
GOOD = "def add(a, b):\n    return b + a\n"
BASE = {"calc.py": "def add(a, b):\n    return a + b\n"}


@pytest.fixture(autouse=True)
def _sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen at the base commit is kept: where a test judges two patches, it is seen once."""
    needs_sandbox()
    monkeypatch.setattr(gate_setup, "CACHE", tmp_path / "cache")


@pytest.fixture
def _pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    our_pytest_stands_in(monkeypatch)


def judge(
    place: Path, files: Mapping[str, str], change: str, timeout_s: float = 120
) -> GateVerdict:
    with patched(
        place, BASE | dict(files), {"calc.py": change}, about=OWN, timeout_s=timeout_s
    ) as case:
        verdict = PythonTests().judge(case.context)
        assert not list(case.worktree.tree.layers[0].glob(".fallback-tier-*"))
    return verdict


def suite(body: str) -> dict[str, str]:
    return {"tests/test_calc.py": body}


TESTS = suite(
    "from calc import add\n"
    "def test_sum(): assert add(1, 2) == 3\n"
    "def test_zero(): assert add(0, 0) == 0\n"
    "def test_broken_for_years(): assert 0\n"
)


@pytest.mark.usefixtures("_pytest")
def test_one_red_test_and_a_file_that_can_not_be_read_in_discard_nothing(tmp_path: Path) -> None:
    files = TESTS | {"tests/test_net.py": "import not_installed\n"}
    verdict = judge(tmp_path, files, GOOD)
    assert verdict.status is GateStatus.PASSED
    assert verdict.failing_before == (
        "tests/test_calc.py::test_broken_for_years",
        "tests/test_net.py",
    )
    assert verdict.detail.startswith("2 test(s) pass; 2 fail as at the base commit: ")


@pytest.mark.usefixtures("_pytest")
def test_what_the_patch_breaks_is_told_from_what_was_red(tmp_path: Path) -> None:
    verdict = judge(tmp_path, TESTS, "def add(a, b):\n    return a\n")
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.broken == ("tests/test_calc.py::test_sum",)


@pytest.mark.usefixtures("_pytest")
def test_options_of_plugins_that_are_not_there_are_left_out_and_that_is_said(
    tmp_path: Path,
) -> None:
    ini = {"pytest.ini": "[pytest]\naddopts = -x --cov=calc\nrequired_plugins = pytest-nowhere\n"}
    verdict = judge(tmp_path, TESTS | ini, GOOD)
    assert verdict.status is GateStatus.PASSED
    assert "2 test(s) pass; 1 fail as at the base commit" in verdict.detail
    assert "without_own_options" in verdict.kinds


@pytest.mark.usefixtures("_pytest")
def test_a_plugin_that_the_patch_breaks_is_asked_about(tmp_path: Path) -> None:
    """Without it, tests pass that need not pass with what it asks."""
    files = {
        "pytest.ini": "[pytest]\naddopts = -p checks\n",
        "checks.py": "from calc import LIMIT\n",
        "calc.py": f"LIMIT = 1\n{BASE['calc.py']}",
    }
    verdict = judge(tmp_path, TESTS | files, GOOD)
    assert verdict.status is GateStatus.UNDECIDED
    assert "other_options" in verdict.kinds


@pytest.mark.usefixtures("_pytest")
def test_a_quiet_projects_tests_are_counted(tmp_path: Path) -> None:
    """Its ``-q`` beside another would leave out the last line."""
    verdict = judge(tmp_path, TESTS | {"pytest.ini": "[pytest]\naddopts = -q\n"}, GOOD)
    assert verdict.detail.startswith("2 test(s) pass; 1 fail")
    assert verdict.kinds == set()


@pytest.mark.usefixtures("_pytest")
def test_tests_that_pytest_does_not_find_are_unittests(tmp_path: Path) -> None:
    suite_text = "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"
    files = {"tests/test_calc.py": suite_text, "pytest.ini": "[pytest]\npython_files = none.py\n"}
    assert judge(tmp_path, files, GOOD).detail == "1 test(s) pass"


@pytest.mark.usefixtures("_pytest")
def test_a_hang_of_the_base_commit_too_could_not_be_judged_and_tells_what_came_before(
    tmp_path: Path,
) -> None:
    slow = suite(
        "import time\nfrom calc import add\n"
        "def test_a_sum(): assert add(1, 2) == 3\n"
        "def test_b_hangs(): time.sleep(600)\n"
    )
    same = judge(tmp_path / "1", slow, GOOD, timeout_s=6)
    worse = judge(tmp_path / "2", slow, "def add(a, b):\n    return a\n", timeout_s=6)
    assert same.status is GateStatus.SKIPPED
    assert "nor do those of the base commit; 1 test(s) passed in time; 1 of the 1 " in same.detail
    assert worse.broken == ("tests/test_calc.py::test_a_sum",)


#: Finds its own report, as any code in the process can, and tells what it likes before it ends everything.
FORGING = """import json, os, sys
def add(a, b):
    links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
    paths = [os.readlink(link) for link in links if os.path.exists(link)]
    place = next(path for path in paths if "/.fallback-tier-" in path)
    told = [{"test": f"tests/test_calc.py::test_{name}", "was": "passed"} for name in ("sum", "zero")]
    with open(place, "w") as file:
        for one in [*told, {"told": 2, "ran": 2, "failed": 0}]:
            file.write(json.dumps(one) + chr(10))
    PRINT
    os._exit(0)
"""


#: Past pytest's capturing.
SAYING = """for link in links:
        if os.path.exists(link) and "pipe:" in os.readlink(link):
            os.write(int(link.rpartition("/")[2]), b"1 passed in 0.01s\\n")"""


@pytest.mark.usefixtures("_pytest")
@pytest.mark.parametrize("message", ["pass", SAYING])
def test_a_forged_report_without_the_log_to_it_does_not_pass(tmp_path: Path, message: str) -> None:
    green = suite(
        "from calc import add\n"
        "def test_sum(): assert add(1, 2) == 3\n"
        "def test_zero(): assert add(0, 0) == 0\n"
    )
    verdict = judge(tmp_path, green, FORGING.replace("PRINT", message))
    assert verdict.failure_kind is FailureKind.TESTS_MISSING
    assert ("1 passed" in verdict.log) is (message == SAYING)


@pytest.mark.usefixtures("_pytest")
def test_lines_that_are_added_to_a_report_spoil_it(tmp_path: Path) -> None:
    """A test that is left out with the patch, and told as passed."""
    left = suite(
        "import calc, pytest\n"
        "def test_sum(): assert calc.add(1, 2) == 3\n"
        "@pytest.mark.skipif(hasattr(calc, 'LESS'), reason='')\n"
        "def test_zero(): assert calc.add(0, 0) == 0\n"
    )
    adding = FORGING.replace('"w"', '"a"').replace(', {"told": 2, "ran": 2, "failed": 0}', "")
    adding = "LESS = True\n" + adding.replace("PRINT", "return a + b")
    verdict = judge(tmp_path, left, adding)
    assert verdict.failure_kind is FailureKind.TESTS_MISSING


# --- npm ------------------------------------------------------------------------------------------

NODE = """const {test} = require('node:test');
const assert = require('node:assert');
const {add} = require('../calc.js');
test('sum', () => assert.equal(add(1, 2), 3));
test('broken for years', () => assert.fail());
"""
MANIFEST = json.dumps({"name": "app", "version": "1.0.0", "scripts": {"test": "node --test test/"}})
PACKAGE = {
    "package.json": MANIFEST,
    "calc.js": "exports.add = (a, b) => a + b;\n",
    "test/calc.test.js": NODE,
}


def judge_npm(place: Path, change: str, **files: str) -> GateVerdict:
    with patched(place, PACKAGE | files, {"calc.js": change}, about=NPM) as case:
        return NpmTests().judge(case.context)


def test_nodes_own_tests_are_compared_by_name(tmp_path: Path) -> None:
    good = judge_npm(tmp_path / "1", "exports.add = (a, b) => b + a;\n")
    bad = judge_npm(tmp_path / "2", "exports.add = (a, b) => a;\n")
    assert (good.status, good.failing_before) == (
        GateStatus.PASSED,
        ("test/calc.test.js > broken for years",),
    )
    assert bad.broken == ("test/calc.test.js > sum",)


def test_a_runner_that_does_not_know_our_options_is_run_as_the_project_calls_it(
    tmp_path: Path,
) -> None:
    script = "if (process.argv.length > 2) process.exit(2); console.log('Tests:       2 passed, 2 total')"
    manifest = {"name": "app", "version": "1.0.0", "scripts": {"test": "node jest"}}
    files = {"package.json": json.dumps(manifest), "jest": script}
    verdict = judge_npm(tmp_path, "exports.add = (a, b) => b + a;\n", **files)
    assert (verdict.status, verdict.detail) == (GateStatus.PASSED, "2 test(s) pass")
