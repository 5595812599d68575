"""All fixes; one fix as a timeline; one event whole."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from fallback_tier.portal.given import Read
from fallback_tier.portal.lines import (
    ABANDONED,
    ESCALATED,
    OPEN,
    PATCHED,
    REFUSED,
    UNKNOWN,
    VERIFIED,
    FixLine,
)
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, ReadersVisit
from fallback_tier.portal.views.chain import chain_state
from fallback_tier.portal.views.timeline import PAGE, timeline
from fallback_tier.service.http.given import FixId
from fallback_tier.service.refusals import NotFoundError

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Fixes in one page of a list.
ROWS = 100

#: Ended without a patch that gates or a person took.
UNFIXED = "unfixed"

OUTCOMES = (OPEN, ESCALATED, VERIFIED, PATCHED, REFUSED, UNKNOWN, ABANDONED, UNFIXED)

_After = Annotated[int, Query(ge=0, lt=2**53)]


@router.get("/fixes")
def fixes(
    visit: ReadersVisit,
    outcome: str = "",
    text: Annotated[str, Query(max_length=200)] = "",
    skip: Annotated[int, Query(ge=0, le=10**9)] = 0,
    part: bool = False,
) -> Response:
    """What changed last first. ``text``: in the fix's name, its advisory or its repository."""
    found = [line for line in visit.read.board.newest() if _is_meant(line, outcome, text.strip())]
    return visit.page(
        "fixes_rows.html" if part else "fixes.html",
        read=visit.read,
        lines=found[skip : skip + ROWS],
        total=len(found),
        skip=skip,
        more=skip + ROWS if skip + ROWS < len(found) else None,
        outcome=outcome,
        outcomes=OUTCOMES,
        text=text,
    )


def _is_meant(line: FixLine, outcome: str, text: str) -> bool:
    messages = (line.fix_id, line.repository, *line.advisory_ids)
    stands = line.unfixed if outcome == UNFIXED else outcome in ("", line.outcome)
    return stands and any(text.lower() in one.lower() for one in messages)


def line_of(read: Read, fix_id: str) -> FixLine:
    """Raises NotFoundError."""
    line = read.board.fixes.get(fix_id)
    if line is None:
        raise NotFoundError(
            f"There is no fix {fix_id!r} on record.", next_step="The list has all that there are."
        )
    return line


@router.get("/fixes/{fix_id}")
def fix(visit: ReadersVisit, fix_id: FixId, after: _After = 0, part: bool = False) -> Response:
    """Its events behind number ``after``, a page of them. ``part``: what the page shows of it alone."""
    line, service = line_of(visit.read, fix_id), visit.service
    events = service.audits.events(fix_id=fix_id, after=after, limit=PAGE + 1)
    with service.record.reading() as reader:
        chain = chain_state(service.record, reader)
    return visit.page(
        "fix_body.html" if part else "fix.html",
        read=visit.read,
        line=line,
        chain=chain,
        groups=timeline(events[:PAGE]),
        after=after,
        more=events[PAGE - 1].seq if len(events) > PAGE else None,
    )


@router.get("/fixes/{fix_id}/events/{seq}")
def event(visit: ReadersVisit, fix_id: FixId, seq: int) -> Response:
    """One event, with every field, and its link of the chain: the address to keep."""
    line = line_of(visit.read, fix_id)
    found = visit.service.audits.events(fix_id=fix_id, after=max(0, seq - 1), limit=PAGE)
    if not found or found[0].seq != seq:
        raise NotFoundError(
            f"Fix {fix_id} has no event {seq}.", next_step="Its timeline lists its events."
        )
    (group,) = timeline(found)[:1]
    return visit.page(
        "event.html",
        line=line,
        shown=group.lines[0],
        stored=found[0],
        fields=found[0].payload.model_dump(mode="json"),
    )
