"""The record is read from where one was: each event once, whoever wrote it, whatever fails meanwhile."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fallback_audit.ports import StoredEvent
from fallback_tier.observing.following import Follower, Position
from tests.unit.audit import trails
from tests.unit.observing.house import House


class Heard:
    def __init__(self, kinds: frozenset[str] | None = None) -> None:
        self.kinds = kinds
        self.seqs: list[int] = []

    def take(self, stored: StoredEvent) -> None:
        self.seqs.append(stored.seq)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    built = House(tmp_path)
    yield built
    built.close()


def test_each_event_is_told_once_in_order(house: House) -> None:
    heard = Heard()
    follower = Follower(house.open, every=[heard], slice_events=3)
    assert follower.catch_up() == Position()
    house.record(trails.verified_on_retry())
    follower.catch_up()
    follower.catch_up()
    house.record(trails.recipe_verified(), fix="fix-2")
    last = follower.catch_up()
    assert heard.seqs == list(range(1, last.read + 1))
    assert last.behind == 0


def test_a_slice_at_a_time(house: House) -> None:
    house.record(trails.recipe_verified())
    heard = Heard()
    follower = Follower(house.open, every=[heard], slice_events=3)
    first = follower.catch_up(patience_s=0)
    assert (first.read, first.behind) == (3, 5)
    assert heard.seqs == [1, 2, 3]
    follower.catch_up()
    assert heard.seqs == list(range(1, 9))


def test_who_asks_for_some_kinds_is_told_of_no_other(house: House) -> None:
    house.record(trails.recipe_verified())
    some, all_of_them = Heard(frozenset({"GateJudged"})), Heard()
    follower = Follower(house.open, every=[some, all_of_them])
    follower.catch_up()
    assert (some.seqs, len(all_of_them.seqs)) == ([5, 6, 7], 8)


def test_live_takers_are_told_of_nothing_that_was_there_before(house: House) -> None:
    house.record(trails.recipe_verified())
    every, live = Heard(), Heard()
    follower = Follower(house.open, every=[every], live=[live], slice_events=3)
    follower.catch_up()
    assert (len(every.seqs), live.seqs) == (8, [])
    house.record(trails.recipe_verified(), fix="fix-2")
    follower.catch_up()
    assert (every.seqs, live.seqs) == (list(range(1, 17)), list(range(9, 17)))


def test_what_another_process_records_counts(house: House) -> None:
    house.record(trails.recipe_verified())
    assert house.value("fallback_tier_attempts_total") == 1
    program = f"""
from pathlib import Path
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit import trails
store = SqliteAuditStore(Path({str(house.path)!r}))
for event in trails.verified_on_retry():
    store.append(Scope(fix_id="fix-2", gate_transition_id="gate-2"), event)
store.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert house.value("fallback_tier_attempts_total") == 3


def test_a_record_that_can_not_be_read_is_told_and_read_again_later(house: House) -> None:
    house.record(trails.recipe_verified())
    assert house.value("fallback_tier_trail_readable") == 1
    house.record(trails.recipe_verified(), fix="fix-2")
    with closing(sqlite3.connect(house.path, isolation_level=None)) as db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        (whole,) = db.execute("SELECT payload FROM audit_payload WHERE seq = 12").fetchone()
        db.execute("UPDATE audit_payload SET payload = x'00' WHERE seq = 12")
        assert house.value("fallback_tier_trail_readable") == 0
        assert "12" in str(house.follower.position.problem)
        db.execute("UPDATE audit_payload SET payload = ? WHERE seq = 12", (whole,))
    assert house.value("fallback_tier_trail_readable") == 1
    assert house.value("fallback_tier_fixes_ended_total", outcome="verified", reason="none") == 2
    assert house.value("fallback_tier_attempts_total") == 2  # none twice


def test_a_record_that_was_begun_again_is_read_from_its_beginning(house: House) -> None:
    house.record(trails.verified_on_retry())
    assert house.value("fallback_tier_fixes_started_total", ecosystem="npm") == 1
    house.close()
    for path in house.path.parent.glob("audit.db*"):
        path.unlink()
    house._store = None
    house.record(trails.recipe_verified())
    assert house.value("fallback_tier_fixes_started_total", ecosystem="npm") == 2
    assert house.value("fallback_tier_chain_events") == 8
