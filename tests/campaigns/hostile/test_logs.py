"""Logs that are made to be read for hours, or to fill the memory: whatever reads one is through soon.

A command's log is read in our own process, without a clock, and has up to MAX_OUTPUT_BYTES. What does
not take time in proportion to its length takes hours at that size: pytest-timeout ends the test. What
repeats a name for each test below it takes hundreds of gigabytes. In CI what once did;
``python -m tests.campaigns.hostile.test_logs`` runs every log through every reader, tells how long each
took, and ends with 1 where one took over MAX_S, or asked for more than MAX_BYTES.
"""

import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from fallback_plugins.npm.client import Files
from fallback_plugins.npm.clients.words import blockers_in, own_words
from fallback_plugins.npm.gates.summaries import summary
from fallback_plugins.npm.gates.testing import read_jest
from fallback_plugins.pypi.gates.testing import pytest_summary, unittest_summary
from fallback_plugins.pypi.installing.building import unbuilt
from fallback_plugins.pypi.installing.install import reason
from fallback_plugins.pypi.resolving import resolutions
from fallback_plugins.pypi.resolving.uv_client import UvRefusedError, blocker_of
from fallback_plugins.shared.gates.suite_run import Report
from fallback_tier.execution import CommandResult
from fallback_tier.gates.builtin import proof
from fallback_tier.gates.builtin.proof import fault
from fallback_tier.gates.failure_summary.diagnosis import clean, diagnose
from fallback_tier.gates.failure_summary.distill import of_tests
from fallback_tier.sandbox.launching import MAX_OUTPUT_BYTES

Log = tuple[str, ...]
Reader = Callable[[str], object]

#: Ten times what the slowest takes.
MAX_S = 20

#: Of a log whose time alone is looked at, in CI: what takes the square of it takes hours all the same.
IN_CI = MAX_OUTPUT_BYTES // 4

#: Memory of one reading, beside the log. Twice what the largest takes.
MAX_BYTES = 320 * 1024 * 1024

#: What a log begins with, what then fills it (``#``: counted, ``##``: one #), and how it
#: ends: as it does not go on, unless that is said.
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
    "hosts": ("", "x", " is named by it and not by you\n"),
    "names of hosts": ("x is named by ", "x", "\n"),
    "addresses": ("", "http://", "\n"),
}
#: npm, yarn and pnpm quote what manifests and registries say.
REFUSING_NPM: dict[str, Log] = {
    "a long requirement": ("npm error Could not resolve dependency:\n", 'a@"', '" from x\n'),
    "long requirements": ("Could not resolve dependency:\n", 'a@"' + "a" * 999 + '" from ', "\n"),
    "parents": ('Could not resolve dependency:\na@"1" from ', "a@", "\n"),
    "what was found": ('Could not resolve dependency:\na@"1" from a@1\nFound: ', "a@", "\n"),
    "requirements": ("Could not resolve dependency:\n", 'a@"1" from a@1 ', "\n"),
    "releases": ("No matching version found for ", "a@", "\n"),
    "dates": ("No matching version found for a@1", " with a date before 1", "\nx"),
    "yarn's releases": ("", "Couldn't find any versions for \"a", "\n"),
    "yarn's packages": ("", "Couldn't find package \"a", "\n"),
    "packages": ("", "requested resource '", "\n"),
    "pnpm's packages": ("", "x", " is not in the npm registry\n"),
    "engines": ("engine ", "error a@1: ", "\n"),
    "an engine": ("engine error ", "a@", ": \n"),
    "folders of git": ("", "git ls-remote -x ", "\n"),
    "options of git": ("git ls-remote ", "-x ", "\n"),
    "places": ("EALLOWGIT ", "placeDep a ", "\n"),
    "placed names": ("EALLOWGIT placeDep a ", "a@", " OK for: \n"),
    "answers": ("", "Error: http://", "\n"),
    "registries": ("npm error code E404 ", "http://a", "\n"),
    "dead hosts": ("", "ENOTFOUND a", "\n"),
    "certificates": ("", "UNABLE_TO_", "\n"),
    "errors": ("", "npm error x\n", "\n"),
}

