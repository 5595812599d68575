"""The one guard that an append passes, inside its transaction (ADR-0035, ADR-0086, ADR-0127).

It checks two things, then notes which events became durable:

1. Is the writer still the one that continues the fix? A lock file works on one machine only. A worker that
   was taken for dead may still be running on another, and its events would be mixed with those of the
   worker that continues. It can't append any more.
2. Does the event keep the trace contract?

If the trail would break a rule with the event that it does not break without it, the event is refused; or
it is appended, and an AppendFlagged right after it says so. Events that another process appended are read
from the store, which holds its write lock meanwhile, so every append is judged on the whole trail.

* Nothing is appended to a trail that can't be read or was altered: its content can't be relied on. Redacted
  events are judged by what is left of them.
* If the beginning of a trail is in a sealed segment, only the rules of maintenance are judged here: a
  missing event proves nothing. ``verify`` judges the whole trail if it is given the segments.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from fallback_audit.checkpoints.checkpoint import Written
from fallback_audit.contract.rule import Kind, Rule
from fallback_audit.contract.table import (
    FIX_RULES,
    RULES,
    SENTENCES,
    Violation,
    link_violations,
    violations,
)
from fallback_audit.contract.trail import ABANDONING, NOTES, AnyEntry, Entry, Trail, link_of
from fallback_audit.errors import AuditIntegrityError, ContractError, OvertakenError
from fallback_audit.event_types import MAX_EXCERPT_CHARS
from fallback_audit.events import (
    KINDS,
    AppendFlagged,
    AuditEvent,
    FixResumed,
    FixStarted,
    PatchDelivered,
    SegmentSealed,
)
from fallback_audit.ports import MAINTENANCE, Record, Scope, StoredEvent, TrailReader

#: What to do with an event that breaks a rule.
OnBreach = Literal["refuse", "flag"]

#: Events of recently used fixes that are cached, about 2 KiB each. A single fix may have more.
MAX_CACHED_EVENTS: Final = 10_000

#: The process that records one of these continues the fix.
TAKES_IN_HAND = (FixStarted, FixResumed)


@dataclass
class _Session:
    """A process's work on one fix. ``seen``: number of the last event that it knows; ``begun``: it has
    taken the fix in hand, and not only read it."""

    seen: int
    begun: bool = False


_LINKING = frozenset[Kind]().union(*(rule.sees for rule in FIX_RULES))


def _rules_for(kind: Kind) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return the rules that an appended event of this kind can break: ``Rule.local`` ones, and others.

    Only the rules about notes see a note.
    """
    of_kind = [
        rule
        for rule in RULES
        if (kind in rule.sees if rule.sees is not None else kind not in NOTES)
    ]
    local = tuple(rule for rule in of_kind if rule.local)
    return local, tuple(rule for rule in of_kind if not rule.local)


_RULES_FOR = {kind: _rules_for(kind) for kind in KINDS}


class _Placed(NamedTuple):
    """An event of this fix that is not known to be durable."""

    seq: int
    scope: Scope
    event: AuditEvent


