"""Logs in TAP (testanything.org): results by name, with all that is around them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fallback_plugins.shared.gates.reports import Report
from fallback_plugins.shared.gates.suite_run import numbered

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
    is_known = reading.failed_files == counted and not (reading.is_lost or reading.until)
    return reading.reported if is_known else None


@dataclass
class _Open:
    """A test whose last line has not come yet. ``failures``: lines in it that are not ok, ``counted``: by
    its own count; ``asserted``: those of them that are no tests."""

    name: str
    has_tests: bool = False
    failures: int = 0
    counted: int = 0
    asserted: list[str] = field(default_factory=list)


@dataclass
class _Reading:
    """What came so far; ``inside``: tests by their indentation."""

    reported: list[tuple[str, str]] = field(default_factory=list)
    failed_files: int = 0
    inside: dict[int, _Open] = field(default_factory=dict)
    #: The file that ended last.
    file: str = ""
    #: The lines that begin and end what explains a result, right below it, in YAML: with code and output
    #: that may look like results.
    explains: str = ""
    until: str = ""
    #: What should be a result's explanation has what is none of it.
    is_lost: bool = False

    def read(self, line: str) -> None:
        # Above what explains a file's result, others may have printed: past tap, to the same pipe.
        if (code := _EXIT.match(line)) and (self.until == "  ..." or not self.inside):
            self.reported.append((f"{self.file} > exit code {code[1]}", "failed"))
        begins, self.explains = self.explains, ""
        if self.until:
            outside = _READ.match(line)
            self.is_lost |= outside is not None and len(outside[1]) < self.until.index(".")
            self.until = "" if line == self.until else self.until
        elif begins and line == begins:
            self.until = line.replace("---", "...")
        elif opened := _OPENED.match(line):
            self._opened(len(opened[1]), (opened[2] or "").strip() or _UNNAMED)
        elif ended := _ENDED.match(line):
            self.explains = f"{ended[1]}  ---"
            directive = _DIRECTIVE.search(ended[3])
            if directive is None or directive[1].lower() == "time=":
                words = ended[3][: directive.start() if directive else None].strip()
                name = words.removeprefix("- ").strip() or _UNNAMED
                self._ended(len(ended[1]), name, failed=ended[2] is not None)
        elif (counted := _FAILED.match(line)) and (around := self._around(len(counted[1]))):
            around[-1].counted = int(counted[2])
        elif (other := _OTHER_COUNT.match(line)) and (around := self._around(len(other[1]))):
            around[-1].asserted.append(other[2])

    def _around(self, depth: int) -> list[_Open]:
        return [test for at, test in self.inside.items() if at < depth]

    def _opened(self, depth: int, name: str) -> None:
        self.inside = {at: test for at, test in self.inside.items() if at < depth}
        for around in self.inside.values():
            around.has_tests = True
        self.inside[depth] = _Open(name)

    def _ended(self, depth: int, name: str, *, failed: bool) -> None:
        around = self._around(depth)
        if failed and around:
            around[-1].failures += 1
        test = self.inside.get(depth)
        if test is None or test.name != name:  # an assertion
            if failed and around:
                around[-1].asserted.append(name)
            return
        self.inside = {at: one for at, one in self.inside.items() if at < depth}
        if not depth:
            self.file = name
            self.failed_files += failed
        full = " > ".join([*(one.name for one in around), name])
        by_more = test.counted > test.failures or not test.failures  # its plan, its end
        if not test.has_tests or (failed and by_more):
            self.reported.append((full, "failed" if failed else "passed"))
        if test.has_tests:
            self.reported += [(f"{full} > {words}", "failed") for words in test.asserted]


def tap_report(text: str, ran: int, failing: int) -> Report | None:
    """Every test of a TAP log by name, without lines that sum up those above; None where the last lines
    count otherwise."""
    inside: dict[int, str] = {}
    reported: list[tuple[str, str]] = []
    deepest = 0
    subtests = any(map(_SUBTEST.fullmatch, text.split("\n")))
    for line in text.split("\n"):
        if opened := _SUBTEST.fullmatch(line):
            deepest = len(opened[1])
            inside = {at: name for at, name in inside.items() if at < deepest} | {
                deepest: opened[2]
            }
        elif not subtests and (section := _SECTION.fullmatch(line)):
            inside = {-1: section[1]}
        elif found := _RESULT.fullmatch(line):
            depth = len(found[1])
            sums_up, deepest = depth < deepest, depth
            if not (sums_up or found[4]):
                parents = [name for at, name in inside.items() if at < depth]
                was = "failed" if found[2] else "passed"
                reported.append((" > ".join([*parents, found[3]]), was))
    names = numbered(name for name, _ in reported)
    report = Report.of(zip(names, (was for _, was in reported), strict=True))
    fits = len(report.failed) == failing and len(report.passed) <= ran - failing
    return report if fits and report.passed else None


def tap_names(text: str) -> Iterator[str]:
    """``file: test > subtest`` for each line that is not ok; node names the file below the line.

    tape's lines are of assertions (``should be equal``); the test is the comment above them.
    """
    inside: dict[int, str] = {}
    lines = text.split("\n")
    sections = not any(map(_SUBTEST.fullmatch, lines))
    for number, line in enumerate(lines):
        if opened := _SUBTEST.fullmatch(line):
            depth = len(opened[1])
            inside = {at: name for at, name in inside.items() if at < depth} | {depth: opened[2]}
        elif sections and (section := _SECTION.fullmatch(line)):
            inside = {-1: section[1]}
        elif (found := _NOT_OK.fullmatch(line)) and " # " not in found[2]:
            parents = [name for at, name in inside.items() if at < len(found[1])]
            place = next(
                filter(None, map(_LOCATION.fullmatch, lines[number + 1 : number + 5])), None
            )
            name = " > ".join([*parents, found[2]])
            yield f"{place[1]}: {name}" if place else name
