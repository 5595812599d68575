"""Fixes and days for lists and charts: each event is read once, as it comes (ADR-0083).

A page reads the board instead of the audit trail, so that its cost does not grow with the trail.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

from fallback_audit.event_types import JudgedTests, UnreadItem
from fallback_audit.events import (
    AttemptFailed,
    AttemptRefused,
    AttemptStarted,
    BudgetRaised,
    ExampleReplayed,
    FixAbandoned,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    GateJudged,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    PatchDelivered,
    PatchProposed,
    RagSkippedOnRetry,
    RetrievalQueried,
    ReviewDecided,
    TransitionReopened,
    abandoned_words,
    decided_words,
    reopened_words,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.describe import tests_lines
from fallback_audit.showing.headline import Headline
from fallback_audit.vocabulary import EscalationReason, RefusalReason, TestsLevel
from fallback_tier.fix.journal.questions import WhyAsked, why_asked
from fallback_tier.observing.following import Follower, Position, Taker
from fallback_tier.portal.views.spending import Spent, Use, by_cost
from fallback_tier.wiring.trail import ReadOnlyTrail

#: Outcomes of a fix.
OPEN, VERIFIED, PATCHED, REFUSED, ESCALATED = "open", "verified", "patched", "refused", "escalated"

#: Outcome of a fix that a person ended before its end.
ABANDONED = "abandoned"

#: Outcome of a fix whose repository may or may not be affected: there is no question, and ``unread`` lists
#: what to repair.
UNKNOWN = "unknown"

#: Outcome of a fix whose advisories were not proved in one patch: they are to be proved in smaller parts,
#: which are separate fixes.
TAKEN_APART = "taken apart"

#: Kinds of events with which a gate transition begins.
_BEGINNINGS = frozenset({FixStarted.__name__, AttemptStarted.__name__})


@dataclass
class FixLine:
    """A fix, by its last gate transition. ``attempts``: each number, and its first event's number.

    ``influences``: example → its use here. ``cause``: why the last attempt gave no patch, if it was
    refused. ``answer``: a person's, in words.
    """

    fix_id: str
    transition: str
    began_at: str
    advisory_id: str = ""
    advisory_ids: tuple[str, ...] = ()
    repository: str = ""
    ecosystem: str = ""
    #: The batch of which it is a part.
    batch: str | None = None
    #: Of a fix that was taken apart: its advisories that no later fix of the same batch is about.
    no_part_of: tuple[str, ...] = ()
    inputs_sha256: str | None = None
    changed_at: str = ""
    last_seq: int = 0
    transitions: int = 1
    attempts: dict[int, int] = field(default_factory=dict)
    outcome: str = OPEN
    reason: str = ""
    cause: RefusalReason | None = None
    sentence: str = ""
    unread: tuple[UnreadItem, ...] = ()
    #: How far the tests of the last patch were judged; None: unknown.
    tests_level: TestsLevel | None = None
    tests: tuple[JudgedTests, ...] = ()
    #: Evidence: the whole output of these tests.
    tests_log: str | None = None
    #: The data of its headline.
    told: Headline = field(default_factory=Headline)
    asked_seq: int = 0
    asked_at: str = ""
    answer: str | None = None
    #: Whether it is this program's own: another orchestrator's gate transitions have no beginning on
    #: record.
    is_ours: bool = False
    #: Whether a person reopened it, and its next gate transition has not begun.
    is_reopened: bool = False
    tier: str = ""
    failure_kind: str = ""
    failing_gates: tuple[str, ...] = ()
    low_confidence: bool = False
    uses: dict[str, Use] = field(default_factory=lambda: defaultdict(Use))
    influences: dict[str, str] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """Return how it ended with a patch, as the audit trail says it; otherwise an empty text."""
        return self.told.words

    @property
    def shown(self) -> str:
        """Return what gates saw of a patch that they accepted, as in the headline of ``fix``."""
        return self.headline.partition("; ")[2]

    @property
    def proved(self) -> bool:
        """Return whether it ended with a patch that its gates accepted, proved or not."""
        return self.outcome in (VERIFIED, PATCHED)

    @property
    def is_held(self) -> bool:
        """Return whether it has an accepted patch that is not delivered."""
        return self.proved and self.told.is_held

    @property
    def waits(self) -> bool:
        """Return whether a person is asked, and has not answered."""
        return self.outcome == ESCALATED and self.answer is None

    @property
    def can_be_abandoned(self) -> bool:
        """Return whether it has not ended, or continues with a gate transition that has not begun
        (ADR-0138).
        """
        return self.is_ours and (self.outcome == OPEN or self.is_reopened)

    @property
    def untested(self) -> list[list[str]]:
        """Return what a person needs for judging its uncompared tests, project by project."""
        return [lines for lines in map(tests_lines, self.tests) if lines]

    @property
    def why(self) -> WhyAsked:
        """Return why a person is asked, and what they can do. Only for an escalated fix."""
        return why_asked(EscalationReason(self.reason), self.cause)

    @property
    def spent(self) -> tuple[Spent, ...]:
        """Return the use of model calls by call type, the most expensive first."""
        return by_cost(self.uses)

    @property
    def fixed(self) -> bool:
        """Return whether it ended with an accepted patch, proved or not, that is delivered."""
        return self.proved and not self.is_held

    @property
    def standing(self) -> tuple[str, ...]:
        """Return the names of the properties ``waits``, ``fixed`` and ``unfixed`` that are true."""
        values = {"waits": self.waits, "fixed": self.fixed, "unfixed": self.unfixed}
        return tuple(name for name, value in values.items() if value)

    @property
    def unfixed(self) -> bool:
        """Return whether it ended without a patch that gates or a person accepted, or with one that is
        not delivered; or was taken apart, and not all of it has a part on record.
        """
        if self.outcome in (REFUSED, UNKNOWN, ABANDONED) or self.is_held or self.no_part_of:
            return True
        return self.outcome == ESCALATED and not (self.answer or "").startswith("approved")


@dataclass
class Day:
    """What was recorded on one day (UTC)."""

    ended: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    retries: int = 0
    rag_skipped: int = 0
    low_confidence: int = 0
    usd: dict[str, Decimal] = field(default_factory=lambda: defaultdict(Decimal))


class Board:
    """Fixes and days, counted from events. Call ``catch_up`` before reading it. ``live``: takers of the
    events that are recorded from now on.
    """

    def __init__(
        self, open_reader: Callable[[], ReadOnlyTrail | None], live: Sequence[Taker] = ()
    ) -> None:
        self.lock = threading.RLock()
        self._takers: dict[str, Callable[[FixLine, Any, StoredEvent], None]] = {
            FixStarted.__name__: self._started,
            AttemptStarted.__name__: self._attempt,
            PatchProposed.__name__: self._for_headline,
            GateJudged.__name__: self._judged,
            AttemptFailed.__name__: self._failed,
            AttemptRefused.__name__: self._no_patch,
            RagSkippedOnRetry.__name__: self._skipped,
            RetrievalQueried.__name__: self._retrieved,
            ModelCalled.__name__: self._called,
            ExampleReplayed.__name__: self._replayed,
            ModelAnswered.__name__: self._answered,
            LowConfidenceFlagged.__name__: self._flagged,
            FixVerified.__name__: self._accepted(VERIFIED),
            FixPatched.__name__: self._accepted(PATCHED),
            PatchDelivered.__name__: self._for_headline,
            FixRefused.__name__: self._refused,
            FixEscalated.__name__: self._escalated,
            FixAbandoned.__name__: self._abandoned,
            BudgetRaised.__name__: self._raised,
            ReviewDecided.__name__: self._decided,
            TransitionReopened.__name__: self._reopened,
        }
        self._follower = Follower(open_reader, every=[self], live=live)
        self._clear()

    def _clear(self) -> None:
        self.fixes: dict[str, FixLine] = {}
        self._apart: dict[str, list[FixLine]] = defaultdict(list)
        self.standing: Counter[str] = Counter()
        self.days: dict[str, Day] = defaultdict(Day)
        self.by_tier: Counter[tuple[str, str]] = Counter()
        self.by_ecosystem: Counter[tuple[str, str]] = Counter()

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of events that change it."""
        return frozenset(self._takers)

    def catch_up(self) -> Position:
        """Read new events, for two seconds at most, and return how far that went."""
        return self._follower.catch_up()

    @property
    def read_to(self) -> int:
        """Return the number of the last event that was read."""
        return self._follower.position.read

    def begin_again(self) -> None:
        """Clear the board: the audit trail was restored or started again."""
        with self.lock:
            self._clear()

    def take(self, stored: StoredEvent) -> None:
        """Receive the next event."""
        with self.lock:
            if (before := self.fixes.get(stored.scope.fix_id)) is not None:
                self.standing.subtract(before.standing)
            line = self._line(stored)
            if stored.scope.gate_transition_id == line.transition:
                line.told.add(stored)
            self._takers[stored.kind](line, stored.payload, stored)
            line.changed_at, line.last_seq = stored.recorded_at, stored.seq
            self.fixes[line.fix_id] = self.fixes.pop(line.fix_id)  # the last changed fix is last
            self.standing.update(line.standing)

    def waiting(self) -> list[FixLine]:
        """Return unanswered questions, the newest first."""
        with self.lock:
            lines = [line for line in self.fixes.values() if line.waits]
        return sorted(lines, key=lambda line: line.asked_seq, reverse=True)

    def newest(self) -> list[FixLine]:
        """Return all fixes, the last changed first."""
        with self.lock:
            return list(reversed(self.fixes.values()))

    def newest_unfixed(self, limit: int) -> list[FixLine]:
        """Return the first ``limit`` unfixed ones of ``newest``. The search stops after as many as
        there are.
        """
        with self.lock:
            lines = (line for line in reversed(self.fixes.values()) if line.unfixed)
            return list(islice(lines, min(limit, self.standing["unfixed"])))

    def _line(self, stored: StoredEvent) -> FixLine:
        fix_id, transition = stored.scope.fix_id, stored.scope.gate_transition_id
        line = self.fixes.get(fix_id)
        if line is None:
            line = self.fixes[fix_id] = FixLine(fix_id, transition, stored.recorded_at)
        elif line.transition != transition and stored.kind in _BEGINNINGS:
            line.transition, line.attempts = transition, {}
            line.transitions += 1
            line.outcome, line.reason, line.sentence, line.answer = OPEN, "", "", None
            line.unread, line.told, line.no_part_of = (), Headline(), ()
            line.is_ours, line.is_reopened = False, False
            line.tests_level, line.tests, line.tests_log = None, (), None
        return line

    def _day(self, stored: StoredEvent) -> Day:
        return self.days[stored.recorded_at[:10]]

    def _started(self, line: FixLine, event: FixStarted, _: StoredEvent) -> None:
        line.advisory_id, line.repository = event.advisory_id, event.repository
        line.advisory_ids = event.advisory_ids or (event.advisory_id,)
        line.ecosystem, line.inputs_sha256 = event.ecosystem, event.inputs_sha256
        line.batch, line.is_ours = event.batch_sha256, True
        if line.batch is not None:
            self._is_part_of(line.batch, frozenset(line.advisory_ids), line.ecosystem)

    def _is_part_of(self, batch: str, ids: frozenset[str], ecosystem: str) -> None:
        """Note that fixes of this batch which were taken apart have a part about these advisories now."""
        apart = self._apart.pop(batch, [])
        for fix in apart:
            if fix.ecosystem == ecosystem:
                self.standing.subtract(fix.standing)
                fix.no_part_of = tuple(name for name in fix.no_part_of if name not in ids)
                self.standing.update(fix.standing)
        if missing := [fix for fix in apart if fix.no_part_of]:
            self._apart[batch] = missing

    def _attempt(self, line: FixLine, event: AttemptStarted, stored: StoredEvent) -> None:
        line.attempts.setdefault(event.attempt, stored.seq)
        line.cause = None
        line.advisory_id = line.advisory_id or event.advisory_id
        line.advisory_ids = line.advisory_ids or (event.advisory_id,)
        self._day(stored).attempts += 1
        self._day(stored).retries += bool(event.prior_attempt_count)

    @staticmethod
    def _for_headline(_: FixLine, __: PatchProposed | PatchDelivered, ___: StoredEvent) -> None:
        """Do nothing: ``take`` adds it to the headline."""

    @staticmethod
    def _judged(line: FixLine, event: GateJudged, _: StoredEvent) -> None:
        if event.tests_level is not None:
            line.tests_level, line.tests = event.tests_level, event.tests
            line.tests_log = event.evidence_sha256

    def _failed(self, line: FixLine, event: AttemptFailed, _: StoredEvent) -> None:
        line.failure_kind, line.failing_gates = event.failure_kind.value, event.failing_gates
        if event.tier is not None:
            self.by_tier[event.tier.value, "failed"] += 1

    @staticmethod
    def _no_patch(line: FixLine, event: AttemptRefused, _: StoredEvent) -> None:
        line.cause = event.reason

    def _skipped(self, _: FixLine, __: RagSkippedOnRetry, stored: StoredEvent) -> None:
        self._day(stored).rag_skipped += 1

    @staticmethod
    def _retrieved(line: FixLine, event: RetrievalQueried, _: StoredEvent) -> None:
        for example in event.example_ids:
            line.influences.setdefault(example, "found")

    @staticmethod
    def _called(line: FixLine, event: ModelCalled, _: StoredEvent) -> None:
        line.influences |= dict.fromkeys(event.example_ids, "in a prompt")

    @staticmethod
    def _replayed(line: FixLine, event: ExampleReplayed, _: StoredEvent) -> None:
        line.influences[event.example_id] = "replayed"

    def _answered(self, line: FixLine, event: ModelAnswered, stored: StoredEvent) -> None:
        line.uses[event.call_type.value].add(event)
        self._day(stored).usd[event.call_type.value] += Decimal(event.cost_usd_estimate or 0)

    def _flagged(self, line: FixLine, _: LowConfidenceFlagged, stored: StoredEvent) -> None:
        line.low_confidence = True
        self._day(stored).low_confidence += 1

    def _accepted(self, outcome: str) -> Callable[[FixLine, Any, StoredEvent], None]:
        def take(line: FixLine, event: FixVerified | FixPatched, stored: StoredEvent) -> None:
            line.tier = event.tier.value
            self.by_tier[line.tier, outcome] += 1
            self._ended(line, outcome, stored)

        return take

    def _refused(self, line: FixLine, event: FixRefused, stored: StoredEvent) -> None:
        line.reason, line.sentence, line.unread = event.reason.value, event.sentence, event.unread
        if event.reason is RefusalReason.FAILS_TOGETHER:
            # Not counted by ecosystem: its parts are.
            line.outcome, line.answer = TAKEN_APART, None
            line.no_part_of = line.advisory_ids
            if line.batch is not None:
                self._apart[line.batch].append(line)
            self._day(stored).ended[TAKEN_APART] += 1
            return
        self._ended(line, UNKNOWN if event.reason is RefusalReason.UNKNOWN else REFUSED, stored)

    def _escalated(self, line: FixLine, event: FixEscalated, stored: StoredEvent) -> None:
        line.reason, line.sentence = event.reason.value, event.question
        line.asked_seq, line.asked_at = stored.seq, stored.recorded_at
        self._ended(line, ESCALATED, stored)

    def _abandoned(self, line: FixLine, event: FixAbandoned, stored: StoredEvent) -> None:
        line.reason, line.sentence, line.unread = "", event.reason, ()
        line.outcome, line.answer, line.is_reopened = ABANDONED, abandoned_words(event), False
        # Not counted by ecosystem: it does not show how often fixes work there.
        self._day(stored).ended[ABANDONED] += 1

    def _ended(self, line: FixLine, outcome: str, stored: StoredEvent) -> None:
        line.outcome, line.answer = outcome, None
        self._day(stored).ended[outcome] += 1
        self.by_ecosystem[line.ecosystem or "not said", outcome] += 1

    @staticmethod
    def _raised(line: FixLine, _: BudgetRaised, __: StoredEvent) -> None:
        line.outcome, line.reason, line.sentence = OPEN, "", ""

    @staticmethod
    def _decided(line: FixLine, event: ReviewDecided, stored: StoredEvent) -> None:
        if stored.scope.gate_transition_id == line.transition:
            line.answer = decided_words(event)

    @staticmethod
    def _reopened(line: FixLine, event: TransitionReopened, stored: StoredEvent) -> None:
        if stored.scope.gate_transition_id == line.transition:
            line.answer, line.is_reopened = reopened_words(event), True


class Read:
    """The board, read up to event ``to``; ``behind`` events are missing from it."""

    def __init__(self, board: Board, position: Position) -> None:
        self.board = board
        self.to = position.read
        self.behind = position.behind
        self.problem = position.problem
