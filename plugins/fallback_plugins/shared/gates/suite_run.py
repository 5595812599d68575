"""One run of a test suite, as its log and its report describe it, and the names of its tests.

A reporter writes the report to a file next to the log. A line is a JSON object: ``{"test": NAME, "was":
"passed"}`` (``failed``, ``skipped``, ``uncollected``: a file or a module that could not be read in). The
last one states how many lines there are, and the runner's own count: ``{"told": 3, "ran": 2, "failed":
1}``. Lines are written as tests end, so that a run that the wall clock ends has those before. A line
``{"collected": 9}`` states how many tests the runner has found and is going to run.

The code under test runs in the same process and can write there too: a report that contradicts the log is
ignored, and the log alone is judged.

A log can name one thing at great length, and then a hundred thousand tests in it: full names, made of
those of what contains a test, have a limit in length.
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
#: longer run of digits from each of them, and ``int`` refuses one of over 4,300. No suite has so many
#: tests: a longer number is no figure.
FIGURE = r"(?<!\d)\d{1,9}(?!\d)"


#: No test's name that somebody has to read is longer, with all that is around it.
MAX_NAME_CHARS = 300

#: The full names of one log: as many as a report may have (``MAX_REPORT_BYTES``).
MAX_NAMES_CHARS = 32 * 1024 * 1024

#: Two names of one digest are not found, not even by who looks for them.
_DIGEST_CHARS = 32


def shortened(name: str) -> str:
    """Return a name of at most MAX_NAME_CHARS as it is; of a longer one its beginning and a digest of it
    all. Two names stay two: what is shortened is longer than what is not."""
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
        """Whether they are longer together than those of any real log: then none counts."""
        return self._room < 0

    def full(self, around: str, name: str, by: str = " > ") -> str:
        """Return a test's name after what contains it, shortened. The caller shortens ``around`` if many
        tests share it: it is read for each."""
        made = shortened(f"{around}{by}{name}" if around else name)
        self._room -= len(made)
        return "" if self.are_lost else made


#: What a run did beyond its own process: a kind, then what it was done to (``observing``).
Act = str

#: What differs between two runs that print the same: durations, seeds, addresses. Never a count.
_VARYING = re.compile(r"0x[0-9a-f]+|\d+(?:[.:]\d+)+|\d+(?= ?(?:ms|s|m)\b)|\d{4,}")

#: How long something took, which jest says only of what is slow.
_LASTED = re.compile(r" \(\d[\d.]* ?m?s\)")


@dataclass(frozen=True)
class Report:
    """Tests by name. One that is in no list did not run, or was skipped.

    ``figures``: tests that ran and that failed, as the runner counts them; None: it did not end.
    ``collected``: tests that it was going to run, for people; None: not told.
    """

    passed: frozenset[str]
    failed: tuple[str, ...] = ()
    #: Files or modules that could not be read in; among the failed too.
    uncollected: tuple[str, ...] = ()
    figures: tuple[int, int] | None = None
    collected: int | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        reported: Iterable[tuple[str, str]],
        figures: tuple[int, int] | None = None,
        collected: int | None = None,
    ) -> "Report":
        """Return a report of (name, how it ended); what failed once has failed, whatever else it did."""
        passed, failed, uncollected = dict[str, None](), dict[str, None](), dict[str, None]()
        for name, was in reported:
            if was == "passed":
                passed[name] = None
            elif was != "skipped":
                failed[name] = None
            if was == "uncollected":
                uncollected[name] = None
        named = frozenset(passed) - set(failed), tuple(failed), tuple(uncollected)
        return cls(*named, figures, collected)

    @cached_property
    def _failing(self) -> frozenset[str]:
        return frozenset(self.failed)

    def excuses(self, test: str) -> bool:
        """Return whether it fails here too, or is in what could not be read in."""
        if test in self._failing:
            return True
        return bool(self._unread) and not self._unread.isdisjoint(_containers(test[:_MAX_PLACE]))

    @cached_property
    def _unread(self) -> frozenset[str]:
        return frozenset(self.uncollected)

    def passes(self, test: str) -> bool:
        """Return whether it passed here; of a subtest, of which only failures are reported, its test."""
        if test in self._failing:
            return False
        if test in self.passed or " > " in test:  # node's runners tell of every test
            return test in self.passed
        ends = (at for sign in _PART_SIGNS for at in _places(test, sign))
        return any(test[:at] in self.passed and not _NUMBER.fullmatch(test[at:]) for at in ends)

    def clears(self, test: str) -> bool:
        """As ``passes``; of a file that could not be read in elsewhere, whether a test in it passed."""
        if test in self._failing:
            return False
        return self.passes(test) or any(one.startswith(f"{test}::") for one in self.passed)


@dataclass(frozen=True)
class Summary:
    """What a test runner's log tells: tests that ran, that failed, and names of those that failed.

    Skipped tests did not run. Two tests of one name are told apart by the order in which they fail.
    ``expected``: of those that ran, tests that failed and said so beforehand. ``report``: every test by
    name, where the log itself is a structured one (TAP).
    """

    ran: int
    failed: int
    names: tuple[str, ...] = ()
    report: Report | None = None
    expected: int = 0

    @property
    def failing(self) -> tuple[str, ...] | None:
        """Every failing test's name; None where the log does not name each."""
        return self.names if self.names and len(self.names) >= self.failed else None


