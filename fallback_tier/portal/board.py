"""What lists and charts are made of: the record's events, each read once, as they come (ADR-0083).

A page asks the board, not the record: a record of a million events costs a page no more than one of ten.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from fallback_audit.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetRaised,
    ExampleReplayed,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    LowConfidenceFlagged,
    ModelAnswered,
    ModelCalled,
    RagSkippedOnRetry,
    RetrievalQueried,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.showing.describe_human import decided_words, reopened_words
from fallback_tier.observing.following import Follower, Position, Taker
from fallback_tier.portal.views.triage import Spent
from fallback_tier.wiring.trail import TrailReader

#: How a fix can stand.
OPEN, VERIFIED, PATCHED, REFUSED, ESCALATED = "open", "verified", "patched", "refused", "escalated"


@dataclass
class Use:
    """Calls of one type. ``unpriced``: those whose price is not known."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)
    unpriced: int = 0

    def add(self, answer: ModelAnswered) -> None:
        """One more."""
        self.calls += 1
        self.input_tokens += answer.input_tokens
        self.output_tokens += answer.output_tokens
        self.unpriced += answer.cost_usd_estimate is None
        self.usd += Decimal(answer.cost_usd_estimate or 0)

    def spent(self, call_type: str) -> Spent:
        """For a page."""
        price = None if self.unpriced else self.usd
        return Spent(call_type, self.calls, self.input_tokens, self.output_tokens, price)


