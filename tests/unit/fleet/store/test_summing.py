"""Why and what is stuck, in both databases."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fallback_tier.fleet.campaign_list import FixState, FleetFix
from fallback_tier.fleet.store.store import FleetStore, open_store
from fallback_tier.fleet.store.summing import LEAST, StuckKind, reasons, stuck, usual_seconds
from tests.unit.fleet.made import NAME, fix, planned

NOW = 1_800_000_000.0


def at(seconds_ago: float) -> str:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC).isoformat(timespec="milliseconds")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetStore]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with open_store(tmp_path, url) as opened:
        opened.clock = lambda: NOW
        yield opened


def ended(number: int, seconds: float, **facts: object) -> FleetFix:
    times = {"started_at": at(9_000 + seconds), "ended_at": at(9_000)}
    return fix(number, f"r{number}", **{"state": "fixed", **times, **facts})


def hold(store: FleetStore, *fix_ids: str) -> None:
    with store.tables.writing() as session:
        for fix_id in fix_ids:
            session.change("UPDATE fixes SET lease = ? WHERE fix_id = ?", (NOW + 60, fix_id))


def test_reasons_are_counted_the_most_frequent_first(store: FleetStore) -> None:
    facts = {"state": "refused", "why": "not_affected"}
    store.create(
        planned(
            [
                fix(0, "a", state="failed", why="worker"),
                fix(1, "b", **facts, sentence="It is not affected."),
                fix(2, "c", **facts, sentence="Not affected."),
                fix(3, "d", state="queued", why="audit_store"),
                fix(4, "e", state="fixed"),
            ]
        )
    )
    found = [(it.state, it.why, it.sentence, it.fixes) for it in reasons(store, NAME)]
    assert found == [
        (FixState.REFUSED, "not_affected", "It is not affected.", 2),
        (FixState.FAILED, "worker", None, 1),
    ]
    assert reasons(store, "other") == ()


def test_what_runs_longer_than_others_is_stuck(store: FleetStore) -> None:
    """Three times as long as usual, and ten minutes at least."""
    done = [ended(number, 300) for number in range(LEAST)]
    running = [
        fix(10 + number, f"q{number}", state="running", started_at=at(ago))
        for number, ago in enumerate([899, 901, 5_000, 5_000])
    ]
    store.create(planned([*done, *running]))
    hold(store, "fix-10", "fix-11", "fix-12")
    assert usual_seconds(store, NAME) == pytest.approx(300)
    found = [(it.kind, it.fix.fix_id) for it in stuck(store, NAME)]
    assert found == [
        (StuckKind.LEFT, "fix-13"),
        (StuckKind.LONG, "fix-12"),
        (StuckKind.LONG, "fix-11"),
    ]


def test_a_few_that_ended_tell_nothing(store: FleetStore) -> None:
    done = [ended(number, 1) for number in range(LEAST - 1)]
    store.create(planned([*done, fix(9, "q", state="running", started_at=at(90_000))]))
    hold(store, "fix-9")
    assert usual_seconds(store, NAME) is None
    assert stuck(store, NAME) == ()


def test_what_waits_with_a_reason_or_for_a_person_is_stuck(store: FleetStore) -> None:
    store.create(
        planned(
            [
                fix(0, "a"),
                fix(1, "b", why="fleet_store"),
                fix(2, "c", state="escalated", why="gates", ended_at=at(10)),
                fix(3, "d", state="escalated", why="gates", ended_at=at(20)),
            ]
        )
    )
    found = [(it.kind, it.fix.fix_id, it.since) for it in stuck(store, NAME)]
    assert found == [
        (StuckKind.AGAIN, "fix-1", None),
        (StuckKind.ASKS, "fix-3", at(20)),
        (StuckKind.ASKS, "fix-2", at(10)),
    ]


def test_what_is_proved_and_not_delivered_is_stuck(store: FleetStore) -> None:
    broken = {"why": "not_delivered", "sentence": "The branch can't be made.", "ended_at": at(60)}
    store.create(
        planned(
            [
                fix(0, "a", state="partly", **broken),
                fix(1, "b", state="fixed", ended_at=at(60)),
                fix(2, "c", state="queued", **broken),
            ]
        )
    )
    kinds = [(it.kind, it.fix.fix_id, it.since) for it in stuck(store, NAME)]
    assert (StuckKind.UNDELIVERED, "fix-0", at(60)) in kinds
    assert [it for it in kinds if it[0] is StuckKind.UNDELIVERED] == kinds[-1:]