class JudgedFix:
    """The gate transitions of one fix, with the violations in them.

    ``confirmed``: number of the last event known to be durable. ``known_to``: all events of the fix up to
    this number of the chain are here. ``base``: number of the last event in a sealed segment, set if a
    trail's beginning is not here.
    """

    def __init__(self, fix_id: str) -> None:
        self.fix_id = fix_id
        self.confirmed = 0
        self.known_to = 0
        self.size = 0
        self._base = 0
        self._trails: dict[Scope, Trail] = {}
        self._known: set[tuple[str, int]] = set()
        self._tail: list[_Placed] = []

    @property
    def base(self) -> int:
        """Return the number of the last sealed event; see the class."""
        return self._base

    @base.setter
    def base(self, base: int) -> None:
        self._base = base
        for trail in self._trails.values():
            trail.base = base
        if self._trails:
            self._known = {_known(violation) for violation in self._everything_wrong()}

    @property
    def is_confirmed(self) -> bool:
        """Return whether all events here are known to be durable."""
        return not self._tail

    def is_whole_with(self, record: Record) -> bool:
        """Return whether every trail begins as a fix does, with this event appended.

        False for the trail of maintenance, which begins like no fix.
        """
        trail = self._trails.get(record.scope)
        if trail is None:
            trail = Trail(record.scope, [Entry(1, record.event)])
        others = self._trails.values()
        return trail.of_a_fix and all(other.begins for other in (trail, *others))

    def catch_up(self, later: Iterable[StoredEvent]) -> bool:
        """Add the stored events after ``confirmed``.

        Return False, and add none, if they don't begin with those cached here.
        """
        rows = [_Placed(stored.seq, stored.scope, stored.payload) for stored in later]
        cached = len(self._tail)
        if rows[:cached] != self._tail:
            return False
        for seq, scope, event in rows[cached:]:
            self._append(Entry(seq, event), scope)
        if rows[cached:]:
            self._known.update(map(_known, self._everything_wrong()))
        return True

    def add(self, entry: AnyEntry, scope: Scope) -> list[Violation]:
        """Add an event, and return the violations that were not there before."""
        opens = scope not in self._trails
        trail = self._append(entry, scope)
        broken = list(_broken_by(trail, type(entry.event)))
        if opens or type(entry.event) in _LINKING:
            broken += self._between()
        new = [violation for violation in broken if _known(violation) not in self._known]
        self._known.update(map(_known, new))
        return new

    def confirm(self, event: StoredEvent) -> None:
        """Note that this event is durable, and so are all before it."""
        if any(placed.seq == event.seq for placed in self._tail):
            self._tail = [placed for placed in self._tail if placed.seq > event.seq]
            self.confirmed = event.seq

    def _append(self, entry: AnyEntry, scope: Scope) -> Trail:
        trail = self._trails.get(scope)
        if trail is None:
            trail = self._trails[scope] = Trail(scope, (), base=self._base)
        trail.append(entry)
        self._tail.append(_Placed(entry.seq, scope, entry.event))
        self.size += 1
        return trail

    def _everything_wrong(self) -> Iterator[Violation]:
        for trail in self._trails.values():
            yield from violations(trail)
        yield from self._between()

    def _between(self) -> Iterable[Violation]:
        trails = self._trails.values()
        if any(trail.is_cut or not trail.of_a_fix for trail in trails):
            return ()
        return link_violations(self.fix_id, [link_of(trail) for trail in trails])


def _broken_by(trail: Trail, kind: Kind) -> Iterator[Violation]:
    """Yield the violations that the last event, of this kind, caused; maybe earlier ones too."""
    local, whole = _RULES_FOR[kind]
    # FixStarted makes it a gate runner's trail: then more rules apply to all attempts.
    yield from violations(trail if kind is FixStarted else trail.latest(), local)
    yield from violations(trail, whole)


def _known(violation: Violation) -> tuple[str, int]:
    """Return what identifies a violation, its rule and event: its text may change with later events."""
    return violation.rule, violation.seq


class _Transaction(NamedTuple):
    """The open transaction. ``recorded`` is a new object for each.

    ``first``: number of its first event; ``judged``: the fixes of its events, which are all cached.
    """

    recorded: TrailReader | None
    first: int
    judged: set[str]


