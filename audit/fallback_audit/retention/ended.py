"""Fixes that are over: and until when the evidence that events name is needed."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fallback_audit.events import (
    AttemptRefused,
    AttemptStarted,
    AuditEvent,
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
from fallback_audit.ports import MAINTENANCE, AuditReader, StoredEvent

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

_DIGEST = re.compile(r"[0-9a-f]{64}")

#: Later than any time there is: a fix that is not over, or the record itself, needs it.
FOREVER: Final = "~"


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
    fixes: dict[str, _Fix] = {}
    for stored in reader.events(kinds=KINDS):
        fixes.setdefault(stored.scope.fix_id, _Fix()).fold(stored)
    return {fix_id: fix.last_at for fix_id, fix in fixes.items() if not fix.open}


def named_digests(event: AuditEvent) -> Iterator[bytes]:
    """Everything in an event that may be the digest of evidence, in 32 bytes.

    Not only what must be kept (``evidence.checking``): what an event names is never an orphan.
    """
    return _digests(event.model_dump())


def references(reader: AuditReader, ended: Mapping[str, str]) -> dict[bytes, str]:
    """Digest → until when it is needed: FOREVER, or the end of the last fix that names it."""
    needed: dict[bytes, str] = {}
    for stored in reader.events():
        fix_id = stored.scope.fix_id
        until = FOREVER if fix_id == MAINTENANCE.fix_id else ended.get(fix_id, FOREVER)
        for digest in named_digests(stored.payload):
            needed[digest] = max(until, needed.get(digest, ""))
    return needed


def _digests(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        if _DIGEST.fullmatch(value):
            yield bytes.fromhex(value)
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _digests(member)
    elif isinstance(value, tuple | list):
        for member in value:
            yield from _digests(member)
