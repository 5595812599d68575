"""What the logs of pytest, unittest and other runners of Python tests tell about a run."""

import re
from collections.abc import Sequence
from itertools import accumulate

from fallback_plugins.shared.gates.suite_run import FIGURE, Summary, numbered

#: It counts something, or says that there was nothing: unittest ends with "Ran 1 test in 0.1s", and any
#: program may say in how many seconds it did what.
_PYTEST_ENDING = re.compile(
    r"^=*[^\S\n]*((?:no tests ran"
    rf"|{FIGURE} (?:passed|failed|errors?|skipped|deselected|x(?:fail|pass)ed|warnings?))\b.*?)"
    r" in [\d.]+s(?: \([\d:]+\))?[^\S\n]*=*$",
    re.MULTILINE,
)
_PYTEST_RAN = re.compile(rf"({FIGURE}) (?:passed|failed|errors?|xfailed|xpassed)")
_PYTEST_EXPECTED = re.compile(rf"({FIGURE}) xfailed")
_PYTEST_FAILED = re.compile(rf"({FIGURE}) (?:failed|errors?)")
#: The short summary (``-ra``). An id has no blank except within the brackets of its parameters.
_PYTEST_NAME = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+(?:\[.*?\])?)(?= - |$)", re.MULTILINE)
_PYTEST_SUMMARY = re.compile(r"^=* ?short test summary info ?=*$", re.MULTILINE)

