"""Decisions of people, read from the audit trail, and sent to workflows that have not received them.

A caller that decides need not know of Temporal, and decisions made while it is down are sent once it is
back. Hints are not authoritative: the audit trail is (ADR-0086).
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Protocol

from temporalio.client import Client
from temporalio.service import RPCError

from fallback_audit.errors import FallbackError
from fallback_audit.events import (
    BudgetRaised,
    FixAbandoned,
    FixEscalated,
    FixResumed,
    FixStarted,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.ports import AuditReader, HeaderReader
from fallback_tier.engines.temporal.connecting import unless_unknown
from fallback_tier.engines.temporal.messages import HINT, DecisionResult
from fallback_tier.fix.journal.history import read_history
from fallback_tier.fix.journal.review import answer_to

_LETS_GO_ON = (BudgetRaised, TransitionReopened)
_GOES_ON = (FixResumed, FixStarted)
#: The kinds that ``Decisions`` reads.
_KINDS = frozenset(kind.__name__ for kind in (*_LETS_GO_ON, *_GOES_ON, ReviewDecided, FixAbandoned))


def answer_on_record(audit: AuditReader, fix_id: str) -> DecisionResult:
    """Return the answer to the question that a fix asked. Raises InputError if there is no such fix;
    AuditStoreError.
    """
    current = read_history(audit, fix_id).current
    if current.abandoned is not None:
        return DecisionResult(goes_on=False, is_over=True)
    if current.reopened is not None or current.end is None:
        return DecisionResult(goes_on=True, is_over=False)
    is_open = isinstance(current.end, FixEscalated) and answer_to(current) is None
    return DecisionResult(goes_on=False, is_over=not is_open)


class FollowedTrail(AuditReader, HeaderReader, Protocol):
    """The audit trail that is followed."""


@dataclass
class Decisions:
    """Follows the audit trail, and lists fixes with a decision on which no process has acted yet.

    ``upto``: number of the last event that was read. A restarted process reads the trail from its first
    event, so nothing has to be stored.
    """

    upto: int = 0

    def __post_init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, audit: FollowedTrail) -> None:
        """Read new events. Raises AuditStoreError: then the next call reads them."""
        tip, _ = audit.tip()
        if tip == self.upto:
            return
        decisions = list(self._since(audit))
        for fix_id, seq in decisions:
            self._open.pop(fix_id, None)
            if seq:
                self._open[fix_id] = seq
        self.upto = tip

    def open(self) -> dict[str, int]:
        """Return fixes with a decision on which no process has acted, each with the decision's number."""
        return dict(self._open)

    def heard(self, fix_id: str, seq: int) -> None:
        """Remove a final decision that was sent: nothing follows it in the audit trail."""
        if self._open.get(fix_id) == seq:
            del self._open[fix_id]

    def _since(self, audit: AuditReader) -> Iterator[tuple[str, int]]:
        """Yield each fix with the number of a decision, or 0 if it continues."""
        for stored in audit.events(kinds=_KINDS, after=self.upto):
            yield (
                stored.scope.fix_id,
                0 if isinstance(stored.payload, _GOES_ON) else stored.seq,
            )


#: Between two looks at the audit trail's tip (seconds).
POLL_S = 0.5

#: A decision is sent again after so long if no process has acted on it (seconds).
RESEND_S = 30.0

#: Opens the audit trail for reading. Raises FallbackError: then the next look tries again.
OpenRecord = Callable[[], AbstractContextManager[FollowedTrail]]

#: Returns the answer to a fix's question, and whether the fix may continue. Raises FallbackError.
Look = Callable[[str], DecisionResult]


def looking(opened: OpenRecord, may_go_on: Callable[[str], bool]) -> Look:
    """Return a ``Look``: a final decision ends a fix; one that lets it continue counts if ``may_go_on``
    agrees.
    """

    def look(fix_id: str) -> DecisionResult:
        with opened() as audit:
            answer = answer_on_record(audit, fix_id)
        return DecisionResult(answer.goes_on and may_go_on(fix_id), answer.is_over)

    return look


class Reconciler:
    """Sends decisions: ``run`` it with each worker; several may run at once."""

    def __init__(self, client: Client, opened: OpenRecord, look: Look) -> None:
        self._client = client
        self._opened = opened
        self._look = look
        self._decisions = Decisions()
        self._sent: dict[str, tuple[int, float]] = {}
        #: Whether the audit trail could be read at the last look; initially False.
        self.reaches_record = False

    async def run(self) -> None:
        """Run until it is cancelled. What can't be reached now is tried again."""
        while True:
            # Either is reachable again later; what was not sent is not forgotten.
            with suppress(FallbackError, RPCError):
                await self.look()
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Send decisions that were not sent, or were sent long ago. Raises FallbackError, RPCError."""
        await asyncio.to_thread(self._read)
        now = asyncio.get_running_loop().time()
        for fix_id, seq in self._decisions.open().items():
            sent = self._sent.get(fix_id)
            if sent is not None and sent[0] == seq and now - sent[1] < RESEND_S:
                continue
            if not await asyncio.to_thread(self._is_worth_telling, fix_id):
                self._sent[fix_id] = (seq, now)  # its campaign wakes it when it may continue
                continue
            if await unless_unknown(self._client.get_workflow_handle(fix_id).signal(HINT)):
                self._sent[fix_id] = (seq, now)
            else:
                self._decisions.heard(fix_id, seq)
                self._sent.pop(fix_id, None)

    def _read(self) -> None:
        try:
            with self._opened() as record:
                self._decisions.read(record)
        except FallbackError:
            self.reaches_record = False
            raise
        self.reaches_record = True

    def _is_worth_telling(self, fix_id: str) -> bool:
        try:
            decision = self._look(fix_id)
        except FallbackError:  # of one fix: the others are sent
            return False
        return decision.goes_on or decision.is_over
