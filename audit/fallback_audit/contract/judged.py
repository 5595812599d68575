"""One fix as a guard holds it in memory: its trails, grown event by event, and what is wrong with them.

The rules that an event can break are known from the table (``Rule.sees``), so that an append is judged
by a few of them, and a trail is not built anew for it.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fallback_audit.contract.links import link_of
from fallback_audit.contract.rule import Kind, Rule
from fallback_audit.contract.table import (
    FIX_RULES,
    RULES,
    Violation,
    link_violations,
    violations,
)
from fallback_audit.contract.trail import NOTES, AnyEntry, Entry, Trail
from fallback_audit.events import KINDS, AuditEvent, FixStarted
from fallback_audit.ports import Record, Scope, StoredEvent

_LINKING = frozenset[Kind]().union(*(rule.sees for rule in FIX_RULES))


class Asked(NamedTuple):
    """The rules that an event can break when it is appended: ``Rule.local`` ones, and others."""

    local: tuple[Rule, ...]
    whole: tuple[Rule, ...]


def _asked(kind: Kind) -> Asked:
    """A note is seen by the rules about notes only."""
    of_kind = [
        rule
        for rule in RULES
        if (kind in rule.sees if rule.sees is not None else kind not in NOTES)
    ]
    return Asked(
        tuple(rule for rule in of_kind if rule.local),
        tuple(rule for rule in of_kind if not rule.local),
    )


#: By kind of event.
RULES_FOR: dict[Kind, Asked] = {kind: _asked(kind) for kind in KINDS}


class _Known(NamedTuple):
    """A violation, as far as it is the same one after another event."""

    rule: str
    seq: int


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
        self._known: set[_Known] = set()
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
    local, whole = RULES_FOR[kind]
    # FixStarted makes it a gate runner's trail: then more is asked of all attempts.
    yield from violations(trail if kind is FixStarted else trail.latest(), local)
    yield from violations(trail, whole)


def _known(violation: Violation) -> _Known:
    return _Known(violation.rule, violation.seq)
