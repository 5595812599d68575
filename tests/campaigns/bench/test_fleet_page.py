"""The page of a fleet's figures is made of what was kept, and says so where a goal is missed."""

import json

from tests.campaigns.bench.fleet_page import KEPT, PAGE, made


def test_the_page_is_as_it_was_kept() -> None:
    page = PAGE.read_text()
    assert made(page, json.loads(KEPT.read_text())) == page


def test_a_missed_goal_is_seen_and_figures_that_were_not_kept_stay() -> None:
    page = (
        "a\n<!-- overhead -->\nold\n<!-- /overhead -->\n<!-- memory -->\nkept\n<!-- /memory -->\n"
    )
    one = {"load": 2.0, "loop_ms": 1.25, "ms": 901.4, "added_ms": 900.0, "added_cpu_ms": 31.0}
    found = {"load": [2.0, 2.4], "temporal": {**one, "of_a_minute": "1.50%", "met": False}}
    lines = made(page, {"overhead": found}).splitlines()
    assert lines[4] == (
        "| Temporal, its server on the same machine and disk | 2.0 | 1.2 ms | 901 ms | 900 ms "
        "| 1.50%, **missed** | 31.0 ms |"
    )
    assert "old" not in lines
    assert "kept" in lines
