"""What lists and charts are made of: the record's events, each read once, as they come (ADR-0083).

A page asks the board, not the record: a record of a million events costs a page no more than one of ten.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

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
    RagSkippedOnRetry,
    RetrievalQueried,
    ReviewDecided,
    TransitionReopened,
    abandoned_words,
    decided_words,
    reopened_words,
)
from fallback_audit.ports import StoredEvent
from fallback_audit.vocabulary import RefusalReason
from fallback_tier.observing.following import Follower, Position, Taker
from fallback_tier.portal.lines import (
    ABANDONED,
    ESCALATED,
    OPEN,
    PATCHED,
    REFUSED,
    UNKNOWN,
    VERIFIED,
    Day,
    FixLine,
)
from fallback_tier.wiring.trail import ReadOnlyTrail


class Board:
    """Told of events by a follower of its own; ``catch_up`` before it is asked. ``live``: who else is told
    of what is recorded from now on."""

    def __init__(
        self, open_reader: Callable[[], ReadOnlyTrail | None], live: Sequence[Taker] = ()
    ) -> None:
        self.lock = threading.RLock()
        self._takers: dict[str, Callable[[FixLine, Any, StoredEvent], None]] = {
            FixStarted.__name__: self._started,
            AttemptStarted.__name__: self._attempt,
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
        self.standing: Counter[str] = Counter()
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
            if (known := self.fixes.get(stored.scope.fix_id)) is not None:
                self.standing.subtract(known.standing)
            line = self._line(stored)
            self._takers[stored.kind](line, stored.payload, stored)
            line.changed_at, line.last_seq = stored.recorded_at, stored.seq
            self.fixes[line.fix_id] = self.fixes.pop(line.fix_id)  # what changed last stands last
            self.standing.update(line.standing)

    def waiting(self) -> list[FixLine]:
        """Questions that nobody has answered, the newest first."""
        with self.lock:
            found = [line for line in self.fixes.values() if line.waits]
        return sorted(found, key=lambda line: line.asked_seq, reverse=True)

    def newest(self) -> list[FixLine]:
        """All fixes, what changed last first."""
        with self.lock:
            return list(reversed(self.fixes.values()))

    def newest_unfixed(self, limit: int) -> list[FixLine]:
        """The first so many of ``newest`` that are unfixed: looked for no further than there are any."""
        with self.lock:
            found = (line for line in reversed(self.fixes.values()) if line.unfixed)
            return list(islice(found, min(limit, self.standing["unfixed"])))

    def _line(self, stored: StoredEvent) -> FixLine:
        fix_id, transition = stored.scope.fix_id, stored.scope.gate_transition_id
        line = self.fixes.get(fix_id)
        if line is None:
            line = self.fixes[fix_id] = FixLine(fix_id, transition, stored.recorded_at)
        elif line.transition != transition and stored.kind in _BEGINNINGS:
            line.transition, line.attempts = transition, {}
            line.transitions += 1
            line.outcome, line.reason, line.sentence, line.answer = OPEN, "", "", None
            line.unread = ()
            line.tests_level, line.tests = None, ()
        return line

    def _day(self, stored: StoredEvent) -> Day:
        return self.days[stored.recorded_at[:10]]

    def _started(self, line: FixLine, event: FixStarted, _: StoredEvent) -> None:
        line.advisory_id, line.repository = event.advisory_id, event.repository
        line.advisory_ids = event.advisory_ids or (event.advisory_id,)
        line.ecosystem, line.inputs_sha256 = event.ecosystem, event.inputs_sha256

    def _attempt(self, line: FixLine, event: AttemptStarted, stored: StoredEvent) -> None:
        line.attempts.setdefault(event.attempt, stored.seq)
        line.cause = None
        line.advisory_id = line.advisory_id or event.advisory_id
        line.advisory_ids = line.advisory_ids or (event.advisory_id,)
        self._day(stored).attempts += 1
        self._day(stored).retries += bool(event.prior_attempt_count)

    @staticmethod
    def _judged(line: FixLine, event: GateJudged, _: StoredEvent) -> None:
        if event.tests_level is not None:
            line.tests_level, line.tests = event.tests_level, event.tests

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
        self._ended(line, UNKNOWN if event.reason is RefusalReason.UNKNOWN else REFUSED, stored)

    def _escalated(self, line: FixLine, event: FixEscalated, stored: StoredEvent) -> None:
        line.reason, line.sentence = event.reason.value, event.question
        line.asked_seq, line.asked_at = stored.seq, stored.recorded_at
        self._ended(line, ESCALATED, stored)

    def _abandoned(self, line: FixLine, event: FixAbandoned, stored: StoredEvent) -> None:
        line.reason, line.sentence, line.unread = "", event.reason, ()
        line.outcome, line.answer = ABANDONED, abandoned_words(event)
        self._day(stored).ended[ABANDONED] += (
            1  # says nothing of how often fixes of its ecosystem work
        )

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
