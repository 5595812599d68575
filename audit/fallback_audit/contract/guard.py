"""The one guard that an append passes, inside its transaction (ADR-0035, ADR-0086, ADR-0127).

It asks two questions, then notes what became durable:

1. Is the writer still the one that goes on with the fix? A lock file holds on one machine. A worker that
   was given up for dead may still be at work on another, and what it records would stand between the events
   of whoever goes on. It can append no more.
2. Does the event keep to the trace contract?

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

#: Events of recently used fixes that are held in memory, about 2 KiB each. One fix alone may have more.
MAX_CACHED_EVENTS: Final = 10_000

#: Whoever records one of these goes on with the fix.
TAKES_IN_HAND = (FixStarted, FixResumed)


@dataclass
class _Session:
    """``seen``: number of the fix's last event that this session knows; ``begun``: it has taken the fix
    in hand, and did not only read."""

    seen: int
    begun: bool = False


_LINKING = frozenset[Kind]().union(*(rule.sees for rule in FIX_RULES))


def _rules_for(kind: Kind) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return the rules that such an event can break when it is appended: ``Rule.local`` ones, and others.

    A note is seen by the rules about notes only.
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
    """The gate transitions of one fix.

    ``confirmed``: number of the last event known to be durable. ``known_to``: up to this number of the
    chain, all events of the fix are here. ``base``: number of the last event in a sealed segment, set
    where a trail does not begin here.
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
        """See the class."""
        return self._base

    @base.setter
    def base(self, base: int) -> None:
        self._base = base
        for trail in self._trails.values():
            trail.base = base
        if self._trails:
            self._known = {_known(found) for found in self._everything_wrong()}

    @property
    def is_confirmed(self) -> bool:
        """Everything here is known to be durable."""
        return not self._tail

    def is_whole_with(self, record: Record) -> bool:
        """Does every trail begin as a fix does, with this event appended? That of maintenance can't say."""
        trail = self._trails.get(record.scope)
        if trail is None:
            trail = Trail(record.scope, [Entry(1, record.event)])
        others = self._trails.values()
        return trail.of_a_fix and all(one.begins for one in (trail, *others))

    def catch_up(self, behind: Iterable[StoredEvent]) -> bool:
        """Go on with what is stored behind ``confirmed``. False: that is not what was held here."""
        rows = [_Placed(stored.seq, stored.scope, stored.payload) for stored in behind]
        held = len(self._tail)
        if rows[:held] != self._tail:
            return False
        for seq, scope, event in rows[held:]:
            self._append(Entry(seq, event), scope)
        if rows[held:]:
            self._known.update(map(_known, self._everything_wrong()))
        return True

    def add(self, entry: AnyEntry, scope: Scope) -> list[Violation]:
        """One more event; returns what it breaks that was not broken before."""
        opens = scope not in self._trails
        trail = self._append(entry, scope)
        found = list(_broken_by(trail, type(entry.event)))
        if opens or type(entry.event) in _LINKING:
            found += self._between()
        new = [violation for violation in found if _known(violation) not in self._known]
        self._known.update(map(_known, new))
        return new

    def confirm(self, event: StoredEvent) -> None:
        """This one is durable, and so is everything before it."""
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
    """What the last event, of this kind, may have broken: no less than what is wrong with it in."""
    local, whole = _RULES_FOR[kind]
    # FixStarted makes it a gate runner's trail: then more is asked of all attempts.
    yield from violations(trail if kind is FixStarted else trail.latest(), local)
    yield from violations(trail, whole)


def _known(violation: Violation) -> tuple[str, int]:
    """Return a violation as far as it is the same one after another event: its rule and its event."""
    return violation.rule, violation.seq


class _Transaction(NamedTuple):
    """The open one: ``recorded`` is a new object each time.

    ``first``: number of its first event; ``judged``: the fixes that it has added to, all of them here.
    """

    recorded: TrailReader | None
    first: int
    judged: set[str]


class ContractGuard:
    """Implements ``ports.AppendGuard``. One guard a store, which is one session of each fix that it takes
    in hand (``expect``); threads may share it.

    ``on_violation``: ``refuse`` (ContractError, nothing is recorded) or ``flag``. ``written``: what became
    durable through this guard. Who takes no fix in hand (a person who decides, another orchestrator) is
    judged by the contract alone.
    """

    def __init__(
        self, on_violation: OnBreach = "refuse", *, max_cached_events: int = MAX_CACHED_EVENTS
    ) -> None:
        self.written = Written()
        self._sessions: dict[str, _Session] = {}
        self._refuses = on_violation == "refuse"
        self._max_cached_events = max_cached_events
        self._fixes: OrderedDict[str, JudgedFix] = OrderedDict()
        self._held = 0  # events of all of them
        # Numbers of the latest durable events, as far as all were appended here.
        self._own = range(0)
        self._transaction = _Transaction(None, 0, set())
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
        """Judge ``record`` as event ``seq`` of its fix. Returns the flags to append right behind it.

        Raises OvertakenError: another session goes on with this fix; ContractError: it breaks a rule and
        flags are not wanted, or its trail can't be read.
        """
        with self._lock:
            if self._transaction.recorded is not recorded:
                self._transaction = _Transaction(recorded, seq, set())
            self._check_writer(record, recorded)
            return self._judge(record, seq, recorded)

    def appended(self, event: StoredEvent) -> None:
        """It is durable: it was written here, and its fix need not be read again up to here."""
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
        overtaken = _in_the_way((one for one in others if one.seq < first), session, delivers)
        if overtaken is not None:
            raise _overtaken(record, overtaken)

    def _judge(self, record: Record, seq: int, recorded: TrailReader) -> tuple[AuditEvent, ...]:
        fix_id = record.scope.fix_id
        fix = self._take(fix_id)  # put back only when nothing went wrong
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
                kind="trail_not_judged",
            ) from error
        return fix

    def _forget(self) -> None:
        """The least recently used fixes, but never the one in hand."""
        while self._held > self._max_cached_events and len(self._fixes) > 1:
            self._held -= self._fixes.popitem(last=False)[1].size


def _in_the_way(
    others: Iterator[StoredEvent], session: _Session, delivers: bool
) -> StoredEvent | None:
    """Return one that takes the fix in hand or abandons it, or has delivered what this session
    ``delivers``; if it has not begun yet, any that it has not read; else None."""
    for one in others:
        if isinstance(one.payload, (*TAKES_IN_HAND, *ABANDONING)):
            return one
        if delivers and isinstance(one.payload, PatchDelivered):
            return one
        if not session.begun and not isinstance(one.payload, NOTES):
            return one
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
