"""The first page: the queue, and outcomes and costs of fixes over time, as charts and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from fastapi import APIRouter
from fastapi.responses import Response

from fallback_tier.portal.board import (
    ESCALATED,
    PATCHED,
    REFUSED,
    UNKNOWN,
    VERIFIED,
    Board,
    FixLine,
)
from fallback_tier.portal.pages.verification import chain_state
from fallback_tier.portal.routing import PREFIX, PageRoute, ReadersVisit
from fallback_tier.portal.views.spending import usd

#: Days in a chart: two weeks show whether a change is only a weekend.
DAYS = 14

#: Size of the drawing area, in its own units.
WIDTH, HEIGHT = 420, 120

_GAP = 5

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Maximum number of unfixed advisories in the table; the list of fixes has the others.
_MAX_UNFIXED = 30

#: Ends of a fix by its own steps. A person's abandonment is not one: the list of fixes has it.
_ENDS = (
    (VERIFIED, "s-good"),
    (PATCHED, "s-soft"),
    (ESCALATED, "s-warn"),
    (REFUSED, "s-bad"),
    (UNKNOWN, "s-dim"),
)
_CALLS = (("author", "s-good"), ("judge", "s-soft"), ("critique", "s-warn"), ("rewrite", "s-bad"))


@dataclass(frozen=True)
class Bar:
    """One rectangle. ``tone``: a CSS class."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    says: str


@dataclass(frozen=True)
class Chart:
    """Stacked bars, one per day. ``rows``: the table: a day, and one figure per series."""

    title: str
    names: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    top: str
    first: str
    last: str
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    total: str

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was recorded in these days."""
        return not self.bars


def days_to(last: str) -> list[str]:
    """Return the days of a chart, the oldest first. ``last``: ``2026-11-25``."""
    end = date.fromisoformat(last)
    return [(end - timedelta(days=days_back)).isoformat() for days_back in reversed(range(DAYS))]


def stacked(
    title: str,
    days: Sequence[str],
    series: Mapping[tuple[str, str], Sequence[Decimal | int]],
    unit: str = "",
) -> Chart:
    """Return a chart. ``series``: name and tone → one figure per day."""
    sums = [sum((Decimal(v[at]) for v in series.values()), Decimal(0)) for at in range(len(days))]
    top = max(sums, default=Decimal(0))
    step = WIDTH / max(1, len(days))
    bars = []
    for at, day in enumerate(days):
        floor = Decimal(0)
        for (name, tone), values in series.items():
            value = Decimal(values[at])
            if value and top:
                height = float(value / top) * HEIGHT
                y = HEIGHT - float(floor / top) * HEIGHT - height
                says = f"{day}: {_shown(value, unit)} {name}"
                bars.append(Bar(at * step, y, step - _GAP, max(height, 1.0), tone, says))
            floor += value
    rows = [
        (day, tuple(_shown(Decimal(values[at]), unit) for values in series.values()))
        for at, day in enumerate(days)
        if sums[at]
    ]
    return Chart(
        title,
        tuple(series),
        tuple(bars),
        _shown(top, unit),
        days[0][5:] if days else "",
        days[-1][5:] if days else "",
        tuple(rows),
        _shown(sum(sums, Decimal(0)), unit),
    )


def _shown(value: Decimal, unit: str) -> str:
    return usd(value) if unit == "$" else f"{value:,}"


class Rate(NamedTuple):
    """A success rate: ``good`` of ``of``."""

    name: str
    good: int
    of: int


@router.get("/")
def overview(visit: ReadersVisit, part: bool = False) -> Response:
    """Return the first page. ``part``: its figures only."""
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
        unfixed=board.newest_unfixed(_MAX_UNFIXED),
        unfixed_total=counted.get("unfixed", 0),
        advisories=_advisories,
    )


def _advisories(line: FixLine) -> str:
    return ", ".join(line.advisory_ids) or line.advisory_id


def _charts(board: Board, today: str) -> list[Chart]:
    days = days_to(today)
    days_recorded = [board.days.get(day) for day in days]

    def of(name: str) -> list[int]:
        return [getattr(day, name) if day else 0 for day in days_recorded]

    return [
        stacked(
            "How fixes ended",
            days,
            {
                (end, tone): [day.ended[end] if day else 0 for day in days_recorded]
                for end, tone in _ENDS
            },
        ),
        stacked(
            "Estimated cost",
            days,
            {
                (call, tone): [day.usd.get(call, Decimal(0)) if day else 0 for day in days_recorded]
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
            sum(count for (key, end), count in counts.items() if key == name and end in good),
            sum(count for (key, _), count in counts.items() if key == name),
        )
        for name in names
    ]
