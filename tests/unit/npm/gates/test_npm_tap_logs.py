"""Logs in TAP whose tests print what looks like a part of the log itself."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fallback_plugins.npm.gates import summaries as tap_logs
from fallback_plugins.npm.gates.summaries import summary

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"


def old_tap(ok: bool, *, before: Sequence[str] = (), below: Sequence[str] = ()) -> str:
    """A file of two tests by tap 16: ``red`` fails, ``other`` is ``ok`` or not. Lines that tests print:
    ``before`` the other test, ``below`` the count of the file's failures."""
    fails = "" if ok else "not "
    lines = [
        "TAP version 13",
        "# Subtest: test/a.js",
        "    # Subtest: red",
        "        not ok 1 - equal",
        "          ---",
        "          at: z",
        "          ...",
        "        ",
        "        1..1",
        "        # failed 1 test",
        "    not ok 1 - red # time=1ms",
        *before,
        "    # Subtest: other",
        f"        {fails}ok 1 - equal",
        "        1..1",
        *(() if ok else ["        # failed 1 test"]),
        f"    {fails}ok 2 - other # time=1ms",
        "    ",
        "    1..2",
        f"    # failed {1 if ok else 2} of 2 tests",
        *below,
        "not ok 1 - test/a.js # time=9ms",
        "  ---",
        "  exitCode: 1",
        "  ...",
        "",
        "1..1",
        "# failed 1 test",
        "# time=30ms",
    ]
    return "\n".join([*lines, ""])


FORGED = [["      ..."], ["      ...", "    # failed 1 of 2 tests"]]


@pytest.mark.parametrize("below", [[], *FORGED])
def test_an_explanation_begins_right_below_a_result(below: list[str]) -> None:
    """Printed further below, the same lines hid all tests between them."""
    before = ["    ", "      ---"]
    assert tap_logs.tests_of_tap_16(old_tap(False, before=before, below=below)) == [
        ("test/a.js > red", "failed"),
        ("test/a.js > other", "failed"),
    ]


@pytest.mark.parametrize("below", [[], *FORGED])
def test_no_test_is_named_where_an_explanation_has_results_of_others_in_it(
    below: list[str],
) -> None:
    """Whatever is printed right below a result can't be told from what explains it."""
    assert tap_logs.tests_of_tap_16(old_tap(False, before=["      ---"], below=below)) is None


def test_no_test_is_named_where_the_log_ends_in_an_explanation() -> None:
    text = old_tap(False)
    assert (
        tap_logs.tests_of_tap_16(text.replace("  exitCode: 1\n  ...\n", "  exitCode: 1\n")) is None
    )


def test_what_else_is_printed_in_an_explanation_is_nothing() -> None:
    """Errors go past tap, and can land anywhere."""
    text = old_tap(False)
    printed = text.replace("  exitCode: 1\n", "(node:9) Warning: x\n\n  exitCode: 1\n")
    assert printed != text
    assert tap_logs.tests_of_tap_16(printed) == tap_logs.tests_of_tap_16(text)


def test_an_exit_code_counts_though_something_is_printed_above_its_explanation() -> None:
    text = (LOGS / "tap-16-beside.txt").read_text()
    file = "not ok 2 - test/exit.js # time=29.078ms\n"
    assert f"{file}  ---\n" in text
    found = summary(text.replace(file, f"{file}(node:9) Warning: x\n"))
    assert found is not None
    assert "test/exit.js > exit code 7" in found.names
