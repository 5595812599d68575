"""Follow the audit trail: read new events, a slice at a time, and pass each to its takers."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fallback_audit.errors import AuditError
from fallback_audit.ports import StoredEvent
from fallback_tier.wiring.trail import ReadOnlyTrail

#: Events per slice, after which others have a turn: a twentieth of a second's work.
SLICE_EVENTS = 500

#: Time limit of one ``catch_up`` while a caller waits for an answer (seconds).
PATIENCE_S = 2.0


class Taker(Protocol):
    """Receiver of events."""

    @property
    def kinds(self) -> frozenset[str] | None:
        """Return the kinds that it receives; None: all."""
        ...

    def take(self, stored: StoredEvent) -> None:
        """Receive the next event, in the trail's order."""
        ...

    def begin_again(self) -> None:
        """Start again: the audit trail is another one, and is passed from its first event."""
        ...


class Position(NamedTuple):
    """How far the audit trail was read: up to event ``read`` of ``last``. ``problem``: why no further."""

    read: int = 0
    last: int = 0
    problem: str | None = None

    @property
    def behind(self) -> int:
        """Return the number of events that were not read yet."""
        return max(0, self.last - self.read)


class Follower:
    """Reads events for takers. ``every``: takers of all events, from the first on record. ``live``: takers
    of events that were recorded after the first look. ``open_reader`` returns None while nothing is
    recorded; it may raise AuditError.

    Thread-safe: one thread reads at a time. The store is opened each time, so that a restored or recreated
    one is noticed; if it is shorter than what was read, it is read from its beginning, and all takers begin
    again.
    """

    def __init__(
        self,
        open_reader: Callable[[], ReadOnlyTrail | None],
        *,
        every: Sequence[Taker] = (),
        live: Sequence[Taker] = (),
        slice_events: int = SLICE_EVENTS,
    ) -> None:
        self._open_reader = open_reader
        self._every = tuple(every)
        self._live = tuple(live)
        self._slice = slice_events
        self._reader: ReadOnlyTrail | None = None
        self._began_at: int | None = None
        self._position = Position()
        self._lock = threading.Lock()

    @property
    def position(self) -> Position:
        """Return how far the last call read."""
        return self._position

    def catch_up(self, patience_s: float = PATIENCE_S) -> Position:
        """Read to the audit trail's end, or as far as the time allows. Raises none of its errors: the
        position has the problem, and the next call tries again.
        """
        until = time.monotonic() + patience_s
        with self._lock:
            try:
                while self._step_or_problem().behind and time.monotonic() < until:
                    if self._position.problem is not None:
                        break
            finally:
                self._release()
        return self._position

    def _step_or_problem(self) -> Position:
        try:
            self._position = self._step()
        except AuditError as error:
            self._position = self._position._replace(problem=str(error))
        return self._position

    def _step(self) -> Position:
        reader = self._opened()
        if reader is None:
            self._began_at = 0  # everything from here on is new
            return Position()
        last, _ = reader.tip()
        read = self._position.read
        if read > last:
            read, self._began_at = 0, last  # restored or recreated: its present events are not live
            for taker in (*self._every, *self._live):
                taker.begin_again()
        if self._began_at is None:
            self._began_at = last
        # Takers of live events don't receive old ones, so only counted kinds are read of those.
        old = read < self._began_at
        goal = min(last, self._began_at) if old else last
        takers = self._every if old else (*self._every, *self._live)
        self._position = Position(read, last)
        if self._hand_out(reader, takers, goal):
            self._position = Position(goal, last)
        return self._position

    def _hand_out(self, reader: ReadOnlyTrail, takers: Sequence[Taker], goal: int) -> bool:
        """Pass a slice of the events after the position, up to ``goal``. Return whether there are no more.

        The position moves with each event, so that after an unreadable event only what follows is read
        again.
        """
        last = self._position.last
        events = reader.events(kinds=_kinds(takers), after=self._position.read)
        for count, stored in enumerate(events, start=1):
            if stored.seq > goal:
                break
            self._position = Position(stored.seq, last)
            for taker in takers:
                if taker.kinds is None or stored.kind in taker.kinds:
                    taker.take(stored)
            if count == self._slice:
                return False
        return True

    def _opened(self) -> ReadOnlyTrail | None:
        if self._reader is None:
            self._reader = self._open_reader()
        return self._reader

    def _release(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def _kinds(takers: Sequence[Taker]) -> frozenset[str] | None:
    kinds: set[str] = set()
    for taker in takers:
        if taker.kinds is None:
            return None
        kinds |= taker.kinds
    return frozenset(kinds)
