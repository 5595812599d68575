"""What reading promises: pages, threads, kinds, since, headers; one moment for whoever verifies."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from fallback_audit.canonical import GENESIS, leaf_digest
from fallback_audit.errors import AuditIntegrityError, AuditStoreError
from fallback_audit.events import SandboxDisabled
from fallback_audit.ports import Record, Scope
from tests.kinds import OfKind
from tests.unit.audit.stores.conformance.backends import Backend, Store
from tests.unit.audit.trails import SCOPE, recipe_verified, verified_on_retry
from tests.waiting import at_once

PAGE_ROWS = 500  # of both
EVENT = SandboxDisabled(reason="a person said so")
OTHER = Scope(fix_id="another", gate_transition_id="t")


def test_a_page_is_no_limit(store: Store) -> None:
    count = 2 * PAGE_ROWS + 1
    store.append_all([Record(SCOPE, EVENT)] * count)
    numbers = list(range(1, count + 1))
    assert [event.seq for event in store.events()] == numbers
    assert [event.seq for event in store.events(SCOPE.fix_id)] == numbers
    assert [event.seq for event in store.events(kinds=frozenset({EVENT.kind}))] == numbers
    assert [row.seq for row in store.headers()] == numbers
    with store.snapshot() as snapshot:
        assert [row.seq for row in snapshot.rows()] == numbers


def test_kinds_and_after_and_fix_together(store: Store) -> None:
    for event in verified_on_retry():
        for scope in (SCOPE, OTHER):
            store.append(scope, event)
    everything = list(store.events())
    kinds = frozenset({"ModelCalled", "AttemptStarted"})
    asked = store.events(OTHER.fix_id, kinds=kinds, after=5)
    wanted = [e for e in everything if e.scope == OTHER and e.kind in kinds and e.seq > 5]
    assert list(asked) == wanted
    assert len(wanted) > 2
    assert list(store.events(kinds=frozenset())) == []


def test_an_iterator_may_move_between_threads(store: Store) -> None:
    store.append_all([Record(SCOPE, EVENT)] * (PAGE_ROWS + 2))
    events, headers = store.events(), store.headers()
    seen = [next(events).seq]
    next(headers)
    at_once([lambda: seen.extend(event.seq for event in events)])
    assert seen == list(range(1, PAGE_ROWS + 3))
    assert sum(1 for _ in headers) == PAGE_ROWS + 1


def test_an_iterator_goes_on_with_what_is_appended_meanwhile(store: Store) -> None:
    store.append_all([Record(SCOPE, EVENT)] * 2)
    events = store.events()
    next(events)
    store.append(SCOPE, EVENT)
    assert [event.seq for event in events] == [2, 3]


# --- Everything since -----------------------------------------------------------------------------


class Ticking:
    """A clock of one minute an event, which may be set."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


def test_since_a_time(backend: Backend) -> None:
    clock = Ticking()
    with closing(backend.store(clock=clock)) as store:
        assert list(store.events(since="2026-01-02T00:00:00Z")) == []
        store.append_all([Record(SCOPE, EVENT)] * 1000)
        last = clock.now
        for ago, count in ((0, 1), (1, 2), (399, 400), (5000, 1000), (-1, 0)):
            since = (last - timedelta(minutes=ago)).isoformat()
            assert sum(1 for _ in store.events(since=since)) == count
        assert [e.seq for e in store.events(since=last.isoformat(), after=1000)] == []
        clock.now -= timedelta(hours=30)  # set back: what follows was recorded later all the same
        store.append_all([Record(SCOPE, EVENT)] * 3)
        assert [e.seq for e in store.events(since=last.isoformat())] == [1000, 1001, 1002, 1003]
        with pytest.raises(AuditStoreError, check=OfKind("not_a_time"), match="'yesterday'"):
            list(store.events(since="yesterday"))


# --- Headers, for checkpoints ---------------------------------------------------------------------


