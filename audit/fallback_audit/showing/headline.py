"""How a fix with a patch ended, in one line: "fixed" never stands alone, what shows it stands beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fallback_audit.event_types import JudgedTests
from fallback_audit.events import (
    BudgetRaised,
    FixAbandoned,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    PatchDelivered,
    PatchProposed,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.vocabulary import PROOF_GATE, TESTS_GATE, GateStatus, ProofLevel, TestsLevel

#: Nothing was seen of the flaw itself.
UNSHOWN = "patched; tests pass; nothing shows the flaw gone"

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
    """``fixed; versions proved, tests not run``, ``patched; tests pass; nothing shows the flaw gone``

    ``verdicts``: those on the last patch. ``is_shown``: a gate saw the flaw gone; ``level``: what that is,
    if no verdict tells, as in old trails."""
    if not is_shown:
        return UNSHOWN.replace("tests pass", _passing(_of(verdicts, TESTS_GATE)))
    return f"fixed; {', '.join(_shown(verdicts, level))}"


#: Before this schema version no delivery went on record: that one is missing says nothing.
_DELIVERIES_SINCE = 5


@dataclass
class Headline:
    """What the headline of one gate transition is made of, taken event by event.

    ``patch``: what gates saw of the patch that it ended with, in the words of ``headline_of``; empty: it
    has not ended with one. ``in_part``: advisories of which something stays, by what was planned and by
    what was delivered."""

    patch: str = ""
    is_delivered: bool = False
    in_part: tuple[str, ...] = ()
    _verdicts: list[GateJudged] = field(default_factory=list)

    def add(self, stored: StoredEvent) -> None:
        """Take the next event of the transition."""
        match stored.payload:
            case FixStarted() as event:
                self.in_part = event.in_part
            case PatchProposed():
                self._verdicts.clear()
            case GateJudged() as event:
                self._verdicts.append(event)
            case FixVerified() as event:
                self._end(stored, is_shown=True, level=event.proof_level)
            case FixPatched():
                self._end(stored, is_shown=False)
            case PatchDelivered() as event:
                self.is_delivered = True
                self.in_part = tuple(dict.fromkeys((*self.in_part, *event.in_part)))
            case (
                FixRefused()
                | FixEscalated()
                | FixAbandoned()
                | BudgetRaised()
                | ReviewDecided()
                | TransitionReopened()
            ):
                self.patch = ""
                self._verdicts.clear()

    def _end(self, stored: StoredEvent, *, is_shown: bool, level: ProofLevel | None = None) -> None:
        self.patch = headline_of(self._verdicts, is_shown=is_shown, level=level)
        self.is_delivered = stored.schema_version < _DELIVERIES_SINCE
        self._verdicts.clear()

    @property
    def is_held(self) -> bool:
        """It has ended with a patch, and that is not delivered."""
        return bool(self.patch) and not self.is_delivered

    @property
    def words(self) -> str:
        """How it ended with a patch, in one line; empty: it did not."""
        words = self.patch
        if self.is_held:
            words = f"not delivered; its patch: {self.patch.partition('; ')[2]}"
        return f"{words}; in part: {', '.join(self.in_part)}" if words and self.in_part else words


def compared_parts(tests: Sequence[JudgedTests]) -> tuple[str, ...]:
    """Return which tests were compared, of projects of which only a part was."""
    return tuple(it.reason for it in tests if it.tests_level is TestsLevel.COMPARED and it.reason)


def _of(verdicts: Sequence[_Verdict], gate: str) -> _Verdict | None:
    """The gate's verdict: each judges a patch once."""
    return next((verdict for verdict in verdicts if verdict.gate == gate), None)


def _shown(verdicts: Sequence[_Verdict], level: ProofLevel | None) -> Iterator[str]:
    proof = _of(verdicts, PROOF_GATE)
    is_proved = proof is not None and proof.status is GateStatus.PASSED
    if is_proved:
        yield ProofLevel.PROOF_TEST.label
    passed = [verdict for verdict in verdicts if verdict.status is GateStatus.PASSED]
    levels = [it.proof_level for it in passed if it.proof_level in _VERSIONS]
    yield from (it.label for it in levels)
    if level is not None and not (is_proved or levels):
        yield level.label
    tests = _of(verdicts, TESTS_GATE)
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
