"""What came of a campaign: sums by state and ecosystem, why, cost and time; JSON, and one HTML page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from fallback_tier.budget.tally import in_dollars
from fallback_tier.fleet.model import CampaignLine, FixState, FleetFix, LeftOut

#: Fixes whose rows the page has; the JSON has all.
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
    """For machines; money in dollars (estimates), time in seconds from a fix's first event to its end."""
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
        "left_out": [it.model_dump() for it in left_out],
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
    found = Counter((fix.state.value, fix.why) for fix in fixes if fix.why is not None)
    ranked = sorted(found.items(), key=lambda it: (-it[1], it[0]))
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
    return max(0.0, round((ended - began).total_seconds(), 3))  # clocks are set back


def report_page(document: dict[str, Any]) -> str:
    """One page that needs no other file: no script, no font, nothing is fetched."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    bars = [{"name": "all", "parts": _parts(document["total"])}] + [
        {"name": name, "parts": _parts(sums)} for name, sums in document["by_ecosystem"].items()
    ]
    colours = {state.value: colour for state, colour in _COLOURS.items()}
    return environment.from_string(_PAGE).render(
        report=document,
        bars=bars,
        colours=colours,
        width=_WIDTH,
        rows=document["fixes"][:MAX_ROWS],
        max_rows=MAX_ROWS,
    )


def _parts(sums: dict[str, Any]) -> list[dict[str, Any]]:
    """A bar: what each state has of the whole, beside one another."""
    x, found = 0.0, []
    for state, colour in _COLOURS.items():
        count = sums[state.value]
        if count:
            wide = _WIDTH * count / sums["fixes"]
            found.append(
                {"x": round(x, 2), "wide": round(wide, 2), "colour": colour,
                 "state": state.value, "count": count}
            )  # fmt: skip
            x += wide
    return found


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Campaign {{ report.campaign }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #d0d7de; padding: .25rem .6rem; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em; }
</style></head><body>
<h1>Campaign {{ report.campaign }}</h1>
<p>{{ report.state }}; planned {{ report.created_at }}; {{ report.total.fixes }} fixes;
${{ report.total.usd }} used{% if report.usd_cap %} of at most ${{ report.usd_cap }}{% endif %} (estimates
from a dated price table){% if report.total.of_unknown_price %};
the price of {{ report.total.of_unknown_price }}
is not known{% endif %}.</p>
<h2>How they ended</h2>
<p>{% for state, colour in colours.items() %}
<span class="key" style="background: {{ colour }}"></span>{{ state }}{% endfor %}</p>
{% for bar in bars %}
<h3>{{ bar.name }}</h3>
<svg viewBox="0 0 {{ width }} 24" width="{{ width }}" height="24" role="img" aria-label="{{ bar.name }}:
{% for part in bar.parts %} {{ part.count }} {{ part.state }}{% endfor %}">
{% for part in bar.parts %}
<rect x="{{ part.x }}" y="0" width="{{ part.wide }}" height="24" fill="{{ part.colour }}">
<title>{{ part.count }} {{ part.state }}</title></rect>
{% endfor %}
</svg>
{% endfor %}
<h2>By ecosystem</h2>
<table><tr><th>ecosystem</th><th>fixes</th>{% for state in colours %}<th>{{ state }}</th>{% endfor %}
<th>attempts</th><th>tokens</th><th>$</th><th>median s</th></tr>
{% for name, sums in report.by_ecosystem.items() %}
<tr><td>{{ name }}</td><td class="n">{{ sums.fixes }}</td>
{% for state in colours %}<td class="n">{{ sums[state] }}</td>{% endfor %}
<td class="n">{{ sums.attempts }}</td><td class="n">{{ sums.tokens }}</td><td class="n">{{ sums.usd }}</td>
<td class="n">{{ sums.median_seconds if sums.median_seconds is not none else "" }}</td></tr>
{% endfor %}
</table>
<h2>Why</h2>
<table><tr><th>state</th><th>why</th><th>fixes</th></tr>
{% for one in report.why %}
<tr><td>{{ one.state }}</td><td>{{ one.why }}</td><td class="n">{{ one.fixes }}</td></tr>
{% endfor %}
</table>
{% if report.left_out %}
<h2>Not in the list</h2>
{% if report.left_out|length > max_rows %}
<p>The first {{ max_rows }} of {{ report.left_out|length }}; the JSON report has all.</p>
{% endif %}
<table><tr><th>what</th><th>why</th></tr>
{% for one in report.left_out[:max_rows] %}
<tr><td>{{ one.what }}</td><td>{{ one.why }}</td></tr>
{% endfor %}
</table>
{% endif %}
<h2>Fixes</h2>
{% if rows|length < report.fixes|length %}
<p>The first {{ rows|length }} of {{ report.fixes|length }}; the JSON report has all.</p>
{% endif %}
<table><tr><th>repository</th><th>advisory</th><th>ecosystem</th><th>state</th><th>why</th><th>branch</th>
<th>attempts</th><th>$</th><th>s</th></tr>
{% for fix in rows %}
<tr><td>{{ fix.repository }}</td><td>{{ fix.advisory_id }}</td><td>{{ fix.ecosystem }}</td>
<td>{{ fix.state }}</td><td>{{ fix.sentence or fix.why or "" }}</td>
<td>{{ fix.branch or "" }}</td><td class="n">{{ fix.attempts }}</td>
<td class="n">{{ fix.usd if fix.usd is not none else "?" }}</td>
<td class="n">{{ fix.seconds if fix.seconds is not none else "" }}</td></tr>
{% endfor %}
</table>
</body></html>
"""
