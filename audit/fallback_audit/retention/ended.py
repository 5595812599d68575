"""Fixes that are over, and until when evidence that events name is needed."""

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

#: The kinds that begin, end or continue a fix or an attempt.
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

#: Sorts after any time: evidence that an open fix, or the audit trail itself, needs.
FOREVER: Final = "~"


class _Fix:
    """The open gate transitions of one fix, and when its last decisive event was recorded."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.last_at = ""
        self._by_gates: set[str] = set()

    def fold(self, stored: StoredEvent) -> None:
        transition = stored.scope.gate_transition_id
        self.last_at = max(self.last_at, stored.recorded_at)
        match stored.payload:
            case FixStarted():
                self._by_gates.add(transition)
                self.open.add(transition)
            # An escalation is a question: its evidence is needed until a person answers.
            case AttemptStarted() | BudgetRaised() | FixEscalated():
                self.open.add(transition)
            case FixVerified() | FixPatched() | FixRefused() | ReviewDecided():
                self.open.discard(transition)
            case FixAbandoned():  # also the gate transition that it was reopened for
                self.open.clear()
            case TransitionReopened(opens=opens):
                self.open.discard(transition)
                self.open.add(opens)
            # Without a gate runner (`fallback-tier attempt`) the end of the attempt ends the fix.
            case PatchProposed() | AttemptRefused() | ConsumerLeft() if (
                transition not in self._by_gates
            ):
                self.open.discard(transition)


def ended_fixes(reader: AuditReader) -> Mapping[str, str]:
    """Return the fixes that are over, each with the time of its last decisive event.

    An interrupted fix is not over, unless a person abandoned it: it can be resumed.
    """
    fixes: dict[str, _Fix] = {}
    for stored in reader.events(kinds=KINDS):
        fixes.setdefault(stored.scope.fix_id, _Fix()).fold(stored)
    return {fix_id: fix.last_at for fix_id, fix in fixes.items() if not fix.open}


def named_digests(event: AuditEvent) -> Iterator[bytes]:
    """Yield everything in an event that may be the digest of evidence, as 32 bytes.

    These are more than must be kept (``evidence.checking``): a file that an event names is no orphan.
    """
    return _digests(event.model_dump())


def references(reader: AuditReader, ended: Mapping[str, str]) -> dict[bytes, str]:
    """Return until when each digest is needed: FOREVER, or the end of the last fix that names it."""
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