@dataclass(frozen=True)
class SuiteRun:
    """One run of a test suite. ``count``: tests that ran (skipped ones did not); None: not told.

    The result's output has the tree's paths relative: it is compared with that of another tree.
    """

    result: CommandResult
    count: int | None
    #: Tests that passed; None: not told.
    passing: int | None = None
    #: Names of all that failed, by the log; None: not told, or not of each.
    failing: tuple[str, ...] | None = None
    #: How many failed, as the runner counts them; None: not told.
    failed: int | None = None
    #: Every test by name, where a report tells and the log agrees; of a run that the wall clock ended,
    #: what it told before.
    report: Report | None = None
    #: Of a script of several commands: a digest of what the others printed, without what varies.
    others: str = ""
    #: On what it ran, and how: what could not be installed, options that were left out. Empty: in order.
    installed: str = ""
    #: Did the runner run without the project's own options, since it does not start with them?
    without_options: bool = False
    #: What the tests did beyond their process, where that is observed.
    acts: frozenset[Act] | None = None
    #: What was run; None: not told, and the result's own words are shown.
    command: TestCommand | None = None
    #: Can the runner be asked for the tests of some files alone (``reaching``)?
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
            none = () if result.ok else None
            return cls(result, None, failing=none, installed=installed)
        if report is None and summary.report is not None and not result.truncated:
            report = replace(summary.report, figures=(summary.ran, summary.failed))
        if report is not None and report.figures != (summary.ran, summary.failed):
            report = None  # one of the two is wrong, and the log is what was always believed
        passing = max(0, summary.ran - summary.failed) if report is None else len(report.passed)
        # Of what was left out of a log nobody knows how many names it had.
        named = None if result.truncated else summary.failing
        failing = () if result.ok else named
        return cls(
            result, summary.ran, passing, failing, summary.failed, report, installed=installed
        )


#: What a line says that tells why a run failed, and what clients say after it of themselves.
_TELLING = re.compile(
    r"not found|no such|no module|cannot|can't|unable|denied|refused|missing|\w*error\b|exception|fail",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"^(?:npm (?:ERR!|error|notice|warn)|yarn run|info Visit|make(?:\[\d+\])?: \*\*\*|\W*$|>)|ELIFECYCLE"
)

#: A runner's own last words, which tell how many and not why.
_COUNTS = re.compile(r"^(?:FAILED \(|Ran \d+|=+ .* =+$|Tests?( Suites| Files)?:? |[\d,]+ \w+)")

#: A test that passed, whatever its name is, and a step of a progress bar.
_PASSING = re.compile(r"\bPASSED\b|\b(?:ok|passed)$|^(?:ok \d|PASS\b|[✓✔√])|\d% ?[\]|]|\[ *\d+%\]$")

_FAILING = re.compile(r"\b(?:FAIL|ERROR)")

#: Colours, cursor moves and the like, which a runner may print to a pipe too.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

#: What a person is shown of an output: lines, characters of one, and of all, which fit in an event.
_SHOWN_LINES = 8
_LINE_CHARS = 200
_SHOWN_CHARS = MAX_EXCERPT_CHARS


def last_line(output: str) -> str:
    """Return the last line of an output that tells why it ended so, or else its last line; empty: none."""
    return (_telling_lines(output) or [""])[-1]


def error_lines(output: str) -> str:
    """Return the lines of an output that look like the error, in their order and each once, or else its
    last lines. Of more than fit, the first and the last ones."""
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
    """Return the lines that tell why it ended so; if there are none, what else there is."""
    lines = [_CONTROL.sub("", line).strip() for line in output.splitlines()]
    own = [line for line in lines if line and not _BESIDE.search(line)]
    ends = [line for line in own if _FAILING.search(line) or not _PASSING.search(line)]
    telling = [line for line in ends if _TELLING.search(line)]
    causes = [line for line in telling if not _COUNTS.match(line)]
    return causes or telling or ends or own or [line for line in lines if line]


def steady_lines(output: str) -> set[str]:
    """Return the lines of a log without what differs between two runs that say the same."""
    return {_VARYING.sub("0", _LASTED.sub("", line.strip())) for line in output.splitlines()}


