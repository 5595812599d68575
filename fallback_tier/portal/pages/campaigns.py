"""Campaigns of a fleet: progress, cost, stuck fixes; pause and resume."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Form, Query
from fastapi.responses import RedirectResponse, Response

from fallback_tier.errors import InputError
from fallback_tier.fleet.campaign_list import CampaignState, FixState
from fallback_tier.portal.routing import PREFIX, PageRoute, ReadersVisit, SentByDecider, Visit
from fallback_tier.service.http.given import CampaignPath
from fallback_tier.service.operations.campaigns import Because, Spend
from fallback_tier.service.refusals import ConflictError

#: Length of a bar, in its own units.
WIDTH = 720.0

#: The CSS class of each state, in the order of the bar from left to right: what is done comes first.
TONES = {
    FixState.FIXED: "s-good",
    FixState.PARTLY: "s-soft",
    FixState.ESCALATED: "s-warn",
    FixState.REFUSED: "s-dim",
    FixState.FAILED: "s-bad",
    FixState.CANCELLED: "s-line",
    FixState.RUNNING: "s-now",
    FixState.QUEUED: "s-left",
}

router = APIRouter(prefix=PREFIX, route_class=PageRoute, include_in_schema=False)

#: Fixes on one page of a campaign.
ROWS = 100

#: Message of a page after one of its forms was sent; nothing else of the address is shown.
_TOLD = {
    "pause": "Nothing more starts; what runs goes on to its end.",
    "resume": "It may go on: fixes that failed or were cancelled are queued again.",
}

_Text = Annotated[str, Form(max_length=4_000)]


class Piece(NamedTuple):
    """A part of a bar. ``tone``: a CSS class; ``says``: its meaning."""

    x: float
    width: float
    tone: str
    says: str


def progress(counts: Mapping[FixState, int]) -> tuple[Piece, ...]:
    """Return one piece per state that has fixes."""
    parts = [(counts[state], tone, f"{counts[state]:,} {state}") for state, tone in TONES.items()]
    return _pieces(parts, Decimal(sum(counts.values())))


def money(usd: Spend) -> tuple[Piece, ...]:
    """Return the pieces spent, reserved and left of the cap; if persons raised caps of fixes, of what
    exceeds it. Without a cap there is no bar.
    """
    if usd.cap is None:
        return ()
    spent, reserved, cap = Decimal(usd.spent), Decimal(usd.reserved), Decimal(usd.cap)
    remaining = max(Decimal(0), cap - spent - reserved)
    parts = [
        (spent, "s-bad" if spent > cap else "s-good", "spent"),
        (reserved, "s-soft", "reserved by running fixes"),
        (remaining, "s-left", "left"),
    ]
    return _pieces(parts, spent + reserved + remaining)


def _pieces(parts: Sequence[tuple[Decimal | int, str, str]], total: Decimal) -> tuple[Piece, ...]:
    x, pieces = 0.0, []
    for amount, tone, says in parts:
        if amount:
            width = WIDTH * float(amount / total)
            pieces.append(Piece(x, width, tone, says))
            x += width
    return tuple(pieces)


@router.get("/campaigns")
def campaigns(visit: ReadersVisit) -> Response:
    """Return the campaigns, the newest first."""
    service = visit.service
    all_campaigns = service.campaigns.all()
    return visit.page(
        "campaigns.html",
        read=visit.read,
        campaigns=[(campaign, progress(campaign.counts)) for campaign in all_campaigns],
        width=WIDTH,
        run=service.record.command("fallback-tier fleet run CAMPAIGN.toml"),
    )


@router.get("/campaigns/{name}")
def campaign(
    visit: ReadersVisit,
    name: CampaignPath,
    state: FixState | None = None,
    after: Annotated[int, Query(ge=-1, lt=2**53)] = -1,
    part: bool = False,
    done: str = "",
) -> Response:
    """Return one campaign. ``state``, ``after``: the page of its fixes; ``part``: only what changes
    with the audit trail; ``done``: the form that was sent last.
    """
    template = "campaign_body.html" if part else "campaign.html"
    told = _TOLD.get(done)
    return _screen(visit, name, template=template, state=state, after=after, told=told)


@router.post("/campaigns/{name}/pause")
def pause(visit: SentByDecider, name: CampaignPath, because: _Text = "") -> Response:
    """Pause as ``POST /v1/campaigns/{name}/pause`` does."""
    return _steered(visit, name, "pause", because)


@router.post("/campaigns/{name}/resume")
def resume(visit: SentByDecider, name: CampaignPath, because: _Text = "") -> Response:
    """Resume as ``POST /v1/campaigns/{name}/resume`` does."""
    return _steered(visit, name, "resume", because)


def _steered(visit: Visit, name: str, action: str, because: str) -> Response:
    """Steer by the operation of the JSON interface; an error is shown on the same page."""
    campaigns = visit.service.campaigns
    steer = campaigns.pause if action == "pause" else campaigns.resume
    try:
        steer(visit.who.caller, name, _reason(because))
    except ConflictError as error:
        problem, status = f"{error.problem} Nothing was changed.", 409
    except _NoReasonError as error:
        problem, status = f"{error.problem} {error.next_step}", 422
    else:
        return RedirectResponse(f"{PREFIX}/campaigns/{name}?done={action}", 303)
    return _screen(visit, name, problem=problem, because=because, status=status)


class _NoReasonError(InputError):
    """A form without a reason."""


def _reason(text: str) -> Because:
    try:
        return Because(because=text.strip())
    except ValueError as error:
        raise _NoReasonError(
            "A reason is needed, of 2,000 characters at most.",
            next_step="Nothing was changed: write one, and send it again.",
        ) from error


def _screen(
    visit: Visit,
    name: str,
    *,
    template: str = "campaign.html",
    state: FixState | None = None,
    after: int = -1,
    told: str | None = None,
    problem: str | None = None,
    because: str = "",
    status: int = 200,
) -> Response:
    read, campaigns = visit.read, visit.service.campaigns
    view = campaigns.show(name)
    fixes = campaigns.fixes(name, state=state, after=after, limit=ROWS + 1)
    shown = fixes[:ROWS]
    fix_ids = {fix.fix_id for fix in (*shown, *(stuck.fix for stuck in view.stuck))}
    lines = {fix_id: line for fix_id in fix_ids if (line := read.board.fixes.get(fix_id))}
    return visit.page(
        template,
        status=status,
        read=read,
        view=view,
        one=view.campaign,
        progress=progress(view.campaign.counts),
        money=money(view.campaign.usd),
        width=WIDTH,
        tones=TONES,
        on_record=lines,
        fixes=shown,
        state=state,
        after=after,
        more=shown[-1].number if len(fixes) > ROWS else None,
        steer="pause" if view.campaign.state is CampaignState.RUNNING else "resume",
        may_decide=visit.may_decide,
        told=told,
        problem=problem,
        because=because,
    )
