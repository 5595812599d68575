"""The pages of campaigns: what they show, that it is data, and who may pause."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.fleet.campaign_list import CampaignLine, CampaignState
from fallback_tier.fleet.store.store import open_store
from fallback_tier.portal.pages.campaigns import ROWS
from fallback_tier.service.roles import Role
from tests.service.campaigns import HOSTILE, write_campaign
from tests.service.portal import SAME_ORIGIN, Visitor, portal_scenario, text_of, visit
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.fleet.made import NAME, fix

PLACE = f"/campaigns/{NAME}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with portal_scenario(tmp_path) as opened:
        write_campaign(opened.service.state_dir)
        yield opened


@pytest.fixture
def decider(service: ServiceScenario) -> Visitor:
    return visit(service, Role.READ, Role.DECIDE)


def line(service: ServiceScenario) -> CampaignLine:
    with open_store(service.service.state_dir) as store:
        return store.campaign(NAME)


def test_without_a_campaign_the_page_says_how_to_begin_one(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        reader = visit(opened, Role.READ)
        told = text_of(reader.get("/campaigns"))
        assert "No campaign was begun" in told
        assert f"fleet run CAMPAIGN.toml --state-dir {opened.service.state_dir}" in told
        assert "There is no campaign" in reader.get(PLACE, 404)


def test_the_list_has_progress_and_spend(service: ServiceScenario) -> None:
    told = text_of(visit(service, Role.READ).get("/campaigns"))
    assert "spring running" in told
    assert "6 of 9 fixes ended, 1 to decide, 2 failed $3.60 of $7.00" in told


def test_a_campaign_tells_what_it_costs_and_what_is_stuck(service: ServiceScenario) -> None:
    page = visit(service, Role.READ).get(PLACE)
    told = text_of(page)
    for words in (
        "Progress 6 of 9 fixes ended",
        "1 escalated",
        "Spend $3.60 of $7.00",
        "$2.40 reserved",
        "The price of 1 fix is not known",
        "The cap leaves no room for another fix",
        "TEST-4 cart No runner has it",
        "TEST-5 mail It waits for another start. The record was away.",
        "TEST-1 shop It waits for a person's decision. Three attempts failed. 2026-11-25 20:07",
        "refused not affected Not affected. 1",
        "Its worker has died 5 times.",
    ):
        assert words in told, words
    assert 'href="/portal/fixes/fix-cap/triage"' in page
    assert 'href="/portal/fixes/fix-refused"' in page
    assert "/portal/fixes/fix-3" not in page  # nothing of it is on record
    assert "<html" not in visit(service, Role.READ).get(f"{PLACE}?part=1")


def test_thousands_are_shown_in_pages(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        many = [fix(number, f"repo-{number}") for number in range(2 * ROWS + 7)]
        write_campaign(opened.service.state_dir, many, cap=None)
        reader = visit(opened, Role.READ)
        seen, path = 0, PLACE
        for _ in range(3):
            page = reader.get(path)
            seen += page.count("<td>repo-")
            path = f"{PLACE}?after=" + page.rpartition("?after=")[2].partition("#")[0]
        assert seen == len(many)
        assert 'rel="next"' not in page
        assert "The campaign has no cap" in page
        assert "No fix is in this state" in reader.get(f"{PLACE}?state=failed")
        reader.get(f"{PLACE}?state=lost", 422)
        reader.get("/campaigns/..%2f..", 404)


def test_what_others_wrote_is_data(service: ServiceScenario, decider: Visitor) -> None:
    page = decider.get(PLACE)
    sent = decider.send(f"{PLACE}/pause", page, because=HOSTILE)
    assert sent.headers["location"] == f"/portal{PLACE}?done=pause"
    for path in (PLACE, f"{PLACE}?state=failed", f"{PLACE}?done={HOSTILE}", "/campaigns"):
        page = decider.get(path)
        for raw in ("<script>alert", "<img src=x", "\u202e"):
            assert raw not in page
    assert "&lt;script&gt;alert(1)" in decider.get(PLACE)


def test_pause_and_resume_by_who_may(service: ServiceScenario, decider: Visitor) -> None:
    page = decider.get(PLACE)
    decider.send(f"{PLACE}/pause", page, because="until Monday")
    said = line(service).said
    assert line(service).state is CampaignState.PAUSED
    assert said is not None
    told = text_of(decider.get(f"{PLACE}?done=pause"))
    assert "Nothing more starts; what runs goes on to its end." in told
    assert f"paused by {said.by}" in told
    assert ": until Monday" in told
    page = decider.get(PLACE)
    assert "Resume the campaign" in page
    decider.send(f"{PLACE}/resume", page, because="it is Monday")
    assert line(service).state is CampaignState.RUNNING
    assert "failed" not in {state for state, count in line(service).counts.items() if count}


def test_who_may_only_read_pauses_nothing(service: ServiceScenario, decider: Visitor) -> None:
    reader = visit(service, Role.READ, Role.SUBMIT)
    page = reader.get(PLACE)
    assert "Pause the campaign" not in page
    assert reader.send(f"{PLACE}/pause", page, because="x").status_code == 403
    bare = decider.client.post(
        f"/portal{PLACE}/pause", data={"because": "x"}, headers=SAME_ORIGIN, follow_redirects=False
    )
    assert bare.status_code == 403
    assert line(service).state is CampaignState.RUNNING


def test_a_reason_is_asked_for_and_what_is_wrong_is_said(
    service: ServiceScenario, decider: Visitor
) -> None:
    page = decider.get(PLACE)
    sent = decider.send(f"{PLACE}/pause", page, because="  ")
    assert sent.status_code == 422
    assert "A reason is needed" in sent.text
    long = decider.send(f"{PLACE}/pause", page, because="word " * 500)
    assert long.status_code == 422
    assert "word word" in long.text  # what was written is not lost
    assert line(service).state is CampaignState.RUNNING
    with open_store(service.service.state_dir) as store:
        store.set_state(NAME, CampaignState.FINISHED, came_from=[CampaignState.RUNNING])
    late = decider.send(f"{PLACE}/pause", page, because="too late")
    assert late.status_code == 409
    assert "is finished: it can&#39;t be paused. Nothing was changed." in late.text
    assert decider.send("/campaigns/other/pause", page, because="x").status_code == 404