def numbered(names: Iterator[str]) -> tuple[str, ...]:
    """Return the names, each further one of a kind numbered: all differ, though a name may be another
    numbered one."""
    seen: dict[str, int] = {}
    made = []
    for name in names:
        number = seen.get(name, 0) + 1
        unique = name if number == 1 else f"{name} ({number})"
        while number > 1 and unique in seen:
            number += 1
            unique = f"{name} ({number})"
        seen[unique] = 1
        seen[name] = number
        made.append(unique)
    return tuple(made)


#: How the names of such files begin.
OURS = ".fallback-tier-"

#: Of a test's name, where it may say in which file and class it stands (characters).
_MAX_PLACE = 1_000

#: What a subtest's name has behind its test's.
_PART_SIGNS = (" (", " [")

#: What another test of the same name has there: it is no part of the first.
_NUMBER = re.compile(r" \(\d+\)")

#: 100,000 tests of 300 bytes. A larger file is no report.
MAX_REPORT_BYTES = 32 * 1024 * 1024


def _places(text: str, sign: str) -> Iterator[int]:
    at = text.find(sign, 0, _MAX_PLACE)
    while at >= 0:
        yield at
        at = text.find(sign, at + 1, _MAX_PLACE)


def _containers(test: str) -> Iterator[str]:
    """Yield what a test may be in by its name: ``FILE::CLASS::TEST``, ``FILE > TEST``, unittest's
    ``TEST (MODULE.CLASS)``."""
    _, _, where = test.partition("(")
    for text, sign in ((test, "::"), (test, " > "), (where, ".")):
        yield from (text[:at] for at in _places(text, sign))


class _ReportFile:
    """The file of a run's report: a new name in the tree, which no patch can know."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self._name = f"{OURS}{secrets.token_hex(16)}"
        self.path = str(tree.root / self._name)

    def begin(self, line: str) -> None:
        """Create it with a first line: a later writer finds it, and can't replace it unseen."""
        self._tree.add(self._name, f"{line}\n".encode())

    def read(self) -> str | None:
        """Return what was written, the tree's paths relative; None if there is no plain file of a sane
        size. A link is never followed, nothing that could block is opened."""
        return self._read(self._name)

    def read_all(self) -> list[str | None]:
        """As ``read``, of each process that wrote one: ``path``, then ``-`` and what tells them apart."""
        return [self._read(name) for name in self._names() if name != self._name]

    def count(self) -> int:
        """Return how many tests are named so far; 0 if that can't be read now."""
        try:
            return sum((self._content(it) or b"").count(b'"test":') for it in self._names())
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
        place = self._tree.find(name)
        if place is None or not stat.S_ISREG(place.lstat().st_mode):
            return None
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_REPORT_BYTES + 1)

    def _names(self) -> list[str]:
        top = self._tree.layers[0]
        found = [it.name for it in os.scandir(top) if it.name.startswith(self._name)]
        return sorted(found, key=lambda name: (len(name), name))

    def remove(self) -> None:
        """Remove it: what runs later finds the tree as it was."""
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
    """Return one report of several runners that ran for one command; None if one can't be read. Tests of
    one name are numbered by their order."""
    known = [one for one in reports if one is not None]
    if not known or len(known) < len(reports):
        return None
    if len(known) == 1:
        return known[0]
    reported: list[tuple[str, str]] = []
    for one in known:
        unread = frozenset(one.uncollected)
        reported += [(name, "passed") for name in sorted(one.passed)]
        reported += [(name, "uncollected" if name in unread else "failed") for name in one.failed]
    names = numbered(name for name, _ in reported)
    figures = [one.figures for one in known if one.figures is not None]
    whole = None
    if len(figures) == len(known):
        whole = (sum(ran for ran, _ in figures), sum(failed for _, failed in figures))
    return Report.of(zip(names, (was for _, was in reported), strict=True), whole)


def read_lines(text: str | None) -> Report | None:
    """Return a report; None if a line is not one of ours, if anything follows the end, or if the end counts
    other lines than there are. A last line that is cut off is left out: the wall clock came between."""
    reported: list[tuple[str, str]] = []
    end: dict[str, Any] | None = None
    collected: int | None = None
    for line in (text or "").split("\n")[:-1]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or end is not None:
            return None
        if "told" in found:
            end = found
        elif isinstance(found.get("test"), str) and isinstance(found.get("was"), str):
            reported.append((found["test"], found["was"]))
        elif type(found.get("collected")) is int:
            collected = found["collected"]
        else:
            return None
    if end is None:
        return Report.of(reported, None, collected) if reported else None
    counts = [end.get(key) for key in ("told", "ran", "failed")]
    if not all(type(one) is int for one in counts) or end["told"] != len(reported):
        return None
    return Report.of(reported, (end["ran"], end["failed"]), collected)
