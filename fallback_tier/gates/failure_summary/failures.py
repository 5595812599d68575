"""The parts of a suite's log that are about certain tests.

A retry is told what its predecessor broke. Tests that fail at the base commit too (for want of a network in
the sandbox, say) fail in the same log, and their frames would lead it astray.
"""

import re
from collections.abc import Iterator, Sequence

#: Where the words about one failing test begin: pytest, jest, vitest, unittest.
_HEADING = re.compile(
    r"_{3,} (?:ERROR (?:at \w+ of|collecting) )?(?P<pytest>\S.*?) _{3,}"
    r"|  \u25cf (?P<jest>.+?)"
    r"|\s*FAIL  (?P<vitest>\S+\.[cm]?[jt]sx?(?: > .+)?)"
    r"|(?:FAIL|ERROR): (?P<unittest>\S+ \([\w.<>]+\).*)"
)

#: Where they end at the latest: the runner's own last words, which name every test.
_END = re.compile(
    r"=+ (?:short test summary|warnings summary)\b.*|Test Suites: .*|Summary of all failing tests"
    r"|Ran \d+ tests? in .*"
)

#: No heading is longer.
_READ_CHARS = 2_000


def of_tests(log: str, tests: Sequence[str]) -> str:
    """Without the words about other tests than these; the whole log where no heading names one of them.

    ``log``: cleaned, without colours.
    """
    names = {name for test in tests for name in _headings(test)}
    kept: list[str] = []
    found = False
    is_others = False
    for line in log.split("\n"):
        read = line[:_READ_CHARS].rstrip()
        heading = _HEADING.fullmatch(read)
        if heading is not None:
            is_ours = not names.isdisjoint(filter(None, heading.groups()))
            found, is_others = found or is_ours, not is_ours
        elif _END.fullmatch(read.lstrip()):
            is_others = False
        if not is_others:
            kept.append(line)
    return "\n".join(kept) if found else log


def _headings(test: str) -> Iterator[str]:
    """How runners head what they say about a test, by its name in their reports."""
    yield test
    path, _, inside = test.partition("::")
    if inside:
        yield inside.replace("::", ".")
        yield path
    parts = test.split(" > ")
    yield " \u203a ".join(parts[1:])
