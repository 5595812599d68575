"""How it goes: the queue, what became of fixes, what it cost, over time."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import Response

from fallback_tier.portal.board import Board
from fallback_tier.portal.lines import (
    ESCALATED,
    PATCHED,
    REFUSED,
    UNKNOWN,
    VERIFIED,
    FixLine,
)
from fallback_tier.portal.rendering import PREFIX
from fallback_tier.portal.routing import PageRoute, ReadersVisit
from fallback_tier.portal.views.chain import chain_state
from fallback_tier.portal.views.charts import Chart, days_to, stacked

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Unfixed advisories that the table shows; the list of fixes has the others.
MAX_UNFIXED = 30

#: What the steps of a fix come to. A person's abandonment is none of these: the list of fixes has it.
_ENDS = (
    (VERIFIED, "s-good"),
    (PATCHED, "s-soft"),
    (ESCALATED, "s-warn"),
    (REFUSED, "s-bad"),
    (UNKNOWN, "s-dim"),
)
_CALLS = (("author", "s-good"), ("judge", "s-soft"), ("critique", "s-warn"), ("rewrite", "s-bad"))


class Rate(NamedTuple):
    """How often: ``good`` of ``of``."""

    name: str
    good: int
    of: int


@router.get("/")
def overview(visit: ReadersVisit, part: bool = False) -> Response:
    """The first page. ``part``: its figures alone."""
    board, service = visit.read.board, visit.service
    with service.record.reading() as reader:
        chain = chain_state(service.record, reader)
    with board.lock:
        charts = _charts(board, datetime.now(UTC).date().isoformat())
        tiers = _rates(dict(board.by_tier), (VERIFIED, PATCHED))
        ecosystems = _rates(dict(board.by_ecosystem), (VERIFIED, PATCHED))
        counted = dict(board.standing)
        total = len(board.fixes)
    return visit.page(
        "figures.html" if part else "overview.html",
        read=visit.read,
        chain=chain,
        waiting=counted.get("waits", 0),
        running=service.queue.counts(),
        total=total,
        fixed=counted.get("fixed", 0),
        charts=charts,
        tiers=tiers,
        ecosystems=ecosystems,
        unfixed=board.newest_unfixed(MAX_UNFIXED),
        unfixed_total=counted.get("unfixed", 0),
        advisories=_advisories,
    )


def _advisories(line: FixLine) -> str:
    return ", ".join(line.advisory_ids) or line.advisory_id


def _charts(board: Board, today: str) -> list[Chart]:
    days = days_to(today)
    found = [board.days.get(day) for day in days]

    def of(name: str) -> list[int]:
        return [getattr(day, name) if day else 0 for day in found]

    return [
        stacked(
            "How fixes ended",
            days,
            {(end, tone): [day.ended[end] if day else 0 for day in found] for end, tone in _ENDS},
        ),
        stacked(
            "Estimated cost",
            days,
            {
                (call, tone): [day.usd.get(call, Decimal(0)) if day else 0 for day in found]
                for call, tone in _CALLS
            },
            "$",
        ),
        stacked(
            "Attempts",
            days,
            {
                ("first", "s-good"): [
                    a - b for a, b in zip(of("attempts"), of("retries"), strict=True)
                ],
                ("retries without RAG", "s-warn"): of("retries"),
            },
        ),
        stacked("Low confidence", days, {("flagged", "s-warn"): of("low_confidence")}),
    ]


def _rates(counts: dict[tuple[str, str], int], good: tuple[str, ...]) -> list[Rate]:
    names = sorted({name for name, _ in counts})
    return [
        Rate(
            name,
            sum(count for (one, end), count in counts.items() if one == name and end in good),
            sum(count for (one, _), count in counts.items() if one == name),
        )
        for name in names
    ]
