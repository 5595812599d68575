"""One run of a test suite, as its log and its report tell it, and the names of its tests.

A log can name one thing at great length, and then a hundred thousand tests in it: full names, made of those
of what is around a test, are kept within bounds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256

from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.test_commands import TestCommand
from fallback_tier.execution import CommandResult

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
    """A name of at most MAX_NAME_CHARS as it is; of a longer one its beginning and a digest of it all.

    Two names stay two: what is shortened is longer than what is not.
    """
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
        """Are they longer together than those of any real log? Then none counts."""
        return self._room < 0

    def full(self, around: str, name: str, by: str = " > ") -> str:
        """A test's name behind what is around it, shortened. What many have around them is given shortened:
        it is read for each."""
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
        """A run, by its log's summary and its report, if there are any."""
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

#: Colours, cursor moves and the like, which a runner may print to a pipe too.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def last_line(output: str) -> str:
    """Return the last line of an output that tells why it ended so, or else its last line; empty: none."""
    lines = [_CONTROL.sub("", line).strip() for line in output.splitlines()]
    own = [line for line in lines if line and not _BESIDE.search(line)]
    telling = [line for line in own if _TELLING.search(line)]
    causes = [line for line in telling if not _COUNTS.match(line)]
    return (causes or telling or own or [line for line in lines if line] or [""])[-1]


def steady_lines(output: str) -> set[str]:
    """The lines of a log without what differs between two runs that say the same."""
    return {_VARYING.sub("0", _LASTED.sub("", line.strip())) for line in output.splitlines()}


def numbered(names: Iterator[str]) -> tuple[str, ...]:
    """Names as they are, a name's second bearer and those after it numbered: each is another name, though
    one may be called as another is numbered."""
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
