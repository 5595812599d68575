"""Pause, cancel and resume a campaign, and bring its list up to date with the record."""

from collections.abc import Callable, Iterator

from fallback_tier.fleet.campaign_list import (
    NOT_DELIVERED,
    CampaignState,
    FixFacts,
    FixState,
    FleetFix,
    Said,
)
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.store.store import FleetStore
from fallback_tier.workers.problem import Problem

#: Reads a fix's trail; None: it is not on record.
Facts = Callable[[str], FixFacts | None]

#: Return the fixes that a person decided, or that ended, since the last call; None: any escalated one.
ListChangedFixes = Callable[[], frozenset[str] | None]

#: A person may decide about the first, and have the others go on by hand (`fallback-tier resume`).
_MAY_CHANGE = (FixState.ESCALATED, FixState.FAILED, FixState.CANCELLED)

#: Up to so many are looked up one by one; for more the list is read.
_FEW = 100

#: The campaign was cancelled meanwhile.
CANCELLED = Problem(
    code=NOT_DELIVERED,
    problem="The campaign was cancelled before its patch was delivered.",
    next_step="`fleet resume`, then `fleet run`.",
)

#: Nobody said how the delivery ended.
CUT_OFF = Problem(
    code=NOT_DELIVERED,
    problem="Its worker ended before it said that the patch was delivered.",
    next_step="`fleet run` does what is left of it.",
)


def all_escalated() -> None:
    """Return None: which fixes changed is not known, so all that are escalated are looked at."""


def refresh(
    store: FleetStore, name: str, facts: Facts, *, only: frozenset[str] | None = None
) -> int:
    """Bring the list up to date with the audit trail, and return how many fixes were queued again.

    ``only``: look at these fixes, if they are escalated, failed or cancelled; None: at all escalated ones.
    """
    go_on = 0
    for fix in worth_reading(store, name, only):
        known = facts(fix.fix_id)
        if known is None or not is_newer(fix, now := as_listed(fix, known)):
            continue
        if now.state is not None:
            store.end(fix.fix_id, None, now)
        else:
            go_on += store.queue_again(fix.fix_id, now)
    if go_on:
        store.set_state(name, CampaignState.RUNNING, came_from=[CampaignState.FINISHED])
    return go_on


def worth_reading(store: FleetStore, name: str, only: frozenset[str] | None) -> Iterator[FleetFix]:
    """Yield the fixes of ``only`` that may have changed; None: all that wait for a person."""
    if only is None:
        yield from store.every(name, FixState.ESCALATED)
    elif len(only) <= _FEW:
        for fix_id in sorted(only):
            fix = store.fix(fix_id)
            if fix is not None and fix.campaign == name and fix.state in _MAY_CHANGE:
                yield fix
    else:
        for state in _MAY_CHANGE:
            yield from (fix for fix in store.every(name, state) if fix.fix_id in only)


def is_newer(fix: FleetFix, now: FixFacts) -> bool:
    """The record says more of it than the list. One that failed or was cancelled without an end on record
    stays what it is until somebody resumes the campaign."""
    if now.state is None:
        return fix.state is FixState.ESCALATED
    known = (fix.state, fix.why, fix.cost, fix.attempts)
    return known != (now.state, now.why, now.cost, now.attempts)


def is_claimed(store: FleetStore, fix_id: str) -> bool:
    """It may run: a runner has started it, within its campaign's limits, or it is of no campaign. A
    person's decision alone starts nothing: the campaign may be paused, or its money spent."""
    fix = store.fix(fix_id)
    return fix is None or fix.state is FixState.RUNNING


def undelivered(facts: FixFacts, why: Problem | None) -> FixFacts:
    """As the record has it, but for what it can't know."""
    sentence = None if why is None else f"{why.problem} {why.next_step}"
    return facts.model_copy(update={"why": NOT_DELIVERED, "sentence": sentence})


def as_listed(fix: FleetFix, now: FixFacts) -> FixFacts:
    """What the list is to say where the record says this: that a patch was not delivered stays, until the
    record has it on a branch."""
    stays = fix.why == NOT_DELIVERED and now.state is not None and now.state.has_patch
    if not stays or now.branch is not None:
        return now
    return now.model_copy(update={"why": fix.why, "sentence": fix.sentence})


def pause(store: FleetStore, name: str, said: Said | None = None) -> None:
    """Nothing more starts; what runs goes on to its end. Who is second says nothing new.

    Raises CampaignError: there is none of this name, or it is over; FleetStoreError.
    """
    _stop(store, name, CampaignState.PAUSED, [CampaignState.RUNNING], said)


def cancel(store: FleetStore, name: str, said: Said | None = None) -> None:
    """Nothing more starts, and its runner ends what runs. Raises as ``pause`` does."""
    came_from = [CampaignState.RUNNING, CampaignState.PAUSED]
    _stop(store, name, CampaignState.CANCELLED, came_from, said)


def resume(store: FleetStore, name: str, facts: Facts, said: Said | None = None) -> int:
    """It may start fixes again, those too that failed, were cancelled, or were not delivered; returns how
    many are queued again. One with nothing left to do is finished. Where it is cut off in the middle, the
    next call does the rest.

    Raises CampaignError: there is none of this name; FleetStoreError, AuditStoreError.
    """
    store.campaign(name)
    again = refresh(store, name, facts)
    for state in (FixState.FAILED, FixState.CANCELLED):
        while found := store.fixes(name, state=state):
            for fix in found:
                known = as_listed(fix, facts(fix.fix_id) or FixFacts())
                if known.state is not None:
                    store.end(fix.fix_id, None, known)
                else:
                    again += store.queue_again(fix.fix_id, known)
    while waiting := store.undelivered(name):
        for fix in waiting:
            known = as_listed(fix, facts(fix.fix_id) or FixFacts())
            again += store.queue_again(fix.fix_id, known)
    is_over = store.campaign(name).is_over
    stands = CampaignState.FINISHED if is_over else CampaignState.RUNNING
    store.set_state(name, stands, came_from=list(CampaignState), said=said)
    return again


def _stop(
    store: FleetStore,
    name: str,
    state: CampaignState,
    came_from: list[CampaignState],
    said: Said | None,
) -> None:
    if store.set_state(name, state, came_from=came_from, said=said):
        return
    stands = store.campaign(name).state
    if stands is not state:
        raise CampaignError(
            f"Campaign {name!r} is {stands}: it can't be {state}.",
            next_step="`fallback-tier fleet status` shows where it stands.",
            kind="wrong_state",
        )
