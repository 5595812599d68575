"""Summary of a failed attempt for the next one's fresh context: the diagnosis, not the log.

Deterministic: no clock, no model, no path of this machine. The summary is for a reader, human or model, who
has seen nothing of the attempt, and it stays within MAX_FAILURE_SUMMARY_BYTES.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import PurePosixPath

from fallback_audit.events import Digest
from fallback_audit.vocabulary import FailureKind, GateStatus
from fallback_tier.gate_ports import GateVerdict
from fallback_tier.gates.failure_summary.diagnosis import (
    MAX_ASSERTIONS_BYTES,
    MAX_LINE_CHARS,
    MAX_TESTS,
    Diagnosis,
    clean,
    diagnose,
)
from fallback_tier.limits import MAX_FAILURE_SUMMARY_BYTES
from fallback_tier.outcome import TRIED_HEADING, Applied, AttemptSummary, Refused

_TESTS = "Failing tests:"
_ASSERTIONS = "Assertions:"
_FRAMES = "Frames inside the repository:"
_DIAGNOSTICS = "Diagnostics:"
_EARLIER = "Earlier attempts:"

#: UTF-8 bytes of each section. Together about as much of a summary as a retry's prompt can hold
#: (MAX_FENCED_SUMMARY_BYTES), so that the fence rarely has to cut one.
_SECTION_BYTES = {
    _TESTS: 700,
    _ASSERTIONS: MAX_ASSERTIONS_BYTES,
    _FRAMES: 500,
    _DIAGNOSTICS: 1_000,
    _EARLIER: 780,
    TRIED_HEADING: 900,
}

#: Bytes of one line about an earlier attempt: three of them fit their section.
_LESSON_BYTES = 250

#: Files whose changed lines a client wrote; of these the summary only says that they changed.
_GENERATED = re.compile(r".*(?:[.-]lock(?:\.\w+)?|npm-shrinkwrap\.json|go\.sum)")

#: Sections that make two failures the same. Frames don't: an edit moves them.
_SIGNED = (_TESTS, _ASSERTIONS, _DIAGNOSTICS)
#: Removed before signing: line numbers and ports, seeds, random identifiers.
_UNSIGNED = re.compile(
    r":\d+(?::\d+)?|\(\d+,\d+\)|\b(?:seed|port)[ =:]+\d+"
    r"|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
    re.IGNORECASE,
)


def distill(
    verdicts: Sequence[GateVerdict],
    *,
    application: Applied | Refused,
    attempt: int,
    earlier: Sequence[AttemptSummary] = (),
) -> AttemptSummary:
    """Summarise one failed attempt, and ``earlier`` ones in a line each.

    ``evidence`` stays empty: the digests are known once logs are stored. Raises ValueError if nothing
    failed that a fresh context could fix.
    """
    if isinstance(application, Refused):
        kind = FailureKind(application.reason.value)
        message = f"Attempt {attempt} gave no patch: {kind.value}.\n{application.sentence}"
        text = "\n".join([clean(message), *_lessons(earlier)])
        return AttemptSummary(
            attempt=attempt, failure_kind=kind, prior_failure_summary=_bounded(text)
        )
    failures = [verdict for verdict in verdicts if verdict.status is GateStatus.FAILED]
    if not failures or failures[0].failure_kind is None:
        raise ValueError("no gate failed: there is nothing to distill")
    return AttemptSummary(
        attempt=attempt,
        tier=application.tier,
        edit_digest=application.edit_digest,
        failing_gates=tuple(verdict.gate for verdict in failures),
        failure_kind=failures[0].failure_kind,
        prior_failure_summary=_bounded(
            "\n".join(_lines(failures, application, attempt, list(_lessons(earlier))))
        ),
        used_few_shot_ref=application.used_few_shot_ref,
    )


def what_failed(summary: AttemptSummary) -> str:
    """Return the gates and the beginning of the failure on one line, without what the patch tried."""
    return " ".join(summary.prior_failure_summary.partition(f"\n{TRIED_HEADING}")[0].split())


def failure_signature(summary: AttemptSummary) -> Digest:
    """Return equal signatures for the same failure, whatever was tried: gate, kind, tests and assertions in
    any order. A summary that ``distill`` did not write is signed whole."""
    signed: list[str] = []
    section = None
    for line in summary.prior_failure_summary.split("\n"):
        if not line.startswith("- "):
            section = line
        elif section in _SIGNED:
            signed.append(_UNSIGNED.sub("", line))
    facts = [summary.failure_kind.value, *summary.failing_gates]
    facts += sorted(signed) or [clean(_without_attempt(summary.prior_failure_summary))]
    return sha256("\0".join(facts).encode("utf-8", "replace")).hexdigest()


def _lines(
    failures: Sequence[GateVerdict], application: Applied, attempt: int, lessons: Sequence[str]
) -> Iterator[str]:
    for verdict in failures:
        kind = "" if verdict.failure_kind is None else verdict.failure_kind.value
        yield (
            f"Attempt {attempt} ({application.tier.value}) failed at gate {verdict.gate}: {kind}."
        )
        yield clean(" ".join(verdict.detail.split()))[:MAX_LINE_CHARS]
        if verdict.log:
            yield from sections(_diagnosis(verdict), taken=sum(map(_size, lessons)))
    yield from lessons
    yield from _section(TRIED_HEADING, _tried(application.diff))


def _lessons(earlier: Sequence[AttemptSummary]) -> Iterator[str]:
    if earlier:
        yield from _section(_EARLIER, (f"- {_lesson(summary)}" for summary in earlier))


def _lesson(summary: AttemptSummary) -> str:
    """Return how an attempt failed, by its first test and assertion, and what it tried first."""
    head, *lines = summary.prior_failure_summary.split("\n")
    first: dict[str, str] = {}
    section = ""
    for line in lines:
        if line.startswith("- "):
            first.setdefault(section, line[2:])
        elif line.startswith("  + "):
            first.setdefault(TRIED_HEADING, line[4:].strip())
        else:
            section = line
    reasons = [first[name] for name in (_TESTS, _ASSERTIONS, _DIAGNOSTICS) if name in first]
    failure = clean(" ".join([head, *(reasons or lines[:1])]))
    tried = _cut(
        f" It tried: {first[TRIED_HEADING]}" if TRIED_HEADING in first else "", _LESSON_BYTES // 2
    )
    return _cut(failure, _LESSON_BYTES - _size(tried)) + tried


def _diagnosis(verdict: GateVerdict) -> Diagnosis:
    if not verdict.broken:
        return diagnose(verdict.log)
    diagnosis = diagnose(of_tests(clean(verdict.log), verdict.broken))
    names = (clean(test)[:MAX_LINE_CHARS] for test in verdict.broken[:MAX_TESTS])
    return replace(diagnosis, tests=tuple(names))


def sections(diagnosis: Diagnosis, taken: int = 0) -> Iterator[str]:
    """Yield a diagnosis under headings, each within its share. ``taken``: bytes used by earlier attempts,
    subtracted from the last section's share."""
    # A compiler's log has no tests: its diagnostics, the last section, get that room.
    spare = -taken
    for heading, lines in (
        (_TESTS, diagnosis.tests),
        (_ASSERTIONS, diagnosis.assertions),
        (_FRAMES, diagnosis.frames),
        (_DIAGNOSTICS, diagnosis.diagnostics),
    ):
        if not lines:
            spare += _SECTION_BYTES[heading]
            continue
        extra = spare if heading == _DIAGNOSTICS else 0
        yield from _section(heading, (f"- {line}" for line in lines), extra)


