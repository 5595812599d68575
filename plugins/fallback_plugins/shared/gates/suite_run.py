"""One run of a test suite, as its log and its report describe it, and the names of the suite's tests.

A reporter writes the report to a file next to the log. A line is a JSON object: ``{"test": NAME, "was":
"passed"}`` (``failed``, ``skipped``, ``uncollected``: a file or a module that could not be loaded). The
last one states how many lines there are, and the runner's own count: ``{"told": 3, "ran": 2, "failed":
1}``. Lines are written as tests end, so that a run that the wall clock ends has those before. A line
``{"collected": 9}`` states how many tests the runner has found and is going to run.

The code under test runs in the same process and can write there too: a report that contradicts the log is
ignored, and the log alone is judged.

A log can name one container at great length, and then a hundred thousand tests in it. So full names, which
are made of the names of what contains a test, have a limit in length.
"""

import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Any

from fallback_audit.disk_errors import raise_failed
from fallback_audit.event_types import MAX_EXCERPT_CHARS
from fallback_plugins.shared.gates.test_commands import TestCommand
from fallback_tier.execution import CommandResult, counted
from fallback_tier.files.tree import FileTree

#: Part of a pattern: a whole number of at most nine digits. The lookarounds keep a search from trying a
#: longer run of digits from each of its digits; ``int`` refuses more than 4,300. No suite has so many tests
#: that their number is longer.
FIGURE = r"(?<!\d)\d{1,9}(?!\d)"


#: Length of a test's name with the names of what contains it, at most: people have to read it.
MAX_NAME_CHARS = 300

#: Length of the full names of one log together: as many as a report may have (``MAX_REPORT_BYTES``).
MAX_NAMES_CHARS = 32 * 1024 * 1024

#: Hexadecimal digits of a digest: too many for two names with one digest to be found, even on purpose.
_DIGEST_CHARS = 32


def shortened(name: str) -> str:
    """Return a name of at most MAX_NAME_CHARS unchanged; a longer one as its beginning and a digest of the
    whole. Different names stay different: a shortened one is longer than an unchanged one."""
    if len(name) <= MAX_NAME_CHARS:
        return name
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[:MAX_NAME_CHARS]}\u2026 {digest}"


class Names:
    """The full names of one log's tests."""

    def __init__(self) -> None:
        self._room = MAX_NAMES_CHARS

    @property
    def are_lost(self) -> bool:
        """Whether the names are longer together than those of any real log: then none counts."""
        return self._room < 0

    def full(self, around: str, name: str, by: str = " > ") -> str:
        """Return a test's name after the name of what contains it, shortened. The caller shortens
        ``around`` if many tests share it, as it is read for each of them."""
        shortened_name = shortened(f"{around}{by}{name}" if around else name)
        self._room -= len(shortened_name)
        return "" if self.are_lost else shortened_name


#: An effect of a run outside of its own process: a kind, then its object (``observing``).
Act = str

#: Text that differs between two runs with the same results: durations, seeds, addresses. Never a count.
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:[.:]\d+)+|\d+(?= ?(?:ms|s|m)\b)|\d{4,}")

#: A duration, which jest prints only for slow tests.
_LASTED = re.compile(r" \(\d[\d.]* ?m?s\)")


