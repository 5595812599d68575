"""A report: its sums, and a page that carries nothing in."""

from fallback_tier.fleet.campaign_list import CampaignLine, CampaignState, FixState
from fallback_tier.fleet.campaign_report import report_document, report_page
from tests.unit.fleet.made import NAME, fix

LINE = CampaignLine(
    campaign=NAME,
    digest="d",
    state=CampaignState.FINISHED,
    created_at="2026-11-25T00:00:00Z",
    cap=5_000_000,
)
FIXES = [
    fix(
        0,
        state=FixState.FIXED,
        cost=1_500_000,
        tokens=10,
        attempts=1,
        started_at="2026-11-25T00:00:00Z",
        ended_at="2026-11-25T00:00:30Z",
    ),
    fix(1, state=FixState.ESCALATED, why="budget", sentence="<script>alert(1)</script>", cost=None),
    fix(2, ecosystem="PyPI", state=FixState.REFUSED, why="not_affected"),
]


def test_sums_by_ecosystem_and_reason() -> None:
    found = report_document(LINE, FIXES)
    total = found["total"]
    assert (total["fixes"], total["fixed"], total["usd"]) == (3, 1, "1.5")
    assert (total["median_seconds"], total["of_unknown_price"]) == (30.0, 1)
    assert found["by_ecosystem"]["PyPI"]["refused"] == 1
    assert {"state": "escalated", "why": "budget", "fixes": 1} in found["why"]
    assert found["usd_cap"] == "5"


def test_a_page_shows_words_and_runs_nothing() -> None:
    page = report_page(report_document(LINE, FIXES))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<rect") == 3 + 2 + 1


def test_a_campaign_without_fixes_has_a_page() -> None:
    assert "0 fixes" in report_page(report_document(LINE, []))
