"""Logs that are made to be read for hours: everything that reads one is through soon.

A command's log is read in our own process, without a clock, and has up to MAX_OUTPUT_BYTES. What does
not take time in proportion to its length takes hours at that size: pytest-timeout ends the test. In CI
what once did; ``python -m tests.hostile.test_logs`` runs every log through every reader, tells how long
each took, and ends with 1 where one took over MAX_S.
"""

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest

from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.pypi.gates.summaries import pytest_summary, unittest_summary
from fallback_plugins.pypi.installing.building import unbuilt
from fallback_plugins.pypi.resolving import no_wheel
from fallback_plugins.pypi.resolving.resolver import UvRefusedError, blocker_of
from fallback_tier.execution import CommandResult
from fallback_tier.gates.builtin import proof
from fallback_tier.gates.builtin.proof_faults import fault
from fallback_tier.gates.distilling.diagnosis import clean, diagnose
from fallback_tier.gates.distilling.failures import of_tests
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES

Log = tuple[str, ...]
Reader = Callable[[str], object]

#: Ten times what the slowest takes.
MAX_S = 20

#: What a log begins with, what then fills it (``#``: counted), and how it ends: as it does not go on,
#: unless that is said.
COUNTING: dict[str, Log] = {
    "empty lines": ("", "\n"),
    "blank lines": ("", " \n"),
    "jest's figures": ("Tests: ", "1"),
    "pytest's figures": ("1 passed, ", "1", " failed, 2 xfailed in 1s\n"),
    "tap's total": ("# { total: ", "1"),
    "jasmine's figures": ("1 specs, ", "1"),
    "a line of vows": ("\u2713 OK \u00bb 1 honored (0.1s)\n  a", " "),
}
DISTILLING: dict[str, Log] = {
    "one long assertion": ("", "E   a#\n"),
    "a diff": ("--- expected\n+++ actual\n", "-#\n"),
    "an error in TAP": ("error: |-\n", "  #\n"),
    "many assertions": ("", "AssertionError: #\n"),
    "paths": ("", "/-"),
}
#: uv quotes a requirement as a repository has it, and says of it that it has no usable wheels, or not.
REFUSING: dict[str, Log] = {
    "clauses": ("x", "!=1,", "===foo has no usable wheels\n"),
    "clauses of something else": ("x", "!=1,", "===foo\n"),
    "one long name": ("", "a-", "b\n"),
    "one long name without a wheel": ("", "a-", "b has no usable wheels\n"),
    "long names without a wheel": ("", "a-" * 600 + "b has no usable wheels "),
    "names of blanks": ("", " has no usable wheels"),
    "conditions": ("", "{'", " has no usable wheels\n"),
    "folders of extras": ("", "a[ ", " depends on it\n"),
    "operators": ("", "a=", " depends on\n"),
    "dependencies": ("", "a depends on ", "it"),
    "a long dependency": ("a depends on ", "a-", "it"),
    "extras of dependencies": ("", "a depends on a[", "it"),
    "extras": ("", "a[", " has no usable wheels\n"),
}
#: Slow once, though in proportion to their length, or never.
OTHERS: dict[str, Log] = {
    "one long line": ("", "="),
    "blanks": ("", " "),
    "digits": ("", "1"),
    "pytest's end": ("1 passed in 1s", " "),
    "pytest's id": ("FAILED a[", "]"),
    "mocha's title": ("  1 failing\n  1) a\n", "     b\n"),
    "hints": ("", " Did you mean"),
    "very many lines": ("", "x\n"),
    "carriage returns": ("", "\r"),
    "dashes": ("", "---\n"),
    "assertions of one wording": ("", "E   a\n"),
    "empty assertions": ("", "E   \n"),
    "numbers": ("  1 failing\n", "1)\n"),
    "numbered": ("  1 failing\n", "  1) x\n"),
    "numbered, long": ("  1 failing\n  1) a\n", "       b\n"),
    "bullets": ("", "  \u25cf x\n"),
    "passed": ("", "ok 1 - x\n"),
    "failed": ("", "not ok # - x\n"),
    "a resolution": ("error: x\n", "      x\n"),
    "a compiler's explanation": ("a(1,1): error TS1: x\n", "  a\n"),
    "a compiler's message": ("", "a.py:#: error: x\n"),
    "a compiler's messages": ("", "a.py:1: error: x#\n"),
    "frames": ("", "a.py:1: in f\n"),
    "short summary": ("", "FAILED a# - b\n"),
    "colours": ("", "\x1b[1"),
    "links": ("", "\x1b]"),
    "lines of blanks": ("", " " * 1_998 + "x\n"),
    "lines of brackets": ("", "FAILED a" + "[" * 1_900 + " x\n"),
    "lines of paths": ("", "/-" * 990 + " x\n"),
    "lines of calls": ("", "a (" * 600 + "\n"),
    "lines of hints": ("", " Did you mean" * 600 + "\n"),
    "lines of comments": ("", "not ok 1 " + " # " * 600 + "\n"),
}


