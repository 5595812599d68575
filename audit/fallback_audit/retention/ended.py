"""Which fixes are over: nobody will add to them, answer them or resume them."""

from collections.abc import Iterable, Mapping

from fallback_audit.events import (
    AttemptRefused,
    AttemptStarted,
    BudgetRaised,
    ConsumerLeft,
    FixAbandoned,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    PatchProposed,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.ports import AuditReader, StoredEvent

#: The kinds that begin, end or go on with something.
KINDS = frozenset(
    {
        "AttemptRefused",
        "AttemptStarted",
        "BudgetRaised",
        "ConsumerLeft",
        "FixAbandoned",
        "FixEscalated",
        "FixPatched",
        "FixRefused",
        "FixStarted",
        "FixVerified",
        "PatchDelivered",
        "PatchProposed",
        "ReviewDecided",
        "TransitionReopened",
    }
)


class _Fix:
    """The gate transitions of one fix that are not over, and when something last happened."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.last_at = ""
        self._by_gates: set[str] = set()

    def fold(self, stored: StoredEvent) -> None:
        here = stored.scope.gate_transition_id
        self.last_at = max(self.last_at, stored.recorded_at)
        match stored.payload:
            case FixStarted():
                self._by_gates.add(here)
                self.open.add(here)
            # An escalation is a question: until a person answers, what it rests on is needed.
            case AttemptStarted() | BudgetRaised() | FixEscalated():
                self.open.add(here)
            case FixVerified() | FixPatched() | FixRefused() | ReviewDecided():
                self.open.discard(here)
            case FixAbandoned():  # with the gate transition that it was reopened for
                self.open.clear()
            case TransitionReopened(opens=opens):
                self.open.discard(here)
                self.open.add(opens)
            # Without a gate runner (`fallback-tier attempt`) an attempt is all that there is to end.
            case PatchProposed() | AttemptRefused() | ConsumerLeft() if here not in self._by_gates:
                self.open.discard(here)


def ended_fixes(reader: AuditReader) -> Mapping[str, str]:
    """Fix → when the last of its decisive events was recorded, for those that are over.

    A fix that was interrupted is not, unless a person abandoned it: it can be resumed.
    """
    return ended_of(reader.events(kinds=KINDS))


def ended_of(events: Iterable[StoredEvent]) -> Mapping[str, str]:
    """``ended_fixes`` of events that the caller has."""
    fixes: dict[str, _Fix] = {}
    for stored in events:
        if stored.kind in KINDS:
            fixes.setdefault(stored.scope.fix_id, _Fix()).fold(stored)
    return {fix_id: fix.last_at for fix_id, fix in fixes.items() if not fix.open}
