"""One gate transition's events, arranged so that rules over them read as sentences."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from fallback_audit.events import (
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
    FixEscalated,
    FixRefused,
    FixStarted,
    FixVerified,
    PatchProposed,
)
from fallback_audit.ports import Scope
from fallback_audit.vocabulary import RefusalReason

EventT = TypeVar("EventT")

#: The types of TERMINAL_KINDS.
TERMINALS = (FixVerified, FixRefused, FixEscalated)


class Entry(NamedTuple, Generic[EventT]):
    """An event and its place in the chain."""

    seq: int
    event: EventT


AnyEntry = Entry[AuditEvent]


class Stretch:
    """Consecutive entries of one transition."""

    def __init__(self, entries: Iterable[AnyEntry]) -> None:
        self.entries = tuple(entries)
        self._by_type: dict[type[Any], list[Any]] = {}
        for entry in self.entries:
            self._by_type.setdefault(type(entry.event), []).append(entry)
        #: The first terminal event; None while the fix is open.
        self.terminal: AnyEntry | None = next(iter(self.any_of(*TERMINALS)), None)

    def of(self, kind: type[EventT]) -> list[Entry[EventT]]:
        """The entries of this type, in chain order."""
        return self._by_type.get(kind, [])

    def any_of(self, *kinds: type[Any]) -> list[AnyEntry]:
        """The entries of these types, in chain order."""
        found = [entry for kind in kinds for entry in self._by_type.get(kind, ())]
        # Entries of a stretch compare by seq, which is unique in it.
        return sorted(found) if len(found) > 1 else found

    def next_of(self, seq: int, *kinds: type[Any]) -> AnyEntry | None:
        """The first entry of these types after ``seq``."""
        return next((entry for entry in self.any_of(*kinds) if entry.seq > seq), None)


class Run(Stretch):
    """From one AttemptStarted to the next: what the tier did, and what became of it."""

    def __init__(self, entries: Iterable[AnyEntry]) -> None:
        super().__init__(entries)
        self.start = self.of(AttemptStarted)[0]
        self.successor: Run | None = None

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
        """The tier gave no outcome: its consumer left, or the process died."""
        return not self.of(PatchProposed) and not self.of(AttemptRefused)

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
    def managed(self) -> bool:
        """Our gate runner kept it. Where another orchestrator judges, its verdicts are not here."""
        return bool(self.of(FixStarted))


def refused_by_cap(event: AuditEvent) -> bool:
    """A call over the retry cap: refused before it became an attempt, so it belongs to none."""
    return isinstance(event, AttemptRefused) and event.reason is RefusalReason.RETRY_CAP_REACHED


def _split(entries: Iterable[AnyEntry]) -> tuple[tuple[AnyEntry, ...], tuple[Run, ...]]:
    preamble: list[AnyEntry] = []
    pieces: list[list[AnyEntry]] = []
    for entry in entries:
        if isinstance(entry.event, AttemptStarted):
            pieces.append([entry])
        elif not refused_by_cap(entry.event):
            (pieces[-1] if pieces else preamble).append(entry)
    runs = tuple(map(Run, pieces))
    for run, successor in pairwise(runs):
        run.successor = successor
    return tuple(preamble), runs
