"""``fleet run`` of a campaign that is there: which one goes on."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fallback_tier.cli.fleet.run_command import _find_or_plan, _temporal
from fallback_tier.fleet.campaign_file import Campaign, CampaignRepository
from fallback_tier.fleet.campaign_list import CampaignState, FixFacts, FixState
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.fix_order import Place
from fallback_tier.fleet.scheduling import StartLimits
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.wiring import RecordSettings
from tests.kinds import OfKind
from tests.unit.fleet.made import NAME, fix, planned

CAMPAIGN = Campaign(
    name=NAME,
    advisories=(Path("/a"),),
    repositories={"app": CampaignRepository(path=Path("/src"))},
)


@pytest.fixture
def store(tmp_path: Path) -> FleetStore:
    one = open_store(tmp_path)
    made = planned([fix(0, "one"), fix(1, "other")])
    one.create(made.model_copy(update={"digest": CAMPAIGN.digest}))
    return one


def find(store: FleetStore, campaign: Campaign, tmp_path: Path) -> None:
    _find_or_plan(store, campaign, tmp_path, Console(quiet=True))


def test_its_limits_are_the_files_from_now_on(store: FleetStore, tmp_path: Path) -> None:
    limits = CAMPAIGN.limits.model_copy(update={"usd": "9", "usd_per_fix": "1"})
    find(store, CAMPAIGN.model_copy(update={"limits": limits}), tmp_path)
    assert (store.campaign(NAME).cap, store.campaign(NAME).fix_cap) == (9_000_000, 1_000_000)
    assert '"usd":"9"' in store.settings(NAME)


def test_another_list_under_its_name_is_refused(store: FleetStore, tmp_path: Path) -> None:
    other = CAMPAIGN.model_copy(update={"advisories": (Path("/b"),)})
    with pytest.raises(CampaignError, check=OfKind("another_list")):
        find(store, other, tmp_path)


def test_a_cancelled_one_goes_on_only_to_end_what_runs(store: FleetStore, tmp_path: Path) -> None:
    """Its runner was killed before it could end its workers."""
    store.claim(NAME, "one", StartLimits(fixes_at_once=1))
    store.set_state(NAME, CampaignState.CANCELLED, came_from=[CampaignState.RUNNING])
    find(store, CAMPAIGN, tmp_path)
    store.release(NAME, "one")
    (fix_,) = [one for one in store.fixes(NAME) if one.holder == "one"]
    store.end(fix_.fix_id, "one", FixFacts(state=FixState.CANCELLED))
    with pytest.raises(CampaignError, check=OfKind("was_cancelled")):
        find(store, CAMPAIGN, tmp_path)


def test_a_fix_on_temporal_has_the_campaigns_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip(
        "fallback_tier.engines.temporal.client", reason="the extra `temporal` is not installed"
    )
    made: list[Any] = []
    monkeypatch.setattr(client, "TemporalEngine", lambda _c, limits, _e: made.append(limits))
    limits = CAMPAIGN.limits.model_copy(update={"fix_s": 77.0})
    place = Place(state_dir=tmp_path, record=RecordSettings(), fix_s=1.0)
    _temporal(CAMPAIGN.model_copy(update={"limits": limits}), place)
    assert [one.fix_s for one in made] == [77.0]
