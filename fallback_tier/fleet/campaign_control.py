"""Pauses, cancels and resumes a campaign, and refreshes its list from the audit trail."""

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

#: Reads a fix's facts from the audit trail; None: it is not on record.
Facts = Callable[[str], FixFacts | None]

#: Return the fixes that a person decided, or that ended, since the last call; None: any escalated one.
ListChangedFixes = Callable[[], frozenset[str] | None]

#: States that people can change: by a decision about the first, by `fallback-tier resume` for the others.
_MAY_CHANGE = (FixState.ESCALATED, FixState.FAILED, FixState.CANCELLED)

#: Up to this many fixes are looked up one by one; for more the list is read.
_FEW = 100

#: Problem of a fix whose campaign was cancelled meanwhile.
CANCELLED = Problem(
    code=NOT_DELIVERED,
    problem="The campaign was cancelled before its patch was delivered.",
    next_step="`fleet resume`, then `fleet run`.",
)

#: Problem of a fix whose worker did not report how the delivery ended.
CUT_OFF = Problem(
    code=NOT_DELIVERED,
    problem="Its worker ended before it said that the patch was delivered.",
    next_step="`fleet run` does what is left of it.",
)


def all_escalated() -> None:
    """Return None: it is not known which fixes changed, so all escalated ones are read."""


def refresh(
    store: FleetStore, name: str, facts: Facts, *, only: frozenset[str] | None = None
) -> int:
    """Refresh the list from the audit trail, and return how many fixes were queued again.

    ``only``: read these fixes, if they are escalated, failed or cancelled; None: all escalated ones.
    """
    queued = 0
    for fix in worth_reading(store, name, only):
        facts_on_record = facts(fix.fix_id)
        if facts_on_record is None or not is_newer(fix, listed := as_listed(fix, facts_on_record)):
            continue
        if listed.state is not None:
            store.end(fix.fix_id, None, listed)
        else:
            queued += store.queue_again(fix.fix_id, listed)
    if queued:
        store.set_state(name, CampaignState.RUNNING, came_from=[CampaignState.FINISHED])
    return queued


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
    """Return whether the audit trail has more of a fix than the list. One that failed or was cancelled
    without an end on record keeps its state until the campaign is resumed.
    """
    if now.state is None:
        return fix.state is FixState.ESCALATED
    listed = (fix.state, fix.why, fix.cost, fix.attempts)
    return listed != (now.state, now.why, now.cost, now.attempts)


def is_claimed(store: FleetStore, fix_id: str) -> bool:
    """Return whether a fix may run: a runner has started it, within its campaign's limits, or it has no
    campaign. A person's decision alone starts nothing: the campaign may be paused, or its budget used
    up.
    """
    fix = store.fix(fix_id)
    return fix is None or fix.state is FixState.RUNNING


def undelivered(facts: FixFacts, problem: Problem | None) -> FixFacts:
    """Return the facts with a failed delivery, which the audit trail does not have."""
    sentence = None if problem is None else f"{problem.problem} {problem.next_step}"
    return facts.model_copy(update={"why": NOT_DELIVERED, "sentence": sentence})


def as_listed(fix: FleetFix, now: FixFacts) -> FixFacts:
    """Return the facts for the list: that a patch was not delivered is kept until it is on a branch on
    record.
    """
    is_undelivered = fix.why == NOT_DELIVERED and now.state is not None and now.state.has_patch
    if not is_undelivered or now.branch is not None:
        return now
    return now.model_copy(update={"why": fix.why, "sentence": fix.sentence})


def pause(store: FleetStore, name: str, said: Said | None = None) -> None:
    """Start no more fixes; running ones continue to their end. A second call changes nothing.

    Raises CampaignError if there is none of this name, or it is over; FleetStoreError.
    """
    _stop(store, name, CampaignState.PAUSED, [CampaignState.RUNNING], said)


def cancel(store: FleetStore, name: str, said: Said | None = None) -> None:
    """Start no more fixes; the campaign's runner ends running ones. Raises as ``pause`` does."""
    came_from = [CampaignState.RUNNING, CampaignState.PAUSED]
    _stop(store, name, CampaignState.CANCELLED, came_from, said)


def resume(store: FleetStore, name: str, facts: Facts, said: Said | None = None) -> int:
    """Let the campaign start fixes again, also those that failed, were cancelled, or were not delivered.

    Return how many fixes are queued again. A campaign with nothing left to do is finished. If a call is
    interrupted, the next one does the rest.

    Raises CampaignError if there is none of this name; FleetStoreError, AuditStoreError.
    """
    store.campaign(name)
    queued = refresh(store, name, facts)
    for state in (FixState.FAILED, FixState.CANCELLED):
        while stopped := store.fixes(name, state=state):
            for fix in stopped:
                listed = as_listed(fix, facts(fix.fix_id) or FixFacts())
                if listed.state is not None:
                    store.end(fix.fix_id, None, listed)
                else:
                    queued += store.queue_again(fix.fix_id, listed)
    while undelivered_fixes := store.undelivered(name):
        for fix in undelivered_fixes:
            listed = as_listed(fix, facts(fix.fix_id) or FixFacts())
            queued += store.queue_again(fix.fix_id, listed)
    is_over = store.campaign(name).is_over
    state_now = CampaignState.FINISHED if is_over else CampaignState.RUNNING
    store.set_state(name, state_now, came_from=list(CampaignState), said=said)
    return queued


def _stop(
    store: FleetStore,
    name: str,
    state: CampaignState,
    came_from: list[CampaignState],
    said: Said | None,
) -> None:
    if store.set_state(name, state, came_from=came_from, said=said):
        return
    current = store.campaign(name).state
    if current is not state:
        raise CampaignError(
            f"Campaign {name!r} is {current}: it can't be {state}.",
            next_step="`fallback-tier fleet status` shows where it stands.",
            kind="wrong_state",
        )
