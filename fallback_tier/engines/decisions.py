"""What people have decided, read from the record: the truth behind every hint (ADR-0086)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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
from fallback_tier.fix.journal.history import read_history
from fallback_tier.fix.journal.review import answer_to

_LETS_GO_ON = (BudgetRaised, TransitionReopened)
_GOES_ON = (FixResumed, FixStarted)
_KINDS = frozenset(
    kind.__name__
    for kind in (*_LETS_GO_ON, *_GOES_ON, ReviewDecided, FixAbandoned)  # what `Decisions` follows
)


class Answer(NamedTuple):
    """``goes_on``: a person let the fix go on; ``is_over``: there is nothing left to ask or to do; neither:
    the question is open."""

    goes_on: bool
    is_over: bool


def answer_on_record(audit: AuditReader, fix_id: str) -> Answer:
    """What has become of the question that a fix asked. Raises InputError: no such fix; AuditStoreError."""
    current = read_history(audit, fix_id).current
    if current.abandoned is not None:
        return Answer(goes_on=False, is_over=True)
    if current.reopened is not None or current.end is None:
        return Answer(goes_on=True, is_over=False)
    asks = isinstance(current.end, FixEscalated) and answer_to(current) is None
    return Answer(goes_on=False, is_over=not asks)


class FollowedTrail(AuditReader, HeaderReader, Protocol):
    """What is followed."""


@dataclass
class Decisions:
    """Follows a record, and tells which fixes have a decision that nobody has acted on.

    ``upto``: number of the last event that was read; what is followed from the beginning is found again
    by whoever starts anew, so nothing has to be kept.
    """

    upto: int = 0

    def __post_init__(self) -> None:
        self._open: dict[str, int] = {}

    def read(self, audit: FollowedTrail) -> None:
        """Everything that was recorded since. Raises AuditStoreError: then the next call reads it."""
        tip, _ = audit.tip()
        if tip == self.upto:
            return
        found = list(self._since(audit))
        for fix_id, seq in found:
            self._open.pop(fix_id, None)
            if seq:
                self._open[fix_id] = seq
        self.upto = tip

    def open(self) -> dict[str, int]:
        """Fixes with a decision that is not acted on, each with the decision's number."""
        return dict(self._open)

    def heard(self, fix_id: str, seq: int) -> None:
        """Nothing follows of this decision in the record (it was one for good): it was told."""
        if self._open.get(fix_id) == seq:
            del self._open[fix_id]

    def _since(self, audit: AuditReader) -> Iterator[tuple[str, int]]:
        """Each fix with the number of a decision, or 0 where it goes on."""
        for stored in audit.events(kinds=_KINDS, after=self.upto):
            yield (
                stored.scope.fix_id,
                0 if isinstance(stored.payload, _GOES_ON) else stored.seq,
            )
