"""The stream that open pages listen to."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from fallback_tier.portal.changes import Bell
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, Reader
from fallback_tier.service.http.security import AccessControl
from fallback_tier.service.roles import Role

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


async def _bell(request: Request, _: Reader) -> Bell:
    bell: Bell = request.app.state.bell
    bell.check()
    return bell


@router.get("/changes", response_class=EventSourceResponse)
async def changes(
    request: Request,
    bell: Annotated[Bell, Depends(_bell)],
    after: Annotated[int, Query(ge=0, lt=2**53)] = 0,
    last: Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,15}$")] = None,
) -> AsyncIterator[ServerSentEvent]:
    """The names of fixes with new events, as they come; null: too many to name. ``after``: the event that
    the page was made at. It ends before the next message for whom has no right to it any more."""
    doorman: AccessControl = request.app.state.doorman
    async for changed in bell.follow(after if last is None else int(last)):
        if not doorman.still(request, Role.READ):
            return
        yield ServerSentEvent(data=changed.fixes, event="changed", id=str(changed.last))
