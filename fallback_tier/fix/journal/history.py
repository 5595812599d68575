"""The trail of one fix, by gate transition: what a run that resumes it reads first."""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from fallback_audit.contract.trail import NOTES, TERMINALS, is_budget_stop
from fallback_audit.events import (
    AttemptStarted,
    BudgetRaised,
    BudgetReached,
    Digest,
    FixAbandoned,
    FixStarted,
    PatchProposed,
    TransitionReopened,
    abandoned_words,
)
from fallback_audit.ports import AuditReader, Scope, StoredEvent
from fallback_tier.errors import InputError

EventT = TypeVar("EventT")


@dataclass(frozen=True)
class Transition:
    """The events of one gate transition, at least one, in chain order."""

    scope: Scope
    events: tuple[StoredEvent, ...]

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of this type."""
        return [stored.payload for stored in self.events if isinstance(stored.payload, kind)]

    def last_of(self, kind: type[EventT]) -> EventT | None:
        """The latest event of this type."""
        return next(iter(reversed(self.of(kind))), None)

    @property
    def start(self) -> FixStarted | None:
        """None: another orchestrator's, which calls for attempts and judges by itself."""
        return next(iter(self.of(FixStarted)), None)

    @property
    def judges_again(self) -> Digest | None:
        """The patch whose gates alone are run again here."""
        return self.start.judges_again if self.start else None

    @cached_property
    def run(self) -> "Transition | None":
        """From the last AttemptStarted on; None where no attempt began."""
        starts = [
            number
            for number, stored in enumerate(self.events)
            if isinstance(stored.payload, AttemptStarted)
        ]
        return Transition(self.scope, self.events[starts[-1] :]) if starts else None

    @property
    def last_kind(self) -> str:
        """The kind of the last event."""
        return self.events[-1].kind

    @property
    def stopped(self) -> BudgetReached | None:
        """The cap at which it stands still, raised or not; None: it does not."""
        last = self.events[-1].payload
        if is_budget_stop(last) or isinstance(last, BudgetRaised):
            return self.last_of(BudgetReached)
        return None

    @property
    def end(self) -> object | None:
        """The terminal event; None while it is open, or open again by a raised budget."""
        for stored in reversed(self.events):
            if isinstance(stored.payload, BudgetRaised):
                return None
            if isinstance(stored.payload, TERMINALS):
                return stored.payload
        return None

    @property
    def reopened(self) -> TransitionReopened | None:
        """A person opened a gate transition that follows this one."""
        return self.last_of(TransitionReopened)

    @property
    def abandoned(self) -> FixAbandoned | None:
        """A person ended the fix here, although it had not come to its end."""
        return self.last_of(FixAbandoned)


@dataclass(frozen=True)
class History:
    """All gate transitions of one fix, in the order in which they began."""

    fix_id: str
    transitions: tuple[Transition, ...]

    @property
    def current(self) -> Transition:
        """The one that began last."""
        return self.transitions[-1]

    @property
    def last_seq(self) -> int:
        """Number of the last event."""
        return max(transition.events[-1].seq for transition in self.transitions)

    @property
    def patches(self) -> list[PatchProposed]:
        """All that the fix has proposed, in the order in which that was."""
        return [patch for transition in self.transitions for patch in transition.of(PatchProposed)]

    def check_not_abandoned(self) -> None:
        """Raises InputError if a person has abandoned the fix."""
        if (abandoned := self.current.abandoned) is not None:
            raise InputError(
                f"Fix {self.fix_id} was {' '.join(abandoned_words(abandoned).split())}.",
                next_step=f"`fallback-tier audit show {self.fix_id}` shows why. Start a new fix to try "
                "again.",
                kind="abandoned",
            )

    def transition(self, identifier: str | None) -> Transition | None:
        """By its identifier."""
        found = (it for it in self.transitions if it.scope.gate_transition_id == identifier)
        return next(found, None)

    def opener_of(self, transition: Transition) -> Transition | None:
        """The one that it is linked to: one before it, so that no forged link leads in a circle."""
        start = transition.start
        linked = self.transition(start.linked_transition) if start else None
        if linked is None or self.transitions.index(linked) >= self.transitions.index(transition):
            return None
        return linked


def read_history(audit: AuditReader, fix_id: str) -> History:
    """Raises InputError where there is no such fix on record. What keepers noted is left out."""
    found: dict[Scope, list[StoredEvent]] = {}
    for stored in audit.events(fix_id):
        if not isinstance(stored.payload, NOTES):
            found.setdefault(stored.scope, []).append(stored)
    if not found:
        raise InputError(
            f"There is no fix {fix_id!r} in the audit trail.",
            next_step="`fallback-tier audit log` lists those on record.",
            kind="no_such_fix",
        )
    return History(
        fix_id, tuple(Transition(scope, tuple(events)) for scope, events in found.items())
    )
