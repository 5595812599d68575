"""Reading only what is asked for: kinds, and everything since a time, with clocks that step back."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fallback_audit.errors import AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import AuditStore, Scope
from fallback_audit.stores.appending import CLOCK_STEP, PROBE_ROWS, Ask, last_before, timestamp
from fallback_audit.stores.sqlite import SqliteAuditStore, open_readonly
from tests.fakes.audit import MemoryAudit
from tests.kinds import OfKind
from tests.unit.audit import model_trails as m
from tests.unit.audit.tamper import behind_the_triggers
from tests.unit.audit.trails import SCOPE

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EVENT = SandboxDisabled(reason="a person said so")


def headers(dates: Sequence[datetime]) -> sqlite3.Connection:
    """The part of a store that bisection reads."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE audit_header (seq INTEGER PRIMARY KEY, recorded_at TEXT)")
    connection.executemany(
        "INSERT INTO audit_header VALUES (?, ?)",
        [(seq, timestamp(moment)) for seq, moment in enumerate(dates, start=1)],
    )
    return connection


def asking(connection: sqlite3.Connection) -> Ask:
    return lambda sql, *values: connection.execute(sql, values).fetchone()[0]


def first_since(dates: Sequence[datetime], since: datetime) -> int:
    with closing(headers(dates)) as connection:
        return last_before(asking(connection), timestamp(since)) + 1


def both(tmp_path: Path, clock: Callable[[], datetime]) -> Iterator[AuditStore]:
    yield SqliteAuditStore(tmp_path / "audit.db", clock=clock)
    yield MemoryAudit(clock=lambda: timestamp(clock()))


