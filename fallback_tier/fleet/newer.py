"""Which fixes that are over the record may say something new of: a person decided, or ran them."""

from collections.abc import Iterator

from fallback_tier.fleet.model import FixFacts, FixState, FleetFix
from fallback_tier.fleet.store.reading import FleetReader

#: A person may decide about the first, and have the others go on by hand (`fallback-tier resume`).
_MAY_CHANGE = (FixState.ESCALATED, FixState.FAILED, FixState.CANCELLED)

#: Up to so many are looked up one by one; for more the list is read.
_FEW = 100


def worth_reading(store: FleetReader, name: str, only: frozenset[str] | None) -> Iterator[FleetFix]:
    """Of ``only`` these those that may have changed; None: all that wait for a person."""
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


def is_claimed(store: FleetReader, fix_id: str) -> bool:
    """It may run: a runner has started it, within its campaign's limits, or it is of no campaign. A
    person's decision alone starts nothing: the campaign may be paused, or its money spent."""
    fix = store.fix(fix_id)
    return fix is None or fix.state is FixState.RUNNING
