"""A small load, in CI: nothing fails, every follower hears everything. Figures are the campaign's."""

import asyncio
from pathlib import Path

from tests.campaigns.load.campaign import Sizes, campaign
from tests.campaigns.load.page import page
from tests.campaigns.load.phases import Memory


def test_a_small_load(tmp_path: Path) -> None:
    sizes = Sizes(idle=40, seconds=1.0, minutes=0.025, readers=60, look_s=0.25)
    figures = asyncio.run(campaign(tmp_path, sizes))
    for phase in ("idle", "saturation", "half", "idle_again", "memory"):
        assert figures[phase]["requests"] > 0
        assert figures[phase]["failed"] == 0, figures
    assert figures["server_errors_in_log"] == 0
    assert figures["streams"]["heard_all_in_order"] == 60
    assert "60 of 60 readers" in page(figures)


def test_a_slope_is_that_of_the_line_behind_the_beginning() -> None:
    points = [(60.0 * minute, 500.0 if minute < 2 else 100.0 + minute) for minute in range(10)]
    assert round(Memory(0, 1.0, points).slope_kb_a_minute()) == 1024
