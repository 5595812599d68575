"""Real suites of pytest and node whose tests fail by chance, by what ran before, or by the patch."""

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.npm.gates.all_gates import TestsGate as NpmTests
from fallback_plugins.pypi.gates.testing import TestsGate as PythonTests
from fallback_plugins.shared.gates.base_runs import BASE_RUNS, PATCHED_RERUNS
from fallback_plugins.shared.gates.suites import ALONE_RUNS, SECOND_LOOKS
from fallback_tier.gate_ports import Gate, GateVerdict
from tests.choice import a_choice
from tests.integration.gate_setup import (
    Numbered,
    advisory,
    needs_sandbox,
    our_pytest_stands_in,
    patched,
)

pytestmark = pytest.mark.sandbox

#: A target's own options name it: nothing is loaded unasked.
XDIST = "-p xdist.plugin"

GOOD = "def add(a, b):\n    return b + a\n"
BASE = "def add(a, b):\n    return a + b\n"
TESTS = """import os, pytest
from calc import add

def test_sum():
    assert add(1, 2) == 3

@pytest.mark.parametrize("limit", [0.1, 0.5])
def test_in_time(limit):
    assert limit > 0.2 or int(os.environ["RUN"]) not in BAD
"""


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


@pytest.fixture
def _pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    our_pytest_stands_in(monkeypatch)


def judge(
    place: Path, files: Mapping[str, str], changes: Mapping[str, str], gate: Gate, ecosystem: str
) -> tuple[GateVerdict, int]:
    """The verdict, and how many commands it took."""
    sandbox = Numbered()
    about = advisory("calc", ecosystem)
    with patched(place, files, changes, about=about, sandbox=sandbox) as case:
        sandbox.numbers = count()
        return gate.judge(case.context), next(sandbox.numbers)


def judge_pytest(
    place: Path, change: str, tests: str, options: str = "", bad: str = "{}"
) -> tuple[GateVerdict, int]:
    files = {
        "calc.py": BASE,
        "tests/test_calc.py": tests.replace("BAD", bad),
        "pytest.ini": f"[pytest]\naddopts = {options}\n",
    }
    return judge(place, files, {"calc.py": change}, PythonTests(), "PyPI")


@pytest.mark.usefixtures("_pytest")
@pytest.mark.parametrize("options", a_choice((f"{XDIST} -n 1 --dist=loadfile", ""), step=2))
def test_what_the_patch_breaks_is_run_alone_and_fails_it(tmp_path: Path, options: str) -> None:
    verdict, runs = judge_pytest(tmp_path, "def add(a, b):\n    return a\n", TESTS, options)
    assert (verdict.failure_kind, verdict.broken) == (
        FailureKind.TESTS_FAILED,
        ("tests/test_calc.py::test_sum",),
    )
    # Alone it told enough: the suite is not run again with the patch.
    assert runs == BASE_RUNS + 1 + 2 * ALONE_RUNS


@pytest.mark.usefixtures("_pytest")
@pytest.mark.parametrize("options", a_choice(("", f"{XDIST} -n 2"), step=2))
def test_a_test_that_is_late_twice_fails_no_patch_and_proves_none(
    tmp_path: Path, options: str
) -> None:
    """Run 11 is the one before a person is asked."""
    twice, _ = judge_pytest(tmp_path, GOOD, TESTS, options, "{1, 11}")
    assert (twice.status, twice.broken) == (GateStatus.UNDECIDED, ())
    late = "tests/test_calc.py::test_in_time[0.1]"
    assert f"not so in another run with the patch: {late}" in twice.detail
    assert (
        f"{late} fails in 2 of 3 runs with the patch, in 0 of 3 at the base commit" in twice.notes
    )


@pytest.mark.usefixtures("_pytest")
def test_a_test_that_is_late_once_of_all_is_told_and_no_question(tmp_path: Path) -> None:
    once, runs = judge_pytest(tmp_path, GOOD, TESTS, bad="{1}")
    assert (once.status, once.flaky) == (
        GateStatus.PASSED,
        ("tests/test_calc.py::test_in_time[0.1]",),
    )
    assert "fails in 1 of 3 runs with the patch, in 0 of 3 at the base commit" in once.notes[0]
    assert runs == BASE_RUNS + 1 + 2 * ALONE_RUNS + 1 + SECOND_LOOKS


@pytest.mark.usefixtures("_pytest")
def test_a_test_that_is_late_without_the_patch_too_is_flaky(tmp_path: Path) -> None:
    flaky, _ = judge_pytest(tmp_path, GOOD, TESTS, bad="{1, 4}")
    assert flaky.status is GateStatus.PASSED
    assert flaky.flaky == ("tests/test_calc.py::test_in_time[0.1]",)


@pytest.mark.usefixtures("_pytest")
def test_what_the_patch_leaves_behind_for_another_test_fails_it(tmp_path: Path) -> None:
    """Either test passes alone, and the second never in the suite."""
    tests = TESTS + "\ndef test_sum_again():\n    assert add(1, 2) == 3\n"
    change = (
        "seen = []\ndef add(a, b):\n    seen.append(a)\n    return a + b if not seen[1:] else 0\n"
    )
    verdict, runs = judge_pytest(tmp_path, change, tests)
    assert verdict.broken == ("tests/test_calc.py::test_sum_again",)
    assert runs == BASE_RUNS + 1 + 2 * ALONE_RUNS + PATCHED_RERUNS


@pytest.mark.usefixtures("_pytest")
def test_a_file_that_can_not_be_read_in_is_asked_about_with_its_tests(tmp_path: Path) -> None:
    verdict, runs = judge_pytest(tmp_path, "def less(a, b):\n    return a\n", TESTS)
    assert verdict.status is GateStatus.FAILED
    assert runs == BASE_RUNS + 1 + 2 * ALONE_RUNS


@pytest.mark.usefixtures("_pytest")
def test_a_test_that_is_left_out_with_the_patch_is_asked_about(tmp_path: Path) -> None:
    tests = TESTS.replace("def test_sum", "@pytest.mark.skipif(add(0, 0), reason='')\ndef test_sum")
    verdict, _ = judge_pytest(tmp_path, "def add(a, b):\n    return a + b or 3\n", tests)
    assert verdict.failure_kind is FailureKind.TESTS_MISSING


NODE = """const {test} = require('node:test');
const assert = require('node:assert');
const {add} = require('../calc.js');
test('sum', () => assert.equal(add(1, 2), 3));
test('in time', () => assert.ok(!BAD.includes(Number(process.env.RUN))));
"""


@pytest.mark.parametrize(
    ("bad", "change", "status"),
    a_choice(
        [
            ("[1, 5]", "b + a", GateStatus.UNDECIDED),
            ("[]", "a", GateStatus.FAILED),  # with the suite in test_gates_reports
            ("[1, 2]", "b + a", GateStatus.PASSED),
        ],
        step=2,
    ),
)
def test_a_runner_that_is_not_told_what_to_run_runs_the_suite_again(
    tmp_path: Path, bad: str, change: str, status: GateStatus
) -> None:
    manifest = {"name": "app", "version": "1.0.0", "scripts": {"test": "node --test test/"}}
    files = {
        "package.json": json.dumps(manifest),
        "calc.js": "exports.add = (a, b) => a + b;\n",
        "test/calc.test.js": NODE.replace("BAD", bad),
    }
    patch = {"calc.js": f"exports.add = (a, b) => {change};\n"}
    verdict, _ = judge(tmp_path, files, patch, NpmTests(), "npm")
    assert verdict.status is status
