"""Summaries of the logs of npm's test runners: how many tests ran, how many failed, and which.

Each runner is read by its last lines, as it prints them to a pipe: node:test (TAP and spec), tape, tap,
ava, jest, vitest, mocha, jasmine, QUnit (its command, and qunit-extras), vows. Several runs (workspaces)
are added up. Other runners and reporters have no summary. Logs in TAP (testanything.org) have results by
name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from re import MULTILINE, Pattern

from fallback_plugins.shared.gates.suite_run import (
    FIGURE,
    Names,
    Report,
    Summary,
    numbered,
    shortened,
)

#: Most levels of nested tests. No real log has more: one that does has no names.
MAX_LEVELS = 50

_NOT_OK = re.compile(r"^( *)not ok \d+(?: - | )(.+?)(?: # (?!SKIP|TODO).*)?$")
_RESULT = re.compile(
    r"^( *)(not )?ok \d+(?: - | )(.+?)(?: # (?:(SKIP|TODO)|time=).*)?$", re.IGNORECASE
)
_SUBTEST = re.compile(r"^( *)# Subtest: (.+)$")
_SECTION = re.compile(r"^# (.+)$")
_LOCATION = re.compile(r"^ +location: '(.+):\d+:\d+'$")

#: What tap 16 ends with; it counts files. Figures of node's runner begin with ``# tests``.
_TAP_16 = re.compile(
    r"^1\.\.\d+\n(?:# failed (\d{1,9})(?: of \d+)? tests?\n)?(?:# (?:todo|skip): \d+\n)*# time=[\d.]+ms$",
    re.MULTILINE,
)
_OPENED = re.compile(r"^( *)# Subtest(?:: (.*))?$")
_ENDED = re.compile(r"^( *)(not )?ok \d+(.*)$")
_UNNAMED = "(unnamed)"
_DIRECTIVE = re.compile(r"(?:^| )# (SKIP|TODO|time=)", re.IGNORECASE)
_FAILED = re.compile(r"^( +)# failed (\d{1,9})(?: of \d+)? tests?$")
_OTHER_COUNT = re.compile(r"^( +)# (test count)\(\d+\) != plan\(")
#: Lines of a log that are read, by their indentation.
_READ = re.compile(r"^( *)(?:# Subtest|(?:not )?ok \d|# failed \d|# test count\()")
#: The exit code in the explanation of a file's result. 1: tests in it failed.
_EXIT = re.compile(r"^  exitCode: (?!0$|1$|null$)(.+)$")


def tests_of_tap_16(text: str) -> list[tuple[str, str]] | None:
    """Return the tests of a log that ends as tap 16's do: (``file > test > subtest``, ``passed`` or
    ``failed``). None: it ends otherwise, counts other failures, or has output that can't be told apart
    from explanations. A test that contains tests counts only if it fails by more than they do."""
    ends = _TAP_16.findall(text)
    if not ends:
        return None
    reading = _Reading()
    for line in text.split("\n"):
        reading.read(line)
    counted = sum(int(number or 0) for number in ends)
    return reading.reported if reading.is_known and reading.failed_files == counted else None


@dataclass
class _Open:
    """A test whose last line has not come yet, or a section. ``full``: its name after the names around it.
    ``failures``: lines in it that are not ok, ``counted``: by its own count; ``asserted``: assertions."""

    depth: int
    name: str
    full: str
    has_tests: bool = False
    failures: int = 0
    counted: int = 0
    asserted: list[str] = field(default_factory=list)


class _Nesting:
    """Open tests, nested by the indentation of their lines."""

    def __init__(self) -> None:
        self.names = Names()
        self._open: list[_Open] = []
        self._is_too_deep = False

    @property
    def is_lost(self) -> bool:
        """Return whether there is more than any real log has, so that no name counts."""
        return self._is_too_deep or self.names.are_lost

    def around(self, depth: int) -> list[_Open]:
        """Return the open tests around a line of this indentation, outermost first."""
        return [test for test in self._open if test.depth < depth]

    def at(self, depth: int) -> _Open | None:
        """Return the open test of this indentation, or None."""
        return next((test for test in self._open if test.depth == depth), None)

    def opened(self, depth: int, name: str) -> None:
        """Open a test or a section; end tests that are as far in, or further."""
        self._open = self.around(depth)
        self._is_too_deep |= len(self._open) >= MAX_LEVELS
        if not self._is_too_deep:
            full = f"{self._open[-1].full} > {name}" if self._open else name
            self._open.append(_Open(depth, name, shortened(full)))

    def ended(self, depth: int) -> None:
        """End a test, and the tests in it."""
        self._open = self.around(depth)

    def full(self, depth: int, name: str, path: str = "") -> str:
        """Return the full name of a test with its result on a line of this indentation, in a file."""
        around = self.around(depth)
        if not path:
            return self.names.full(around[-1].full if around else "", name)
        full = shortened(f"{around[-1].full} > {name}") if around else name
        return self.names.full(path, full, ": ")


class _Reading:
    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []
        self.failed_files = 0
        self._nesting = _Nesting()
        #: The file that ended last.
        self._file = ""
        #: The lines that begin and end the explanation of a result, right below it, in YAML. It has code
        #: and output that may look like results.
        self._explains = ""
        self._until = ""
        #: Whether a result's explanation has other lines in it.
        self._is_mixed = False

    @property
    def is_known(self) -> bool:
        """Return whether the names are those of all tests."""
        return not (self._nesting.is_lost or self._is_mixed or self._until)

    def read(self, line: str) -> None:
        """Read the next line."""
        # Other processes may print above a file's explanation: past tap, to the same pipe.
        if (code := _EXIT.match(line)) and (self._until == "  ..." or self._nesting.at(0) is None):
            self._report(self._file, f"exit code {code[1]}")
        begins, self._explains = self._explains, ""
        if self._until:
            outside = _READ.match(line)
            self._is_mixed |= outside is not None and len(outside[1]) < self._until.index(".")
            self._until = "" if line == self._until else self._until
        elif begins and line == begins:
            self._until = line.replace("---", "...")
        elif opened := _OPENED.match(line):
            depth = len(opened[1])
            for outer in self._nesting.around(depth):
                outer.has_tests = True
            self._nesting.opened(depth, (opened[2] or "").strip() or _UNNAMED)
        elif ended := _ENDED.match(line):
            self._explains = f"{ended[1]}  ---"
            directive = _DIRECTIVE.search(ended[3])
            if directive is None or directive[1].lower() == "time=":
                text = ended[3][: directive.start() if directive else None].strip()
                name = text.removeprefix("- ").strip() or _UNNAMED
                self._ended(len(ended[1]), name, failed=ended[2] is not None)
        elif (counted := _FAILED.match(line)) and (around := self._nesting.around(len(counted[1]))):
            around[-1].counted = int(counted[2])
        elif (mismatch := _OTHER_COUNT.match(line)) and (
            around := self._nesting.around(len(mismatch[1]))
        ):
            around[-1].asserted.append(mismatch[2])

    def _report(self, around: str, name: str, was: str = "failed") -> None:
        self.reported.append((self._nesting.names.full(around, name), was))

    def _ended(self, depth: int, name: str, *, failed: bool) -> None:
        around = self._nesting.around(depth)
        if failed and around:
            around[-1].failures += 1
        test = self._nesting.at(depth)
        if test is None or test.name != name:  # an assertion
            if failed and around:
                around[-1].asserted.append(name)
            return
        self._nesting.ended(depth)
        if not depth:
            self._file = test.full
            self.failed_files += failed
        by_more = test.counted > test.failures or not test.failures  # its plan or its end is wrong
        if not test.has_tests or (failed and by_more):
            self._report("", test.full, "failed" if failed else "passed")
        if test.has_tests:
            for assertion in test.asserted:
                self._report(test.full, assertion)


class _Lines:
    """Lines of other TAP: nested tests (node's runner), or comments above their assertions (tape)."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.nesting = _Nesting()
        self._has_sections = not any(map(_SUBTEST.fullmatch, self.lines))

    def opens(self, line: str) -> int | None:
        """Open the test that a line begins. Return its indentation, -1 for a section, or None."""
        if opened := _SUBTEST.fullmatch(line):
            depth, name = len(opened[1]), opened[2]
        elif self._has_sections and (section := _SECTION.fullmatch(line)):
            depth, name = -1, section[1]
        else:
            return None
        self.nesting.opened(depth, name)
        return depth


def tap_report(text: str, ran: int, failing: int) -> Report | None:
    """Return every test of a TAP log by name, without lines that sum up those above; None if the last lines
    count otherwise, or if it has more than any real log."""
    log = _Lines(text)
    results: list[tuple[str, str]] = []
    deepest = 0
    for line in log.lines:
        if (begun := log.opens(line)) is not None:
            deepest = begun if begun >= 0 else deepest
        elif match := _RESULT.fullmatch(line):
            depth = len(match[1])
            sums_up, deepest = depth < deepest, depth
            if not (sums_up or match[4]):
                was = "failed" if match[2] else "passed"
                results.append((log.nesting.full(depth, match[3]), was))
    if log.nesting.is_lost:
        return None
    report = _numbered(results)
    fits = len(report.failed) == failing and len(report.passed) <= ran - failing
    return report if fits and report.passed else None


def _numbered(results: Sequence[tuple[str, str]]) -> Report:
    names = numbered(name for name, _ in results)
    return Report.of(zip(names, (was for _, was in results), strict=True))


def tap_names(text: str) -> tuple[str, ...] | None:
    """Return ``file: test > subtest`` for each line that is not ok; None if the log has more than any real
    one. node names the file below the line; tape's lines are assertions below a test's comment."""
    log = _Lines(text)
    names = []
    for number, line in enumerate(log.lines):
        if log.opens(line) is not None:
            continue
        if (match := _NOT_OK.fullmatch(line)) and " # " not in match[2]:
            below = map(_LOCATION.fullmatch, log.lines[number + 1 : number + 5])
            location = next(filter(None, below), None)
            names.append(log.nesting.full(len(match[1]), match[2], location[1] if location else ""))
    return None if log.nesting.is_lost else tuple(names)


#: Replaces the middle of a log that was too long (``BoundedOutput``).
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
#: A spec's title may have several lines.
_JASMINE_TEST = re.compile(
    r"^(?:\d+\) |(?P<suite>Suite error: ))"
    r"(?P<name>.+(?:\n(?!\d+\) |  Message:$|  Stack:$).*){0,20})\n  Message:$",
    MULTILINE,
)


def summary(log: str) -> Summary | None:
    """Return the sum of the runners' summaries; None if the log has none."""
    text = _COLOUR.sub("", log)
    runners = [
        runner for runner in _RUNNERS if runner not in _BY_LINES or not _LEFT_OUT.search(log)
    ]
    summaries = [part for runner in runners if (part := runner(text)) is not None]
    if not summaries:
        return None
    # If one names none of its failed tests, the names are incomplete.
    are_named = all(part.names or not part.failed for part in summaries)
    names = (name for part in summaries for name in part.names if are_named)
    return Summary(
        ran=sum(part.ran for part in summaries),
        failed=sum(part.failed for part in summaries),
        names=numbered(names),
        report=summaries[0].report if len(summaries) == 1 else None,
        expected=sum(part.expected for part in summaries),
    )


def _counted(lines: Pattern[str], text: str, *words: str) -> list[int] | None:
    """Return for each word the sum of its figures in a runner's last lines (``Tests: 1 failed, 2 passed``);
    None if there is no such line."""
    matches = lines.findall(text)
    if not matches:
        return None
    joined = "\n".join(matches)
    return [sum(map(int, re.findall(rf"({FIGURE}) {word}\b", joined, MULTILINE))) for word in words]


def _summed(lines: Pattern[str], text: str) -> list[int]:
    """Return the sum of each group's figures; empty if no line matches."""
    columns = zip(*lines.findall(text), strict=True)
    return [sum(int(figure or 0) for figure in column) for column in columns]


_JEST = re.compile(r"^Tests: +(\d.*)$", MULTILINE)
_VITEST = re.compile(r"^ +Tests  (\d.*\(\d+\))$", MULTILINE)
_MOCHA = re.compile(rf"^  ({FIGURE} (?:passing \(.*\)|failing))$", MULTILINE)
_AVA = re.compile(
    rf"^  ({FIGURE} (?:tests? (?:passed|failed)|known failures?|un\w+ \w+))$", MULTILINE
)
_JASMINE = re.compile(rf"^({FIGURE} specs?, .*)$", MULTILINE)
_VOWS = re.compile(rf"^ *[\u2713\u2717] \w+ \u00bb ({FIGURE} honored.*?) \([\d.]+s\) *$", MULTILINE)

#: Errors outside any test fail a run of vitest too.
_VITEST_ERRORS = re.compile(rf"^ +Errors  ({FIGURE} errors?)$", MULTILINE)

#: node's own, ava's TAP and tape: ``# tests 3``; node's spec reporter has another sign.
_TAP_FIGURE = re.compile(rf"^[#\u2139] (tests|skipped|fail|todo) +({FIGURE})$", MULTILINE)
#: node's line for a file without a test, in TAP and by its spec reporter.
_FILE = re.compile(
    r"^(?:# Subtest:|[\u2714\u2716]) (\S+\.[cm]?[jt]sx?)(?: \([\d.]+ms\))?$", MULTILINE
)
#: QUnit's command, which prints no sum.
_QUNIT = re.compile(
    rf"^1\.\.\d+\n# pass ({FIGURE})\n# skip \d+\n# todo ({FIGURE})\n# fail ({FIGURE})$", MULTILINE
)
#: qunit-extras, which counts assertions, as tape does.
_QUNIT_EXTRAS = re.compile(rf"^    PASS: ({FIGURE})  FAIL: ({FIGURE})  TOTAL: \d+$", MULTILINE)
_QUNIT_EXTRAS_TEST = re.compile(
    r"^\r?-{9,}\n(?P<module>.+)\n-{9,}$|^ FAIL - (?P<test>.+)$", MULTILINE
)

#: tap-spec's, uvu's and lab's last lines.
_TAP_SPEC = re.compile(
    rf"^  total: +({FIGURE})\n  passing: +({FIGURE})\n(?:  failing: +({FIGURE})\n)?", MULTILINE
)
_TAP_SPEC_TEST = re.compile(r"^    \u2716 (.+)$", MULTILINE)
_UVU = re.compile(
    rf"^  Total: +({FIGURE})\n  Passed: +({FIGURE})\n  Skipped: +({FIGURE})$", MULTILINE
)
_UVU_TEST = re.compile(r"^   FAIL  (.+)$", MULTILINE)
_LAB = re.compile(
    rf"^(?:({FIGURE}) tests? passed|({FIGURE}) of ({FIGURE}) tests? failed)$", MULTILINE
)
_LAB_TEST = re.compile(r"^  \d+\) (.+):$", MULTILINE)

#: How other runners begin the line of a failing test.
_FAILING_LINE = re.compile(
    r"^\s*(?:\u2717|\u2716|\u2718|\u00d7|\u2715|\u25cf|not ok \d+(?: -)?|FAIL(?:ED)?:?) +(\S.*)$",
    MULTILINE,
)

_TAP_18 = re.compile(rf"^# \{{ total: {FIGURE}(.*) \}}$", MULTILINE)


def _node(text: str) -> Summary | None:
    figures: dict[str, int] = {}
    for what, number in _TAP_FIGURE.findall(text):
        figures[what] = figures.get(what, 0) + int(number)  # one block for each workspace
    if "tests" not in figures:
        return None
    spec = [f"{path}: {name}" for path, name in _SPEC_FAILURE.findall(text)]
    tap_failures = tap_names(text)
    names = () if tap_failures is None else (*spec, *tap_failures)
    ran, failing = figures["tests"] - figures.get("skipped", 0), figures.get("fail", 0)
    report = tap_report(text, ran, failing)
    return Summary(ran, failing, names, report, expected=figures.get("todo", 0))


def files_as_tests(log: str) -> int:
    """Return how many of the tests that node's runner counts are files without a test."""
    return len(set(_FILE.findall(_COLOUR.sub("", log))))


def _tap(text: str) -> Summary | None:
    totals = _TAP_18.findall(text)
    if not totals:
        return None
    joined = "\n".join(totals)
    passed, failing = (
        sum(map(int, re.findall(rf"\b{word}: ({FIGURE})", joined))) for word in ("pass", "fail")
    )
    report = tap_report(text, passed + failing, failing)
    return Summary(passed + failing, failing, tap_names(text) or (), report)


def _tap_16(text: str) -> Summary | None:
    """Count tests by their own lines: tap 16's last lines count files."""
    results = tests_of_tap_16(text)
    if results is None:
        return None
    report = _numbered(results)
    return Summary(len(results), len(report.failed), report.failed, report)


def _qunit(text: str) -> Summary | None:
    if not (totals := _summed(_QUNIT, text)):
        return None
    ran, (_, to_do, failing) = sum(totals), totals
    report = tap_report(text, ran, failing)
    return Summary(ran, failing, tap_names(text) or (), report, expected=to_do)


def _qunit_extras(text: str) -> Summary | None:
    if not (totals := _summed(_QUNIT_EXTRAS, text)):
        return None
    module, names, full = "", [], Names()
    for match in _QUNIT_EXTRAS_TEST.finditer(text):
        if match["module"] is not None:
            module = shortened(match["module"])
        else:
            names.append(full.full(module, match["test"]))
    return Summary(sum(totals), totals[1], () if full.are_lost else numbered(iter(names)))


def _jest(text: str) -> Summary | None:
    figures = _counted(_JEST, text, "failed", "passed")
    if figures is None:
        return None
    failing, passed = figures
    if _JEST_BAILED.search(text):
        return Summary(failing + passed, failing)  # the rest is unknown
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
    figures = _counted(_VITEST, text, "failed", "passed", "expected fail")
    if figures is None:
        return None
    outside = _counted(_VITEST_ERRORS, text, "errors?") or [0]
    names = tuple(_VITEST_TEST.findall(text))
    return Summary(sum(figures), figures[0] + outside[0], names, expected=figures[2])


def _mocha(text: str) -> Summary | None:
    figures = _counted(_MOCHA, text, "passing", "failing")
    if figures is None:
        return None
    failures = "".join(_MOCHA_FAILURES.split(text)[1:])
    names = (
        " > ".join(map(str.strip, title.split("\n"))) for title in _MOCHA_TEST.findall(failures)
    )
    return Summary(sum(figures), figures[1], tuple(names))


def _ava(text: str) -> Summary | None:
    """Count passed tests by their lines: ava's last lines leave them out if any test fails."""
    outside = _counted(_AVA, text, "uncaught exceptions?", "unhandled rejections?")
    if outside is None:
        return None
    names, passed = _AVA_TEST.findall(text), numbered(iter(_AVA_PASSED.findall(text)))
    results = [*((name, "passed") for name in passed), *((name, "failed") for name in names)]
    failing = len(names) + sum(outside)
    return Summary(len(names) + len(passed), failing, tuple(names), Report.of(results))


def _jasmine(text: str) -> Summary | None:
    figures = _counted(_JASMINE, text, "specs?", "failures?", "pending specs?")
    if figures is None:
        return None
    specs, failing, pending = figures
    failures = "".join(_JASMINE_FAILURES.split(text)[1:])
    matches = _JASMINE_TEST.finditer(failures)
    names = (" ".join(f"{match['suite'] or ''}{match['name']}".split()) for match in matches)
    return Summary(specs - pending, failing, numbered(names))


def _vows(text: str) -> Summary | None:
    figures = _counted(_VOWS, text, "honored", "broken", "errored", "dropped")
    if figures is None:
        return None
    names, full = [], Names()
    # The line of a context is above its vows, two columns to the left.
    at_depth: dict[int, str] = {}
    for indent, failed, line in _VOWS_LINE.findall(text):
        title = line.rstrip(" ")
        if failed and (context := at_depth.get(len(indent) - 2)):
            names.append(full.full(context, title))
        else:
            at_depth[len(indent)] = shortened(title)
    ran, failing = sum(figures), sum(figures[1:])
    return Summary(ran, failing, () if full.are_lost else numbered(iter(names)))


def _tap_spec(text: str) -> Summary | None:
    if not (totals := _summed(_TAP_SPEC, text)):
        return None
    names = dict.fromkeys(map(_steady, _TAP_SPEC_TEST.findall(text)))
    return Summary(totals[0], totals[2], tuple(names))


def _uvu(text: str) -> Summary | None:
    if not (totals := _summed(_UVU, text)):
        return None
    total, passed, skipped = totals
    names = numbered(map(_steady, _UVU_TEST.findall(text)))
    return Summary(total - skipped, total - skipped - passed, names)


def _lab(text: str) -> Summary | None:
    if not (totals := _summed(_LAB, text)):
        return None
    all_passed, failing, others = totals
    return Summary(all_passed + others, failing, numbered(iter(_LAB_TEST.findall(text))))


def _steady(name: str) -> str:
    """Return a test's name without its duration."""
    return re.sub(r" \(?\d+(?:\.\d+)? ?m?s\)?$", "", name.strip())


def failing_names(log: str) -> tuple[str, ...]:
    """Return the failing tests of a log without a known summary, by the marks that runners use."""
    return numbered(map(_steady, _FAILING_LINE.findall(_COLOUR.sub("", log))))


#: Runners whose last lines don't count all tests: they don't read a log without its middle.
_BY_LINES = (_tap_16, _ava)
_RUNNERS = (
    *(_node, _tap, _tap_16, _jest, _vitest, _mocha, _ava, _jasmine),
    *(_qunit, _qunit_extras, _vows, _tap_spec, _uvu, _lab),
)
