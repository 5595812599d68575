"""The list, in both databases: who may start, who holds what, and what is kept."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from fallback_tier.fleet.campaign_list import CampaignState, FixFacts, FixState, Said
from fallback_tier.fleet.errors import CampaignError, FleetStoreError
from fallback_tier.fleet.scheduling import StartLimits
from fallback_tier.fleet.store import postgres, tables
from fallback_tier.fleet.store import store as list_store
from fallback_tier.fleet.store.store import LEASE_S, FleetStore, open_store
from fallback_tier.fleet.store.tables import STEPS
from tests.kinds import OfKind
from tests.unit.fleet.made import NAME, fix, planned
from tests.waiting import at_once

ONE_EACH = [fix(number, f"repo-{number}") for number in range(4)]
LIMITS = StartLimits(fixes_at_once=2)
FIXED = FixFacts(state=FixState.FIXED, cost=7, tokens=90, attempts=1, sentence="raised")


class Clock:
    """Stands until it is set."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


Opened = Callable[[], FleetStore]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens the same list, as each process does."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with ExitStack() as stack:
        yield lambda: stack.enter_context(open_store(tmp_path, url))


@pytest.fixture
def store(opened: Opened) -> FleetStore:
    one = opened()
    one.clock = Clock()
    return one


def states(store: FleetStore) -> list[FixState]:
    return [one.state for one in store.fixes(NAME)]


def test_a_campaign_is_made_once(store: FleetStore) -> None:
    assert store.create(planned(ONE_EACH, cap=50, fix_cap=10))
    assert not store.create(planned(ONE_EACH, cap=60, fix_cap=10))
    other = planned(ONE_EACH).model_copy(update={"digest": "e" * 64})
    with pytest.raises(CampaignError, check=OfKind("another_list")):
        store.create(other)
    (line,) = store.campaigns()
    assert (line.cap, line.fix_cap, line.total) == (60, 10, 4)
    assert store.fixes(NAME) == tuple(ONE_EACH)
    assert store.fixes(NAME, after=1, limit=1) == (ONE_EACH[2],)
    ordered = store.ordered("fix-3")
    assert (ordered.base_commit, ordered.advisory) == ("c" * 40, '{"id": "TEST-3"}')