@dataclass(frozen=True)
class Report:
    """Tests by name. A test that is in no list did not run, or was skipped.

    ``figures``: tests that ran and that failed, as the runner counts them; None if it did not end.
    ``collected``: tests that it was going to run, for people; None if not reported.
    """

    passed: frozenset[str]
    failed: tuple[str, ...] = ()
    #: Files or modules that could not be loaded; in ``failed`` too.
    uncollected: tuple[str, ...] = ()
    figures: tuple[int, int] | None = None
    collected: int | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        results: Iterable[tuple[str, str]],
        figures: tuple[int, int] | None = None,
        collected: int | None = None,
    ) -> "Report":
        """Return a report of (name, result) pairs. A test that failed once has failed, whatever else it
        did."""
        passed, failed, uncollected = dict[str, None](), dict[str, None](), dict[str, None]()
        for name, result in results:
            if result == "passed":
                passed[name] = None
            elif result != "skipped":
                failed[name] = None
            if result == "uncollected":
                uncollected[name] = None
        test_lists = frozenset(passed) - set(failed), tuple(failed), tuple(uncollected)
        return cls(*test_lists, figures, collected)

    @cached_property
    def _failing(self) -> frozenset[str]:
        return frozenset(self.failed)

    def excuses(self, test: str) -> bool:
        """Return whether a test fails in this run too, or is in a file or module that could not be
        loaded."""
        if test in self._failing:
            return True
        return bool(self._unread) and not self._unread.isdisjoint(_containers(test[:_MAX_PLACE]))

    @cached_property
    def _unread(self) -> frozenset[str]:
        return frozenset(self.uncollected)

    def passes(self, test: str) -> bool:
        """Return whether a test passed in this run. A subtest, of which only failures are reported,
        passed if its test did."""
        if test in self._failing:
            return False
        if test in self.passed or " > " in test:  # node's runners report every test
            return test in self.passed
        ends = (at for sign in _PART_SIGNS for at in _places(test, sign))
        return any(test[:at] in self.passed and not _NUMBER.fullmatch(test[at:]) for at in ends)

    def clears(self, test: str) -> bool:
        """As ``passes``. A file that could not be loaded in another run passes if a test in it passed."""
        if test in self._failing:
            return False
        return self.passes(test) or any(
            passed_test.startswith(f"{test}::") for passed_test in self.passed
        )


@dataclass(frozen=True)
class Summary:
    """What a test runner's log reports: tests that ran, that failed, and names of those that failed.

    Skipped tests did not run. Two tests with one name are told apart by the order in which they fail.
    ``expected``: how many of the tests that ran failed as they were marked to. ``report``: every test by
    name, if the log itself is a structured one (TAP).
    """

    ran: int
    failed: int
    names: tuple[str, ...] = ()
    report: Report | None = None
    expected: int = 0

    @property
    def failing(self) -> tuple[str, ...] | None:
        """Every failing test's name; None if the log does not name each."""
        return self.names if self.names and len(self.names) >= self.failed else None


@dataclass(frozen=True)
class SuiteRun:
    """One run of a test suite. ``count``: tests that ran (skipped ones did not); None if not reported.

    The result's output has the tree's paths relative: it is compared with that of another tree.
    """

    result: CommandResult
    count: int | None
    #: Number of tests that passed; None if not reported.
    passing: int | None = None
    #: Names of all that failed, by the log; None if it does not name each.
    failing: tuple[str, ...] | None = None
    #: How many failed, as the runner counts them; None if not reported.
    failed: int | None = None
    #: Every test by name, if there is a report and the log agrees with it; of a run that the wall clock
    #: ended, those that were reported before.
    report: Report | None = None
    #: If a script has several commands: a digest of what the others printed, without what varies.
    others: str = ""
    #: What is unusual in how it ran: what could not be installed, options that were left out. Empty if
    #: nothing.
    installed: str = ""
    #: Whether the runner ran without the project's own options, because it does not start with them.
    without_options: bool = False
    #: What the tests did outside of their process, if that is observed.
    acts: frozenset[Act] | None = None
    #: What was run; None if unknown: then the result's command line is shown.
    command: TestCommand | None = None
    #: Whether the runner can run only the tests of some files (``reaching``).
    can_select: bool = False
    #: Commands that were found and did not serve, each with the reason, in a sentence.
    unserved: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        result: CommandResult,
        summary: Summary | None,
        report: Report | None = None,
        installed: str = "",
    ) -> "SuiteRun":
        """Return a run by its log's summary and its report, if there are any."""
        if result.timed_out:
            return cls(result, None, report=report, installed=installed)
        if summary is None:
            failing_names = () if result.ok else None
            return cls(result, None, failing=failing_names, installed=installed)
        if report is None and summary.report is not None and not result.truncated:
            report = replace(summary.report, figures=(summary.ran, summary.failed))
        if report is not None and report.figures != (summary.ran, summary.failed):
            report = None  # they contradict each other: then the log is judged alone
        passing = max(0, summary.ran - summary.failed) if report is None else len(report.passed)
        # A log that is cut may name fewer tests than failed.
        named_failures = None if result.truncated else summary.failing
        failing = () if result.ok else named_failures
        return cls(
            result, summary.ran, passing, failing, summary.failed, report, installed=installed
        )