def _section(heading: str, lines: Iterator[str], extra: int = 0) -> Iterator[str]:
    """Yield the heading, and as many lines as fit its share and ``extra``."""
    yield heading
    remaining_bytes = _SECTION_BYTES[heading] + extra
    for line in lines:
        remaining_bytes -= _size(line)
        if remaining_bytes < 0:
            yield "  ..."
            return
        yield line


def _cut(line: str, size: int) -> str:
    """Return at most so many bytes of UTF-8, cut between characters."""
    return line.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def _size(line: str) -> int:
    return len(line.encode("utf-8", "replace")) + 1


def _tried(diff: str) -> Iterator[str]:
    generated = False
    lines = clean(diff).split("\n")
    for line, following in pairwise([*lines, ""]):
        if line.startswith("--- ") and following.startswith("+++ "):
            old, new = (text[4:].split("\t")[0] for text in (line, following))
            path = old.removeprefix("a/") if new == "/dev/null" else new.removeprefix("b/")
            generated = _GENERATED.fullmatch(PurePosixPath(path).name) is not None
            note = " (a new file)" if old == "/dev/null" else ""
            yield f"  {path}{note}" + (" (by the package client)" if generated else "")
        elif line.startswith(("+++ b/", "+++ /dev/null")):
            continue
        elif line[:1] in {"-", "+"} and line[1:].strip() and not generated:
            yield f"  {line[0]} {line[1:].rstrip()[:MAX_LINE_CHARS]}"


