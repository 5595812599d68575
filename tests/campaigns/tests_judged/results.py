"""What is kept of a case: facts of its runs, and nothing of the code that they ran on."""

import re
from collections.abc import Mapping
from typing import Any

from fallback_eval.campaign import Half
from tests.campaigns.measuring.frozen import Frozen

COMPARED, RAN, NOT_JUDGED = "compared", "ran", "not_judged"

#: Verdicts of builds without ``tests_level``: a count of tests that was held against the base commit's.
_COUNTED = re.compile(r"\b([\d,]+) (?:of [\d,]+ )?test(?:\(s\)|s)|\(([\d,]+) ran\)")
_NAMED = re.compile(r"not at the base commit: |pass(?:es)? at the base commit")

#: Cause to what a verdict, a refusal or an error says. The first that matches is the cause.
_CAUSES = {
    "a program of the project's isn't in the sandbox": (
        r"sh: \d+: [\w./@-]+: not found|command not found|can't run: program"
    ),
    "a committed program of the project's isn't executable": r"sh: \d+: [\w./@-]+: Permission denied",
    "dependencies could not be installed": r"could(?: not|n't) be installed|can't (?:be )?install",
    "a service is missing": (
        r"\bneeds (?:redis|postgres|mysql|mongo)|unable to open database|[Cc]onnection refused"
        r"|ECONNREFUSED"
    ),
    "its runner finds no test": r"Pattern:.* - 0 matches|[Nn]o tests found",
    "the tests fail at the base commit too, unnamed": r"fail at the base commit too, in the same way",
    "the tests fail with the patch, unnamed": r"^tests failed",
    "no test ran": r"no test ran|no tests? (?:were|was) found|no test passes",
    "no test command was found": r"has no test script|has no tests|need pytest, which",
    "the tests do not end in time": r"do(?:es)? not end within|in time|timed out",
    "two settings": r"two settings|nothing can be compared|can't be compared",
    "different from run to run": r"some runs|not so in another run|flaky",
    "the runner counts no tests": r"does not report how many ran",
}


class Breaking(Frozen):
    """What the tests gate said of a fix that breaks a function, too.

    ``status``: of the last break it was asked about. ``passed_over``: functions (path:line name) before
    it that it did not fail; ``bare``: exit codes of the project's own command, run bare, with each of
    these, None: not run. ``caught``: it failed one, and none that a bare run fails was passed over.
    """

    function: str
    status: str
    detail: str
    passed_over: tuple[str, ...] = ()
    bare: tuple[int | None, ...] = ()
    why_bare: str = ""
    seconds: float

    @property
    def is_missed(self) -> bool:
        """Did the gate pass over a function that the project's own command, run bare, fails for?"""
        return any(self.bare)

    @property
    def is_caught(self) -> bool:
        return self.status == "failed" and not self.is_missed

    @property
    def is_false_as_before(self) -> bool:
        """Was such a function passed over with the sentence that the tests fail as before?"""
        return self.is_missed and "at the base commit" in self.detail


class Row(Frozen):
    """One case with one build. (label, name) is the row's key.

    ``outcome``, ``code``: how ``fix`` ended. ``status``, ``detail``: the tests gate's verdict on the
    last attempt; empty: it gave none. ``level``: compared, ran or not_judged; ``derived``: from the
    verdict's text, for the build has no levels. ``tests``: how many ran. ``cause``: why they weren't
    compared.
    """

    label: str
    name: str
    half: Half
    client: str
    kind: str
    has: tuple[str, ...]
    commit: str
    advisory: str
    outcome: str
    code: int | None
    headline: str = ""
    status: str = ""
    detail: str = ""
    level: str
    derived: bool = False
    command: str = ""
    source: str = ""
    tests: int | None = None
    cause: str = ""
    fix_seconds: float
    load: float | None = None
    breaking: Breaking | None = None
    no_breaking: str = ""
    made: str
    tool: str
    tools: dict[str, str] = {}  # noqa: RUF012 (frozen)

    @property
    def is_compared(self) -> bool:
        return self.level == COMPARED

    @property
    def is_breakable(self) -> bool:
        """May a function be broken, and was none yet?"""
        is_open = self.breaking is None and not self.no_breaking
        return self.is_compared and self.status == "passed" and is_open

    @property
    def seconds(self) -> float:
        return self.fix_seconds + (self.breaking.seconds if self.breaking else 0)


def level_of(verdict: Mapping[str, Any] | None) -> tuple[str, bool]:
    """Return the level of a tests verdict, and whether it is derived.

    A build without levels: a verdict that passed or failed compared the tests if it states a count of
    tests or names those that pass at the base commit; without either they only ran. A skipped or
    undecided one, or none, judged nothing.
    """
    if verdict is None:
        return NOT_JUDGED, False
    if verdict.get("tests_level"):
        return str(verdict["tests_level"]), False
    if verdict.get("status") not in {"passed", "failed"}:
        return NOT_JUDGED, True
    detail = str(verdict.get("detail"))
    return (COMPARED if _COUNTED.search(detail) or _NAMED.search(detail) else RAN), True


def count_of(verdict: Mapping[str, Any] | None) -> int | None:
    """Return how many tests a verdict states; of several projects the sum."""
    counts = [
        int((one or two).replace(",", ""))
        for one, two in _COUNTED.findall(str((verdict or {}).get("detail")))
    ]
    return sum(counts) if counts else None


def commands_of(verdict: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return the commands that a verdict names, and their sources; empty of a build that names none."""
    tests = (verdict or {}).get("tests") or ()
    found = {(str(one.get("command") or ""), str(one.get("source") or "")): None for one in tests}
    lines, sources = [line for line, _ in found if line], [it for line, it in found if line]
    return "; ".join(lines), "; ".join(sources)


def cause_of(verdict: Mapping[str, Any] | None, outcome: str, log: str) -> str:
    """Return why tests were not compared: by the verdict, with its log, or by how the fix ended."""
    if verdict is None:
        return f"no tests verdict: {outcome}"
    said = [f"{it.get('reason')} {it.get('last_line')}" for it in verdict.get("tests") or ()]
    text = " ".join([str(verdict.get("detail")), *said, log])
    found = (cause for cause, pattern in _CAUSES.items() if re.search(pattern, text))
    return next(found, "another cause")