#: Text of a line that explains why a run failed, and lines that clients add about themselves.
_TELLING = re.compile(
    r"not found|no such|no module|cannot|can't|unable|denied|refused|missing|\w*error\b|exception|fail",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"^(?:npm (?:ERR!|error|notice|warn)|yarn run|info Visit|make(?:\[\d+\])?: \*\*\*|\W*$|>)|ELIFECYCLE"
)

#: A runner's own last lines, which give counts and no cause.
_COUNTS = re.compile(r"^(?:FAILED \(|Ran \d+|=+ .* =+$|Tests?( Suites| Files)?:? |[\d,]+ \w+)")

#: A line on a test that passed, whatever its name is, and a step of a progress bar.
_PASSING = re.compile(r"\bPASSED\b|\b(?:ok|passed)$|^(?:ok \d|PASS\b|[✓✔√])|\d% ?[\]|]|\[ *\d+%\]$")

_FAILING = re.compile(r"\b(?:FAIL|ERROR)")

#: Colours, cursor moves and the like, which a runner may print to a pipe too.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

#: Limits of an output that is shown to a person: lines, characters of a line, and of all, to fit in an
#: event.
_SHOWN_LINES = 8
_LINE_CHARS = 200
_SHOWN_CHARS = MAX_EXCERPT_CHARS


def last_line(output: str) -> str:
    """Return the last line of an output that explains how it ended, otherwise its last line; empty if
    none."""
    return (_telling_lines(output) or [""])[-1]


def error_lines(output: str) -> str:
    """Return the lines of an output that look like the error, in their order and each once, otherwise its
    last lines. If not all fit, the first and the last ones."""
    lines = list(dict.fromkeys(line[:_LINE_CHARS] for line in _telling_lines(output)))
    order: Iterable[int] = reversed(range(len(lines)))
    if any(map(_TELLING.search, lines)):
        pairs = ((at, len(lines) - 1 - at) for at in range(len(lines)))
        order = dict.fromkeys(at for pair in pairs for at in pair)
    chosen: list[int] = []
    room = _SHOWN_CHARS
    for at in islice(order, _SHOWN_LINES):
        room -= len(lines[at]) + 1
        if room < 0:
            break
        chosen.append(at)
    return "\n".join(lines[at] for at in sorted(chosen))


def _telling_lines(output: str) -> list[str]:
    """Return the lines that explain how a command ended; if there are none, the most useful of the
    others."""
    lines = [_CONTROL.sub("", line).strip() for line in output.splitlines()]
    runner_lines = [line for line in lines if line and not _BESIDE.search(line)]
    ends = [line for line in runner_lines if _FAILING.search(line) or not _PASSING.search(line)]
    telling = [line for line in ends if _TELLING.search(line)]
    causes = [line for line in telling if not _COUNTS.match(line)]
    return causes or telling or ends or runner_lines or [line for line in lines if line]


def steady_lines(output: str) -> set[str]:
    """Return the lines of a log without text that differs between runs with the same results."""
    return {_VARYING.sub("0", _LASTED.sub("", line.strip())) for line in output.splitlines()}


def numbered(names: Iterator[str]) -> tuple[str, ...]:
    """Return the names with a number added to each repetition, so that all differ, even if a name looks
    like another one with a number."""
    seen: dict[str, int] = {}
    unique_names = []
    for name in names:
        number = seen.get(name, 0) + 1
        unique = name if number == 1 else f"{name} ({number})"
        while number > 1 and unique in seen:
            number += 1
            unique = f"{name} ({number})"
        seen[unique] = 1
        seen[name] = number
        unique_names.append(unique)
    return tuple(unique_names)


#: Prefix of the names of report files.
OURS = ".fallback-tier-"

#: Characters of a test's name that may name its file and class.
_MAX_PLACE = 1_000

#: Text between a test's name and what identifies its subtest.
_PART_SIGNS = (" (", " [")

#: Text there that makes another test of the same name, not a subtest of the first.
_NUMBER = re.compile(r" \(\d+\)")

#: 100,000 tests of 300 bytes. A larger file is not read.
MAX_REPORT_BYTES = 32 * 1024 * 1024


def _places(text: str, sign: str) -> Iterator[int]:
    at = text.find(sign, 0, _MAX_PLACE)
    while at >= 0:
        yield at
        at = text.find(sign, at + 1, _MAX_PLACE)


