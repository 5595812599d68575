"""What the logs of npm's test runners tell: how many tests ran, how many failed, and which.

Each runner by its own last lines, as it prints them to a pipe: node:test (TAP and spec), tape, tap,
ava, jest, vitest, mocha, jasmine, QUnit (its command, and qunit-extras), vows. A log of several runs
(workspaces) is their sum. Other runners, and other reporters, tell nothing.
"""

import re
from dataclasses import dataclass
from re import MULTILINE, Pattern

from fallback_plugins.npm.gates.tap_logs import tap_names, tap_report, tests_of_tap_16
from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import FIGURE, Names, Summary, numbered, shortened

#: What stands for the middle of a log that was too long (``BoundedOutput``).
_LEFT_OUT = re.compile(r"^\[\.\.\. \d+ bytes left out \.\.\.\]$", MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_SPEC_FAILURE = re.compile(r"^test at (.+):\d+:\d+\n\u2716 (.+?)(?: \([\d.]+ms\))?$", MULTILINE)

_JEST_FILE = re.compile(r"^FAIL (.+?)(?: \([\d.]+ m?s\))?$")
_JEST_TEST = re.compile(r"^  \u25cf (.+)$")
#: ``1 of 5 total``: it stopped at a failure (``bail``).
_JEST_BAILED = re.compile(r"^Test Suites: .* of \d+ total$", re.MULTILINE)
_VITEST_TEST = re.compile(r"^ FAIL  (.+)$", MULTILINE)
_AVA_TEST = re.compile(r"^  \u2718 \[fail\]: (.+)$", MULTILINE)
_AVA_PASSED = re.compile(r"^  \u2714 (.+?)(?: \([\d.]+m?s\))?$", MULTILINE)
_MOCHA_FAILURES = re.compile(r"^  \d+ failing$", MULTILINE)
_MOCHA_TEST = re.compile(r"^  \d+\) (.*(?:\n {5,}\S.*)*?):$", MULTILINE)
_VOWS_LINE = re.compile(r"^( {2,})(\u2717 )?(?! )(.+)$", MULTILINE)
_JASMINE_FAILURES = re.compile(r"^Failures:$", MULTILINE)
_JASMINE_TEST = re.compile(r"^\d+\) (.+)\n  Message:$", MULTILINE)


def summary(log: str) -> Summary | None:
    """The sum of what the log's runners tell; None where it has the last lines of none."""
    text = _COLOUR.sub("", log)
    runners = [one for one in _RUNNERS if one not in _BY_LINES or not _LEFT_OUT.search(log)]
    found = [reported for runner in runners if (reported := runner(text)) is not None]
    if not found:
        return None
    # Where one names none of those that failed, the others' names are not all.
    are_named = all(reported.names or not reported.failed for reported in found)
    names = (name for reported in found for name in reported.names if are_named)
    return Summary(
        ran=sum(reported.ran for reported in found),
        failed=sum(reported.failed for reported in found),
        names=numbered(names),
        report=found[0].report if len(found) == 1 else None,
        expected=sum(reported.expected for reported in found),
    )


@dataclass(frozen=True)
class _Line:
    """A runner's last line of figures, such as ``Tests: 1 failed, 2 passed``."""

    line: Pattern[str]

    def figures(self, text: str, *words: str) -> list[int] | None:
        """For each word the sum of its figures; None where there is no such line."""
        lines = self.line.findall(text)
        if not lines:
            return None
        joined = "\n".join(lines)
        return [
            sum(map(int, re.findall(rf"({FIGURE}) {word}\b", joined, MULTILINE))) for word in words
        ]


_JEST = _Line(re.compile(r"^Tests: +(\d.*)$", MULTILINE))
_VITEST = _Line(re.compile(r"^ +Tests  (\d.*\(\d+\))$", MULTILINE))
_MOCHA = _Line(re.compile(rf"^  ({FIGURE} (?:passing \(.*\)|failing))$", MULTILINE))
_AVA = _Line(
    re.compile(rf"^  ({FIGURE} (?:tests? (?:passed|failed)|known failures?|un\w+ \w+))$", MULTILINE)
)
_JASMINE = _Line(re.compile(rf"^({FIGURE} specs?, .*)$", MULTILINE))

_VOWS = _Line(
    re.compile(rf"^ *[\u2713\u2717] \w+ \u00bb ({FIGURE} honored.*?) \([\d.]+s\) *$", MULTILINE)
)

#: Errors outside any test fail a run of vitest too.
_VITEST_ERRORS = _Line(re.compile(rf"^ +Errors  ({FIGURE} errors?)$", MULTILINE))

#: node's own, ava's TAP and tape: ``# tests 3``; node's spec reporter has a sign of its own.
_TAP_FIGURE = re.compile(rf"^[#\u2139] (tests|skipped|fail|todo) +({FIGURE})$", MULTILINE)
#: Its line for a file that has no test, in TAP and as ``spec``.
_FILE = re.compile(
    r"^(?:# Subtest:|[\u2714\u2716]) (\S+\.[cm]?[jt]sx?)(?: \([\d.]+ms\))?$", MULTILINE
)
#: QUnit's command, which tells no sum.
_QUNIT = re.compile(
    rf"^1\.\.\d+\n# pass ({FIGURE})\n# skip \d+\n# todo ({FIGURE})\n# fail ({FIGURE})$", MULTILINE
)
#: qunit-extras, which counts assertions, as tape does.
_QUNIT_EXTRAS = re.compile(rf"^    PASS: ({FIGURE})  FAIL: ({FIGURE})  TOTAL: \d+$", MULTILINE)
_QUNIT_EXTRAS_TEST = re.compile(
    r"^\r?-{9,}\n(?P<module>.+)\n-{9,}$|^ FAIL - (?P<test>.+)$", MULTILINE
)

_TAP_18 = re.compile(rf"^# \{{ total: {FIGURE}(.*) \}}$", MULTILINE)


def _node(text: str) -> Summary | None:
    figures: dict[str, int] = {}
    for what, number in _TAP_FIGURE.findall(text):
        figures[what] = figures.get(what, 0) + int(number)  # one block for each workspace
    if "tests" not in figures:
        return None
    spec = [f"{path}: {name}" for path, name in _SPEC_FAILURE.findall(text)]
    named = tap_names(text)
    names = () if named is None else (*spec, *named)
    ran, failing = figures["tests"] - figures.get("skipped", 0), figures.get("fail", 0)
    report = tap_report(text, ran, failing)
    return Summary(ran, failing, names, report, expected=figures.get("todo", 0))


def files_as_tests(log: str) -> int:
    """How many of the tests that node's runner counts are files: it takes one that has none for a test."""
    return len(set(_FILE.findall(_COLOUR.sub("", log))))


def _tap(text: str) -> Summary | None:
    totals = _TAP_18.findall(text)
    if not totals:
        return None
    passed, failing = (
        sum(
            int(number)
            for total in totals
            for number in re.findall(rf"\b{word}: ({FIGURE})", total)
        )
        for word in ("pass", "fail")
    )
    report = tap_report(text, passed + failing, failing)
    return Summary(passed + failing, failing, tap_names(text) or (), report)


def _tap_16(text: str) -> Summary | None:
    """Its last lines count files: tests are counted by their own lines."""
    reported = tests_of_tap_16(text)
    if reported is None:
        return None
    names = numbered(name for name, _ in reported)
    report = Report.of(zip(names, (was for _, was in reported), strict=True))
    return Summary(len(names), len(report.failed), report.failed, report)


def _qunit(text: str) -> Summary | None:
    totals = [tuple(map(int, total)) for total in _QUNIT.findall(text)]
    if not totals:
        return None
    passed, to_do, failing = map(sum, zip(*totals, strict=True))
    ran = passed + to_do + failing
    report = tap_report(text, ran, failing)
    return Summary(ran, failing, tap_names(text) or (), report, expected=to_do)


def _qunit_extras(text: str) -> Summary | None:
    totals = [tuple(map(int, total)) for total in _QUNIT_EXTRAS.findall(text)]
    if not totals:
        return None
    passed, failing = map(sum, zip(*totals, strict=True))
    module, names, full = "", [], Names()
    for found in _QUNIT_EXTRAS_TEST.finditer(text):
        if found["module"] is not None:
            module = shortened(found["module"])
        else:
            names.append(full.full(module, found["test"]))
    return Summary(passed + failing, failing, () if full.are_lost else numbered(iter(names)))


def _jest(text: str) -> Summary | None:
    figures = _JEST.figures(text, "failed", "passed")
    if figures is None:
        return None
    failing, passed = figures
    if _JEST_BAILED.search(text):
        return Summary(failing + passed, failing)  # nobody knows what the rest would have done
    names: dict[str, None] = {}
    path, full = "", Names()
    for line in text.split("\n"):
        if file := _JEST_FILE.fullmatch(line):
            path = shortened(file[1])
        elif path and (test := _JEST_TEST.fullmatch(line)):
            # Long runs repeat their failures at the end.
            names[full.full(path, test[1], ": ")] = None
    return Summary(failing + passed, failing, () if full.are_lost else tuple(names))


def _vitest(text: str) -> Summary | None:
    figures = _VITEST.figures(text, "failed", "passed", "expected fail")
    if figures is None:
        return None
    outside = _VITEST_ERRORS.figures(text, "errors?") or [0]
    names = tuple(_VITEST_TEST.findall(text))
    return Summary(sum(figures), figures[0] + outside[0], names, expected=figures[2])


def _mocha(text: str) -> Summary | None:
    figures = _MOCHA.figures(text, "passing", "failing")
    if figures is None:
        return None
    message = "".join(_MOCHA_FAILURES.split(text)[1:])
    names = (
        " > ".join(map(str.strip, title.split("\n"))) for title in _MOCHA_TEST.findall(message)
    )
    return Summary(sum(figures), figures[1], tuple(names))


def _ava(text: str) -> Summary | None:
    """A run with failures does not count what passed: its lines do."""
    outside = _AVA.figures(text, "uncaught exceptions?", "unhandled rejections?")
    if outside is None:
        return None
    names, passed = _AVA_TEST.findall(text), numbered(iter(_AVA_PASSED.findall(text)))
    reported = [*((name, "passed") for name in passed), *((name, "failed") for name in names)]
    failing = len(names) + sum(outside)
    return Summary(len(names) + len(passed), failing, tuple(names), Report.of(reported))


def _jasmine(text: str) -> Summary | None:
    figures = _JASMINE.figures(text, "specs?", "failures?", "pending specs?")
    if figures is None:
        return None
    specs, failing, pending = figures
    message = "".join(_JASMINE_FAILURES.split(text)[1:])
    return Summary(specs - pending, failing, tuple(_JASMINE_TEST.findall(message)))


def _vows(text: str) -> Summary | None:
    figures = _VOWS.figures(text, "honored", "broken", "errored", "dropped")
    if figures is None:
        return None
    names, full = [], Names()
    # The line of a context stands above its vows, two columns to the left.
    at_depth: dict[int, str] = {}
    for indent, failed, line in _VOWS_LINE.findall(text):
        words = line.rstrip(" ")
        if failed and (context := at_depth.get(len(indent) - 2)):
            names.append(full.full(context, words))
        else:
            at_depth[len(indent)] = shortened(words)
    ran, failing = sum(figures), sum(figures[1:])
    return Summary(ran, failing, () if full.are_lost else numbered(iter(names)))


#: Those whose last lines don't count all that ran: of a log without its middle they tell nothing.
_BY_LINES = (_tap_16, _ava)
_RUNNERS = (
    *(_node, _tap, _tap_16, _jest, _vitest, _mocha, _ava, _jasmine),
    *(_qunit, _qunit_extras, _vows),
)