class ContractGuard:
    """Implementation of ``ports.AppendGuard``, one per store. Threads may share it.

    It is one session of each fix that it takes in hand (``expect``). ``on_violation``: ``refuse``
    (ContractError, nothing is recorded) or ``flag``. ``written``: the events that became durable through
    this guard. For a writer that takes no fix in hand (a person who decides, another orchestrator), only
    the contract is checked.
    """

    def __init__(
        self, on_violation: OnBreach = "refuse", *, max_cached_events: int = MAX_CACHED_EVENTS
    ) -> None:
        self.written = Written()
        self._sessions: dict[str, _Session] = {}
        self._refuses = on_violation == "refuse"
        self._max_cached_events = max_cached_events
        self._fixes: OrderedDict[str, JudgedFix] = OrderedDict()
        self._held = 0  # number of events in _fixes
        # Numbers of the latest durable events that were all appended here, without a gap.
        self._own = range(0)
        self._transaction = _Transaction(None, 0, set())
        self._lock = threading.Lock()

    def expect(self, fix_id: str, seen: int) -> None:
        """Begin a session that has read the fix up to event ``seen`` (0: nothing) and will take it in hand.

        That is refused if anything else is recorded by then.
        """
        with self._lock:
            self._sessions[fix_id] = _Session(seen)

    def let_go(self, fix_id: str) -> None:
        """End the session of this fix. Idempotent."""
        with self._lock:
            self._sessions.pop(fix_id, None)

    def admit(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        """Judge ``record`` as event ``seq``. Return the flags to append right after it.

        Raises OvertakenError if another session continues this fix; ContractError if the event breaks a
        rule and is not to be flagged, or its trail can't be read.
        """
        with self._lock:
            if self._transaction.recorded is not recorded:
                self._transaction = _Transaction(recorded, seq, set())
            self._check_writer(record, recorded)
            return self._judge(record, seq, recorded)

    def appended(self, event: StoredEvent) -> None:
        """Note that an event written here is durable: its fix need not be read again up to it."""
        with self._lock:
            session = self._sessions.get(event.scope.fix_id)
            if session is not None:
                session.begun = session.begun or isinstance(event.payload, TAKES_IN_HAND)
                session.seen = event.seq
            first = self._own.start if event.seq == self._own.stop else event.seq
            self._own = range(first, event.seq + 1)
            self._transaction = _Transaction(None, 0, set())
            fix = self._fixes.get(event.scope.fix_id)
            if fix is not None:
                fix.confirm(event)
        self.written.add(event.seq)

    def _check_writer(self, record: Record, recorded: TrailReader) -> None:
        session = self._sessions.get(record.scope.fix_id)
        if session is None:
            return
        first = self._transaction.first  # from here on the events are this transaction's own
        others = recorded.trail(record.scope.fix_id, after=session.seen)
        delivers = isinstance(record.event, PatchDelivered)
        overtaken = _in_the_way((other for other in others if other.seq < first), session, delivers)
        if overtaken is not None:
            raise _overtaken(record, overtaken)

    def _judge(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        fix_id = record.scope.fix_id
        fix = self._take(fix_id)  # put back only if nothing went wrong
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

    def _take(self, fix_id: str) -> JudgedFix | None:
        fix = self._fixes.pop(fix_id, None)
        self._held -= fix.size if fix is not None else 0
        return fix

    def _holds_everything(self, fix: JudgedFix) -> bool:
        """Return whether all of the fix's events are cached: no other process has appended since."""
        if fix.fix_id in self._transaction.judged:
            return True
        appended_here = self._own
        no_other_writer = (
            appended_here.stop == self._transaction.first
            and appended_here.start <= fix.known_to + 1
        )
        return no_other_writer and fix.is_confirmed

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
                kind="trail_not_judged",
            ) from error
        return fix

    def _forget(self) -> None:
        """Forget the least recently used fixes, but never the one in hand."""
        while self._held > self._max_cached_events and len(self._fixes) > 1:
            self._held -= self._fixes.popitem(last=False)[1].size


def _in_the_way(
    others: Iterator[StoredEvent], session: _Session, delivers: bool
) -> StoredEvent | None:
    """Return the first event that overtakes this session, or None.

    Such an event takes the fix in hand, abandons it, or delivers the patch if this session ``delivers`` it
    too. If the session has not begun yet, any event but a note overtakes it.
    """
    for other in others:
        if isinstance(other.payload, (*TAKES_IN_HAND, *ABANDONING)):
            return other
        if delivers and isinstance(other.payload, PatchDelivered):
            return other
        if not session.begun and not isinstance(other.payload, NOTES):
            return other
    return None


def _overtaken(record: Record, other: StoredEvent) -> OvertakenError:
    fix_id = record.scope.fix_id
    if isinstance(other.payload, ABANDONING):
        return OvertakenError(
            f"{record.event.kind} can't be recorded: fix {fix_id} was abandoned (event {other.seq}, "
            f"{other.recorded_at}).",
            next_step=f"End this process; `fallback-tier audit show {fix_id}` shows by whom, and why.",
            kind="abandoned",
        )
    return OvertakenError(
        f"{record.event.kind} can't be recorded: somebody else goes on with fix {fix_id} "
        f"({other.kind}, event {other.seq}, {other.recorded_at}).",
        next_step=f"End this process; `fallback-tier audit show {fix_id}` shows how the other gets on, "
        f"and `fallback-tier resume {fix_id}` goes on if that one has died.",
    )


def _base(recorded: TrailReader) -> int:
    """Return the number of the last sealed event, or 0. Its SegmentSealed always comes after it."""
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