def test_kinds_and_since_and_fix_together(tmp_path: Path) -> None:
    moment = NOON

    def tick() -> datetime:
        nonlocal moment
        moment += timedelta(minutes=1)
        return moment

    other = Scope(fix_id="another", gate_transition_id="t")
    for store in both(tmp_path, tick):
        with closing(store):
            moment = NOON
            stored = [
                store.append(scope, event) for event in m.supported() for scope in (SCOPE, other)
            ]
            middle = stored[len(stored) // 2].recorded_at
            calls = frozenset({"ModelCalled", "ModelAnswered"})
            assert list(store.events(kinds=calls)) == [e for e in stored if e.kind in calls]
            assert list(store.events(kinds=frozenset())) == []
            assert list(store.events(kinds=frozenset({"'; --"}))) == []
            assert list(store.events(since=middle)) == [
                e for e in stored if e.recorded_at >= middle
            ]
            assert list(store.events("another", kinds=calls, since=middle)) == [
                e
                for e in stored
                if e.recorded_at >= middle and e.kind in calls and e.scope == other
            ]
            assert list(store.events("another", kinds=calls, after=5)) == [
                e for e in stored if e.seq > 5 and e.kind in calls and e.scope == other
            ]
            assert list(store.events(since="2027-01-01")) == []
            assert list(store.events(since="2026-01-02")) == stored


def test_what_was_recorded_after_it_counts_though_its_clock_was_set_back(tmp_path: Path) -> None:
    steps = [NOON, NOON + timedelta(hours=12), NOON + timedelta(hours=11), NOON + timedelta(days=1)]
    for store in both(tmp_path, iter(steps * 2).__next__):
        with closing(store):
            for _ in steps:
                store.append(SCOPE, EVENT)
            assert [e.seq for e in store.events(since="2026-01-03T00:00:00Z")] == [2, 3, 4]
            assert [e.seq for e in store.events(since="2026-01-03", after=2)] == [3, 4]
            assert [e.seq for e in store.events(since="2026-01-03", after=1)] == [2, 3, 4]
            assert [e.seq for e in store.events(after=3)] == [4]
            assert list(store.events(after=4)) == []


@pytest.mark.parametrize(
    "since", ["2026-01-02T12:00:00Z", "2026-01-02T13:00:00+01:00", "2026-01-02T12:00:00.000000Z"]
)
def test_the_same_moment_however_it_is_written(tmp_path: Path, since: str) -> None:
    with closing(SqliteAuditStore(tmp_path / "audit.db", clock=lambda: NOON)) as store:
        store.append(SCOPE, EVENT)
        assert [event.seq for event in store.events(since=since)] == [1]


@pytest.mark.parametrize("since", ["", "yesterday", "2026-13-01"])
def test_what_is_no_time_is_an_error(tmp_path: Path, since: str) -> None:
    with closing(SqliteAuditStore(tmp_path / "audit.db")) as store:
        with pytest.raises(AuditStoreError, check=OfKind("not_a_time")) as caught:
            list(store.events(since=since))
        assert "RFC 3339" in caught.value.next_step


@pytest.mark.parametrize(
    ("since", "count"),
    [
        ("0001-01-01T00:00:00Z", 1),
        ("0001-01-01T00:00:00+05:00", 1),
        ("9999-12-31T23:59:59-05:00", 0),
    ],
)
def test_the_first_and_the_last_of_times(tmp_path: Path, since: str, count: int) -> None:
    """A day before them, or in another zone, there is no date."""
    with closing(SqliteAuditStore(tmp_path / "audit.db", clock=lambda: NOON)) as store:
        store.append(SCOPE, EVENT)
        assert len(list(store.events(since=since))) == count


def test_payloads_that_were_not_asked_for_are_not_read(tmp_path: Path) -> None:
    """They are gone here, and nobody notices: a reader of one kind reads that kind only."""
    path = tmp_path / "audit.db"
    moments = iter([NOON] * 3 + [NOON + CLOCK_STEP * 3] * 3)
    with closing(SqliteAuditStore(path, clock=moments.__next__)) as store:
        for event in [*m.supported()[:3]] * 2:
            store.append(SCOPE, event)
    with behind_the_triggers(path) as connection:
        connection.execute("DELETE FROM audit_payload WHERE seq IN (1, 2, 3, 4, 6)")
    with closing(open_readonly(path)) as reader:
        kinds = frozenset({"AttemptStarted"})
        assert [e.seq for e in reader.events(kinds=kinds, since="2026-01-04")] == [5]


def test_a_header_that_says_no_time_is_not_taken_for_old(tmp_path: Path) -> None:
    with closing(headers([NOON] * 300)) as connection:
        connection.execute("UPDATE audit_header SET recorded_at = NULL WHERE seq > 7")
        assert last_before(asking(connection), timestamp(NOON + CLOCK_STEP * 9)) == 7


@given(
    st.lists(st.integers(-40_000, 80_000), min_size=1, max_size=600),
    st.integers(-100_000, 20_000_000),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_event_is_missed_while_clocks_step_back_less_than_a_day(
    seconds: list[int], since_seconds: int
) -> None:
    """Property: it starts exactly at the first event dated ``since`` or later."""
    dates, latest = [], NOON
    for step in seconds:
        moment = max(latest + timedelta(seconds=step), latest - CLOCK_STEP)
        dates.append(moment)
        latest = max(latest, moment)
    since = NOON + timedelta(seconds=since_seconds)
    expected = next((seq for seq, at in enumerate(dates, start=1) if at >= since), len(dates) + 1)
    assert first_since(dates, since) == expected


def test_a_few_events_with_a_wrong_clock_hide_nothing() -> None:
    """Where bisection looks first stand events of 1970, all but one of what it looks at."""
    count = 10_000
    dates = [NOON + timedelta(seconds=n) for n in range(count)]
    dates[count // 2 : count // 2 + PROBE_ROWS - 1] = [datetime(1970, 1, 1, tzinfo=UTC)] * (
        PROBE_ROWS - 1
    )
    assert first_since(dates, NOON) == 1


def test_a_clock_that_was_years_ahead_once_is_forgotten_again() -> None:
    """Else every day after it would begin there, and a cap a day would be one for ever."""
    dates = [NOON + timedelta(minutes=n) for n in range(10_000)]
    dates[100] = NOON.replace(year=2099)
    since = dates[9_000]
    assert first_since(dates, since) == 9_001


def test_a_large_store_is_not_read_through() -> None:
    """Rows that SQLite steps over, of 200,000: a bound that does not grow with the store."""
    count = 200_000
    read = 0
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE dated (seq INTEGER PRIMARY KEY, recorded_at TEXT)")
        connection.execute(
            "INSERT INTO dated WITH RECURSIVE n(seq) AS (VALUES (1) UNION ALL SELECT seq + 1 FROM n"
            " WHERE seq < ?) SELECT seq, strftime('%Y-%m-%dT%H:%M:%f000Z', 1767225600 + seq * 60,"
            " 'unixepoch') FROM n",
            (count,),
        )

        def looked_at(recorded_at: str) -> str:
            nonlocal read
            read += 1
            return recorded_at

        connection.create_function("looked_at", 1, looked_at)
        connection.execute(
            "CREATE VIEW audit_header AS SELECT seq, looked_at(recorded_at) AS recorded_at FROM dated"
        )
        found = last_before(asking(connection), "2026-04-01T00:00:00Z")
    assert found == 90 * 24 * 60 - 1
    assert read < 20_000
