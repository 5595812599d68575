"""What is to become of a campaign: paused, cancelled, going on. For commands and for the service."""

from fallback_tier.fleet.model import CampaignState, FixFacts, FixState, Said
from fallback_tier.fleet.refreshing import Facts, as_listed, refresh
from fallback_tier.fleet.refusals import CampaignError
from fallback_tier.fleet.store.store import FleetStore


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
