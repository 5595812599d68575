"""Logs in TAP (testanything.org): results by name, with all that is around them."""

import re
from dataclasses import dataclass, field

from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import Names, numbered, shortened

#: Tests in each other. No real log has more: of one that does nothing is told by name.
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
#: What is read of a log, by its indentation.
_READ = re.compile(r"^( *)(?:# Subtest|(?:not )?ok \d|# failed \d|# test count\()")
#: In what explains a file's result. 1: tests of it failed.
_EXIT = re.compile(r"^  exitCode: (?!0$|1$|null$)(.+)$")


def tests_of_tap_16(text: str) -> list[tuple[str, str]] | None:
    """Tests, not their assertions, of a log that ends as tap 16 ends its own: (``file > test > subtest``,
    ``passed`` or ``failed``). None: it ends otherwise, its last lines count other failures, or what tests
    print can't be told from what explains a result.

    What has tests of its own is one only where it fails by more than by them.
    """
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
    """A test whose last line has not come yet, or a section. ``full``: its name with all that is around it.
    ``failures``: lines in it that are not ok, ``counted``: by its own count; ``asserted``: those of them
    that are no tests."""

    depth: int
    name: str
    full: str
    has_tests: bool = False
    failures: int = 0
    counted: int = 0
    asserted: list[str] = field(default_factory=list)


class _Nesting:
    """Tests that are open, one in the other, by the indentation of their lines."""

    def __init__(self) -> None:
        self.names = Names()
        self._open: list[_Open] = []
        self._is_too_deep = False

    @property
    def is_lost(self) -> bool:
        """Is there more than any real log has? Then nothing in it is told by name."""
        return self._is_too_deep or self.names.are_lost

    def around(self, depth: int) -> list[_Open]:
        """What a line of this indentation is in, from the outside in."""
        return [test for test in self._open if test.depth < depth]

    def at(self, depth: int) -> _Open | None:
        """The open test of this indentation."""
        return next((test for test in self._open if test.depth == depth), None)

    def opened(self, depth: int, name: str) -> None:
        """A test or a section begins: what is as far in has ended, and what is further in."""
        self._open = self.around(depth)
        self._is_too_deep |= len(self._open) >= MAX_LEVELS
        if not self._is_too_deep:
            full = f"{self._open[-1].full} > {name}" if self._open else name
            self._open.append(_Open(depth, name, shortened(full)))

    def ended(self, depth: int) -> None:
        """A test ends, and what is in it."""
        self._open = self.around(depth)

    def full(self, depth: int, name: str, place: str = "") -> str:
        """The full name of what has its result on a line of this indentation, in the file ``place``."""
        around = self.around(depth)
        if not place:
            return self.names.full(around[-1].full if around else "", name)
        full = shortened(f"{around[-1].full} > {name}") if around else name
        return self.names.full(place, full, ": ")


class _Reading:
    """What came so far of a log of tap 16."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str]] = []
        self.failed_files = 0
        self._nesting = _Nesting()
        #: The file that ended last.
        self._file = ""
        #: The lines that begin and end what explains a result, right below it, in YAML: with code and
        #: output that may look like results.
        self._explains = ""
        self._until = ""
        #: What should be a result's explanation has what is none of it.
        self._is_mixed = False

    @property
    def is_known(self) -> bool:
        """Can all that came be told by name?"""
        return not (self._nesting.is_lost or self._is_mixed or self._until)

    def read(self, line: str) -> None:
        """The next line."""
        # Above what explains a file's result, others may have printed: past tap, to the same pipe.
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
                words = ended[3][: directive.start() if directive else None].strip()
                name = words.removeprefix("- ").strip() or _UNNAMED
                self._ended(len(ended[1]), name, failed=ended[2] is not None)
        elif (counted := _FAILED.match(line)) and (around := self._nesting.around(len(counted[1]))):
            around[-1].counted = int(counted[2])
        elif (other := _OTHER_COUNT.match(line)) and (
            around := self._nesting.around(len(other[1]))
        ):
            around[-1].asserted.append(other[2])

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
        by_more = test.counted > test.failures or not test.failures  # its plan, its end
        if not test.has_tests or (failed and by_more):
            self._report("", test.full, "failed" if failed else "passed")
        if test.has_tests:
            for words in test.asserted:
                self._report(test.full, words)


class _Lines:
    """Lines of other TAP: tests are in each other, as by node's runner, or comments above their assertions,
    as by tape."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.nesting = _Nesting()
        self._has_sections = not any(map(_SUBTEST.fullmatch, self.lines))

    def opens(self, line: str) -> int | None:
        """Does it begin a test? How far in; a section is further out than any line."""
        if opened := _SUBTEST.fullmatch(line):
            depth, name = len(opened[1]), opened[2]
        elif self._has_sections and (section := _SECTION.fullmatch(line)):
            depth, name = -1, section[1]
        else:
            return None
        self.nesting.opened(depth, name)
        return depth


def tap_report(text: str, ran: int, failing: int) -> Report | None:
    """Every test of a TAP log by name, without lines that sum up those above; None where the last lines
    count otherwise, or where it has more than any real log."""
    log = _Lines(text)
    reported: list[tuple[str, str]] = []
    deepest = 0
    for line in log.lines:
        if (begun := log.opens(line)) is not None:
            deepest = begun if begun >= 0 else deepest
        elif found := _RESULT.fullmatch(line):
            depth = len(found[1])
            sums_up, deepest = depth < deepest, depth
            if not (sums_up or found[4]):
                was = "failed" if found[2] else "passed"
                reported.append((log.nesting.full(depth, found[3]), was))
    if log.nesting.is_lost:
        return None
    names = numbered(name for name, _ in reported)
    report = Report.of(zip(names, (was for _, was in reported), strict=True))
    fits = len(report.failed) == failing and len(report.passed) <= ran - failing
    return report if fits and report.passed else None


def tap_names(text: str) -> tuple[str, ...] | None:
    """``file: test > subtest`` for each line that is not ok; node names the file below the line. None: the
    log has more than any real one.

    tape's lines are of assertions (``should be equal``); the test is the comment above them.
    """
    log = _Lines(text)
    names = []
    for number, line in enumerate(log.lines):
        if log.opens(line) is not None:
            continue
        if (found := _NOT_OK.fullmatch(line)) and " # " not in found[2]:
            below = map(_LOCATION.fullmatch, log.lines[number + 1 : number + 5])
            place = next(filter(None, below), None)
            names.append(log.nesting.full(len(found[1]), found[2], place[1] if place else ""))
    return None if log.nesting.is_lost else tuple(names)