def test_the_tip_and_the_headers(backend: Backend, store: Store) -> None:
    assert store.tip() == (0, GENESIS)
    assert list(store.headers()) == []
    events = [store.append(SCOPE, event) for event in recipe_verified()]
    rows = list(store.headers())
    assert [(row.seq, row.leaf) for row in rows] == [(e.seq, e.leaf) for e in events]
    assert all(leaf_digest(row.header) == row.leaf for row in rows)
    assert store.tip() == (rows[-1].seq, rows[-1].leaf)
    assert list(store.headers(after=2, upto=4)) == rows[2:4]
    with closing(backend.reader()) as reader:
        assert (reader.tip(), list(reader.headers())) == (store.tip(), rows)


def test_a_missing_header_is_not_made_up_for(backend: Backend, store: Store) -> None:
    store.append_all([Record(SCOPE, EVENT)] * 3)
    with backend.attacker() as connection:
        connection.execute("DELETE FROM audit_header WHERE seq = 2")
    assert [row.seq for row in store.headers()] == [1, 3]


# --- One moment -----------------------------------------------------------------------------------


def test_a_snapshot_is_one_moment_while_writers_go_on(backend: Backend, store: Store) -> None:
    store.append_all([Record(SCOPE, EVENT)] * 3)
    with closing(backend.reader()) as reader, reader.snapshot() as snapshot:
        rows = snapshot.rows()
        seen = [next(rows).seq]
        store.append_all([Record(OTHER, EVENT)] * 3)
        seen += [row.seq for row in rows]
        assert seen == [1, 2, 3]
        assert [row.seq for row in snapshot.rows_by_trail()] == [1, 2, 3]
        assert snapshot.schema_problems() == []
    with store.snapshot() as snapshot:
        assert len(list(snapshot.rows())) == 6


def test_a_snapshot_from_a_number_and_of_some_fixes(store: Store) -> None:
    third = Scope(fix_id="another", gate_transition_id="a")
    store.append_all([Record(scope, EVENT) for scope in (SCOPE, OTHER, third) * 2])
    with store.snapshot() as snapshot:
        assert [row.seq for row in snapshot.rows(after=4)] == [5, 6]
        assert [row.seq for row in snapshot.rows_by_trail()] == [3, 6, 2, 5, 1, 4]
        assert [row.seq for row in snapshot.rows_by_trail(frozenset({"another"}))] == [3, 6, 2, 5]
        assert list(snapshot.rows_by_trail(frozenset())) == []


def test_a_snapshot_shows_every_kind_of_gap(backend: Backend, store: Store) -> None:
    store.append_all([Record(SCOPE, EVENT)] * 4)
    with backend.attacker() as connection:
        connection.execute("DELETE FROM audit_payload WHERE seq = 2")
        connection.execute("DELETE FROM audit_header WHERE seq = 3")
    with store.snapshot() as snapshot:
        rows = list(snapshot.rows())
        assert [(r.seq, r.header is None, r.payload is None) for r in rows] == [
            (1, False, False),
            (2, False, True),
            (4, False, False),
            (3, True, False),
        ]
        assert [row.seq for row in snapshot.rows_by_trail()] == [1, 4]


def test_readers_refuse_altered_bytes(backend: Backend, store: Store) -> None:
    store.append_all([Record(SCOPE, EVENT)] * 4)
    with backend.attacker() as connection:
        change = f"UPDATE audit_payload SET payload = {backend.mark} WHERE seq = 3"
        connection.execute(change, (b"{}",))
    with closing(backend.reader()) as reader:
        events = reader.events()
        assert [next(events).seq, next(events).seq] == [1, 2]
        with pytest.raises(AuditIntegrityError, check=OfKind("event_altered"), match="Event 3 "):
            next(events)


def test_a_reader_writes_nothing(backend: Backend, store: Store) -> None:
    store.append(SCOPE, EVENT)
    with closing(backend.reader()) as reader:
        assert not hasattr(reader, "append")
        assert [event.seq for event in reader.events()] == [1]
