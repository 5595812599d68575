"""Campaigns over HTTP: how they stand, what is stuck, pause and resume by who may."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from fallback_tier.fleet.campaign_list import CampaignState, FixState
from fallback_tier.fleet.store.store import fleet_db, open_store
from fallback_tier.service.roles import Role
from fallback_tier.service.settings import Secrets
from tests.integration.service.test_requests import problem
from tests.service.campaigns import FIXES, write_campaign
from tests.service.portal import write_trails
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.fleet.made import NAME, fix

BECAUSE = {"because": "the provider is needed elsewhere"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with service_scenario(tmp_path) as opened:
        write_campaign(opened.service.state_dir)
        yield opened


def set_state(service: ServiceScenario, state: CampaignState) -> None:
    with open_store(service.service.state_dir) as store:
        assert store.set_state(NAME, state, came_from=list(CampaignState))


def test_where_there_is_no_campaign_no_list_is_made(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        client = opened.client(Role.ADMIN)
        assert client.get("/v1/campaigns").json() == {"campaigns": []}
        for path in ("", "/fixes"):
            told = problem(client.get(f"/v1/campaigns/{NAME}{path}"), 404)
            assert "no campaign 'spring'" in told["detail"]
        problem(client.post(f"/v1/campaigns/{NAME}/pause", json=BECAUSE), 404)
        assert not fleet_db(opened.service.state_dir).parent.exists()
        write_campaign(opened.service.state_dir)  # begun while the service runs
        assert len(client.get("/v1/campaigns").json()["campaigns"]) == 1
        problem(client.get("/v1/campaigns/other"), 404)


def test_a_campaign_with_its_sums_its_reasons_and_what_is_stuck(service: ServiceScenario) -> None:
    client = service.client(Role.READ)
    view = client.get(f"/v1/campaigns/{NAME}").json()
    assert client.get("/v1/campaigns").json() == {"campaigns": [view["campaign"]]}
    one = view["campaign"]
    assert (one["state"], one["fixes"], one["over"]) == ("running", 9, 6)
    assert one["counts"]["failed"] == 2
    assert one["usd"] == {
        "cap": "7", "spent": "3.6", "reserved": "2.4", "unpriced": 1, "is_used_up": True,
    }  # fmt: skip
    assert ("refused", "not_affected", "Not affected.", 1) in [
        (it["state"], it["why"], it["sentence"], it["fixes"]) for it in view["why"]
    ]
    kinds = [(it["kind"], it["fix"]["fix_id"]) for it in view["stuck"]]
    assert kinds == [("left", "fix-4"), ("again", "fix-5"), ("asks", "fix-cap")]


def test_pages_have_every_fix_once(service: ServiceScenario) -> None:
    client = service.client(Role.READ)
    seen, cursor = [], ""
    while True:
        page = client.get(f"/v1/campaigns/{NAME}/fixes?limit=4{cursor}").json()
        seen += [fix["number"] for fix in page["fixes"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == list(range(9))
    failed = client.get(f"/v1/campaigns/{NAME}/fixes?state=failed").json()["fixes"]
    assert [it["number"] for it in failed] == [3, 8]
    problem(client.get(f"/v1/campaigns/{NAME}/fixes?state=lost"), 422)
    problem(client.get("/v1/campaigns/..%2f.."), 404)
    problem(client.get("/v1/campaigns/SPRING"), 422)


def test_who_paused_it_and_why_is_kept(service: ServiceScenario) -> None:
    client = service.client(Role.READ, Role.DECIDE)
    told = client.post(f"/v1/campaigns/{NAME}/pause", json=BECAUSE).json()
    assert (told["state"], told["said"]["because"]) == ("paused", BECAUSE["because"])
    assert told["said"]["by"].startswith("key:")
    later = client.post(f"/v1/campaigns/{NAME}/pause", json={"because": "me too"}).json()
    assert later == told
    again = client.post(f"/v1/campaigns/{NAME}/resume", json={"because": "Monday"}).json()
    assert (again["state"], again["said"]["because"]) == ("running", "Monday")
    set_state(service, CampaignState.FINISHED)  # a runner's word
    assert client.get(f"/v1/campaigns/{NAME}").json()["campaign"]["said"] is None


@pytest.mark.parametrize("because", ["", " \n", "no\0", "x" * 2_001, None])
def test_nothing_is_paused_without_a_reason(service: ServiceScenario, because: str | None) -> None:
    client = service.client(Role.READ, Role.DECIDE)
    problem(client.post(f"/v1/campaigns/{NAME}/pause", json={"because": because}), 422)
    problem(client.post(f"/v1/campaigns/{NAME}/pause"), 422)
    assert client.get(f"/v1/campaigns/{NAME}").json()["campaign"]["state"] == "running"


def test_what_is_over_can_not_be_paused(service: ServiceScenario) -> None:
    set_state(service, CampaignState.CANCELLED)
    answer = service.client(Role.DECIDE).post(f"/v1/campaigns/{NAME}/pause", json=BECAUSE)
    assert "is cancelled: it can't be paused" in problem(answer, 409)["detail"]


def test_resume_queues_what_failed_unless_the_record_knows_better(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        state = opened.service.state_dir
        write_trails(state, ("fix-refused",))
        both = [fix(0, "a", fix_id="fix-refused", state="failed"), fix(1, "b", state="failed")]
        write_campaign(state, both)
        told = opened.client(Role.DECIDE).post(f"/v1/campaigns/{NAME}/resume", json=BECAUSE)
        assert told.status_code == 200
        with open_store(state) as store:
            assert [it.state for it in store.fixes(NAME)] == [FixState.REFUSED, FixState.QUEUED]


def test_a_list_that_can_not_be_read_is_said(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        place = fleet_db(opened.service.state_dir)
        place.parent.mkdir()
        (broken := tmp_path / "broken").write_bytes(b"no database" * 500)
        broken.replace(place)
        told = problem(opened.client(Role.READ).get("/v1/campaigns"), 503)
        assert told["code"] == "fleet_store"


def test_a_list_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    secrets = Secrets(fleet=SecretStr(postgres_url))
    with service_scenario(tmp_path, secrets=secrets) as opened:
        client = opened.client(Role.READ, Role.DECIDE)
        assert client.get("/v1/campaigns").json() == {"campaigns": []}
        write_campaign(opened.service.state_dir, url=postgres_url)
        view = client.get(f"/v1/campaigns/{NAME}").json()
        assert view["campaign"]["fixes"] == len(FIXES)
        assert len(view["stuck"]) == 3
        told = client.post(f"/v1/campaigns/{NAME}/pause", json=BECAUSE).json()
        assert told["state"] == "paused"
