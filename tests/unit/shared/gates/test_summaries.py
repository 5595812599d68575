"""Counts and names of failing tests, by the logs of real runs.

``tests/fixtures/logs``: each of a small project with tests that pass, fail, and are left out, run with
its output to a pipe. Versions: jest 29.7.0, vitest 4.1.12, mocha 12.0.3, ava 7.0.0, jasmine 7.0.0, tap
16.3.10 and 21.8.0, tape 5.10.2, node 20.20.2, qunit 2.24.1, qunit-extras 3.0.0 (with qunitjs 2.4.1), vows
0.8.2.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fallback_plugins.npm.gates import all_gates
from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.npm.plugin import NpmEcosystem
from fallback_plugins.pypi.gates.checks import findings, is_blocked
from fallback_plugins.pypi.gates.testing import pytest_summary, unittest_summary
from fallback_plugins.pypi.plugin import PyPIEcosystem
from fallback_plugins.shared.gates.suite_run import Summary
from fallback_tier.execution import CommandResult
from fallback_tier.sandbox.clients import SubprocessClients
from fallback_tier.sandbox.process import BoundedOutput

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"


def log(name: str) -> str:
    return (LOGS / name).read_text()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "jest.txt",
            Summary(
                ran=6,
                failed=3,
                names=(
                    "test/a.test.js: calc \u203a adds nothing",
                    "test/b.test.js: also fails: here",
                    "test/b.test.js: each 2",
                ),
            ),
        ),
        (
            "vitest.txt",
            Summary(
                ran=6,
                failed=3,
                names=(
                    "test/a.test.js > calc > adds nothing",
                    "test/b.test.js > also fails: here",
                    "test/b.test.js > each 2",
                ),
            ),
        ),
        (
            "mocha.txt",
            Summary(
                ran=5,
                failed=3,
                names=("also fails: here", "calc > adds nothing", 'x > "before all" hook for "y"'),
            ),
        ),
        (
            "ava.txt",
            Summary(
                ran=3,
                failed=2,
                names=(
                    "b \u203a also fails: here Error thrown in test",
                    "a \u203a calc adds nothing",
                ),
            ),
        ),
        # Its own count takes a test that is still to be written (todo) for a failure.
        (
            "ava-tap.txt",
            Summary(
                ran=4, failed=3, names=("a \u203a calc adds nothing", "b \u203a also fails: here")
            ),
        ),
        ("jasmine.txt", Summary(ran=4, failed=2, names=("also fails: here", "calc adds nothing"))),
        ("tape.txt", Summary(ran=4, failed=1, names=("calc > adds nothing",))),
        (
            "vows.txt",
            Summary(ran=5, failed=2, names=("adding > gives no other", "throws > an error")),
        ),
        # A test that is still to be written ran, and is no failure.
        (
            "qunit.txt",
            Summary(ran=4, failed=2, names=("calc > adds nothing", "also fails: here"), expected=1),
        ),
        # Of assertions; a test that is left out has none.
        (
            "qunit-extras.txt",
            Summary(ran=5, failed=2, names=("calc > adds nothing", "paths > also fails: here")),
        ),
        (
            "node-spec.txt",
            Summary(
                ran=4,
                failed=3,
                names=(
                    "test/paths.test.js: refuses a sibling",
                    "test/paths.test.js: is refused",
                    "test/paths.test.js: is equal",
                ),
            ),
        ),
        (
            "node-tap.txt",
            Summary(
                ran=4,
                failed=3,
                names=(
                    "test/paths.test.js: refuses a sibling",
                    "test/paths.test.js: outside > is refused",
                    "test/paths.test.js: outside > is equal",
                    "test/paths.test.js: outside",
                ),
            ),
        ),
    ],
)
def test_a_runner_of_npm(name: str, told: Summary) -> None:
    found = summary(log(name))
    assert found is not None
    assert replace(found, report=None) == told


@pytest.mark.parametrize(
    ("name", "passed", "failed"),
    [
        ("tape.txt", {"calc > adds"}, {"calc > adds nothing"}),
        (
            "tap.txt",
            {"test/a.test.js > calc > adds > should be equal", "test/a.test.js > alone"},
            {
                "test/a.test.js > calc > adds nothing > should be equal",
                "test/a.test.js > also fails: here > boom",
            },
        ),
        (
            "node-tap.txt",
            {"joins"},
            {"refuses a sibling", "outside > is refused", "outside > is equal"},
        ),
        (
            "ava.txt",
            {"a \u203a calc adds"},
            {"b \u203a also fails: here Error thrown in test", "a \u203a calc adds nothing"},
        ),
        ("qunit.txt", {"calc > adds"}, {"calc > adds nothing", "also fails: here"}),
        (
            "tap-16.txt",
            {
                "test/one.js > adds",
                "test/one.js > of a group > inner passes",
                "test/one.js > twice",
                "test/one.js > twice (2)",
                "test/three.js > fine",
                "test/two.js",
            },
            {"test/one.js > of a group > inner fails", "test/three.js > outside"},
        ),
    ],
)
def test_a_log_that_is_a_report_names_what_passes(
    name: str, passed: set[str], failed: set[str]
) -> None:
    """Lines that sum up those above them, and tests that were left out, are no tests of their own."""
    found = summary(log(name))
    assert found is not None
    assert found.report is not None
    assert found.report.passed == passed
    assert set(found.report.failed) == failed


@pytest.mark.parametrize(
    "name",
    ["jest.txt", "vitest.txt", "mocha.txt", "node-spec.txt", "ava-tap.txt", "qunit-extras.txt"],
)
def test_other_logs_name_no_test_that_passes(name: str) -> None:
    found = summary(log(name))
    assert found is not None
    assert found.report is None


def test_assertions_of_one_wording_are_told_apart_by_their_test() -> None:
    one = (
        "TAP version 13\n# {}\nnot ok 1 should be equal\n\n1..1\n# tests 1\n# pass  0\n# fail  1\n"
    )
    first, second = (summary(one.format(test)) for test in ("adds", "divides"))
    assert first is not None
    assert second is not None
    assert (first.names, second.names) == (
        ("adds > should be equal",),
        ("divides > should be equal",),
    )


def test_a_run_of_jest_that_stopped_early_names_no_complete_list() -> None:
    text = "FAIL a.test.js\n  \u25cf old\nTest Suites: 1 failed, 1 of 9 total\nTests: 1 failed, 1 total\n"
    reported = summary(text)
    assert reported is not None
    assert (reported.ran, reported.failed, reported.failing) == (1, 1, None)


def test_old_tap_counts_tests_not_files_or_assertions() -> None:
    reported = summary(log("tap-16.txt"))
    assert reported is not None
    assert (reported.ran, reported.failed) == (8, 2)


@pytest.mark.parametrize("other", ["# failed 1 of 3 tests", "# failed 3 of 3 tests", "# pass 3"])
def test_old_tap_names_nothing_where_its_last_lines_count_otherwise(other: str) -> None:
    text = log("tap-16.txt")
    assert "# failed 2 of 3 tests" in text
    assert summary(text.replace("# failed 2 of 3 tests", other)) is None


def test_beside_a_red_test_nothing_else_that_fails_is_missed() -> None:
    """Each file has a test ``red``, and fails by something else as well."""
    reported = summary(log("tap-16-beside.txt"))
    assert reported is not None
    others = {name.removeprefix("test/") for name in reported.names if not name.endswith("> red")}
    assert others == {
        "bare.js > beside",
        "exit.js > exit code 7",
        "group.js > group > should be equal",
        "hangs.js > hangs",
        "killed.js",
        "killed.js > test count",
        "names.js > spaced",
        "names.js > (unnamed)",
        "names.js > also \\# TODO",
        "plan.js > test count",
        "thrown.js > outside",
    }


@pytest.mark.parametrize("name", ["tap-16.txt", "ava.txt"])
def test_of_a_log_without_its_middle_no_lines_are_counted(name: str) -> None:
    text = log(name)
    half = BoundedOutput(len(text) // 2)
    half.add(text.encode())
    assert summary(text) is not None
    assert summary(half.text()) is None


def test_what_a_result_is_explained_with_is_no_result() -> None:
    text = log("tap-16.txt")
    explained = re.sub("( +)compare: ===", r"\g<0>\n\1ok 9 - of a group", text)
    assert explained != text
    assert summary(explained) == summary(text)


def test_tap_counts_tests_and_names_assertions_with_all_that_is_around_them() -> None:
    reported = summary(log("tap.txt"))
    assert reported is not None
    assert (reported.ran, reported.failed) == (4, 2)
    assert "test/a.test.js > calc > adds nothing > should be equal" in reported.names


@pytest.mark.parametrize(
    ("text", "ran", "failed"),
    [
        ("Tests:       12 passed, 12 total\n", 12, 0),
        ("      Tests  2 passed | 1 expected fail (3)\n     Errors  1 error\n", 3, 1),
        ("  3 passing (8ms)\n", 3, 0),
        ("  0 passing (1ms)\n  1 pending\n", 0, 0),
        ("  ✔ one\n  ✔ [expected fail] two\n  ─\n\n  1 test passed\n  1 known failure\n", 2, 0),
        ("  ✔ one\n  ─\n\n  1 test passed\n  1 uncaught exception\n", 1, 1),
        ("1 spec, 0 failures\n", 1, 0),
        ("1..2\n# pass 2\n# skip 0\n# todo 0\n# fail 0\n", 2, 0),
        ("    PASS: 3  FAIL: 0  TOTAL: 3\n    Finished in 5 milliseconds.\n", 3, 0),
        ("# tests 3\n# fail 0\n# skipped 1\n# tests 2\n# fail 0\n", 4, 0),
        ("  3 passing (8ms)\nTests:       1 failed, 2 passed, 3 total\n", 6, 1),
    ],
)
def test_the_last_lines_of_other_runs(text: str, ran: int, failed: int) -> None:
    reported = summary(text)
    assert reported is not None
    assert (reported.ran, reported.failed) == (ran, failed)


@pytest.mark.parametrize("text", ["", "all good\n", "3 passing thoughts\n", "Tests: many\n"])
def test_other_runners_tell_nothing(text: str) -> None:
    assert summary(text) is None


def test_two_tests_of_one_name_are_two() -> None:
    text = "  1 passing (2ms)\n  2 failing\n\n  1) works:\n     Error\n\n  2) works:\n     Error\n"
    reported = summary(text)
    assert reported is not None
    assert reported.failing == ("works", "works (2)")


@pytest.mark.parametrize("name", ["pytest-short.txt", "pytest-long.txt"])
def test_pytest(name: str) -> None:
    reported = pytest_summary(log(name))
    assert reported is not None
    assert (reported.ran, reported.failed) == (4, 3)


def test_pytest_names_what_failed_even_with_blanks_in_its_parameters() -> None:
    text = (
        "....\n=========================== short test summary info ====\n"
        "FAILED tests/test_a.py::test_one[a b-c - d] - AssertionError: no - really\n"
        "FAILED tests/test_a.py::Case::test_two\n"
        "ERROR tests/test_b.py - ImportError: cannot\n"
        "2 failed, 3 passed, 1 skipped, 1 error in 0.21s\n"
    )
    assert pytest_summary(text) == Summary(
        ran=6,
        failed=3,
        names=(
            "tests/test_a.py::test_one[a b-c - d]",
            "tests/test_a.py::Case::test_two",
            "tests/test_b.py",
        ),
    )


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_unittest(minor: int) -> None:
    reported = unittest_summary(log(f"unittest-python3.{minor}.txt"))
    assert reported is not None
    assert (reported.ran, reported.failed) == (4, 3)
    assert reported.failing == (
        "test_absolute_is_inside (tests.test_paths.SafeJoin.test_absolute_is_inside)",
        "test_missing (tests.test_paths.SafeJoin.test_missing)",
        "test_sibling_prefix_is_refused (tests.test_paths.SafeJoin.test_sibling_prefix_is_refused)",
    )


def test_an_expected_failure_of_unittest_is_none() -> None:
    message = "Ran 3 tests in 0.1s\n\nFAILED (failures=1, expected failures=1)\n"
    assert unittest_summary(message) == Summary(3, 1)


def test_unittest_leaves_out_what_was_skipped() -> None:
    assert unittest_summary("Ran 3 tests in 0.1s\n\nOK (skipped=1)\n") == Summary(2, 0)
    assert unittest_summary("no such line\n") is None


# --- Compilers and type checkers: typescript 7.0.2, mypy 2.4.1 ------------------------------------


def result(output: str, exit_code: int = 1) -> CommandResult:
    return CommandResult(argv=("check",), exit_code=exit_code, output=output, duration_ms=1)


def test_a_complaint_has_the_same_key_wherever_an_edit_moved_it() -> None:
    lines = "a.ts(1,14): error TS2322: no\n  because\na.ts(9,2): error TS2322: no\n"
    first, second = all_gates.findings(lines)
    assert first.key == second.key == "a.ts: error TS2322: no"
    first, second = findings("a.py:1: error: no  [x]\na.py:1: note: b\na.py:2:3: error: no  [x]\n")
    assert first.key == second.key == "a.py: no  [x]"
    assert [one.text for one in findings("  a.py:1:2 - error: no (x)\n")] == [
        "a.py:1:2 - error: no (x)"
    ]


@pytest.mark.parametrize(
    ("line", "blocked"),
    [
        ("error TS2688: Cannot find type definition file for 'nothere'.", True),
        ("a.ts(1,17): error TS6305: Output file 'l.d.ts' has not been built from 'l.ts'.", True),
        ("a.ts(1,14): error TS2322: error TS2688: no", False),
    ],
)
def test_a_compiler_that_stops_short_is_known(line: str, blocked: bool) -> None:
    assert all_gates.is_blocked(result(line)) is blocked


def test_a_type_checker_that_stops_short_is_known() -> None:
    assert is_blocked(result("a.py:1: error: Unexpected EOF  [syntax]", 2))
    assert not is_blocked(result("a.py:1: error: no  [x]"))


@pytest.mark.parametrize(
    ("log", "ran"),
    [
        ("=== 2 passed, 1 skipped in 0.1s ===\n", 2),
        ("=== 1 failed, 2 xfailed in 0.1s ===\n", 1),
        ("=== 1 xfailed in 0.1s ===\n", 0),  # said by the code under test, it is no pass
        ("Ran 3 tests in 0.1s\n\nOK (skipped=3)\n", 0),
        ("Ran 3 tests in 0.1s\n\nOK\n", 3),
        ("no tests ran in 0.01s\n", 0),
        ("answered in 0.01s\n", None),
    ],
)
def test_what_a_proof_counts_as_run_ended_by_its_own_assertions(log: str, ran: int | None) -> None:
    assert PyPIEcosystem(SubprocessClients()).tests_ran(log) == ran


@pytest.mark.parametrize(
    ("text", "ran"),
    [
        (log("qunit.txt"), 3),
        ("      Tests  2 passed | 1 expected fail (3)\n", 2),
        ("# tests 3\n# pass 2\n# fail 0\n# skipped 0\n# todo 1\n", 2),
        ("# tests 3\n# pass 3\n# fail 0\n# skipped 0\n# todo 0\n", 3),
    ],
)
def test_a_test_that_is_to_do_or_to_fail_has_shown_nothing(text: str, ran: int) -> None:
    """Code under test can mark the test that runs so: QUnit keeps the one that runs in a global."""
    assert NpmEcosystem(SubprocessClients()).tests_ran(text) == ran
