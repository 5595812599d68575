"""Logs that are made to be read for hours: everything that reads one is through soon.

A command's log is read in our own process, without a clock, and has up to MAX_OUTPUT_BYTES. Whatever
takes longer than in proportion to its length takes hours at that size: pytest-timeout ends the test.
"""

from collections.abc import Callable

import pytest

from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.pypi.gates.summaries import pytest_summary, unittest_summary
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES

#: What a log begins with, what then fills it, and how it ends: as it does not go on, unless that is said.
LOGS: dict[str, tuple[str, ...]] = {
    "empty lines": ("", "\n"),
    "blank lines": ("", " \n"),
    "one long line": ("", "="),
    "blanks": ("", " "),
    "digits": ("", "1"),
    "jest's figures": ("Tests: ", "1"),
    "pytest's figures": ("1 passed, ", "1", " failed, 2 xfailed in 1s\n"),
    "pytest's end": ("1 passed in 1s", " "),
    "pytest's id": ("FAILED a[", "]"),
    "tap's total": ("# { total: ", "1"),
    "jasmine's figures": ("1 specs, ", "1"),
    "mocha's title": ("  1 failing\n  1) a\n", "     b\n"),
    "a line of vows": ("\u2713 OK \u00bb 1 honored (0.1s)\n  a", " "),
}


def filled(begin: str, filling: str, end: str = "x\n") -> str:
    """A log of the most bytes that one may have."""
    room = MAX_OUTPUT_BYTES - len((begin + end).encode())
    return begin + filling * (room // len(filling.encode())) + end


@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
@pytest.mark.parametrize("read", [summary, pytest_summary, unittest_summary])
def test_counting_tests(read: Callable[[str], object], log: tuple[str, ...]) -> None:
    read(filled(*log))
