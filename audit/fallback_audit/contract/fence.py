"""One writer a fix, across machines (ADR-0086): who was overtaken can append no more.

A lock file holds on one machine. A worker that was given up for dead may still be at work on another, and
what it records would stand between the events of whoever goes on. So each append is asked, inside the
store's transaction, whether somebody else has taken the fix in hand since.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from fallback_audit.contract.trail import NOTES
from fallback_audit.errors import OvertakenError
from fallback_audit.events import AuditEvent, FixResumed, FixStarted, PatchDelivered
from fallback_audit.ports import AppendGuard, Record, StoredEvent, TrailReader

#: Whoever records one of these goes on with the fix.
TAKES_IN_HAND = (FixStarted, FixResumed)


@dataclass
class _Session:
    """``seen``: number of the fix's last event that this session knows; ``begun``: it has taken the fix
    in hand, and did not only read."""

    seen: int
    begun: bool = False


class WriterFence:
    """Implements ``ports.AppendGuard``: asks ``guard`` after it has had no objection. One a store, which
    is one session of each fix that it takes in hand; threads may share it.

    Who takes no fix in hand (a person who decides, another orchestrator) is not asked.
    """

    def __init__(self, guard: AppendGuard) -> None:
        self._guard = guard
        self._sessions: dict[str, _Session] = {}
        self._transaction: tuple[TrailReader | None, int] = (None, 0)
        self._lock = threading.Lock()

    def expect(self, fix_id: str, seen: int) -> None:
        """This session has read the fix up to event ``seen`` (0: nothing), and is to take it in hand: that
        is refused where anything else is on record by then."""
        with self._lock:
            self._sessions[fix_id] = _Session(seen)

    def let_go(self, fix_id: str) -> None:
        """The session of this fix is over. Idempotent."""
        with self._lock:
            self._sessions.pop(fix_id, None)

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        """Raises OvertakenError: another session goes on with this fix; ContractError as ``guard`` does."""
        with self._lock:
            self._check(record, seq, recorded)
        return self._guard.admit(record, seq, recorded)

    def appended(self, event: StoredEvent) -> None:
        """It is durable: the session knows its fix up to here."""
        with self._lock:
            session = self._sessions.get(event.scope.fix_id)
            if session is not None:
                session.begun = session.begun or isinstance(event.payload, TAKES_IN_HAND)
                session.seen = event.seq
        self._guard.appended(event)

    def _check(self, record: Record, seq: int, recorded: TrailReader) -> None:
        if self._transaction[0] is not recorded:
            self._transaction = (recorded, seq)
        session = self._sessions.get(record.scope.fix_id)
        if session is None:
            return
        first = self._transaction[1]  # from here on the events are this transaction's own
        others = recorded.trail(record.scope.fix_id, after=session.seen)
        delivers = isinstance(record.event, PatchDelivered)
        overtaken = _in_the_way((one for one in others if one.seq < first), session, delivers)
        if overtaken is not None:
            raise _refusal(record, overtaken)


def _in_the_way(
    others: Iterator[StoredEvent], session: _Session, delivers: bool
) -> StoredEvent | None:
    """One that takes it in hand, or has delivered what this session ``delivers``; for who has not begun
    yet, any that it has not read."""
    for one in others:
        if isinstance(one.payload, TAKES_IN_HAND):
            return one
        if delivers and isinstance(one.payload, PatchDelivered):
            return one
        if not session.begun and not isinstance(one.payload, NOTES):
            return one
    return None


def _refusal(record: Record, other: StoredEvent) -> OvertakenError:
    fix_id = record.scope.fix_id
    return OvertakenError(
        f"{record.event.kind} can't be recorded: somebody else goes on with fix {fix_id} "
        f"({other.kind}, event {other.seq}, {other.recorded_at}).",
        next_step=f"End this process; `fallback-tier audit show {fix_id}` shows how the other gets on, "
        f"and `fallback-tier resume {fix_id}` goes on if that one has died.",
    )
