from collections.abc import Iterator
from pathlib import Path

import pytest

from fallback_tier.fleet import campaign_control
from fallback_tier.fleet.campaign_list import CampaignState, FixFacts, FixState, Said
from fallback_tier.fleet.errors import CampaignError
from fallback_tier.fleet.store.store import FleetStore, open_store
from tests.kinds import OfKind
from tests.unit.fleet.made import NAME, fix, planned

ADA = Said(by="person:Ada", because="until Monday")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FleetStore]:
    with open_store(tmp_path) as opened:
        opened.create(planned([fix(n, f"repo-{n}", state="failed", cost=5) for n in range(3)]))
        yield opened


def test_who_is_second_changes_nothing(store: FleetStore) -> None:
    campaign_control.pause(store, NAME, ADA)
    campaign_control.pause(store, NAME)
    assert (store.campaign(NAME).state, store.campaign(NAME).said) == (CampaignState.PAUSED, ADA)
    campaign_control.cancel(store, NAME)
    assert store.campaign(NAME).said is None
    with pytest.raises(CampaignError, check=OfKind("wrong_state"), match=r"cancelled.*paused"):
        campaign_control.pause(store, NAME)


def test_resume_asks_the_record_first(store: FleetStore) -> None:
    known = {
        "fix-0": FixFacts(state=FixState.REFUSED, why="not_affected"),
        "fix-1": FixFacts(cost=9, attempts=2),
    }
    campaign_control.cancel(store, NAME)
    assert campaign_control.resume(store, NAME, known.get, ADA) == 2
    found = [(one.state, one.cost) for one in store.fixes(NAME)]
    assert found == [(FixState.REFUSED, 0), (FixState.QUEUED, 9), (FixState.QUEUED, 0)]
    assert (store.campaign(NAME).state, store.campaign(NAME).said) == (CampaignState.RUNNING, ADA)


def test_what_is_over_is_finished_when_it_is_resumed(store: FleetStore) -> None:
    """Nobody would run it: it stood as running for ever."""
    known = {f"fix-{number}": FixFacts(state=FixState.FIXED) for number in range(3)}
    campaign_control.pause(store, NAME)
    assert campaign_control.resume(store, NAME, known.get, ADA) == 0
    assert (store.campaign(NAME).state, store.campaign(NAME).said) == (CampaignState.FINISHED, ADA)


@pytest.mark.parametrize("how", [campaign_control.pause, campaign_control.cancel])
def test_there_must_be_such_a_campaign(store: FleetStore, how: object) -> None:
    with pytest.raises(CampaignError, check=OfKind("no_such_campaign"), match="'other'"):
        how(store, "other")  # type: ignore[operator]
    with pytest.raises(CampaignError, check=OfKind("no_such_campaign"), match="'other'"):
        campaign_control.resume(store, "other", lambda _: None)
