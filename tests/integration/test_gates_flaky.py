"""A test that fails in some runs of a real suite, told apart by the base commit's own runs."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_plugins.pypi.gates.all_gates import TestsGate as SuiteGate
from fallback_tier.execution import CommandResult
from fallback_tier.files.tree import FileTree
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.sandbox.runners import BubblewrapSandbox
from tests.integration.gate_setup import advisory, needs_sandbox, patched

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


class Numbered(BubblewrapSandbox):
    """Tells each command which run it is: what chance, a clock or a port is to a real test."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()

    def run(
        self,
        argv: Sequence[str],
        *,
        worktree: FileTree | Path,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        readable: Sequence[Path] = (),
    ) -> CommandResult:
        reported = {**(env or {}), "RUN": str(next(self.numbers))}
        return super().run(
            argv, worktree=worktree, timeout_s=timeout_s, env=reported, readable=readable
        )


def judge(place: Path, bad: str, change: str, tests: str = TESTS) -> GateVerdict:
    """The base commit's suite is run first: run 0. Then the patched one, then the base up to twice more."""
    files = {
        "calc.py": "def add(a, b):\n    return a + b\n",
        "tests/test_calc.py": tests.replace("BAD", bad),
    }
    sandbox = Numbered()
    with patched(place, files, {"calc.py": change}, about=OWN, sandbox=sandbox) as case:
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


def test_a_test_that_is_flaky_with_the_patch_alone_fails_it(tmp_path: Path) -> None:
    verdict = judge(tmp_path, "{1}", "def add(a, b):\n    return b + a\n")
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.flaky == ()