_UNITTEST_RAN = re.compile(rf"^Ran ({FIGURE}) tests? in ", re.MULTILINE)
#: trial ends with ``PASSED``, and says ``skips`` and ``unexpectedSuccesses``.
_UNITTEST_ENDING = re.compile(r"^(?:OK|FAILED|NO TESTS RAN|PASSED) \((.*)\)$", re.MULTILINE)
_UNITTEST_SKIPPED = re.compile(rf"\bskip(?:ped|s)=({FIGURE})")
_UNITTEST_FAILED = re.compile(
    rf"\b(?:(?<!expected )failures|errors|unexpected ?[sS]uccesses)=({FIGURE})"
)
_UNITTEST_BLOCK = re.compile(
    rf"^Ran ({FIGURE}) tests? in .*$(?:\s+^(?:OK|FAILED|NO TESTS RAN|PASSED)(?: \((.*)\))?$)?",
    re.MULTILINE,
)
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (\S+ \(.*)$", re.MULTILINE)


def pytest_summary(log: str) -> Summary | None:
    """By the last line, and the short summary above it; None where there is no such line."""
    endings = _PYTEST_ENDING.findall(log)
    if not endings:
        return None
    short = _PYTEST_SUMMARY.split(log)[-1]
    return Summary(
        ran=sum(int(number) for number in _PYTEST_RAN.findall(endings[-1])),
        failed=sum(int(number) for number in _PYTEST_FAILED.findall(endings[-1])),
        expected=sum(int(number) for number in _PYTEST_EXPECTED.findall(endings[-1])),
        names=numbered(iter(_PYTEST_NAME.findall(short))),
    )


def unittest_summary(log: str) -> Summary | None:
    """By ``Ran … tests`` and the line below it; None where there is none."""
    ran = _UNITTEST_RAN.findall(log)
    if not ran:
        return None
    endings = _UNITTEST_ENDING.findall(log)
    ending = endings[-1] if endings else ""
    return Summary(
        ran=int(ran[-1]) - sum(map(int, _UNITTEST_SKIPPED.findall(ending))),
        failed=sum(map(int, _UNITTEST_FAILED.findall(ending))),
        names=numbered(iter(_UNITTEST_NAME.findall(log))),
    )


def failures(log: str) -> int:
    """Return how many tests failed by any summary in a log: the last may be forged, one above it not."""
    endings = [_PYTEST_FAILED.findall(one) for one in _PYTEST_ENDING.findall(log)]
    endings += [_UNITTEST_FAILED.findall(one) for one in _UNITTEST_ENDING.findall(log)]
    return max((sum(map(int, numbers)) for numbers in endings), default=0)


#: The last line of other runners: tests that ran, in all or by how they ended, and those that failed.
_OTHERS = tuple(
    (re.compile(ending, re.MULTILINE), fields)
    for ending, fields in (
        # zope.testrunner, of a layer.
        (rf"^\s*Ran ({FIGURE}) tests with ({FIGURE}) failures, ({FIGURE}) errors", "rff"),
        # behave and lettuce.
        (rf"^({FIGURE}) scenarios? passed, ({FIGURE}) failed", "pF"),
        (rf"^({FIGURE}) scenarios? \(({FIGURE}) passed\)", "rp"),
        # Robot Framework; of several such lines the last is of all suites.
        (rf"^({FIGURE}) tests?, ({FIGURE}) passed, ({FIGURE}) failed", "rpf"),
        # stestr and testr.
        (rf"^Ran: ({FIGURE}) tests in .*\n(?:^ - .*\n)*?^ - Failed: ({FIGURE})", "rf"),
    )
)


def command_summary(
    log: str, figures: tuple[int, int] | None, failing: Sequence[str] = ()
) -> Summary | None:
    """Return what the log of a command tells that may run several test runners, or one of any kind.

    ``figures``, ``failing``: tests that ran and that failed, and the names of these, as processes of the
    command report them; None: none reports them, or not to its end. Of the log's summaries so many of the
    last count as agree with that: a failing test's own output can have others before them. If the log has
    no summary, the report is the only one.
    """
    names = numbered(iter([*_PYTEST_NAME.findall(log), *_UNITTEST_NAME.findall(log)]))
    found = [(at, figure, expected) for at, figure, expected in _endings(log)]
    if not found and figures is not None and figures[0]:
        return Summary(ran=figures[0], failed=figures[1], names=tuple(failing))
    if not found:
        found = [*_other_endings(log)]
    if not found:
        return Summary(ran=0, failed=len(names), names=names) if names else None
    totals = [*accumulate((one[1] for one in reversed(found)), _sum)]
    agreeing = figures is not None and figures in totals
    ran, failed = figures if figures is not None and agreeing else totals[-1]
    return Summary(ran, failed, names, expected=sum(one[2] for one in found))


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _endings(log: str) -> list[tuple[int, tuple[int, int], int]]:
    """Tests that ran and failed, and that were expected to fail, by each last line of pytest and unittest,
    in the log's order."""

    def total(pattern: re.Pattern[str], text: str | None) -> int:
        return sum(map(int, pattern.findall(text or "")))

    found = []
    for ending in _PYTEST_ENDING.finditer(log):
        figures = total(_PYTEST_RAN, ending[1]), total(_PYTEST_FAILED, ending[1])
        found.append((ending.start(), figures, total(_PYTEST_EXPECTED, ending[1])))
    for ending in _UNITTEST_BLOCK.finditer(log):
        ran = int(ending[1]) - total(_UNITTEST_SKIPPED, ending[2])
        found.append((ending.start(), (ran, total(_UNITTEST_FAILED, ending[2])), 0))
    return sorted(found)


def _other_endings(log: str) -> list[tuple[int, tuple[int, int], int]]:
    for pattern, fields in _OTHERS:
        found = []
        for ending in pattern.finditer(log):
            figures = dict.fromkeys("rpfF", 0)
            for name, figure in zip(fields, ending.groups(), strict=True):
                figures[name] += int(figure)
            failed = figures["f"] + figures["F"]
            ran = figures["r"] or figures["p"] + failed
            if not figures["f"] and not figures["F"] and "p" in fields and "r" in fields:
                failed = ran - figures["p"]
            found.append((ending.start(), (ran, failed), 0))
        if found:
            return found[-1:] if fields == "rpf" else found
    return []
