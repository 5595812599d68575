"""A run may be resumed wherever it stood still: the rules look through the event that says so."""

from collections.abc import Callable, Iterator

import pytest

from fallback_audit.contract.table import violations
from fallback_audit.contract.trail import TERMINALS
from fallback_audit.events import (
    AttemptRefused,
    AttemptStarted,
    ConsumerLeft,
    FixResumed,
    FixStarted,
    PatchProposed,
    SandboxDisabled,
    TransitionReopened,
)
from tests.unit.audit import human_trails as h
from tests.unit.audit import trails as t
from tests.unit.audit.trails import Events

MANAGED = [
    pytest.param(valid(), id=valid.__name__)
    for valid in h.VALID
    if isinstance(valid()[0], FixStarted)
]


def places(events: Events) -> Iterator[int]:
    """Where a process that resumes the fix finds no attempt under way: it goes on behind that event."""
    under_way = False
    for place, event in enumerate(events):
        if place and not under_way and not isinstance(event, FixResumed):
            yield place
        if isinstance(event, AttemptStarted):
            under_way = True
        elif isinstance(event, PatchProposed | AttemptRefused | ConsumerLeft):
            under_way = False
        elif isinstance(event, TERMINALS):
            return


def broken(events: Events) -> set[str]:
    return {violation.rule for violation in violations(t.trail_of(events))}


@pytest.mark.parametrize("events", MANAGED)
def test_a_fix_may_be_resumed_wherever_it_stands_still(events: Events) -> None:
    waived = SandboxDisabled(reason="a person said so")
    for place in places(events):
        resumed_fix = [h.resumed(events[place - 1].kind), waived]
        assert not broken([*events[:place], *resumed_fix, *events[place:]]), f"at {place}"


@pytest.mark.parametrize("events", MANAGED)
def test_a_fix_that_has_ended_is_resumed_by_nobody(events: Events) -> None:
    last = events[-1].kind
    trail = t.trail_of(events)
    ended = trail.terminal is not None or bool(trail.abandonments)
    assert ("resumes-are-of-open-fixes" in broken([*events, h.resumed(last)])) is ended


@pytest.mark.parametrize("events", MANAGED)
def test_an_unfinished_fix_may_be_abandoned_wherever_it_stands(events: Events) -> None:
    """Also in an attempt, between a verdict and what follows of it; not behind an end, unless reopened."""
    for place in range(1, len(events) + 1):
        trail = t.trail_of([*events[:place], h.abandoned()])
        before = t.trail_of(events[:place])
        allowed = not before.abandonments and (
            before.terminal is None or bool(before.of(TransitionReopened))
        )
        found = {violation.rule for violation in violations(trail)}
        assert found == (set() if allowed else {"abandonments-end-a-fix"}), f"after {place} events"
        assert not trail.is_open


@pytest.mark.parametrize("events", MANAGED)
def test_nothing_follows_an_abandonment_but_notes(events: Events) -> None:
    for place in range(1, len(events)):
        if not t.trail_of(events[:place]).abandonments:
            trail = [*events[:place], h.abandoned(), events[place]]
            assert "abandonments-end-a-fix" in broken(trail), f"after {place} events"


AFTER_THE_END: dict[str, Callable[[], Events]] = {
    "delivered": lambda: [h.delivered(1)],
    "approved": lambda: [h.approved(1)],
    "rejected": lambda: [h.rejected()],
    "reopened": lambda: [h.reopened()],
}


@pytest.mark.parametrize("word", AFTER_THE_END)
def test_an_open_fix_has_no_afterword(word: str) -> None:
    """Wherever a fix that ends verified stands before its end, nothing can be said of its end."""
    events = t.verified_on_retry()
    for length in range(1, len(events)):
        assert broken([*events[:length], *AFTER_THE_END[word]()]), f"after {length} events"
