"""A campaign in a service's list, with a fix in every state; tests/service/portal.py has some on record."""

from collections.abc import Sequence
from pathlib import Path

from fallback_tier.fleet.campaign_list import FleetFix
from fallback_tier.fleet.store.store import open_store
from tests.unit.fleet.made import fix, planned

#: What would like to be run where a page shows it.
HOSTILE = "<script>alert(1)</script>\u202e'\"><img src=x onerror=alert(1)>"

BEGAN, ENDED = "2026-11-25T20:00:00.000+00:00", "2026-11-25T20:07:00.000+00:00"

_TIMES = {"started_at": BEGAN, "ended_at": ENDED}

#: Millionths of a dollar: 3.60 spent, 2.40 reserved; another fix may use 2.50.
CAP, FIX_CAP = 7_000_000, 2_500_000

FIXES = (
    fix(0, "app", fix_id="fix-verified", state="fixed", cost=1_500_000, attempts=2, **_TIMES),
    fix(
        1, "shop", fix_id="fix-cap", state="escalated", why="retry_cap_reached",
        sentence="Three attempts failed.", cost=2_000_000, attempts=3, **_TIMES,
    ),
    fix(
        2, "api", fix_id="fix-refused", state="refused", why="not_affected",
        sentence="Not affected.", **_TIMES,
    ),
    fix(3, "web", state="failed", why="worker", sentence="Its worker has died 5 times.", **_TIMES),
    fix(4, "cart", state="running", started_at=BEGAN, cost=100_000, cap=FIX_CAP, holder="gone"),
    fix(5, "mail", state="queued", why="audit_store", sentence="The record was away."),
    fix(6, "docs"),
    fix(7, "site", state="partly", why="not_shown", sentence="Nothing shows the flaw gone."),
    fix(
        8, "data", state="failed", advisory_id=HOSTILE, ecosystem=HOSTILE, why=HOSTILE,
        sentence=HOSTILE, cost=None,
    ),
)  # fmt: skip


def write_campaign(
    state: Path, fixes: Sequence[FleetFix] = FIXES, *, cap: int | None = CAP, url: str | None = None
) -> None:
    """Put it into the list: ``spring``."""
    with open_store(state, url) as store:
        store.create(planned(fixes, cap=cap, fix_cap=None if cap is None else FIX_CAP))