def proof_fault(log: str) -> str | None:
    return fault(CommandResult(argv=("check",), exit_code=1, output=log, duration_ms=1))


READERS: dict[str, Reader] = {
    "npm's summaries": summary,
    "pytest's summary": pytest_summary,
    "unittest's summary": unittest_summary,
    "fault": proof_fault,
    "a proof's skipped tests": proof._SKIPS.findall,
    "clean": clean,
    "diagnose": diagnose,
    "what has no wheel": unbuilt,
    "a pin without a wheel": no_wheel._NO_WHEEL.search,
    "whom uv blames": lambda log: blocker_of(UvRefusedError("", log), "it"),
    "of_tests": lambda log: of_tests(log, ["a", "x"]),
}


def filled(begin: str, filling: str, end: str = "x\n") -> str:
    """A log of about the most bytes that one may have."""
    room = MAX_OUTPUT_BYTES - len((begin + end).encode())
    if "#" not in filling:
        return begin + filling * (room // len(filling.encode())) + end
    size = len(filling.encode()) + 5  # a number has some six digits
    return begin + "".join(filling.replace("#", str(i)) for i in range(room // size)) + end


@pytest.mark.parametrize("log", COUNTING.values(), ids=COUNTING)
@pytest.mark.parametrize("read", [summary, pytest_summary, unittest_summary])
def test_counting_tests(read: Reader, log: Log) -> None:
    read(filled(*log))


@pytest.mark.parametrize("name", ["empty lines", "blank lines"])
def test_looking_for_a_fault_of_a_proof(name: str) -> None:
    proof_fault(filled(*COUNTING[name]))


def test_counting_what_a_proof_skips() -> None:
    proof._SKIPS.findall(filled(*OTHERS["digits"]))


@pytest.mark.parametrize("log", DISTILLING.values(), ids=DISTILLING)
def test_distilling(log: Log) -> None:
    diagnose(filled(*log))


@pytest.mark.parametrize("log", REFUSING.values(), ids=REFUSING)
def test_reading_what_has_no_wheel(log: Log) -> None:
    text = filled(*log)
    unbuilt(text)
    no_wheel._NO_WHEEL.search(text)
    blocker_of(UvRefusedError("", text), "it")


def _ended(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def main() -> int:
    signal.signal(signal.SIGALRM, _ended)
    took: list[tuple[float, str]] = []
    for name, log in {**COUNTING, **DISTILLING, **REFUSING, **OTHERS}.items():
        text = filled(*log)
        for reader, read in READERS.items():
            begun = time.process_time()
            signal.alarm(MAX_S)
            try:
                read(text)
            except TimeoutError:
                print(f"over {MAX_S} s: {reader}, {name}", flush=True)
                took.append((float(MAX_S), f"{reader}, {name}"))
                continue
            finally:
                signal.alarm(0)
            took.append((time.process_time() - begun, f"{reader}, {name}"))
    took.sort(reverse=True)
    for seconds, what in took[:15]:
        print(f"{seconds:6.2f} CPU s: {what}")
    return int(took[0][0] >= MAX_S)


if __name__ == "__main__":
    sys.exit(main())
