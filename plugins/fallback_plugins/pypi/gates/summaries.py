"""What the logs of pytest and unittest tell about a run."""

import re

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
_UNITTEST_ENDING = re.compile(r"^(?:OK|FAILED|NO TESTS RAN) \((.*)\)$", re.MULTILINE)
_UNITTEST_SKIPPED = re.compile(rf"\bskipped=({FIGURE})")
_UNITTEST_FAILED = re.compile(
    rf"\b(?:(?<!expected )failures|errors|unexpected successes)=({FIGURE})"
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
