"""Report of a campaign: sums by state and ecosystem, reasons, cost and time; JSON, and one HTML page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from importlib.resources import files
from statistics import median
from typing import Any

from fallback_tier.budget.tally import in_dollars
from fallback_tier.fleet.campaign_list import CampaignLine, FixState, FleetFix, LeftOut

#: Maximum number of rows on the page; the JSON has all fixes.
MAX_ROWS = 5_000

_COLOURS = {
    FixState.FIXED: "#1a7f37",
    FixState.PARTLY: "#7fb800",
    FixState.ESCALATED: "#bf8700",
    FixState.REFUSED: "#57606a",
    FixState.FAILED: "#cf222e",
    FixState.CANCELLED: "#afb8c1",
    FixState.QUEUED: "#d0d7de",
    FixState.RUNNING: "#0969da",
}

_WIDTH = 720


def report_document(
    line: CampaignLine, fixes: Sequence[FleetFix], left_out: Sequence[LeftOut] = ()
) -> dict[str, Any]:
    """Return the report as JSON; money in dollars (estimates), time in seconds from a fix's first event
    to its end.
    """
    ecosystems = sorted({fix.ecosystem for fix in fixes})
    return {
        "campaign": line.campaign,
        "state": line.state.value,
        "created_at": line.created_at,
        "usd_cap": None if line.cap is None else in_dollars(line.cap),
        "total": _sums(fixes),
        "by_ecosystem": {
            name: _sums([fix for fix in fixes if fix.ecosystem == name]) for name in ecosystems
        },
        "why": _why(fixes),
        "left_out": [entry.model_dump() for entry in left_out],
        "fixes": [_fix(fix) for fix in fixes],
    }


def _sums(fixes: Sequence[FleetFix]) -> dict[str, Any]:
    took = [seconds for fix in fixes if (seconds := _seconds(fix)) is not None]
    states = Counter(fix.state for fix in fixes)
    return {
        "fixes": len(fixes),
        **{state.value: states.get(state, 0) for state in FixState},
        "attempts": sum(fix.attempts for fix in fixes),
        "tokens": sum(fix.tokens for fix in fixes),
        "usd": in_dollars(sum(fix.cost or 0 for fix in fixes)),
        "of_unknown_price": sum(fix.cost is None for fix in fixes),
        "seconds": round(sum(took), 3),
        "median_seconds": round(median(took), 3) if took else None,
    }


def _why(fixes: Iterable[FleetFix]) -> list[dict[str, Any]]:
    counts = Counter((fix.state.value, fix.why) for fix in fixes if fix.why is not None)
    ranked = sorted(counts.items(), key=lambda it: (-it[1], it[0]))
    return [{"state": state, "why": why, "fixes": count} for (state, why), count in ranked]


def _fix(fix: FleetFix) -> dict[str, Any]:
    shown = {"fix_id", "repository", "advisory_id", "ecosystem", "state", "why", "sentence"}
    shown |= {"attempts", "tokens", "started_at", "ended_at", "priority", "branch"}
    return {
        **fix.model_dump(mode="json", include=shown),
        "usd": None if fix.cost is None else in_dollars(fix.cost),
        "seconds": _seconds(fix),
    }


def _seconds(fix: FleetFix) -> float | None:
    if fix.started_at is None or fix.ended_at is None:
        return None
    began, ended = map(datetime.fromisoformat, (fix.started_at, fix.ended_at))
    return max(0.0, round((ended - began).total_seconds(), 3))  # a clock may have been set back


def report_page(document: dict[str, Any]) -> str:
    """Return the report as one self-contained HTML page: no script, no font, no request."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    bars = [{"name": "all", "parts": _parts(document["total"])}] + [
        {"name": name, "parts": _parts(sums)} for name, sums in document["by_ecosystem"].items()
    ]
    colours = {state.value: colour for state, colour in _COLOURS.items()}
    page = files("fallback_tier.fleet") / "templates" / "report.html"
    return environment.from_string(page.read_text(encoding="utf-8")).render(
        report=document,
        bars=bars,
        colours=colours,
        width=_WIDTH,
        rows=document["fixes"][:MAX_ROWS],
        max_rows=MAX_ROWS,
    )


def _parts(sums: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a bar: each state's share of the whole, from left to right."""
    x, parts = 0.0, []
    for state, colour in _COLOURS.items():
        count = sums[state.value]
        if count:
            width = _WIDTH * count / sums["fixes"]
            parts.append(
                {"x": round(x, 2), "wide": round(width, 2), "colour": colour,
                 "state": state.value, "count": count}
            )  # fmt: skip
            x += width
    return parts
