"""docs/threat-model.md: every promise names tests, and those are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")


def _table(begin: str, end: str, head: str) -> list[list[str]]:
    lines = PAGE.partition(begin)[2].partition(end)[0].splitlines()
    rows = (line for line in lines if line.startswith("|") and not line.startswith(("|---", head)))
    return [line.strip("| ").split(" | ") for line in rows]


ROWS = _table("<!-- promises -->", "<!-- end -->", "| promise ")
HOLES = _table("<!-- holes -->", "<!-- holes end -->", "| hole ")


def test_there_are_promises_and_there_is_what_is_not_promised() -> None:
    assert len(ROWS) > 20
    for heading in ("What is to be protected", "Who attacks", "Boundaries", "What is not promised"):
        assert f"\n## {heading}\n" in PAGE


def test_each_hole_says_what_remains() -> None:
    assert len(HOLES) >= 14
    assert all(len(row) == 3 and all(row) for row in HOLES)


@pytest.mark.parametrize("row", [*ROWS, *HOLES], ids=lambda row: row[0][:60])
def test_a_promise_or_a_hole_names_tests_that_exist(row: list[str]) -> None:
    shown_by = row[1]
    named = re.findall(r"`([^`]+)::(test_\w+)`", shown_by)
    assert named
    assert len(named) == shown_by.count("::")
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{path} has no {name}"