#: One name stands around all the others.
LONG = "x" * (MAX_OUTPUT_BYTES // 2)
DEEP = "".join(" " * level + "# Subtest: a\n" for level in range(1_900))
TAP_16 = "1..1\n# time=1ms\n"
TAP_16_FAILED = "1..1\n# failed 1 test\n# time=1ms\n"
NODE = "# tests 1\n# fail 0\n"
NAMING: dict[str, Log] = {
    "tap 16": (f"# Subtest: {LONG}\n", "    ## Subtest: a\n    ok 1 - a\n", f"ok 1 - b\n{TAP_16}"),
    "tap 16, assertions": (
        f"# Subtest: {LONG[::2]}\n    # Subtest: a\n    ok 1 - a\n",
        "    not ok 2 - b\n",
        f"not ok 1 - {LONG[::2]}\n{TAP_16_FAILED}",
    ),
    "tap 16, exits": (
        f"# Subtest: {LONG[::2]}\nok 1 - {LONG[::2]}\n",
        "  exitCode: 7\n",
        TAP_16,
    ),
    "tap 16, short": (f"# Subtest: {LONG[:250]}\n", "    ## Subtest: a\n    ok 1 - a\n", TAP_16),
    "tap 16, deep": (DEEP, "ok 1 b\n", TAP_16),
    "node": (f"# Subtest: {LONG}\n", "    ok 1 - a\n", f"ok 1 - b\n{NODE}"),
    "node, failed": (f"# Subtest: {LONG}\n", "    not ok 1 - a\n", NODE),
    "node, short": (f"# Subtest: {LONG[:250]}\n", "    not ok 1 - a\n", NODE),
    "node, deep": (DEEP, "ok 1 b\n", NODE),
    "tape": (f"# {LONG}\n", "not ok 1 a\n", NODE),
    "tap 18": (f"# Subtest: {LONG}\n", "    ok 1 - a\n", "# { total: 1, pass: 1 }\n"),
    "qunit": (
        f"# Subtest: {LONG}\n",
        "    not ok 1 - a\n",
        "1..1\n# pass 0\n# skip 0\n# todo 0\n# fail 1\n",
    ),
    "jest": (f"FAIL {LONG}\n", "  \u25cf a#\n", "Tests: 1 failed, 1 total\n"),
    "jest, short": (f"FAIL {LONG[:250]}\n", "  \u25cf a#\n", "Tests: 1 failed, 1 total\n"),
    "qunit-extras": (
        f"{'-' * 9}\n{LONG}\n{'-' * 9}\n",
        " FAIL - a\n",
        "    PASS: 0  FAIL: 1  TOTAL: 1\n",
    ),
    "vows": (
        f"  {LONG}\n",
        "    \u2717 a\n",
        "\u2717 Errored \u00bb 1 honored, 1 broken (0.1s)\n",
    ),
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


def blamed_by_uv(log: str) -> object:
    blocker_of(UvRefusedError("", log), "it")
    return UvRefusedError("", log, ("it",))


def blamed_by_npm(log: str) -> object:
    return own_words(log), blockers_in(log, Files(".", {"package.json": "{}"}))


READERS: dict[str, Reader] = {
    "npm's summaries": summary,
    "pytest's summary": pytest_summary,
    "unittest's summary": unittest_summary,
    "fault": proof_fault,
    "a proof's skipped tests": proof._SKIPS.findall,
    "clean": clean,
    "diagnose": diagnose,
    "what has no wheel": unbuilt,
    "a pin without a wheel": resolutions._ABSENT.search,
    "uv's reason": reason,
    "whom uv blames": blamed_by_uv,
    "whom npm blames": blamed_by_npm,
    "of_tests": lambda log: of_tests(log, ["a", "x"]),
}


def filled(begin: str, filling: str, end: str = "x\n", *, most: int = MAX_OUTPUT_BYTES) -> str:
    """A log of about the most bytes that one may have."""
    room = most - len((begin + end).encode())
    pieces = [piece.replace("\0", "#") for piece in filling.replace("##", "\0").split("#")]
    size = len("".join(pieces).encode()) + 6 * (len(pieces) - 1)  # a number has some six digits
    numbers = map(str, range(room // size)) if len(pieces) > 1 else [""] * (room // size)
    return begin + "".join(number.join(pieces) for number in numbers) + end


@contextmanager
def little_memory() -> Iterator[None]:
    """Whatever asks for more than MAX_BYTES beside what there is gets a MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MAX_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


@pytest.mark.parametrize("log", COUNTING.values(), ids=COUNTING)
@pytest.mark.parametrize("read", [summary, pytest_summary, unittest_summary])
def test_counting_tests(read: Reader, log: Log) -> None:
    read(filled(*log, most=IN_CI))


@pytest.mark.parametrize("log", NAMING.values(), ids=NAMING)
def test_naming_tests(log: Log) -> None:
    text = filled(*log)
    with little_memory():
        summary(text)


def test_naming_the_tests_of_jests_report() -> None:
    test = '{"ancestorTitles": [], "title": "", "status": "passed"}'
    tests = ", ".join([test] * 9_000)
    file = f'{{"name": "{LONG}", "status": "passed", "assertionResults": [{tests}]}}'
    text = f'{{"numPassedTests": 1, "numFailedTests": 0, "testResults": [{file}]}}'
    with little_memory():
        assert read_jest(text) is not None


def test_holding_failures_beside_the_base_commits() -> None:
    base = Report(frozenset(), tuple(f"a > {number}" for number in range(400_000)))
    assert all(map(base.excuses, base.failed))
    assert not any(map(base.clears, base.failed))


@pytest.mark.parametrize("name", ["empty lines", "blank lines"])
def test_looking_for_a_fault_of_a_proof(name: str) -> None:
    proof_fault(filled(*COUNTING[name], most=IN_CI))


def test_counting_what_a_proof_skips() -> None:
    proof._SKIPS.findall(filled(*OTHERS["digits"], most=IN_CI))


@pytest.mark.parametrize("log", DISTILLING.values(), ids=DISTILLING)
def test_distilling(log: Log) -> None:
    diagnose(filled(*log, most=IN_CI))


@pytest.mark.parametrize("log", REFUSING.values(), ids=REFUSING)
def test_reading_what_has_no_wheel(log: Log) -> None:
    text = filled(*log, most=IN_CI)
    reason(text)
    unbuilt(text)
    resolutions._ABSENT.search(text)
    blamed_by_uv(text)


@pytest.mark.parametrize("log", REFUSING_NPM.values(), ids=REFUSING_NPM)
def test_reading_what_npm_refuses(log: Log) -> None:
    blamed_by_npm(filled(*log, most=IN_CI))


def _ended(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def main() -> int:
    signal.signal(signal.SIGALRM, _ended)
    took: list[tuple[float, str]] = []
    for name, log in {
        **COUNTING,
        **DISTILLING,
        **REFUSING,
        **REFUSING_NPM,
        **NAMING,
        **OTHERS,
    }.items():
        text = filled(*log)
        for reader, read in READERS.items():
            begun = time.process_time()
            signal.alarm(MAX_S)
            try:
                with little_memory():
                    read(text)
            except (TimeoutError, MemoryError) as error:
                print(f"{type(error).__name__}: {reader}, {name}", flush=True)
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
