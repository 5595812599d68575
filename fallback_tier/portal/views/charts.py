"""Charts as pictures that the server makes: rectangles with classes, and the same figures as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from fallback_tier.portal.views.amounts import usd

#: Days that a chart shows: two weeks tell a change from a weekend.
DAYS = 14

#: Size of the drawing area, in its own units.
WIDTH, HEIGHT = 420, 120

_GAP = 5


@dataclass(frozen=True)
class Bar:
    """One rectangle. ``tone``: a class of the style."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    says: str


@dataclass(frozen=True)
class Chart:
    """Stacked bars a day. ``rows``: the table: a day, and a figure a series."""

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
        """Nothing was recorded in these days."""
        return not self.bars


def days_to(last: str) -> list[str]:
    """The days of a chart, the oldest first. ``last``: ``2026-11-25``."""
    end = date.fromisoformat(last)
    return [(end - timedelta(days=back)).isoformat() for back in reversed(range(DAYS))]


def stacked(
    title: str,
    days: Sequence[str],
    series: Mapping[tuple[str, str], Sequence[Decimal | int]],
    unit: str = "",
) -> Chart:
    """``series``: name and tone → a figure a day."""
    sums = [sum((Decimal(v[at]) for v in series.values()), Decimal(0)) for at in range(len(days))]
    top = max(sums, default=Decimal(0))
    step = WIDTH / max(1, len(days))
    bars = []
    for at, day in enumerate(days):
        floor = Decimal(0)
        for (name, tone), values in series.items():
            value = Decimal(values[at])
            if value and top:
                tall = float(value / top) * HEIGHT
                y = HEIGHT - float(floor / top) * HEIGHT - tall
                says = f"{day}: {_shown(value, unit)} {name}"
                bars.append(Bar(at * step, y, step - _GAP, max(tall, 1.0), tone, says))
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
