"""How a fix with a patch ended, in one line: "fixed" always comes with what shows it."""

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

#: No gate saw whether the vulnerability is gone.
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
    """Return e.g. ``fixed; versions proved, tests not run``.

    ``verdicts``: those on the last patch. ``is_shown``: a gate saw the vulnerability gone; ``level``: the
    proof level, if no verdict has it, as in old trails.
    """
    if not is_shown:
        return UNSHOWN.replace("tests pass", _passing(_of(verdicts, TESTS_GATE)))
    return f"fixed; {', '.join(_shown(verdicts, level))}"


#: Before this schema version deliveries were not recorded: then a missing one proves nothing.
_DELIVERIES_SINCE = 5


@dataclass
class Headline:
    """Builder of one gate transition's headline, event by event.

    ``patch``: the ``headline_of`` of the patch that it ended with; empty if it has not ended with one.
    ``in_part``: advisories of which something stays, by the plan and by the delivery.
    """

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
        """Return whether it has ended with a patch that is not delivered."""
        return bool(self.patch) and not self.is_delivered

    @property
    def words(self) -> str:
        """Return how it ended with a patch, in one line; empty if it did not."""
        text = self.patch
        if self.is_held:
            text = f"not delivered; its patch: {self.patch.partition('; ')[2]}"
        return f"{text}; in part: {', '.join(self.in_part)}" if text and self.in_part else text


def compared_parts(tests: Sequence[JudgedTests]) -> tuple[str, ...]:
    """Return the reasons of compared tests that are only a part of a project's tests."""
    return tuple(
        judged.reason
        for judged in tests
        if judged.tests_level is TestsLevel.COMPARED and judged.reason
    )


def _of(verdicts: Sequence[_Verdict], gate: str) -> _Verdict | None:
    """Return the gate's verdict, if any: each gate judges a patch once."""
    return next((verdict for verdict in verdicts if verdict.gate == gate), None)


def _shown(verdicts: Sequence[_Verdict], level: ProofLevel | None) -> Iterator[str]:
    proof = _of(verdicts, PROOF_GATE)
    is_proved = proof is not None and proof.status is GateStatus.PASSED
    if is_proved:
        yield ProofLevel.PROOF_TEST.label
    passed = [verdict for verdict in verdicts if verdict.status is GateStatus.PASSED]
    levels = [verdict.proof_level for verdict in passed if verdict.proof_level in _VERSIONS]
    yield from (passed_level.label for passed_level in levels)
    if level is not None and not (is_proved or levels):
        yield level.label
    tests = _of(verdicts, TESTS_GATE)
    if tests is not None and tests.status is GateStatus.PASSED:
        yield _passing(tests)
    elif tests is not None and tests.tests_level is TestsLevel.RAN:
        yield f"tests ran, {_NOT_COMPARED}"
    else:  # a gate that ran tests without a result has a log
        has_log = tests is not None and tests.evidence_sha256 is not None
        yield "tests could not be judged" if has_log else "tests not run"


def _passing(tests: _Verdict | None) -> str:
    """Return the text on passing tests, with those that failed before: they may test the flaw."""
    failing_before = () if tests is None else tests.failing_before
    text = (
        f"tests pass, but for {len(failing_before)} that failed before"
        if failing_before
        else "tests pass"
    )
    match None if tests is None else tests.tests_level:
        case TestsLevel.RAN if tests is not None and compared_parts(tests.tests):
            text += f", {_COMPARED_IN_PART}"
        case TestsLevel.RAN:
            text += f", {_NOT_COMPARED}"
        case TestsLevel.NOT_JUDGED:
            text += ", not judged in every project"
    return text
