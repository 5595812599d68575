"""A number that no suite can have tests of is no figure: ``int`` refuses one of over 4,300 digits."""

import pytest

from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.pypi.gates.testing import pytest_summary, unittest_summary

LONG = "9" * 5_000

#: Of each runner a log with two figures in its last lines.
LOGS = {
    "node": "# tests {}\n# fail {}\n",
    "node spec": "\u2139 tests {}\n\u2139 fail {}\n",
    "tap 18": "# {{ total: {}, pass: 1, fail: {} }}\n",
    "jest": "Tests:       {} failed, {} passed, 2 total\n",
    "vitest": "      Tests  {} failed | {} passed (2)\n",
    "vitest outside": "      Tests  {} passed (1)\n     Errors  {} errors\n",
    "mocha": "  {} passing (9ms)\n  {} failing\n",
    "ava": "  {} tests passed\n  {} uncaught exception\n",
    "jasmine": "{} specs, {} failures\n",
    "qunit": "1..2\n# pass {}\n# skip 0\n# todo 0\n# fail {}\n",
    "qunit-extras": "    PASS: {}  FAIL: {}  TOTAL: 2\n",
    "vows": "\u2717 Broken \u00bb {} honored \u2219 {} broken (0.1s)\n",
}


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_npm(log: str) -> None:
    assert summary(log.format(1, 1)) is not None
    for first, second in ((LONG, 1), (1, LONG), (LONG, LONG)):
        reported = summary(log.format(first, second))
        assert reported is None or (reported.ran <= 2 and reported.failed <= 1)


def test_pytest() -> None:
    assert pytest_summary(f"{LONG} passed in 1s\n") is None
    reported = pytest_summary(f"1 passed, {LONG} failed, {LONG} xfailed in 1s\n")
    assert reported is not None
    assert (reported.ran, reported.failed, reported.expected) == (1, 0, 0)


def test_unittest() -> None:
    assert unittest_summary(f"Ran {LONG} tests in 1s\n\nOK\n") is None
    reported = unittest_summary(f"Ran 2 tests in 1s\n\nFAILED (failures={LONG}, skipped={LONG})\n")
    assert reported is not None
    assert (reported.ran, reported.failed) == (2, 0)


def test_nine_digits_are_a_figure() -> None:
    reported = pytest_summary("999999999 passed in 1s\n")
    assert reported is not None
    assert reported.ran == 999_999_999