@dataclass
class FixLine:
    """A fix as its last gate transition has it. ``attempts``: each number, and its first event's.

    ``influences``: example → what became of it here. ``answer``: a person's, in words.
    """

    fix_id: str
    transition: str
    began_at: str
    advisory_id: str = ""
    advisory_ids: tuple[str, ...] = ()
    repository: str = ""
    ecosystem: str = ""
    inputs_sha256: str | None = None
    changed_at: str = ""
    last_seq: int = 0
    transitions: int = 1
    attempts: dict[int, int] = field(default_factory=dict)
    outcome: str = OPEN
    reason: str = ""
    sentence: str = ""
    asked_seq: int = 0
    asked_at: str = ""
    answer: str | None = None
    tier: str = ""
    failure_kind: str = ""
    failing_gates: tuple[str, ...] = ()
    low_confidence: bool = False
    uses: dict[str, Use] = field(default_factory=lambda: defaultdict(Use))
    influences: dict[str, str] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """A person is asked, and has not answered."""
        return self.outcome == ESCALATED and self.answer is None

    @property
    def spent(self) -> tuple[Spent, ...]:
        """By call type, the dearest first."""
        found = [use.spent(kind) for kind, use in self.uses.items()]
        return tuple(sorted(found, key=lambda one: one.usd or Decimal(0), reverse=True))

    @property
    def unfixed(self) -> bool:
        """It has ended without a patch that gates or a person took."""
        if self.outcome == REFUSED:
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
    """Told of events by a follower of its own; ``catch_up`` before it is asked. ``live``: who else is told
    of what is recorded from now on."""

    def __init__(
        self, open_reader: Callable[[], TrailReader | None], live: Sequence[Taker] = ()
    ) -> None:
        self.lock = threading.RLock()
        self._takers: dict[str, Callable[[FixLine, Any, StoredEvent], None]] = {
            FixStarted.__name__: self._started,
            AttemptStarted.__name__: self._attempt,
            AttemptFailed.__name__: self._failed,
            RagSkippedOnRetry.__name__: self._skipped,
            RetrievalQueried.__name__: self._retrieved,
            ModelCalled.__name__: self._called,
            ExampleReplayed.__name__: self._replayed,
            ModelAnswered.__name__: self._answered,
            LowConfidenceFlagged.__name__: self._flagged,
            FixVerified.__name__: self._accepted(VERIFIED),
            FixPatched.__name__: self._accepted(PATCHED),
            FixRefused.__name__: self._refused,
            FixEscalated.__name__: self._escalated,
            BudgetRaised.__name__: self._raised,
            ReviewDecided.__name__: self._decided,
            TransitionReopened.__name__: self._reopened,
        }
        self._follower = Follower(open_reader, every=[self], live=live)
        self._clear()

    def _clear(self) -> None:
        self.fixes: dict[str, FixLine] = {}
        self.days: dict[str, Day] = defaultdict(Day)
        self.by_tier: Counter[tuple[str, str]] = Counter()
        self.by_ecosystem: Counter[tuple[str, str]] = Counter()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds that move it."""
        return frozenset(self._takers)

    def catch_up(self) -> Position:
        """Read what was recorded since, for two seconds at most; how far that went."""
        return self._follower.catch_up()

    @property
    def read_to(self) -> int:
        """The number of the last event that it was told of, or could have been."""
        return self._follower.position.read

    def begin_again(self) -> None:
        """The record was restored, or begun anew."""
        with self.lock:
            self._clear()

    def take(self, stored: StoredEvent) -> None:
        """The next event."""
        with self.lock:
            line = self._line(stored)
            self._takers[stored.kind](line, stored.payload, stored)
            line.changed_at, line.last_seq = stored.recorded_at, stored.seq
            self.fixes[line.fix_id] = self.fixes.pop(line.fix_id)  # what changed last stands last

    def waiting(self) -> list[FixLine]:
        """Questions that nobody has answered, the newest first."""
        with self.lock:
            found = [line for line in self.fixes.values() if line.waits]
        return sorted(found, key=lambda line: line.asked_seq, reverse=True)

    def newest(self) -> list[FixLine]:
        """All fixes, what changed last first."""
        with self.lock:
            return list(reversed(self.fixes.values()))

    def _line(self, stored: StoredEvent) -> FixLine:
        fix_id, transition = stored.scope.fix_id, stored.scope.gate_transition_id
        line = self.fixes.get(fix_id)
        if line is None:
            line = self.fixes[fix_id] = FixLine(fix_id, transition, stored.recorded_at)
        elif line.transition != transition and stored.kind in _BEGINNINGS:
            line.transition, line.attempts = transition, {}
            line.transitions += 1
            line.outcome, line.reason, line.sentence, line.answer = OPEN, "", "", None
        return line

    def _day(self, stored: StoredEvent) -> Day:
        return self.days[stored.recorded_at[:10]]

    def _started(self, line: FixLine, event: FixStarted, _: StoredEvent) -> None:
        line.advisory_id, line.repository = event.advisory_id, event.repository
        line.advisory_ids = event.advisory_ids or (event.advisory_id,)
        line.ecosystem, line.inputs_sha256 = event.ecosystem, event.inputs_sha256

    def _attempt(self, line: FixLine, event: AttemptStarted, stored: StoredEvent) -> None:
        line.attempts.setdefault(event.attempt, stored.seq)
        line.advisory_id = line.advisory_id or event.advisory_id
        line.advisory_ids = line.advisory_ids or (event.advisory_id,)
        self._day(stored).attempts += 1
        self._day(stored).retries += bool(event.prior_attempt_count)

    def _failed(self, line: FixLine, event: AttemptFailed, _: StoredEvent) -> None:
        line.failure_kind, line.failing_gates = event.failure_kind.value, event.failing_gates
        if event.tier is not None:
            self.by_tier[event.tier.value, "failed"] += 1

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
        line.reason, line.sentence = event.reason.value, event.sentence
        self._ended(line, REFUSED, stored)

    def _escalated(self, line: FixLine, event: FixEscalated, stored: StoredEvent) -> None:
        line.reason, line.sentence = event.reason.value, event.question
        line.asked_seq, line.asked_at = stored.seq, stored.recorded_at
        self._ended(line, ESCALATED, stored)

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
            line.answer = reopened_words(event)


#: What a gate transition begins with.
_BEGINNINGS = frozenset({FixStarted.__name__, AttemptStarted.__name__})
