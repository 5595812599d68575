"""The trace contract on line: each append is judged, inside its transaction, before it is one (ADR-0035).

An event is refused where the trail with it would break a rule that the trail without it does not; or it
is let through, and an AppendFlagged right behind it says so. What another process appended is caught up
with from the store itself, which holds its write lock meanwhile, so no two appends are judged apart.

* A trail that can't be read, or was altered, takes no event: what it says can't be relied on. Redacted
  events are judged by what is left of them.
* Where the beginning of a trail stands in a sealed segment, only the rules of maintenance are judged here:
  what is missing proves nothing. ``verify`` judges the whole where it is given the segments.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from fallback_audit.contract.judged import JudgedFix
from fallback_audit.contract.table import SENTENCES, Violation
from fallback_audit.contract.trail import Entry
from fallback_audit.errors import AuditIntegrityError, ContractError
from fallback_audit.event_types import MAX_EXCERPT_CHARS
from fallback_audit.events import AppendFlagged, AuditEvent, SegmentSealed
from fallback_audit.ports import MAINTENANCE, Record, StoredEvent, TrailReader

#: What to do with an event that breaks a rule.
OnBreach = Literal["refuse", "flag"]

#: Events of recently used fixes that are held in memory, about 2 KiB each. One fix alone may have more.
MAX_CACHED_EVENTS: Final = 10_000


class _Transaction(NamedTuple):
    """The one that is open: whoever asks shows himself by ``recorded``, a new one each time.

    ``first``: number of its first event; ``judged``: the fixes that it has added to, all of them here.
    """

    recorded: TrailReader | None
    first: int
    judged: set[str]


class ContractGuard:
    """Implements ``ports.AppendGuard`` by the table of rules. One guard a store; threads may share it.

    ``on_violation``: ``refuse`` (ContractError, nothing is recorded) or ``flag``.
    """

    def __init__(
        self, on_violation: OnBreach = "refuse", *, max_cached_events: int = MAX_CACHED_EVENTS
    ) -> None:
        self._refuses = on_violation == "refuse"
        self._max_cached_events = max_cached_events
        self._fixes: OrderedDict[str, JudgedFix] = OrderedDict()
        self._held = 0  # events of all of them
        self._own = range(
            0
        )  # numbers of the latest durable events, as far as all were appended here
        self._transaction = _Transaction(None, 0, set())
        self._lock = threading.Lock()

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        """Judge ``record`` as event ``seq`` of its fix. Returns the flags to append right behind it.

        Raises ContractError: it breaks a rule and flags are not wanted, or its trail can't be read.
        """
        with self._lock:
            fix_id = record.scope.fix_id
            fix = self._take(fix_id)  # put back only when nothing went wrong
            if self._transaction.recorded is not recorded:
                self._transaction = _Transaction(recorded, seq, set())
            if fix is None or not self._holds_everything(fix):
                fix = self._caught_up(fix, record, recorded)
            fix.known_to = seq - 1
            if not fix.is_whole_with(record):
                fix.base = _base(recorded)
            new = fix.add(Entry(seq, record.event), record.scope)
            if new and self._refuses:
                raise _refusal(record, seq, new[0])
            flags = tuple(
                AppendFlagged(at=seq, rule=v.rule, detail=v.detail[:MAX_EXCERPT_CHARS]) for v in new
            )
            for number, flag in enumerate(flags, start=seq + 1):
                fix.add(Entry(number, flag), record.scope)
            self._fixes[fix_id] = fix
            self._held += fix.size
            self._transaction.judged.add(fix_id)
            self._forget()
            return flags

    def appended(self, event: StoredEvent) -> None:
        """It is durable: its fix need not be read again up to here."""
        with self._lock:
            first = self._own.start if event.seq == self._own.stop else event.seq
            self._own = range(first, event.seq + 1)
            self._transaction = _Transaction(None, 0, set())
            fix = self._fixes.get(event.scope.fix_id)
            if fix is not None:
                fix.confirm(event)

    def _take(self, fix_id: str) -> JudgedFix | None:
        fix = self._fixes.pop(fix_id, None)
        self._held -= fix.size if fix is not None else 0
        return fix

    def _holds_everything(self, fix: JudgedFix) -> bool:
        """Nobody else appended anything since this fix was last judged: the store need not be asked."""
        if fix.fix_id in self._transaction.judged:
            return True
        own = self._own
        nobody_else = own.stop == self._transaction.first and own.start <= fix.known_to + 1
        return nobody_else and fix.is_confirmed

    def _caught_up(self, fix: JudgedFix | None, record: Record, recorded: TrailReader) -> JudgedFix:
        fix_id = record.scope.fix_id
        try:
            if fix is not None and fix.catch_up(recorded.trail(fix_id, after=fix.confirmed)):
                return fix
            fix = JudgedFix(fix_id)
            fix.catch_up(recorded.trail(fix_id))
        except AuditIntegrityError as error:
            raise ContractError(
                f"{record.event.kind} can't be recorded in fix {fix_id}: its trail can't be judged."
                f" {error.problem}",
                next_step=error.next_step,
            ) from error
        return fix

    def _forget(self) -> None:
        """The least recently used fixes, but never the one in hand."""
        while self._held > self._max_cached_events and len(self._fixes) > 1:
            self._held -= self._fixes.popitem(last=False)[1].size


def _base(recorded: TrailReader) -> int:
    """Number of the last event in a sealed segment: its own SegmentSealed always stands behind it."""
    sealed: Iterator[int] = (
        stored.payload.last_seq
        for stored in recorded.trail(MAINTENANCE.fix_id)
        if isinstance(stored.payload, SegmentSealed)
    )
    return max(sealed, default=0)


def _refusal(record: Record, seq: int, broken: Violation) -> ContractError:
    sentence, source = SENTENCES[broken.rule]
    scope = record.scope
    where = "" if broken.seq == seq else f" (at event {broken.seq})"
    return ContractError(
        f"{record.event.kind} can't be recorded as event {seq} of fix {scope.fix_id}, gate transition"
        f" {scope.gate_transition_id}: rule {broken.rule} ({source}) says: {sentence}"
        f" Here: {broken.detail}{where}.",
        next_step=f"`fallback-tier audit show {scope.fix_id}` shows what is on record; record what the"
        " rule asks for first, or have the store flag such events instead of refusing them.",
    )
