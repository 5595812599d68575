"""The list refreshed from the record: what is over by the list, and what the record says of it now."""

from collections.abc import Callable

from fallback_tier.fleet.delivering import as_listed
from fallback_tier.fleet.model import CampaignState, FixFacts
from fallback_tier.fleet.newer import is_newer, worth_reading
from fallback_tier.fleet.store.store import FleetStore

#: Reads a fix's trail; None: it is not on record.
Facts = Callable[[str], FixFacts | None]

#: The fixes that were decided or have ended since it was asked the last time; None: any escalated one.
Decided = Callable[[], frozenset[str] | None]


def anybody() -> None:
    """Whoever doesn't know which fixes were decided."""


def refresh(
    store: FleetStore, name: str, facts: Facts, *, only: frozenset[str] | None = None
) -> int:
    """What is over, as the record has it now: of ``only`` these the escalated, failed and cancelled ones,
    or (None) all that are escalated. Returns how many go on: they are queued, and a runner starts them."""
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
