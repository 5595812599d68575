"""What a test runner reports of each test, read from a file that a reporter wrote beside the log.

A line is a JSON object: ``{"test": NAME, "was": "passed"}`` (``failed``, ``skipped``, ``uncollected``: a
file or a module that could not be read in). The last one says how many lines there are, and what the
runner itself counts: ``{"told": 3, "ran": 2, "failed": 1}``. Lines are written as tests end, so that a run
that the wall clock ends tells of those before. A line ``{"collected": 9}`` says how many tests the runner
has found and is going to run.

The code under test runs in the same process and can write there too: a report that contradicts the log
counts for nothing, and what the log alone tells is judged as ever.
"""

import json
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fallback_audit.disk_errors import raise_failed
from fallback_tier.execution import counted
from fallback_tier.files.tree import FileTree

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
        """Of (name, how it was); what failed once has failed, whatever else it did."""
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
        """Does it fail here too, or stand in what could not be read in?"""
        if test in self._failing:
            return True
        return bool(self._unread) and not self._unread.isdisjoint(_stands_in(test[:_MAX_PLACE]))

    @cached_property
    def _unread(self) -> frozenset[str]:
        return frozenset(self.uncollected)

    def passes(self, test: str) -> bool:
        """Did it pass here? Of a subtest, of which only failures are told: did its test?"""
        if test in self._failing:
            return False
        if test in self.passed or " > " in test:  # node's runners tell of every test
            return test in self.passed
        ends = (at for sign in _PART_SIGNS for at in _places(test, sign))
        return any(test[:at] in self.passed and not _NUMBER.fullmatch(test[at:]) for at in ends)

    def clears(self, test: str) -> bool:
        """As ``passes``; of a file that could not be read in elsewhere: did a test in it?"""
        if test in self._failing:
            return False
        return self.passes(test) or any(one.startswith(f"{test}::") for one in self.passed)


def _places(text: str, sign: str) -> Iterator[int]:
    at = text.find(sign, 0, _MAX_PLACE)
    while at >= 0:
        yield at
        at = text.find(sign, at + 1, _MAX_PLACE)


def _stands_in(test: str) -> Iterator[str]:
    """All that a test's name may say that it stands in: ``FILE::CLASS::TEST``, ``FILE > TEST``, and
    unittest's ``TEST (MODULE.CLASS)``."""
    _, _, where = test.partition("(")
    for text, sign in ((test, "::"), (test, " > "), (where, ".")):
        yield from (text[:at] for at in _places(text, sign))


class ReportFile:
    """Where a run's report will lie: a new name in the tree, which no patch can know."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree
        self._name = f"{OURS}{secrets.token_hex(16)}"
        self.path = str(tree.root / self._name)

    def begin(self, line: str) -> None:
        """Make it, with a first line: who writes later finds it there, and can't make it anew unseen."""
        self._tree.add(self._name, f"{line}\n".encode())

    def read(self) -> str | None:
        """What was written, the tree's paths relative; None where there is no plain file of a sane size.
        A link is never followed, nothing that could block is opened."""
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
        """What runs later finds the tree as it was."""
        for name in self._names():
            with suppress(OSError):
                (self._tree.layers[0] / name).unlink()


@contextmanager
def report_in(tree: FileTree) -> Iterator[ReportFile]:
    """A place for one run's report, removed at the end. Its tests are counted while it grows."""
    file = ReportFile(tree)
    try:
        with counted(file.count):
            yield file
    finally:
        file.remove()


def merged(reports: Sequence[Report | None]) -> Report | None:
    """One report of several runners that ran for one command; None if one of them can't be read. Tests of
    one name are told apart by their order."""
    known = [one for one in reports if one is not None]
    if not known or len(known) < len(reports):
        return None
    if len(known) == 1:
        return known[0]
    seen: set[str] = set()
    reported: list[tuple[str, str]] = []
    for one in known:
        unread = frozenset(one.uncollected)
        tests = [(name, "passed") for name in sorted(one.passed)]
        tests += [(name, "uncollected" if name in unread else "failed") for name in one.failed]
        for name, was in tests:
            number, unique = 1, name
            while unique in seen:
                number += 1
                unique = f"{name} ({number})"
            seen.add(unique)
            reported.append((unique, was))
    figures = [one.figures for one in known if one.figures is not None]
    whole = None
    if len(figures) == len(known):
        whole = (sum(ran for ran, _ in figures), sum(failed for _, failed in figures))
    return Report.of(reported, whole)


def read_lines(text: str | None) -> Report | None:
    """None where a line is not one of ours, where anything stands behind the end, or where the end counts
    other lines than there are. A last line that is cut off is left out: the wall clock came between."""
    reported: list[tuple[str, str]] = []
    end: dict[str, Any] | None = None
    collected: int | None = None
    for line in (text or "").split("\n")[:-1]:
        found = _object(line)
        if found is None or end is not None:
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


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
