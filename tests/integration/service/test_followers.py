"""Who follows a fix: all are told the same, read once for all; none keeps the service from ending."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.stores.sqlite import SqliteAuditStore
from fallback_tier.service.operations.feed import Feed
from fallback_tier.service.queue import NewOrder, Submission
from fallback_tier.service.refusals import BusyError, NotFoundError
from fallback_tier.wiring import audit_db
from tests.e2e.command import osv, repository
from tests.kinds import OfKind
from tests.service.running import events, served
from tests.service.scenario import ServiceScenario, service_scenario
from tests.unit.audit import trails as t
from tests.unit.fix.journal.review_record import FIX, Record
from tests.waiting import PATIENCE_S, came, joined

SUBMISSION = Submission(repository="app", advisory={"id": "T"})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceScenario]:
    with service_scenario(tmp_path) as opened:
        queue = opened.service.queue
        queue.submit(NewOrder(fix_id=FIX, submission=SUBMISSION, advisory_id="T", by="key:ci"))
        queue.take_next()
        yield opened


def write(service: ServiceScenario) -> None:
    with closing(SqliteAuditStore(audit_db(service.service.state_dir))) as store:
        Record(store, service.service.record.evidence).write(t.cap_reached())


async def followed(feed: Feed, after: int = 0) -> list[tuple[int | None, str]]:
    await feed.check(FIX)
    return [(reported.number, reported.kind) async for reported in feed.follow(FIX, after)]


def test_five_hundred_are_told_the_same_and_the_record_is_read_once(
    service: ServiceScenario,
) -> None:
    inner = service.service
    feed, reads, real = inner.feed, [0], inner.record.events

    def counted(fix_id: str, *, after: int = 0) -> list[object]:
        reads[0] += 1
        return list(real(fix_id, after=after))

    inner.record.events = counted  # type: ignore[method-assign,assignment]

    async def all_of_them() -> list[list[tuple[int | None, str]]]:
        tasks = [asyncio.create_task(followed(feed)) for _ in range(500)]
        while feed.followers < 500:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(write, service)
        await asyncio.to_thread(inner.queue.end, FIX, "escalated", '{"outcome": "escalated"}')
        async with asyncio.timeout(PATIENCE_S):
            return await asyncio.gather(*tasks)

    reported = asyncio.run(all_of_them())
    assert all(one == reported[0] for one in reported)
    kinds = [kind for _, kind in reported[0]]
    assert kinds[0] == "FixStarted"
    assert kinds[-1] == "ended"
    assert feed.followers == 0
    assert feed._followed == {}
    assert reads[0] < 500  # one look after another, however many follow


def test_who_comes_later_is_told_all_and_who_was_here_the_rest(service: ServiceScenario) -> None:
    write(service)
    service.service.queue.end(FIX, "escalated", '{"outcome": "escalated"}')
    whole = asyncio.run(followed(service.service.feed))
    middle = whole[len(whole) // 2][0]
    assert middle is not None
    assert asyncio.run(followed(service.service.feed, middle)) == whole[len(whole) // 2 + 1 :]


def test_no_more_follow_than_may(service: ServiceScenario) -> None:
    inner = service.service
    feed = Feed(inner.queue, inner.record, max_followers=2)

    async def three() -> None:
        tasks = [asyncio.create_task(followed(feed)) for _ in range(2)]
        while feed.followers < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(BusyError, check=OfKind("streams_full"), match=r"\b2\b"):
            await feed.check(FIX)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await feed.check(FIX)  # they have gone

    asyncio.run(three())
    assert feed._followed == {}


def test_what_is_not_there_is_not_followed(service: ServiceScenario) -> None:
    with pytest.raises(NotFoundError):
        asyncio.run(service.service.feed.check("fix-0"))


def test_a_follower_does_not_keep_the_service_from_ending(tmp_path: Path) -> None:

    app = repository(tmp_path / "app", {"requirements.txt": "idna==3.6\n"})
    config = f'[limits]\nmin_free_bytes = {2**60}\n[repositories.app]\npath = "{app}"\n'
    with served(tmp_path / "state", config) as running:
        body = {"repository": "app", "advisory": json.loads(osv("idna", fixed="3.7"))}
        fix_id = running.post("/v1/fixes", body).json()["fix_id"]
        begun, reported = threading.Event(), []

        def follow() -> None:
            with (
                running.client() as client,
                client.stream("GET", f"/v1/fixes/{fix_id}/events") as answer,
            ):
                begun.set()
                reported.extend(events(answer.iter_lines()))

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        came(begun)
        assert running.end() == 0
        joined(thread)
        assert [event for event in reported if "comment" not in event] == []