def _without_attempt(text: str) -> str:
    """Return the text without the attempt's number, what it tried, and the attempts before it."""
    failed = text.split(f"\n{TRIED_HEADING}")[0].split(f"\n{_EARLIER}")[0]
    return re.sub(r"^Attempt \d+", "Attempt", failed)


def _bounded(text: str) -> str:
    return _cut(text, MAX_FAILURE_SUMMARY_BYTES)


# The parts of a suite's log that are about certain tests. A retry is told what its predecessor broke. Tests
# that also fail at the base commit (without a network in the sandbox, for example) are in the same log, and
# their frames would mislead it.

#: The beginning of the output about one failing test: pytest, jest, vitest, unittest.
_HEADING = re.compile(
    r"_{3,} (?:ERROR (?:at \w+ of|collecting) )?(?P<pytest>\S.*?) _{3,}"
    r"|  \u25cf (?P<jest>.+?)"
    r"|\s*FAIL  (?P<vitest>\S+\.[cm]?[jt]sx?(?: > .+)?)"
    r"|(?:FAIL|ERROR): (?P<unittest>\S+ \([\w.<>]+\).*)"
)

#: Where it ends at the latest: the runner's closing lines, which name every test.
_END = re.compile(
    r"=+ (?:short test summary|warnings summary)\b.*|Test Suites: .*|Summary of all failing tests"
    r"|Ran \d+ tests? in .*"
)

#: No heading is longer.
_READ_CHARS = 2_000


def of_tests(log: str, tests: Sequence[str]) -> str:
    """Return a cleaned log without the parts about other tests; all of it if no heading names these."""
    names = {name for test in tests for name in _headings(test)}
    selected_lines: list[str] = []
    has_match = False
    is_excluded = False
    for line in log.split("\n"):
        text = line[:_READ_CHARS].rstrip()
        heading = _HEADING.fullmatch(text)
        if heading is not None:
            is_selected = not names.isdisjoint(filter(None, heading.groups()))
            has_match, is_excluded = has_match or is_selected, not is_selected
        elif _END.fullmatch(text.lstrip()):
            is_excluded = False
        if not is_excluded:
            selected_lines.append(line)
    return "\n".join(selected_lines) if has_match else log


def _headings(test: str) -> Iterator[str]:
    """Yield the headings that runners print for a test, by its name in their reports."""
    yield test
    path, _, test_path = test.partition("::")
    if test_path:
        yield test_path.replace("::", ".")
        yield path
    parts = test.split(" > ")
    yield " \u203a ".join(parts[1:])
