"""Logs in TAP (testanything.org): results by name, with all that is around them."""

import re
from collections.abc import Iterable, Iterator
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

#: What tap up to version 16 ends with; it counts files. Figures of node's runner begin with ``# tests``.
_TAP_16 = re.compile(
    r"^1\.\.\d+\n(?:# failed (\d+)(?: of \d+)? tests?\n)?(?:# (?:todo|skip): \d+\n)*# time=[\d.]+ms$",
    re.MULTILINE,
)


def tests_of_tap_16(text: str) -> list[tuple[str, str]] | None:
    """Tests, not their assertions, of a log that ends as tap 16 ends its own: (``file > test > subtest``,
    ``passed`` or ``failed``). None: it ends otherwise, or its last lines count other failures.

    What has tests of its own is one only where it fails and none of them does: it threw outside of them.
    """
    ends = _TAP_16.findall(text)
    if not ends:
        return None
    reading = _Reading()
    for line in _without_explanations(text.split("\n")):
        if opened := _SUBTEST.fullmatch(line):
            reading.opened(len(opened[1]), opened[2])
        elif (found := _RESULT.fullmatch(line)) and not found[4]:
            reading.ended(len(found[1]), found[3], failed=found[2] is not None)
    counted = sum(int(number or 0) for number in ends)
    return reading.reported if reading.failed_files == counted else None


def _without_explanations(lines: Iterable[str]) -> Iterator[str]:
    """A result can be explained below it, in YAML: with code and output that may look like results."""
    begins = ends = ""
    for line in lines:
        if ends:
            ends = "" if line == ends else ends
        elif line == begins:
            ends = line.replace("---", "...")
        else:
            found = _RESULT.fullmatch(line)
            begins = f"{found[1]}  ---" if found else ""
            yield line


@dataclass
class _Open:
    """A test whose last line has not come yet."""

    name: str
    has_tests: bool = False
    has_failed: bool = False


@dataclass
class _Reading:
    """What came so far; ``inside``: by their indentation."""

    reported: list[tuple[str, str]] = field(default_factory=list)
    failed_files: int = 0
    inside: dict[int, _Open] = field(default_factory=dict)

    def opened(self, depth: int, name: str) -> None:
        self.inside = {at: test for at, test in self.inside.items() if at < depth}
        for around in self.inside.values():
            around.has_tests = True
        self.inside[depth] = _Open(name)

    def ended(self, depth: int, name: str, *, failed: bool) -> None:
        test = self.inside.get(depth)
        if test is None or test.name != name:
            return  # an assertion
        self.inside = {at: around for at, around in self.inside.items() if at < depth}
        self.failed_files += failed and depth == 0
        if not test.has_tests or (failed and not test.has_failed):
            names = [around.name for around in self.inside.values()]
            self.reported.append((" > ".join([*names, name]), "failed" if failed else "passed"))
        for around in self.inside.values():
            around.has_failed = around.has_failed or failed


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
