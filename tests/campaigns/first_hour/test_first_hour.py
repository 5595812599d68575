"""The small version: the README has the hour's commands, and ten cases are drawn."""

from tests.campaigns.first_hour.__main__ import (
    CAMPAIGN,
    FOLDER,
    INSTALL,
    README,
    documented,
    first_with_a_step,
)
from tests.campaigns.first_hour.drawing import WANTED, load_cases, read_draw


def test_the_readme_has_the_commands() -> None:
    text = README.read_text(encoding="utf-8")
    assert documented(text) == []
    assert documented(text.replace(INSTALL, "")) == [INSTALL]


def test_the_first_row_with_a_step_is_fixed() -> None:
    findings = [{"id": "GHSA-1", "steps": []}, {"id": "GHSA-2", "steps": [{}]}]
    assert first_with_a_step({"findings": findings}) == "GHSA-2"
    assert first_with_a_step({"findings": findings[:1]}) == ""


def test_ten_cases_are_drawn_by_the_seed() -> None:
    cases = load_cases()
    drawn = [line.case for line in read_draw() if line.case is not None]
    assert sorted(drawn, key=lambda it: it.name) == [*cases]
    assert {client: sum(it.client == client for it in cases) for client in WANTED} == WANTED


def test_page_rows_and_cases_fit() -> None:
    assert CAMPAIGN.check(FOLDER) == []
