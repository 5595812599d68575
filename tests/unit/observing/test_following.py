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
from tests.unit.observing.observed import ObservedTrail


class Heard:
    def __init__(self, kinds: frozenset[str] | None = None) -> None:
        self.kinds = kinds
        self.seqs: list[int] = []

    def take(self, stored: StoredEvent) -> None:
        self.seqs.append(stored.seq)

    def begin_again(self) -> None:
        self.seqs.clear()


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[ObservedTrail]:
    built = ObservedTrail(tmp_path)
    yield built
    built.close()


def test_each_event_is_told_once_in_order(observed: ObservedTrail) -> None:
    heard = Heard()
    follower = Follower(observed.open, every=[heard], slice_events=3)
    assert follower.catch_up() == Position()
    observed.record(trails.verified_on_retry())
    follower.catch_up()
    follower.catch_up()
    observed.record(trails.recipe_verified(), fix="fix-2")
    last = follower.catch_up()
    assert heard.seqs == list(range(1, last.read + 1))
    assert last.behind == 0


def test_a_slice_at_a_time(observed: ObservedTrail) -> None:
    observed.record(trails.recipe_verified())
    heard = Heard()
    follower = Follower(observed.open, every=[heard], slice_events=3)
    first = follower.catch_up(patience_s=0)
    assert (first.read, first.behind) == (3, 5)
    assert heard.seqs == [1, 2, 3]
    follower.catch_up()
    assert heard.seqs == list(range(1, 9))


def test_who_asks_for_some_kinds_is_told_of_no_other(observed: ObservedTrail) -> None:
    observed.record(trails.recipe_verified())
    some, all_of_them = Heard(frozenset({"GateJudged"})), Heard()
    follower = Follower(observed.open, every=[some, all_of_them])
    follower.catch_up()
    assert (some.seqs, len(all_of_them.seqs)) == ([5, 6, 7], 8)


def test_live_takers_are_told_of_nothing_that_was_there_before(observed: ObservedTrail) -> None:
    observed.record(trails.recipe_verified())
    every, live = Heard(), Heard()
    follower = Follower(observed.open, every=[every], live=[live], slice_events=3)
    follower.catch_up()
    assert (len(every.seqs), live.seqs) == (8, [])
    observed.record(trails.recipe_verified(), fix="fix-2")
    follower.catch_up()
    assert (every.seqs, live.seqs) == (list(range(1, 17)), list(range(9, 17)))


def test_a_record_that_became_shorter_is_counted_once(observed: ObservedTrail) -> None:
    """A backup was put back: what it has was counted before, and is no news."""
    observed.record(trails.recipe_verified())
    observed.close()
    backup = observed.path.read_bytes()
    observed.record(trails.verified_on_retry(), fix="fix-2")
    observed.close()
    heard = Heard()
    follower = Follower(observed.open, live=[heard])
    follower.catch_up()
    assert observed.value("fallback_tier_attempts_total") == 3
    observed.path.write_bytes(backup)
    follower.catch_up()
    assert observed.value("fallback_tier_attempts_total") == 1
    observed.record(trails.verified_on_retry(), fix="fix-3")
    follower.catch_up()
    assert observed.value("fallback_tier_attempts_total") == 3
    assert heard.seqs[0] == len(trails.recipe_verified()) + 1


def test_what_another_process_records_counts(observed: ObservedTrail) -> None:
    observed.record(trails.recipe_verified())
    assert observed.value("fallback_tier_attempts_total") == 1
    program = f"""
from pathlib import Path
from fallback_audit.ports import Scope
from fallback_audit.stores.sqlite import SqliteAuditStore
from tests.unit.audit import trails
store = SqliteAuditStore(Path({str(observed.path)!r}))
for event in trails.verified_on_retry():
    store.append(Scope(fix_id="fix-2", gate_transition_id="gate-2"), event)
store.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    assert observed.value("fallback_tier_attempts_total") == 3


def test_a_record_that_can_not_be_read_is_told_and_read_again_later(
    observed: ObservedTrail,
) -> None:
    observed.record(trails.recipe_verified())
    assert observed.value("fallback_tier_trail_readable") == 1
    observed.record(trails.recipe_verified(), fix="fix-2")
    with closing(sqlite3.connect(observed.path, isolation_level=None)) as db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        (whole,) = db.execute("SELECT payload FROM audit_payload WHERE seq = 12").fetchone()
        db.execute("UPDATE audit_payload SET payload = x'00' WHERE seq = 12")
        assert observed.value("fallback_tier_trail_readable") == 0
        assert "12" in str(observed.follower.position.problem)
        db.execute("UPDATE audit_payload SET payload = ? WHERE seq = 12", (whole,))
    assert observed.value("fallback_tier_trail_readable") == 1
    assert observed.value("fallback_tier_fixes_ended_total", outcome="verified", reason="none") == 2
    assert observed.value("fallback_tier_attempts_total") == 2  # none twice


def test_a_record_that_was_begun_again_is_read_from_its_beginning(observed: ObservedTrail) -> None:
    observed.record(trails.verified_on_retry())
    assert observed.value("fallback_tier_fixes_started_total", ecosystem="npm") == 1
    observed.close()
    for path in observed.path.parent.glob("audit.db*"):
        path.unlink()
    observed._store = None
    observed.record(trails.recipe_verified())
    assert observed.value("fallback_tier_fixes_started_total", ecosystem="npm") == 1
    assert observed.value("fallback_tier_chain_events") == 8
