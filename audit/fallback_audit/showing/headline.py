"""How a fix with a patch ended, in one line: "fixed" never stands alone, what shows it stands beside it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fallback_audit.event_types import JudgedTests
from fallback_audit.vocabulary import PROOF_GATE, TESTS_GATE, GateStatus, ProofLevel, TestsLevel

#: Nothing was seen of the flaw itself.
UNSHOWN = "patched; tests pass; nothing shows the flaw"

_VERSIONS = {ProofLevel.RESOLVED_TREE, ProofLevel.PINS}

_COMPARED_IN_PART = "compared with the base commit's in part"
_NOT_COMPARED = "not compared with the base commit's"


class _Verdict(Protocol):
    """A gate's verdict, in memory or on record."""

    @property
    def gate(self) -> str: ...
    @property
    def status(self) -> GateStatus: ...
    @property
    def proof_level(self) -> ProofLevel | None: ...
    @property
    def failing_before(self) -> tuple[str, ...]: ...
    @property
    def tests_level(self) -> TestsLevel | None: ...
    @property
    def tests(self) -> tuple[JudgedTests, ...]: ...
    @property
    def evidence_sha256(self) -> str | None: ...


def headline_of(
    verdicts: Sequence[_Verdict], *, is_shown: bool, level: ProofLevel | None = None
) -> str:
    """``fixed; versions proved, tests not run``, ``patched; tests pass; nothing shows the flaw`` …

    ``verdicts``: those on the last patch. ``is_shown``: a gate saw the flaw gone; ``level``: what that is,
    if no verdict tells, as in old trails."""
    if not is_shown:
        return UNSHOWN.replace("tests pass", _passing(_last(verdicts, TESTS_GATE)))
    return f"fixed; {', '.join(_shown(verdicts, level))}"


def compared_parts(tests: Sequence[JudgedTests]) -> tuple[str, ...]:
    """Return which tests were compared, of projects of which only a part was."""
    return tuple(it.reason for it in tests if it.tests_level is TestsLevel.COMPARED and it.reason)


def _last(verdicts: Sequence[_Verdict], gate: str) -> _Verdict | None:
    return next((verdict for verdict in verdicts if verdict.gate == gate), None)


def _shown(verdicts: Sequence[_Verdict], level: ProofLevel | None) -> Iterator[str]:
    proof = _last(verdicts, PROOF_GATE)
    is_proved = proof is not None and proof.status is GateStatus.PASSED
    if is_proved:
        yield ProofLevel.PROOF_TEST.label
    passed = [verdict for verdict in verdicts if verdict.status is GateStatus.PASSED]
    levels = [it.proof_level for it in passed if it.proof_level in _VERSIONS]
    yield from (it.label for it in levels)
    if level is not None and not (is_proved or levels):
        yield level.label
    tests = _last(verdicts, TESTS_GATE)
    if tests is not None and tests.status is GateStatus.PASSED:
        yield _passing(tests)
    elif tests is not None and tests.tests_level is TestsLevel.RAN:
        yield f"tests ran, {_NOT_COMPARED}"
    else:  # a gate that ran something and learnt nothing has a log
        has_log = tests is not None and tests.evidence_sha256 is not None
        yield "tests could not be judged" if has_log else "tests not run"


def _passing(tests: _Verdict | None) -> str:
    """Tests that failed before may be about the flaw, so they are never passed over."""
    before = () if tests is None else tests.failing_before
    words = f"tests pass, but for {len(before)} that failed before" if before else "tests pass"
    match None if tests is None else tests.tests_level:
        case TestsLevel.RAN if tests is not None and compared_parts(tests.tests):
            words += f", {_COMPARED_IN_PART}"
        case TestsLevel.RAN:
            words += f", {_NOT_COMPARED}"
        case TestsLevel.NOT_JUDGED:
            words += ", not judged in every project"
    return words