def test_all_are_read_page_by_page(store: FleetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(planned(ONE_EACH))
    store.claim(NAME, "one", LIMITS)
    monkeypatch.setattr(list_store, "MAX_PAGE", 1)
    assert [one.number for one in store.every(NAME)] == [0, 1, 2, 3]
    assert [one.number for one in store.every(NAME, FixState.RUNNING)] == [0, 1]


def test_what_is_not_there_is_said(store: FleetStore) -> None:
    with pytest.raises(CampaignError, check=OfKind("no_such_campaign"), match="'autumn'"):
        store.campaign("autumn")
    with pytest.raises(CampaignError, check=OfKind("no_such_fix")):
        store.ordered("fix-9")
    assert store.fix("fix-9") is None


def test_as_many_run_as_may_and_each_once(store: FleetStore) -> None:
    store.create(planned(ONE_EACH))
    assert [one.fix_id for one in store.claim(NAME, "one", LIMITS)] == ["fix-0", "fix-1"]
    assert store.claim(NAME, "two", LIMITS) == ()
    assert store.end("fix-0", "one", FIXED)
    (third,) = store.claim(NAME, "two", LIMITS)
    assert (third.fix_id, third.holder, third.takes) == ("fix-2", "two", 1)
    assert store.campaign(NAME).spent == 7


def test_two_runners_never_start_the_same(store: FleetStore, opened: Opened) -> None:
    store.create(planned(ONE_EACH))
    limits, claimed = StartLimits(fixes_at_once=4), list[str]()

    def claim(runner: FleetStore, name: str) -> None:
        claimed.extend(one.fix_id for one in runner.claim(NAME, name, limits))

    at_once(partial(claim, opened(), f"runner-{number}") for number in range(4))
    assert sorted(claimed) == [one.fix_id for one in ONE_EACH]


def test_several_may_open_it_first(opened: Opened) -> None:
    at_once([opened] * 6)
    assert opened().campaigns() == ()


def test_an_end_is_told_once_and_by_its_holder(store: FleetStore) -> None:
    store.create(planned(ONE_EACH))
    store.claim(NAME, "one", LIMITS)
    assert not store.end("fix-0", "two", FIXED)
    assert store.end("fix-0", "one", FIXED)
    assert not store.end("fix-0", "one", FIXED.model_copy(update={"state": FixState.FAILED}))
    assert states(store)[0] is FixState.FIXED


def test_money_that_is_reserved_counts(store: FleetStore) -> None:
    """Of 25 and 10 a fix, two run. What the first has left over pays for no third until it is enough."""
    store.create(planned(ONE_EACH, cap=25, fix_cap=10))
    limits = StartLimits(fixes_at_once=4, cap=25, fix_cap=10)
    assert len(store.claim(NAME, "one", limits)) == 2
    assert store.campaign(NAME).reserved == 20
    store.end("fix-0", "one", FIXED)
    assert store.claim(NAME, "one", limits) == ()  # 7 + 10 + 10 > 25
    store.end("fix-1", "one", FIXED.model_copy(update={"cost": 2}))
    assert [one.fix_id for one in store.claim(NAME, "one", limits)] == ["fix-2"]
    assert store.claim(NAME, "one", limits) == ()
    assert states(store)[3] is FixState.QUEUED


def test_what_a_fix_used_before_it_waited_again_counts(store: FleetStore) -> None:
    store.create(planned(ONE_EACH[:2], cap=15, fix_cap=10))
    limits = StartLimits(fixes_at_once=2, cap=15, fix_cap=10)
    (first,) = store.claim(NAME, "one", limits)
    assert store.queue_again(
        first.fix_id, FixFacts(cost=8), not_before=2_000.0, holder="one", takes=1
    )
    assert store.claim(NAME, "one", limits) == ()  # 8 + 10 > 15, and the first is not due
    store.clock.now = 2_000.0  # type: ignore[attr-defined]
    (again,) = store.claim(NAME, "one", limits)
    assert (again.fix_id, again.cost, again.takes) == ("fix-0", 8, 2)


def test_who_is_dead_loses_his_fixes(store: FleetStore) -> None:
    clock = store.clock
    store.create(planned(ONE_EACH))
    store.claim(NAME, "one", LIMITS)
    clock.now += LEASE_S - 1  # type: ignore[attr-defined]
    assert store.take_over(NAME, "two") == ()
    store.renew(NAME, "one")
    clock.now += LEASE_S - 1  # type: ignore[attr-defined]
    assert store.take_over(NAME, "two") == ()
    clock.now += 2  # type: ignore[attr-defined]
    assert [one.fix_id for one in store.take_over(NAME, "two")] == ["fix-0", "fix-1"]
    assert not store.end("fix-0", "one", FIXED)
    store.release(NAME, "two")
    assert len(store.take_over(NAME, "three")) == 2


def test_a_pause_starts_nothing_and_ends_nothing(store: FleetStore) -> None:
    store.create(planned(ONE_EACH))
    store.claim(NAME, "one", StartLimits(fixes_at_once=1))
    running = [CampaignState.RUNNING]
    assert store.set_state(NAME, CampaignState.PAUSED, came_from=running)
    assert not store.set_state(NAME, CampaignState.PAUSED, came_from=running)
    assert store.claim(NAME, "one", LIMITS) == ()
    assert store.end("fix-0", "one", FIXED)
    assert store.set_state(NAME, CampaignState.RUNNING, came_from=[CampaignState.PAUSED])
    assert len(store.claim(NAME, "one", LIMITS)) == 2


def test_what_waits_is_cancelled_at_once(store: FleetStore) -> None:
    store.create(planned(ONE_EACH))
    store.claim(NAME, "one", StartLimits(fixes_at_once=1))
    store.set_state(NAME, CampaignState.CANCELLED, came_from=[CampaignState.RUNNING])
    assert states(store) == [FixState.RUNNING, *[FixState.CANCELLED] * 3]


def test_the_list_is_there_for_the_next_process(store: FleetStore, opened: Opened) -> None:
    store.create(planned(ONE_EACH))
    store.claim(NAME, "one", LIMITS)
    store.end("fix-0", "one", FIXED)
    store.close()
    assert states(opened()) == [FixState.FIXED, FixState.RUNNING, *[FixState.QUEUED] * 2]


def test_a_list_of_an_earlier_version_is_read(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        for module in (tables, postgres):
            earlier.setattr(module, "STEPS", STEPS[:1])
        old = opened()
        old.create(planned(ONE_EACH))
        old.close()
    store = opened()
    assert (store.campaign(NAME).said, store.campaign(NAME).said_at) == (None, None)
    ada = Said(by="person:Ada", because="it costs too much")
    assert store.set_state(NAME, CampaignState.PAUSED, came_from=list(CampaignState), said=ada)
    assert (store.campaign(NAME).said, store.campaign(NAME).total) == (ada, 4)
    assert store.campaign(NAME).said_at is not None
    assert {one.branch for one in store.every(NAME)} == {None}


def test_a_place_that_can_not_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "fleet").write_text("a file where a folder should be")
    with pytest.raises(FleetStoreError, match="fleet"):
        open_store(tmp_path)
    with pytest.raises(FleetStoreError, check=OfKind("not_postgres")):
        open_store(tmp_path, "mysql://secret@host/db")
