"""Escalated fixes that wait for a person."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from fallback_tier.portal.rendering import PREFIX, page
from fallback_tier.portal.routing import PageRoute, Reader
from fallback_tier.portal.views.told import why_escalated
from fallback_tier.service.http.given import TheService

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)


@router.get("/queue")
def queue(request: Request, service: TheService, who: Reader, part: bool = False) -> Response:
    """The newest first. ``part``: the rows alone, for a page that is open."""
    found = service.reviews.questions()
    template = "queue_rows.html" if part else "queue.html"
    return page(template, request, who, questions=found, why=why_escalated, told=None)
