"""Escalated fixes that wait for a person."""

from fastapi import APIRouter
from fastapi.responses import Response

from fallback_tier.gates.journal.inputs import recorded_vulnerabilities
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, ReadersVisit
from fallback_tier.portal.views.decided import decision_message

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Questions that the page lists; a browser lays out so many at once.
ROWS = 500


@router.get("/queue")
def queue(visit: ReadersVisit, part: bool = False, done: str = "") -> Response:
    """The newest first. ``part``: the rows alone, for a page that is open; ``done``: the last decision."""
    waiting = visit.read.board.waiting()
    evidence = visit.service.record.evidence
    return visit.page(
        "queue_rows.html" if part else "queue.html",
        read=visit.read,
        lines=waiting[:ROWS],
        total=len(waiting),
        about=lambda line: recorded_vulnerabilities(line.inputs_sha256, evidence),
        told=decision_message(done, visit.service.record.command),
    )
