"""The provider's limits in the store: shared by connections, kept over processes."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from fallback_tier.errors import ModelError
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.fleet.store_limiter import (
    FIRST_BACKOFF_S,
    GONE_S,
    MAX_LOOK_S,
    MAX_WAIT_S,
    ProviderLimits,
    StoreLimiter,
    _Place,
)
from tests.kinds import OfKind
from tests.waiting import at_once

LIMITS = ProviderLimits(name="provider", requests_per_minute=60, tokens_per_minute=6_000)


class Time:
    """Passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[FleetStore]]:
    """Two connections to the same list."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with ExitStack() as stack:
        yield [stack.enter_context(open_store(tmp_path, url)) for _ in range(2)]


def limiter(store: FleetStore, time: Time, limits: ProviderLimits = LIMITS) -> StoreLimiter:
    return StoreLimiter(store.tables, limits, clock=lambda: time.now, sleep=time.sleep)


def test_workers_share_what_a_minute_allows(stores: list[FleetStore]) -> None:
    time = Time()
    one, other = (limiter(store, time) for store in stores)
    one.take(5_000)
    other.take(1_000)
    assert time.slept == []
    other.take(1_500)
    assert 15 <= sum(time.slept) <= 15 + MAX_LOOK_S * 1.2
    one.settle(5_000, 100)
    asleep = len(time.slept)
    other.take(4_000)
    assert len(time.slept) == asleep


def test_an_overload_that_one_hears_of_holds_the_other_back(stores: list[FleetStore]) -> None:
    time = Time()
    one, other = (limiter(store, time) for store in stores)
    one.take(1)
    one.overloaded()
    one.settle(1, 0)
    other.take(1)
    assert sum(time.slept) >= FIRST_BACKOFF_S


def test_nothing_is_granted_twice(stores: list[FleetStore]) -> None:
    time, granted = Time(), list[int]()
    limits = ProviderLimits(name="provider", requests_per_minute=6)

    def ask(store: FleetStore) -> None:
        for _ in range(5):
            if not limiter(store, time, limits)._try(1, _Place()):
                granted.append(1)

    at_once(partial(ask, store) for store in stores)
    assert len(granted) == 6


def test_who_never_gets_a_turn_gives_up(stores: list[FleetStore]) -> None:
    time = Time()
    held = limiter(stores[0], time)

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        held._try(10**9, _Place())

    waiting = StoreLimiter(stores[1].tables, LIMITS, clock=lambda: time.now, sleep=sleep)
    held.take(10**9)
    with pytest.raises(ModelError, check=OfKind("no_room")):
        waiting.take(1)
    assert sum(time.slept) >= MAX_WAIT_S


def test_a_large_call_is_not_starved_by_small_ones(stores: list[FleetStore]) -> None:
    """They take whatever comes back, many times a second: the large one's place counts."""
    time, granted = Time(), list[float]()
    small = limiter(stores[1], time)

    def sleep(seconds: float) -> None:
        until = time.now + seconds
        while time.now < until:
            if not small._try(100, _Place()):
                granted.append(time.now)
            time.now += 0.5

    small.take(6_000)
    large = StoreLimiter(stores[0].tables, LIMITS, clock=lambda: time.now, sleep=sleep)
    large.take(4_000)
    assert not granted
    assert time.now - 1_000 <= 40 + MAX_LOOK_S * 1.2


def test_who_comes_later_goes_first_only_where_there_is_room_for_all(
    stores: list[FleetStore],
) -> None:
    time, first, later = Time(), _Place(), _Place()
    one, other = (limiter(store, time) for store in stores)
    one.take(6_000)
    assert one._try(1_000, first) == 10
    assert other._try(100, later) == 11  # 1,000 are for the first one
    time.now += 10.5
    assert other._try(100, later) > 0
    time.now += 0.5
    assert other._try(100, later) == 0
    assert one._try(1_000, first) == 0
    assert waiting(stores[0]) == 0


def test_who_died_waiting_holds_nobody_up_for_long(stores: list[FleetStore]) -> None:
    time, dead, alive = Time(), _Place(), _Place()
    one, other = (limiter(store, time) for store in stores)
    one.take(6_000)
    assert one._try(6_000, dead) > 0
    time.now += GONE_S - 1
    assert other._try(100, alive) > 0
    time.now += 2
    assert other._try(100, alive) == 0


def test_who_lives_keeps_the_place(stores: list[FleetStore]) -> None:
    time, first = Time(), _Place()
    one, other = (limiter(store, time) for store in stores)
    one.take(6_000)
    for _ in range(11):
        assert one._try(6_000, first) > 0
        time.now += 5
        assert other._try(100, _Place()) > 0
    time.now += 5
    assert one._try(6_000, first) == 0


def test_who_gives_up_leaves_the_place(stores: list[FleetStore]) -> None:
    time = Time()
    limiter(stores[0], time).take(6_000)

    def stopped(_: float) -> None:
        assert waiting(stores[0]) == 1
        raise KeyboardInterrupt

    leaving = StoreLimiter(stores[1].tables, LIMITS, clock=lambda: time.now, sleep=stopped)
    with pytest.raises(KeyboardInterrupt):
        leaving.take(100)
    assert waiting(stores[0]) == 0


def test_who_was_away_too_long_takes_no_other_ones_place(stores: list[FleetStore]) -> None:
    """The numbers begin anew where nobody waits, and a suspended process goes on by its old one."""
    time, away, gone, later = Time(), _Place(), _Place(), _Place()
    one, other = (limiter(store, time) for store in stores)
    one.take(6_000)
    assert one._try(6_000, away) > 0
    time.now += GONE_S + 1
    assert other._try(6_000, gone) > 0
    with stores[1].tables.writing() as session:
        other._leave(session, gone)
    assert other._try(5_000, later) > 0
    assert away.number == later.number
    woken = replace(away)
    with stores[0].tables.writing() as session:
        one._leave(session, away)  # it gives up
    assert waiting(stores[0]) == 1
    assert one._try(6_000, woken) > 0  # or it goes on to wait
    assert waiting(stores[0]) == 2
    assert (woken.number, later.number) == (2, 1)


def waiting(store: FleetStore) -> int:
    with store.tables.reading() as session:
        return len(session.rows("SELECT number FROM turns"))
