"""A Python project's own test commands, in a real sandbox: run, reported from inside, compared by name."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_audit.vocabulary import TestsLevel as Level
from fallback_plugins.pypi.gates import testing
from fallback_plugins.pypi.gates.testing import TestsGate as PythonTests
from fallback_plugins.shared.gates.test_commands import TestCommand as Command
from fallback_tier.gate_ports import GateVerdict
from tests.integration import gate_setup
from tests.integration.gate_setup import advisory, needs_sandbox, patched

pytestmark = pytest.mark.sandbox

OWN = advisory("calc", "PyPI")
BASE = {"calc.py": "def add(a, b):\n    return a + b\n"}
GOOD = "def add(a, b):\n    return b + a\n"
WRONG = "def add(a, b):\n    return a\n"
CASES = """import unittest
from calc import add

class Sums(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(add(1, 2), 3)

    def test_zero(self):
        self.assertEqual(add(0, 0), 0)

    def test_broken_for_years(self):
        self.fail()

    @unittest.skip("not here")
    def test_elsewhere(self):
        pass
"""

#: A test runner of a project's own, with results that inherit nothing of unittest's methods.
RUNNER = """import sys, unittest
import checks

class Results(unittest.TestResult):
    good = 0
    def addSuccess(self, test):
        self.good += 1
    def addFailure(self, test, error):
        self.failures.append((test, ''))
        print('not good:', test)

found = Results()
unittest.defaultTestLoader.loadTestsFromModule(checks).run(found)
print(f'{found.good} good of {found.testsRun}')
sys.exit(bool(found.failures))
"""
PROJECT = BASE | {"checks.py": CASES, "run_checks.py": RUNNER}


@pytest.fixture(autouse=True)
def _sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_sandbox()
    monkeypatch.setattr(gate_setup, "CACHE", tmp_path / "cache")


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Judge":
    return Judge(tmp_path, monkeypatch)


class Judge:
    """Judges a patch of calc.py in a project with commands."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._place, self._monkeypatch, self._number = place, monkeypatch, 0

    def __call__(
        self,
        files: Mapping[str, str],
        change: str,
        *commands: Command | str,
        timeout_s: float = 120,
    ) -> GateVerdict:
        found = [Command(it, "Makefile") if isinstance(it, str) else it for it in commands]
        self._monkeypatch.setattr(testing, "own_commands", lambda *_, **__: tuple(found))
        self._number += 1
        place = self._place / str(self._number)
        with patched(place, files, {"calc.py": change}, about=OWN, timeout_s=timeout_s) as case:
            return PythonTests().judge(case.context)


def names(verdict: GateVerdict) -> Sequence[str]:
    return [test.partition(" ")[0] for test in verdict.failing_before]


@pytest.mark.parametrize(
    "line",
    [
        "python run_checks.py",
        "./run_checks.sh",
        "python -m unittest checks",
        "make -s check && echo done",
        "python -c 'import os, sys; os.execv(sys.executable, [sys.executable, \"run_checks.py\"])'",
        "poetry run python run_checks.py",
        "uv run --frozen --group test run_checks.py",
        "coverage run --source calc -m unittest checks",
    ],
)
def test_a_projects_own_command_is_compared_test_by_test(judge: Judge, line: str) -> None:
    files = PROJECT | {
        "run_checks.sh": "#!/bin/sh\nexec python run_checks.py\n",
        "Makefile": "check:\n\tpython run_checks.py\n",
    }
    line = line.replace("./run", "sh ./run")
    good = judge(files, GOOD, line)
    assert (good.status, names(good)) == (GateStatus.PASSED, ["test_broken_for_years"])
    assert good.detail.startswith("2 test(s) pass; 1 fail as at the base commit: ")
    assert f"the tests run by `{line}` (Makefile)" in good.notes
    wrong = judge(files, WRONG, line)
    assert wrong.failure_kind is FailureKind.TESTS_FAILED
    assert [test.partition(" ")[0] for test in wrong.broken] == ["test_sum"]


def test_the_first_command_that_runs_tests_at_the_base_commit_is_taken(judge: Judge) -> None:
    commands = ("nonesuch --all", "true", "python run_checks.py", "python -m unittest checks")
    verdict = judge(PROJECT, GOOD, *commands)
    assert verdict.notes == (
        "the tests run by `python run_checks.py` (Makefile)",
        "`nonesuch --all` (Makefile) does not serve: it runs no test (`nonesuch: command not found`)",
        "`true` (Makefile) does not serve: it runs no test",
    )
    again = judge(PROJECT, GOOD, *commands)
    assert again.notes == verdict.notes, "the choice is kept"


def test_the_part_of_ci_that_was_compared_is_named(judge: Judge) -> None:
    def of_ci(line: str, job: str) -> Command:
        return Command(line, f"ci, job {job}", group=job, is_of_ci=True)

    unit = of_ci("python run_checks.py", "unit")
    others = [
        of_ci("python run_checks.py --colour", "again"),
        of_ci("python run_checks.py slow", "slow"),
        Command("make check", "Makefile"),
    ]
    verdict = judge(PROJECT, GOOD, unit, *others)
    assert (
        "CI tests in other ways too, which were not run: `python run_checks.py slow` (ci, job slow)"
        in verdict.notes
    )
    (account,) = verdict.tests
    assert account.tests_level is Level.COMPARED
    assert account.reason == "the tests of one of 2 ways in which CI tests"
    again = judge(PROJECT, GOOD, unit, *others)
    assert (again.notes, again.tests) == (verdict.notes, verdict.tests), "the choice is kept"
    (alone,) = judge(PROJECT, GOOD, unit, *others[::2]).tests
    assert alone.reason == ""


def test_ways_of_ci_that_do_not_serve_are_noted_once(judge: Judge) -> None:
    commands = [
        Command(it, "ci", group=it, is_of_ci=True) for it in ("nonesuch", "python run_checks.py")
    ]
    verdict = judge(PROJECT, GOOD, *commands)
    assert [it.partition("does not serve")[1] for it in verdict.notes] == ["", "does not serve"]
    assert verdict.tests[0].reason == ""


def test_plain_discovery_is_the_last_way(judge: Judge) -> None:
    files = BASE | {"tests/test_calc.py": CASES}
    verdict = judge(files, GOOD, "make check")
    assert verdict.detail.startswith("2 test(s) pass; 1 fail")
    assert verdict.notes[0] == "the tests run by pytest or unittest, by plain discovery"
    assert "make: *** No rule to make target 'check'" in verdict.notes[1]


def test_a_command_that_hides_its_failures_does_not_pass_with_them(judge: Judge) -> None:
    line = "python run_checks.py || true"
    assert judge(PROJECT, GOOD, line).status is GateStatus.PASSED
    verdict = judge(PROJECT, WRONG, line)
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert [test.partition(" ")[0] for test in verdict.broken] == ["test_sum"]


def test_several_runners_in_one_command_are_counted_together(judge: Judge) -> None:
    files = PROJECT | {"more.py": CASES.replace("Sums", "More")}
    line = "python -m unittest checks; python -m unittest more"
    verdict = judge(files, GOOD, line)
    assert verdict.detail.startswith("4 test(s) pass; 2 fail as at the base commit: ")
    assert len(judge(files, WRONG, line).broken) == 2


def test_a_runner_within_a_test_is_not_counted(judge: Judge) -> None:
    inner = """
    def test_a_runner(self):
        class Inner(unittest.TestCase):
            def test_inner(self):
                pass
        result = unittest.TestResult()
        Inner('test_inner').run(result)
        self.assertEqual(result.testsRun, 1)
"""
    verdict = judge(PROJECT | {"checks.py": CASES + inner}, GOOD, "python run_checks.py")
    assert verdict.detail.startswith("3 test(s) pass; 1 fail")


FORGED = """import os, sys

def add(a, b):
    for n in range(3):
        print('Ran 4 tests in 0.1s\\n\\nFAILED (failures=1, skipped=1)', file=sys.stderr)
    os._exit(1)
"""
TAMPERED = """import os

def add(a, b):
    for name in os.listdir('.'):
        if name.startswith('.fallback-tier-'):
            open(name, 'a').write('x')
    return a + b
"""


@pytest.mark.parametrize("change", [FORGED, "import os\nos._exit(0)\n", "raise SystemExit(0)\n"])
def test_code_that_ends_the_runner_is_no_pass(judge: Judge, change: str) -> None:
    verdict = judge(PROJECT, change, "python -m unittest checks")
    assert verdict.status is GateStatus.FAILED


def test_a_report_that_the_patched_code_writes_to_is_no_pass(judge: Judge) -> None:
    assert judge(PROJECT, TAMPERED, "python run_checks.py").status is not GateStatus.PASSED


def test_steps_before_and_variables_are_the_sources_own(judge: Judge) -> None:
    files = PROJECT | {
        "run_checks.py": "import made, os, more\nassert os.environ['MODE'] == 'ci $x'\n" + RUNNER,
        "lib/more.py": "",
    }
    command = Command(
        "python run_checks.py",
        "tox.ini, testenv",
        env={"MODE": "ci $x", "PYTHONPATH": "lib", "PATH": "/nowhere"},
        before=("false", "echo x=1 > made.py"),
    )
    verdict = judge(files, GOOD, command)
    assert verdict.detail.startswith("2 test(s) pass; 1 fail")
    assert "before the tests, false ended with exit code 1:" in verdict.log


def test_variables_that_ask_for_what_is_not_here_are_left_out(judge: Judge) -> None:
    runner = f"import os\nif os.environ.get('FAST'):\n    import not_built\n{RUNNER}"
    command = Command("python run_checks.py", "tox.ini, testenv", env={"FAST": "1"})
    verdict = judge(PROJECT | {"run_checks.py": runner}, GOOD, command)
    assert verdict.detail.startswith("2 test(s) pass; 1 fail")
    assert verdict.detail.endswith("; run without FAST, which tox.ini, testenv sets")


def test_a_command_runs_in_its_folder(judge: Judge) -> None:
    files = BASE | {"sub/checks.py": CASES, "sub/run_checks.py": RUNNER}
    verdict = judge(files, GOOD, Command("python run_checks.py", "tox.ini", folder="sub"))
    assert verdict.detail.startswith("2 test(s) pass; 1 fail")


def test_what_a_failing_run_lacks_is_named(judge: Judge) -> None:
    files = BASE | {
        "tests/test_calc.py": CASES,
        "run_checks.py": "import not_there\n",
        "extra/requirements-heavy.txt": "not-there==1\n",
    }
    command = Command("python run_checks.py", ".travis.yml", services=("rabbitmq",))
    verdict = judge(files, GOOD, command)
    why = (
        "it runs no test (`ModuleNotFoundError: No module named 'not_there'`); needs rabbitmq, which is "
        "not known here; needs the module 'not_there', which extra/requirements-heavy.txt names"
    )
    assert verdict.notes[1] == f"`python run_checks.py` (.travis.yml) does not serve: {why}"


def test_names_in_the_output_are_compared_where_nothing_is_counted(judge: Judge) -> None:
    script = (
        'python -S -c \'import sys; sys.path[:0] = ["."]; from calc import add; '
        'print("FAIL: test_old (checks.A)"); '
        'add(1, 2) == 3 or print("FAIL: test_sum (checks.A)"); sys.exit(1)\''
    )
    verdict = judge(BASE, WRONG, script)
    assert verdict.failure_kind is FailureKind.TESTS_FAILED
    assert verdict.broken == ("test_sum (checks.A)",)
    same = judge(BASE, GOOD, script)
    assert (same.status, names(same)) == (GateStatus.PASSED, ["test_old"])


PYTEST = {
    "requirements-dev.txt": "pytest==8.4.2\n",
    "tests/test_calc.py": "from calc import add\n"
    "def test_sum(): assert add(1, 2) == 3\n"
    "def test_zero(): assert add(0, 0) == 0\n"
    "def test_broken_for_years(): assert 0\n",
    "tests/slow/test_more.py": "import pytest\n\n@pytest.mark.slow\ndef test_slow(): pass\n",
}


@pytest.mark.registry("uv")
@pytest.mark.parametrize(
    "line",
    [
        "pytest -x -qq --cov=calc --cov-report term-missing -n 2 tests/test_calc.py",
        "python3.9 -m pytest -v --cov-fail-under=100 --junitxml report.xml tests -k 'not slow'",
        "cd tests && pytest -x test_calc.py",
        "poetry run pytest --maxfail 1 -p no:cacheprovider -m 'not slow'",
        "pytest tests/test_calc.py --ds=app.settings",
        "python -m pytest tests/test_calc.py && echo never",
    ],
)
def test_pytest_runs_with_a_commands_own_arguments(judge: Judge, line: str) -> None:
    good = judge(BASE | PYTEST, GOOD, line)
    assert good.status is GateStatus.PASSED
    assert good.detail.startswith("2 test(s) pass; 1 fail as at the base commit: ")
    wrong = judge(BASE | PYTEST, WRONG, line)
    assert [test.rpartition("::")[2] for test in wrong.broken] == ["test_sum"]
