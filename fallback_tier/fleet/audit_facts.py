"""Facts of a campaign's fix in the audit trail, which its list is refreshed from."""

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

#: Why one is only partly fixed.
NOT_SHOWN = "not_shown"
IN_PART = "in_part"
APPROVED = "approved"

#: Why one is refused that a person ended.
ABANDONED = "abandoned"

#: What lets a fix go on that was over, or ends it, whoever ran it.
_DECISIONS = frozenset(
    kind.__name__
    for kind in (
        *(ReviewDecided, TransitionReopened, BudgetRaised, FixAbandoned),
        *(FixVerified, FixPatched, FixRefused, FixEscalated),
    )
)


class FleetRecord:
    """The record of a state folder, or the database's, opened when it is there. ``close`` it at the end."""

    def __init__(self, state_dir: Path, settings: RecordSettings) -> None:
        self._state_dir = state_dir
        self._settings = settings
        self._reader: ReadOnlyTrail | None = None
        self._read = 0

    def __call__(self, fix_id: str) -> FixFacts | None:
        """None: it is not on record. Raises AuditStoreError; the next call opens the store anew."""
        with self._reading() as reader:
            return None if reader is None else facts_of(reader, fix_id)

    def changed_fixes(self) -> frozenset[str]:
        """Return the fixes that ended, or that a person decided, since the last call; at the first, ever.
        Raises AuditStoreError: then the next call returns the same ones."""
        with self._reading() as reader:
            if reader is None:
                return frozenset()
            found = [*reader.events(kinds=_DECISIONS, after=self._read)]
        self._read = found[-1].seq if found else self._read
        return frozenset(it.scope.fix_id for it in found)

    @contextmanager
    def _reading(self) -> Iterator[ReadOnlyTrail | None]:
        """None: nothing is recorded yet."""
        if self._reader is None:
            self._reader = open_record(self._state_dir, self._settings)
        try:
            yield self._reader
        except AuditStoreError:
            self.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


def facts_of(audit: AuditReader, fix_id: str) -> FixFacts | None:
    """None: it is not on record. Raises AuditStoreError."""
    found = [it for it in audit.events(fix_id) if not isinstance(it.payload, NOTES)]
    if not found:
        return None
    state, why, sentence, ended_at = _end(found)
    tally = Tally(audit, Prices(), fix_id=fix_id)
    tally.refresh()
    amounts = [call.amount for call in tally.calls]
    known = [amount.microdollars for amount in amounts if amount.microdollars is not None]
    raised = effective(BudgetLimits(), tally.raised).usd_per_fix
    return FixFacts(
        state=state,
        why=why,
        sentence=sentence,
        cost=sum(known) if len(known) == len(amounts) else None,
        tokens=sum(amount.tokens for amount in amounts),
        attempts=sum(isinstance(it.payload, AttemptStarted) for it in found),
        started_at=found[0].recorded_at,
        ended_at=ended_at,
        raised=None if raised is None else microdollars(raised),
        branch=_branch(found),
        delivered=_is_delivered(found),
    )


def _branch(found: list[StoredEvent]) -> str | None:
    delivered = [it.payload for it in found if isinstance(it.payload, PatchDelivered)]
    committed = committed_as(delivered[-1]) if delivered else None
    return None if committed is None else committed.branch


def _is_delivered(found: list[StoredEvent]) -> bool:
    is_there = False
    for stored in found:
        match stored.payload:
            case PatchDelivered() as delivered:
                is_there = committed_as(delivered) is not None
            case TransitionReopened() | FixVerified() | FixPatched() | ReviewDecided():
                is_there = False
    return is_there


def _end(found: list[StoredEvent]) -> tuple[FixState | None, str | None, str | None, str | None]:
    """How it stands: state (None: it goes on), why, in words, and since when."""
    state, why, sentence, since = None, None, None, None
    in_part: tuple[str, ...] = ()
    for stored in found:
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