def _containers(test: str) -> Iterator[str]:
    """Yield what may contain a test, by its name: ``FILE::CLASS::TEST``, ``FILE > TEST``, unittest's
    ``TEST (MODULE.CLASS)``."""
    _, _, where = test.partition("(")
    for text, sign in ((test, "::"), (test, " > "), (where, ".")):
        yield from (text[:at] for at in _places(text, sign))


class _ReportFile:
    """The file of a run's report, under a new name in the tree, which no patch can know."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self._name = f"{OURS}{secrets.token_hex(16)}"
        self.path = str(tree.root / self._name)

    def begin(self, line: str) -> None:
        """Create it with a first line: a later writer finds it, and can't replace it unseen."""
        self._tree.add(self._name, f"{line}\n".encode())

    def read(self) -> str | None:
        """Return the content, with the tree's paths relative; None if there is no plain file of at most
        MAX_REPORT_BYTES. A link is never followed, and nothing that could block is opened."""
        return self._read(self._name)

    def read_all(self) -> list[str | None]:
        """As ``read``, for each process that wrote a file: ``path``, then ``-`` and what tells them
        apart."""
        return [self._read(name) for name in self._names() if name != self._name]

    def count(self) -> int:
        """Return how many tests are named so far; 0 if that can't be read now."""
        try:
            return sum((self._content(name) or b"").count(b'"test":') for name in self._names())
        except OSError:
            return 0

    def _read(self, name: str) -> str | None:
        try:
            content = self._content(name)
        except OSError as error:
            raise_failed(error, f"The report {name}")
            return None
        if content is None or len(content) > MAX_REPORT_BYTES:
            return None
        root = str(self._tree.root)
        return content.decode("utf-8", "replace").replace(f"{root}/", "").replace(root, ".")

    def _content(self, name: str) -> bytes | None:
        path = self._tree.find(name)
        if path is None or not stat.S_ISREG(path.lstat().st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_REPORT_BYTES + 1)

    def _names(self) -> list[str]:
        top = self._tree.layers[0]
        names = [entry.name for entry in os.scandir(top) if entry.name.startswith(self._name)]
        return sorted(names, key=lambda name: (len(name), name))

    def remove(self) -> None:
        """Remove the files, so that later commands find the tree as it was."""
        for name in self._names():
            with suppress(OSError):
                (self._tree.layers[0] / name).unlink()


@contextmanager
def report_in(tree: FileTree) -> Iterator[_ReportFile]:
    """Yield the file for one run's report, removed at the end. Its tests are counted while it grows."""
    file = _ReportFile(tree)
    try:
        with counted(file.count):
            yield file
    finally:
        file.remove()


def merged(reports: Sequence[Report | None]) -> Report | None:
    """Return one report of several runners that ran for one command; None if one has no report. Tests of
    one name are numbered in their order."""
    readable = [report for report in reports if report is not None]
    if not readable or len(readable) < len(reports):
        return None
    if len(readable) == 1:
        return readable[0]
    results: list[tuple[str, str]] = []
    for report in readable:
        unread = frozenset(report.uncollected)
        results += [(name, "passed") for name in sorted(report.passed)]
        results += [(name, "uncollected" if name in unread else "failed") for name in report.failed]
    names = numbered(name for name, _ in results)
    figures = [report.figures for report in readable if report.figures is not None]
    totals = None
    if len(figures) == len(readable):
        totals = (sum(ran for ran, _ in figures), sum(failed for _, failed in figures))
    return Report.of(zip(names, (result for _, result in results), strict=True), totals)


def read_lines(text: str | None) -> Report | None:
    """Return a report; None if a line has another format, if anything follows the end, or if the end states
    another number of lines. A last line that is cut off is left out: the wall clock ended the run."""
    results: list[tuple[str, str]] = []
    end: dict[str, Any] | None = None
    collected: int | None = None
    for line in (text or "").split("\n")[:-1]:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or end is not None:
            return None
        if "told" in entry:
            end = entry
        elif isinstance(entry.get("test"), str) and isinstance(entry.get("was"), str):
            results.append((entry["test"], entry["was"]))
        elif type(entry.get("collected")) is int:
            collected = entry["collected"]
        else:
            return None
    if end is None:
        return Report.of(results, None, collected) if results else None
    counts = [end.get(key) for key in ("told", "ran", "failed")]
    if not all(type(count) is int for count in counts) or end["told"] != len(results):
        return None
    return Report.of(results, (end["ran"], end["failed"]), collected)
