"""Open pages are told which fixes were recorded in: each once, all where that is not known, and in time."""

import asyncio
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.observing.record import open_record
from fallback_tier.portal.board import Board
from fallback_tier.portal.pages import changes
from fallback_tier.portal.pages.changes import MAX_NAMED, Bell, Changed, Recent
from fallback_tier.service.operations.feed import Feed
from fallback_tier.service.refusals import BusyError
from fallback_tier.wiring import audit_db
from tests.kinds import OfKind
from tests.service.portal import write_trails
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import trails as t
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "POLL_S", 0.02)


def bell_of(opened: ServiceScenario, most: int = 10) -> tuple[Board, Bell]:
    record, recent = opened.service.record, Recent()
    board = Board(partial(open_record, record.state_dir, record.settings), live=[recent])
    feed = Feed(opened.service.queue, record, 10)
    return board, Bell(board, recent, feed, most)


IT_ENDED = "it ended"


async def next_of(bell: Bell, told: int) -> Changed:
    async with asyncio.timeout(PATIENCE_S):
        async for changed in bell.follow(told):
            return changed
    raise AssertionError(IT_ENDED)


def test_a_page_hears_of_the_fixes_that_were_recorded_in(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        state = opened.service.state_dir
        write_trails(state, ("fix-cap",))
        board, bell = bell_of(opened)
        at = board.catch_up().read

        async def both() -> tuple[Changed, Changed]:
            waits = asyncio.create_task(next_of(bell, at))
            await asyncio.sleep(0.1)
            assert not waits.done()  # nothing was recorded
            await asyncio.to_thread(write_trails, state, ("fix-same", "fix-gates"))
            first = await waits
            board.catch_up()
            return first, await next_of(bell, board.read_to - 1)

        told, again = asyncio.run(both())
        assert told.fixes is not None
        assert set(told.fixes) <= {"fix-same", "fix-gates"}
        # Who lost the connection goes on behind the last that it has.
        assert again == Changed(board.read_to, ("fix-gates",))
        assert bell.followers == 0


def test_what_is_not_remembered_is_all(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        write_trails(opened.service.state_dir, ("fix-cap", "fix-same"))
        board, bell = bell_of(opened)
        board.catch_up()
        assert asyncio.run(next_of(bell, 0)) == Changed(board.read_to, None)
        # A page of before the record was restored: its number is beyond the record's end.
        assert asyncio.run(next_of(bell, board.read_to + 5)).fixes is None


def test_many_fixes_are_not_named(tmp_path: Path) -> None:
    state = tmp_path
    with closing(SqliteAuditStore(audit_db(state))) as store:
        for number in range(MAX_NAMED + 1):
            store.append(Scope(fix_id=f"fix-{number}", gate_transition_id="t"), t.started(1, 0))
        events = list(store.events())
    recent = Recent()
    for stored in events[:-1]:
        recent.take(stored)
    named = recent.fixes_behind(0)
    assert named is not None
    assert len(named) == MAX_NAMED
    recent.take(events[-1])
    assert recent.fixes_behind(0) is None
    assert recent.fixes_behind(1) is not None
    recent.begin_again()
    recent.take(events[3])  # restored: what was remembered is of another record
    assert recent.fixes_behind(1) is None


def test_all_pages_cost_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service_scenario(tmp_path) as opened:
        write_trails(opened.service.state_dir, ("fix-cap",))
        board, bell = bell_of(opened, 300)
        at, looks, real = board.catch_up().read, [0], board.catch_up

        def counted() -> object:
            looks[0] += 1
            return real()

        monkeypatch.setattr(board, "catch_up", counted)

        async def many() -> list[Changed]:
            tasks = [asyncio.create_task(next_of(bell, at)) for _ in range(200)]
            while bell.followers < 200:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(write_trails, opened.service.state_dir, ("fix-same",))
            return await asyncio.gather(*tasks)

        told = asyncio.run(many())
        assert {one.fixes for one in told} == {("fix-same",)}
        assert looks[0] < 200


def test_no_more_listen_than_may_and_none_when_the_service_ends(tmp_path: Path) -> None:
    with service_scenario(tmp_path) as opened:
        board, bell = bell_of(opened, most=1)
        board.catch_up()

        async def ends() -> None:
            waits = asyncio.create_task(next_of(bell, board.read_to))
            while not bell.followers:
                await asyncio.sleep(0.01)
            with pytest.raises(BusyError, check=OfKind("too_many_streams")):
                bell.check()
            bell._feed.close()
            with pytest.raises(AssertionError, match=IT_ENDED):
                await waits
            with pytest.raises(BusyError):
                bell.check()

        asyncio.run(ends())
