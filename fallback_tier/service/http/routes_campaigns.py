"""Routes of campaigns: status, stuck fixes, pause and resume."""

from typing import Annotated

from fastapi import APIRouter, Body, Query

from fallback_audit.frozen import Frozen
from fallback_tier.fleet.campaign_list import FixState
from fallback_tier.service.http.given import (
    BECAUSE,
    CampaignPath,
    Cursor,
    JsonRoute,
    TheService,
    cursor_of,
    may_answer,
    number_in,
)
from fallback_tier.service.http.security import Decider, Reader
from fallback_tier.service.operations.campaigns import (
    MAX_PAGE,
    Because,
    Campaign,
    CampaignFix,
    CampaignView,
)

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=JsonRoute)

_Because = Annotated[Because, Body(examples=[BECAUSE])]


class CampaignList(Frozen):
    """The newest first."""

    campaigns: tuple[Campaign, ...]


class CampaignFixes(Frozen):
    """``next`` None: there are no more."""

    fixes: tuple[CampaignFix, ...]
    next: str | None = None


@router.get("", responses=may_answer())
def campaigns(service: TheService, _: Reader) -> CampaignList:
    """All campaigns of this service's list."""
    return CampaignList(campaigns=service.campaigns.all())


@router.get("/{name}", responses=may_answer(404))
def campaign(service: TheService, _: Reader, name: CampaignPath) -> CampaignView:
    """Progress, spend against the cap, why fixes ended as they did, which are stuck."""
    return service.campaigns.show(name)


@router.get("/{name}/fixes", responses=may_answer(404))
def fixes(
    service: TheService,
    _: Reader,
    name: CampaignPath,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    state: FixState | None = None,
) -> CampaignFixes:
    """Its fixes, in the queue's order."""
    after = number_in(cursor)
    page = service.campaigns.fixes(
        name, state=state, after=-1 if after is None else after, limit=limit
    )
    next_cursor = cursor_of(page[-1].number) if len(page) == limit else None
    return CampaignFixes(fixes=page, next=next_cursor)


@router.post("/{name}/pause", responses=may_answer(404, 409))
def pause(service: TheService, caller: Decider, name: CampaignPath, because: _Because) -> Campaign:
    """Nothing more starts; what runs goes on to its end."""
    return service.campaigns.pause(caller, name, because)


@router.post("/{name}/resume", responses=may_answer(404))
def resume(service: TheService, caller: Decider, name: CampaignPath, because: _Because) -> Campaign:
    """It goes on, also with fixes that failed or were cancelled. `fallback-tier fleet run` starts them."""
    return service.campaigns.resume(caller, name, because)
