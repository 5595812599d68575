"""A test that fails in some runs of a real suite, told apart by the base commit's own runs."""

from itertools import count
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.gates.testing import TestsGate as SuiteGate
from fallback_tier.gate_ports import GateVerdict
from tests.integration.gate_setup import Numbered, advisory, needs_sandbox, patched

pytestmark = pytest.mark.sandbox

TESTS = """import os, unittest
from calc import add

class Add(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)

    def test_sometimes(self):
        self.assertNotIn(int(os.environ["RUN"]), BAD)

    def test_never(self):
        self.assertIsNone("broken for years")
"""
OWN = advisory("calc", "PyPI")


@pytest.fixture(autouse=True)
def _sandbox() -> None:
    needs_sandbox()


def judge(
    place: Path, bad: str, change: str, tests: str = TESTS, timeout_s: float = 120
) -> GateVerdict:
    """The base commit's suite is run first: run 0. Then the patched one, then the base up to twice more."""
    files = {
        "calc.py": "def add(a, b):\n    return a + b\n",
        "tests/test_calc.py": tests.replace("BAD", bad),
    }
    sandbox = Numbered()
    with patched(
        place, files, {"calc.py": change}, about=OWN, sandbox=sandbox, timeout_s=timeout_s
    ) as case:
        sandbox.numbers = count()  # laying out a worktree may have run something
        return SuiteGate().judge(case.context)


def test_flaky_tests_of_the_base_commit_are_not_held_against_the_patch(tmp_path: Path) -> None:
    sound = TESTS.replace("broken for years", "").replace("assertIsNone", "assertFalse")
    verdict = judge(tmp_path, "{1, 2}", "def add(a, b):\n    return b + a\n", sound)
    assert verdict.status is GateStatus.PASSED
    assert verdict.flaky == ("test_sometimes (test_calc.Add.test_sometimes)",)
    assert verdict.detail.startswith("3 test(s) pass; flaky, at the base commit too: ")


def test_a_suite_that_stays_red_passes_by_what_passes_and_names_the_rest(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "{1, 2}", "def add(a, b):\n    return b + a\n")
    assert verdict.status is GateStatus.PASSED
    assert verdict.failing_before == ("test_never (test_calc.Add.test_never)",)
    assert verdict.flaky == ("test_sometimes (test_calc.Add.test_sometimes)",)
    assert "1 fail as at the base commit: test_never" in verdict.detail


def test_a_test_that_the_patch_breaks_is_not_excused_by_the_others(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "{1, 2}", "def add(a, b):\n    return a\n")
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.detail == (
        "tests failed (3 ran), not at the base commit: test_sum (test_calc.Add.test_sum)"
    )
    assert verdict.flaky == ("test_sometimes (test_calc.Add.test_sometimes)",)


def test_a_test_that_fails_twice_with_the_patch_alone_is_a_question(tmp_path: Path) -> None:
    """It may be a race that the patch brought in, and it may be the machine."""
    verdict = judge(tmp_path, "{1, 11}", "def add(a, b):\n    return b + a\n")
    assert verdict.status is GateStatus.UNDECIDED
    assert "but not so in another run with the patch: test_sometimes" in verdict.detail
    assert (verdict.flaky, verdict.broken) == ((), ())


def test_one_that_fails_alone_now_and_then_at_the_base_commit_is_flaky(tmp_path: Path) -> None:
    """Run 4 is the first of those that run it alone, in turn with the patch."""
    verdict = judge(tmp_path, "{1, 4}", "def add(a, b):\n    return b + a\n")
    assert verdict.status is GateStatus.PASSED
    assert verdict.flaky == ("test_sometimes (test_calc.Add.test_sometimes)",)


def test_one_that_fails_alone_now_and_then_with_the_patch_is_a_question(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "{1, 5}", "def add(a, b):\n    return b + a\n")
    assert verdict.status is GateStatus.UNDECIDED
    assert verdict.kinds == {"fails_at_times_alone"}


#: Behind the others by its name: what was told before the wall clock ends the run stands.
HANGING = TESTS.replace("def test_never", "def test_zz_hangs").replace(
    'self.assertIsNone("broken for years")', "__import__('time').sleep(600)"
)


@pytest.mark.parametrize(
    ("bad", "change", "status"),
    [
        pytest.param("{1}", "b + a", GateStatus.UNDECIDED, id="by chance"),
        pytest.param("{1, 4}", "b + a", GateStatus.SKIPPED, id="flaky at the base commit"),
        pytest.param("{-1}", "a", GateStatus.FAILED, id="broken"),
    ],
)
def test_beside_suites_that_do_not_end_tests_are_compared_alone(
    tmp_path: Path, bad: str, change: str, status: GateStatus
) -> None:
    patch = f"def add(a, b):\n    return {change}\n"
    verdict = judge(tmp_path, bad, patch, HANGING, timeout_s=10)
    assert verdict.status is status
    broken = ("test_sum (test_calc.Add.test_sum)",)
    assert verdict.broken == (broken if status is GateStatus.FAILED else ())
