"""Facts about a campaign's fixes, read from the audit trail to refresh the campaign's list."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fallback_audit.contract.trail import NOTES
from fallback_audit.errors import AuditStoreError
from fallback_audit.events import (
    AttemptStarted,
    BudgetRaised,
    FixAbandoned,
    FixEscalated,
    FixPatched,
    FixRefused,
    FixStarted,
    FixVerified,
    PatchDelivered,
    ReviewDecided,
    TransitionReopened,
)
from fallback_audit.ports import AuditReader, StoredEvent
from fallback_audit.vocabulary import ReviewVerdict
from fallback_tier.budget.audited import effective
from fallback_tier.budget.meter import BudgetLimits
from fallback_tier.budget.prices import Prices
from fallback_tier.budget.tally import Tally, microdollars
from fallback_tier.fleet.campaign_list import FixFacts, FixState
from fallback_tier.handover.branch import committed_as
from fallback_tier.observing.record import open_record
from fallback_tier.wiring import RecordSettings
from fallback_tier.wiring.trail import ReadOnlyTrail

#: Reasons of a fix that is only partly fixed.
NOT_SHOWN = "not_shown"
IN_PART = "in_part"
APPROVED = "approved"

#: Reason of a refused fix that a person ended.
ABANDONED = "abandoned"

#: Events that continue a fix that was over, or end it, whichever process ran it.
_DECISIONS = frozenset(
    kind.__name__
    for kind in (
        *(ReviewDecided, TransitionReopened, BudgetRaised, FixAbandoned),
        *(FixVerified, FixPatched, FixRefused, FixEscalated),
    )
)


class FleetRecord:
    """The audit trail of a state folder or database, opened once it exists. ``close`` it at the end."""

    def __init__(self, state_dir: Path, settings: RecordSettings) -> None:
        self._state_dir = state_dir
        self._settings = settings
        self._reader: ReadOnlyTrail | None = None
        self._read = 0

    def __call__(self, fix_id: str) -> FixFacts | None:
        """Return a fix's facts, or None if it is not on record. Raises AuditStoreError; the next call
        reopens the store.
        """
        with self._reading() as reader:
            return None if reader is None else facts_of(reader, fix_id)

    def changed_fixes(self) -> frozenset[str]:
        """Return the fixes that ended, or that a person decided, since the last call; the first call
        returns all.

        Raises AuditStoreError: then the next call returns the same ones.
        """
        with self._reading() as reader:
            if reader is None:
                return frozenset()
            events = [*reader.events(kinds=_DECISIONS, after=self._read)]
        self._read = events[-1].seq if events else self._read
        return frozenset(event.scope.fix_id for event in events)

    @contextmanager
    def _reading(self) -> Iterator[ReadOnlyTrail | None]:
        """Yield the reader, or None if nothing is recorded yet."""
        if self._reader is None:
            self._reader = open_record(self._state_dir, self._settings)
        try:
            yield self._reader
        except AuditStoreError:
            self.close()
            raise

    def close(self) -> None:
        """Close the reader. Idempotent."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def facts_of(audit: AuditReader, fix_id: str) -> FixFacts | None:
    """Return a fix's facts, or None if it is not on record. Raises AuditStoreError."""
    events = [event for event in audit.events(fix_id) if not isinstance(event.payload, NOTES)]
    if not events:
        return None
    state, why, sentence, ended_at = _end(events)
    tally = Tally(audit, Prices(), fix_id=fix_id)
    tally.refresh()
    amounts = [call.amount for call in tally.calls]
    costs = [amount.microdollars for amount in amounts if amount.microdollars is not None]
    raised = effective(BudgetLimits(), tally.raised).usd_per_fix
    return FixFacts(
        state=state,
        why=why,
        sentence=sentence,
        cost=sum(costs) if len(costs) == len(amounts) else None,
        tokens=sum(amount.tokens for amount in amounts),
        attempts=sum(isinstance(event.payload, AttemptStarted) for event in events),
        started_at=events[0].recorded_at,
        ended_at=ended_at,
        raised=None if raised is None else microdollars(raised),
        branch=_branch(events),
        delivered=_is_delivered(events),
    )


def _branch(events: list[StoredEvent]) -> str | None:
    deliveries = [event.payload for event in events if isinstance(event.payload, PatchDelivered)]
    commit = committed_as(deliveries[-1]) if deliveries else None
    return None if commit is None else commit.branch


def _is_delivered(events: list[StoredEvent]) -> bool:
    is_there = False
    for stored in events:
        match stored.payload:
            case PatchDelivered() as delivered:
                is_there = committed_as(delivered) is not None
            case TransitionReopened() | FixVerified() | FixPatched() | ReviewDecided():
                is_there = False
    return is_there


def _end(events: list[StoredEvent]) -> tuple[FixState | None, str | None, str | None, str | None]:
    """Return state (None: it continues), reason, sentence, and since when."""
    state, why, sentence, since = None, None, None, None
    in_part: tuple[str, ...] = ()
    for stored in events:
        since = stored.recorded_at
        match stored.payload:
            case FixStarted() as started:
                state, why, sentence, in_part = None, None, None, started.in_part
            case FixVerified():
                state = FixState.PARTLY if in_part else FixState.FIXED
                why = IN_PART if in_part else None
                sentence = "Something of it stays affected." if in_part else None
            case FixPatched():
                state, why = FixState.PARTLY, IN_PART if in_part else NOT_SHOWN
                sentence = "The tests pass, and nothing shows the flaw gone."
            case FixRefused() as refused:
                state, why, sentence = FixState.REFUSED, refused.reason.value, refused.sentence
            case FixEscalated() as escalated:
                state, why = FixState.ESCALATED, escalated.reason.value
                sentence = escalated.question
            case ReviewDecided(verdict=ReviewVerdict.APPROVED):
                state, why, sentence = FixState.PARTLY, APPROVED, "A person approved the patch."
            case ReviewDecided() as decided:
                state, why, sentence = FixState.REFUSED, decided.verdict.value, decided.reason
            case FixAbandoned() as abandoned:
                state, why, sentence = FixState.REFUSED, ABANDONED, abandoned.reason
            case TransitionReopened() | BudgetRaised():
                state, why, sentence = None, None, None
            case PatchDelivered() as delivered if delivered.in_part and state is FixState.FIXED:
                state, why, sentence = FixState.PARTLY, IN_PART, "Something of it stays affected."
            case PatchDelivered():
                pass
    return state, why, sentence, since if state is not None else None
