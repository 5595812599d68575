"""docs/threat-model.md: every promise names tests, and those are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
ROWS = [
    line.strip("| ").split(" | ")
    for line in PAGE.partition("<!-- promises -->")[2].partition("<!-- end -->")[0].splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| promise "))
]


def test_there_are_promises_and_there_is_what_is_not_promised() -> None:
    assert len(ROWS) > 20
    for heading in ("What is to be protected", "Who attacks", "Boundaries", "What is not promised"):
        assert f"\n## {heading}\n" in PAGE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_a_promise_names_tests_that_exist(row: list[str]) -> None:
    _promise, shown_by = row
    named = re.findall(r"`([^`]+)::(test_\w+)`", shown_by)
    assert named
    assert len(named) == shown_by.count("::")
    for path, name in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), f"{path} has no {name}"
