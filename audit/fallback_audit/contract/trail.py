"""One gate transition's events, arranged so that rules over them read as sentences."""

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar

from fallback_audit.events import (
    AnswerReused,
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    BudgetRaised,
    FixEscalated,
    FixRefused,
    FixResumed,
    FixStarted,
    FixVerified,
    ModelCalled,
    PatchDelivered,
    PatchProposed,
    ReviewDecided,
    SandboxDisabled,
    TransitionReopened,
)
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import CallType, EscalationReason, RefusalReason

EventT = TypeVar("EventT")

_SEQ = itemgetter(0)

#: Where a rule of the trace contract is broken, and how.
Finding = tuple[int, str]

#: The types of TERMINAL_KINDS.
TERMINALS = (FixVerified, FixRefused, FixEscalated)

#: What may stand behind the end of a fix: a patch goes out, a person answers.
AFTERWORDS = (PatchDelivered, ReviewDecided, TransitionReopened)

#: What a process says of itself when it takes a fix up: no verdict, and no answer to one.
TAKING_UP = (FixResumed, SandboxDisabled)


class Entry(NamedTuple, Generic[EventT]):
    """An event and its place in the chain."""

    seq: int
    event: EventT


AnyEntry = Entry[AuditEvent]

#: A question to a model: sent, or answered by what was paid for before an interruption.
Asked = ModelCalled | AnswerReused


class Stretch:
    """Consecutive entries of one transition."""

    def __init__(self, entries: Iterable[AnyEntry]) -> None:
        self.entries = tuple(entries)
        self._by_type: dict[type[Any], list[Any]] = {}
        for entry in self.entries:
            self._by_type.setdefault(type(entry.event), []).append(entry)
        #: The first terminal event; None while the fix is open, or open again.
        self.terminal: AnyEntry | None = self._end()

    def _end(self) -> AnyEntry | None:
        ends = self.any_of(*TERMINALS)
        if self.of(BudgetRaised):  # by a person: a fix that had stopped at its budget goes on
            raised = {
                entry.seq
                for entry, follows in pairwise(self.entries)
                if isinstance(follows.event, BudgetRaised)
            }
            ends = [e for e in ends if not (is_budget_stop(e.event) and e.seq in raised)]
        return ends[0] if ends else None

    def of(self, kind: type[EventT]) -> list[Entry[EventT]]:
        """The entries of this type, in chain order."""
        return self._by_type.get(kind, [])

    def any_of(self, *kinds: type[Any]) -> list[AnyEntry]:
        """The entries of these types, in chain order."""
        found = [entries for kind in kinds if (entries := self._by_type.get(kind))]
        if len(found) < 2:
            return found[0] if found else []
        return sorted(chain.from_iterable(found), key=_SEQ)

    def next_of(self, seq: int, *kinds: type[Any]) -> AnyEntry | None:
        """The first entry of these types after ``seq``."""
        return next((entry for entry in self.any_of(*kinds) if entry.seq > seq), None)


class Run(Stretch):
    """From one AttemptStarted to the next: what the tier did, and what became of it."""

    def __init__(self, entries: Iterable[AnyEntry]) -> None:
        super().__init__(entries)
        self.start = self.of(AttemptStarted)[0]
        self.successor: Run | None = None
        #: What models were asked, be the answer new or found again; and the author alone.
        self.asked: Sequence[Entry[Asked]] = self.any_of(ModelCalled, AnswerReused)  # type: ignore[assignment]
        self.author_asked: Sequence[Entry[Asked]] = [
            entry for entry in self.asked if entry.event.call_type is CallType.AUTHOR
        ]

    @property
    def attempt(self) -> int:
        """The attempt's number."""
        return self.start.event.attempt

    @property
    def is_retry(self) -> bool:
        """Retry as fresh context follows from the prior attempts alone (ADR-0011)."""
        return self.start.event.prior_attempt_count > 0

    @property
    def interrupted(self) -> bool:
        """No outcome that lasts: the consumer left, the process died, or a budget was used up.

        Only such an attempt is taken up again under its own number.
        """
        return not self.of(PatchProposed) and all(
            is_budget_stop(refusal.event) for refusal in self.of(AttemptRefused)
        )

    @property
    def went_on(self) -> bool:
        """Something was decided after this run; an unfinished tail may still get its action."""
        return self.successor is not None or self.terminal is not None

    @property
    def resumed(self) -> bool:
        """The next run takes up this attempt again, under the same number."""
        return self.successor is not None and self.successor.attempt == self.attempt


class Trail(Stretch):
    """All events of one gate transition of one fix, in chain order."""

    def __init__(self, scope: Scope, entries: Iterable[AnyEntry]) -> None:
        super().__init__(entries)
        self.scope = scope
        self.preamble, self.runs = _split(self.entries)

    @property
    def acts(self) -> list[AnyEntry]:
        """The entries without TAKING_UP, for rules about what follows what."""
        return [entry for entry in self.entries if not isinstance(entry.event, TAKING_UP)]

    @property
    def managed(self) -> bool:
        """Our gate runner kept it. Where another orchestrator judges, its verdicts are not here."""
        return bool(self.of(FixStarted))


def is_budget_stop(event: object) -> bool:
    """The attempt, or the fix, stopped at a budget: a raised one continues it."""
    return (
        isinstance(event, AttemptRefused) and event.reason is RefusalReason.BUDGET_EXHAUSTED
    ) or (isinstance(event, FixEscalated) and event.reason is EscalationReason.BUDGET_EXHAUSTED)


def refused_by_cap(event: AuditEvent) -> bool:
    """A call over the retry cap: refused before it became an attempt, so it belongs to none."""
    return isinstance(event, AttemptRefused) and event.reason is RefusalReason.RETRY_CAP_REACHED


_OF_NO_ATTEMPT = frozenset({*TAKING_UP, *AFTERWORDS})


def _split(entries: Iterable[AnyEntry]) -> tuple[tuple[AnyEntry, ...], tuple[Run, ...]]:
    preamble: list[AnyEntry] = []
    pieces: list[list[AnyEntry]] = []
    for entry in entries:
        if isinstance(entry.event, AttemptStarted):
            pieces.append([entry])
        elif type(entry.event) not in _OF_NO_ATTEMPT and not refused_by_cap(entry.event):
            (pieces[-1] if pieces else preamble).append(entry)
    runs = tuple(map(Run, pieces))
    for run, successor in pairwise(runs):
        run.successor = successor
    return tuple(preamble), runs
